"""Models at the sizes that they are published in: random weights, wanted outputs of PyTorch.

Some differ from what is published, for memory and time: the UNet of Stable Diffusion has half of its
channels, SAM's image encoder four of its twelve blocks (two with windows, two over all), Mamba and Qwen2 have
four of their 24 layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exported.recipes import SEED, recipe, stand_in_operators


@dataclass(frozen=True)
class Network:
    """A module with its inputs; by default the newer of PyTorch's exporters writes it."""

    module: Any
    args: tuple[Any, ...]
    names: tuple[str, ...] = ("x",)
    dynamo: bool = True


MAKERS: dict[str, Callable[[], Network]] = {}


def network(name: str) -> Callable[[Callable[[], Network]], Callable[[], Network]]:
    """Registers a function that makes a network."""

    def register(make: Callable[[], Network]) -> Callable[[], Network]:
        MAKERS[name] = make
        return make

    return register


def sized_recipes() -> None:
    """torch, timm, torchvision, transformers: published sizes."""
    import timm  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401

    for name, make in MAKERS.items():
        recipe(f"sized/{name}")(lambda path, make=make: write(path, make()))  # type: ignore[misc]


def write(path: Path, made: Network) -> None:
    """The model file, and beside it the inputs and what PyTorch makes of them."""
    import torch

    torch.backends.mha.set_fastpath_enabled(False)  # it is one operator that only PyTorch knows
    module = lively(made.module, made.args)
    with torch.no_grad():
        found = module(*made.args)
        outputs = found if isinstance(found, tuple) else (found,)
        names = [f"out_{i}" for i in range(len(outputs))]
        torch.onnx.export(
            module,
            made.args,
            str(path),
            dynamo=made.dynamo,
            input_names=list(made.names),
            output_names=names,
            opset_version=18,
            external_data=False,
        )
    arrays = {f"in_{n}": a.numpy() for n, a in zip(made.names, made.args)}
    np.savez(path.with_suffix(".npz"), **arrays, **{n: a.numpy() for n, a in zip(names, outputs)})  # type: ignore[arg-type]


def lively(module: Any, args: tuple[Any, ...]) -> Any:
    """Values where parameters begin as (nearly) nothing, and in batch norms the statistics of what comes
    there, about: otherwise layers would do nothing, or values vanish, and what is fed would hardly matter.
    """
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    rng = torch.Generator().manual_seed(SEED)

    def measure(part: Any, given: tuple[Any, ...]) -> None:
        values = given[0].transpose(0, 1).flatten(1)
        noise = torch.rand(len(values), generator=rng) + 0.5
        part.running_mean.copy_(values.mean(1))
        part.running_var.copy_(values.var(1, correction=0) * noise if values[0].numel() > 1 else noise)

    with torch.no_grad():
        for param in module.parameters():
            if param.abs().max() < 1e-4:
                drawn = torch.randn(param.shape, generator=rng)
                param.copy_(drawn / max(1, param[0].numel()) ** 0.5 if param.dim() > 1 else drawn * 0.05)
        module.eval()
        norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
        hooks = [part.register_forward_pre_hook(measure) for part in norms]
        if norms:
            module(*args)
        for hook in hooks:
            hook.remove()
    return module


def call(inner: Any, keys: Sequence[str], outputs: Sequence[str], **fixed: Any) -> Any:
    """A model of transformers as one of positional inputs and a tuple of outputs."""
    import torch

    class Call(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *args: Any) -> Any:
            found = self.inner(**dict(zip(keys, args)), **fixed, return_dict=True)
            return tuple(getattr(found, name) for name in outputs)

    for part in inner.modules():
        if hasattr(getattr(part, "config", None), "_attn_implementation"):
            part.config._attn_implementation = "eager"
    return Call()


def picture(*shape: int) -> Any:
    """An image of values between -1 and 1, smooth with noise as pictures are."""
    import torch

    coarse = torch.randn(1, shape[0], 8, 8)
    smooth = torch.nn.functional.interpolate(coarse, shape[1:], mode="bicubic")
    return (smooth + 0.1 * torch.randn(smooth.shape)).clamp(-2, 2) / 2


def tokens(vocabulary: int, *shape: int) -> Any:
    import torch

    return torch.randint(3, vocabulary, shape)


# --- Pictures ---


def _yolo(size: int) -> Network:
    from benchmarks.exported.networks import YoloV8

    return Network(YoloV8(size), (picture(3, size, size),))


network("yolov8n-640")(lambda: _yolo(640))
network("yolov8n-416")(lambda: _yolo(416))


@network("unet-512")
def _unet() -> Network:
    from benchmarks.exported.networks import UNet

    return Network(UNet(), (picture(3, 512, 512),))


@network("diffusion-64")
def _diffusion() -> Network:
    import torch

    from benchmarks.exported.networks import Diffusion

    args = (torch.randn(1, 4, 64, 64), torch.tensor([501]), torch.randn(1, 77, 768))
    return Network(Diffusion(160), args, ("latents", "step", "text"))


def _seen(config: str, model: str, *shape: int, output: str = "logits", **values: Any) -> Network:
    import transformers as tf

    made = getattr(tf, model)(getattr(tf, config)(**values))
    return Network(call(made, ["pixel_values"], [output]), (picture(*shape),), ("pixel_values",))


@network("segformer-b0-512")
def _segformer() -> Network:
    return _seen("SegformerConfig", "SegformerForSemanticSegmentation", 3, 512, 512, num_labels=150)


@network("detr-resnet50-800x1066")
def _detr() -> Network:
    import transformers as tf

    backbone = tf.ResNetConfig(out_features=["stage4"])
    config = tf.DetrConfig(backbone_config=backbone, use_timm_backbone=False, backbone=None)
    inner = call(tf.DetrForObjectDetection(config), ["pixel_values", "pixel_mask"], ["logits", "pred_boxes"])
    import torch

    args = (picture(3, 800, 1066), torch.ones(1, 800, 1066, dtype=torch.int64))
    return Network(inner, args, ("pixel_values", "pixel_mask"))


@network("sam-encoder-1024")
def _sam_encoder() -> Network:
    return _seen(
        "SamVisionConfig", "SamVisionModel", 3, 1024, 1024, output="last_hidden_state",
        num_hidden_layers=4, global_attn_indexes=[1, 3], initializer_range=0.02,
    )  # fmt: skip


@network("sam-decoder-1024")
def _sam_decoder() -> Network:
    import torch
    import transformers as tf

    vision = tf.SamVisionConfig(num_hidden_layers=1, global_attn_indexes=[0])
    model = tf.SamModel(tf.SamConfig(vision_config=vision.to_dict()))
    del model.vision_encoder

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, image: Any, points: Any, labels: Any) -> Any:
            found = self.inner(image_embeddings=image, input_points=points, input_labels=labels)
            return found.pred_masks, found.iou_scores

    labels = torch.tensor([[[1, 1, 0]]])
    args = (torch.randn(1, 256, 64, 64), torch.rand(1, 1, 3, 2) * 1024, labels)
    return Network(Decoder(), args, ("image", "points", "labels"))


@network("depth-anything-518")
def _depth() -> Network:
    values = {"output": "predicted_depth", "depth_estimation_type": "metric", "max_depth": 20}
    return _seen("DepthAnythingConfig", "DepthAnythingForDepthEstimation", 3, 518, 518, **values)


@network("yolos-512x864")
def _yolos() -> Network:
    values = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "num_labels": 91}
    return _seen("YolosConfig", "YolosForObjectDetection", 3, 512, 864, **values)


TIMM = {
    "convnext_tiny": 224, "swin_tiny_patch4_window7_224": 224, "mobilevit_s": 256, "efficientnet_b0": 224,
    "inception_v3": 299, "vit_base_patch16_224": 224, "deit_small_distilled_patch16_224": 224,
    "resnet50": 224, "mobilenetv3_large_100": 224, "maxvit_tiny_tf_224": 224, "coatnet_0_rw_224": 224,
    "regnety_032": 288, "swinv2_tiny_window8_256": 256, "densenet121": 224, "efficientnetv2_rw_s": 384,
    "hrnet_w18": 224, "xcit_tiny_12_p16_224": 224, "nfnet_l0": 288,
}  # fmt: skip


def _timm(name: str, size: int) -> Network:
    stand_in_operators()
    import timm

    return Network(timm.create_model(name, pretrained=False), (picture(3, size, size),))


for _name, _size in TIMM.items():
    network(f"{_name}-{_size}" if str(_size) not in _name else _name)(
        lambda name=_name, size=_size: _timm(name, size)  # type: ignore[misc]
    )


@network("deeplabv3-resnet50-520")
def _deeplab() -> Network:
    stand_in_operators()
    import torch
    import torchvision.models as zoo

    inner = zoo.get_model("deeplabv3_resnet50", weights=None, weights_backbone=None)

    class Out(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x)["out"]

    return Network(Out(), (picture(3, 520, 520),))


@network("r2plus1d-18-16x112")
def _video() -> Network:
    stand_in_operators()
    import torch
    import torchvision.models as zoo

    return Network(zoo.get_model("r2plus1d_18", weights=None), (torch.randn(1, 3, 16, 112, 112),))


# --- Texts and sounds ---


def _transformer(model: str, config: Any, keys: Sequence[str], outputs: Sequence[str], *args: Any) -> Network:
    import transformers as tf

    return Network(call(getattr(tf, model)(config), keys, outputs), args, tuple(keys))


@network("clip-vit-b32")
def _clip() -> Network:
    import torch
    import transformers as tf

    keys = ["input_ids", "pixel_values", "attention_mask"]
    text = tokens(49405, 2, 77)
    text[:, -1] = 49407  # the end, whose place is looked for
    args = (text, picture(3, 224, 224), torch.ones(2, 77, dtype=torch.int64))
    outputs = ["logits_per_image", "text_embeds", "image_embeds"]
    return _transformer("CLIPModel", tf.CLIPConfig(), keys, outputs, *args)


@network("bert-base-128")
def _bert() -> Network:
    import torch
    import transformers as tf

    keys, mask = ["input_ids", "attention_mask", "token_type_ids"], torch.ones(1, 128, dtype=torch.int64)
    mask[:, 100:] = 0
    args = (tokens(30522, 1, 128), mask, torch.zeros(1, 128, dtype=torch.int64))
    return _transformer("BertModel", tf.BertConfig(), keys, ["last_hidden_state", "pooler_output"], *args)


@network("t5-small-128")
def _t5() -> Network:
    import torch
    import transformers as tf

    keys = ["input_ids", "attention_mask", "decoder_input_ids"]
    args = (tokens(32000, 1, 128), torch.ones(1, 128, dtype=torch.int64), tokens(32000, 1, 16))
    made = _transformer("T5ForConditionalGeneration", tf.T5Config(), keys, ["logits"], *args)
    made.module.inner.config.use_cache = False
    return made


@network("mamba-130m-24")
def _mamba() -> Network:
    import transformers as tf

    config = tf.MambaConfig(num_hidden_layers=4, use_cache=False)
    return _transformer("MambaForCausalLM", config, ["input_ids"], ["logits"], tokens(50280, 1, 24))


@network("wav2vec2-base-16000")
def _wav2vec2() -> Network:
    import torch
    import transformers as tf

    config, sound = tf.Wav2Vec2Config(), torch.randn(1, 16000)
    return _transformer("Wav2Vec2ForCTC", config, ["input_values"], ["logits"], sound)


@network("whisper-tiny-encoder-3000")
def _whisper_encoder() -> Network:
    import torch
    import transformers as tf

    model = tf.WhisperModel(tf.WhisperConfig()).encoder
    inner = call(model, ["input_features"], ["last_hidden_state"])
    return Network(inner, (torch.randn(1, 80, 3000),), ("input_features",))


def _stepping(model: Any, layers: int, keys: Sequence[str], both: bool) -> Any:
    """A step of a decoder: tokens and a cache of keys and values; logits and the new cache.

    `both`: a cache of the encoder's keys and values comes too, which stays.
    """
    import torch
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, *args: Any) -> Any:
            given, past = args[: len(keys)], args[len(keys) :]
            own, cross = DynamicCache(), DynamicCache()
            for layer in range(layers):
                own.update(past[2 * layer], past[2 * layer + 1], layer)
                if both:
                    at = 2 * (layers + layer)
                    cross.update(past[at], past[at + 1], layer)
            cache = EncoderDecoderCache(own, cross) if both else own
            found = self.inner(
                **dict(zip(keys, given)), past_key_values=cache, use_cache=True, return_dict=True
            )
            kept = found.past_key_values.self_attention_cache if both else found.past_key_values
            flat = [part for layer in kept.layers for part in (layer.keys, layer.values)]
            return (found.logits if hasattr(found, "logits") else found.last_hidden_state, *flat)

    for part in model.modules():
        if hasattr(getattr(part, "config", None), "_attn_implementation"):
            part.config._attn_implementation = "eager"
    return Step()


def _pasts(layers: int, *shape: int, prefix: str = "past") -> tuple[list[Any], list[str]]:
    import torch

    names = [f"{prefix}_{layer}_{kind}" for layer in range(layers) for kind in "kv"]
    return [torch.randn(shape) for _ in names], names


@network("whisper-tiny-decoder-step")
def _whisper_decoder() -> Network:
    import torch
    import transformers as tf

    config = tf.WhisperConfig()
    model, layers = tf.WhisperForConditionalGeneration(config), config.decoder_layers
    own, names = _pasts(layers, 1, 6, 63, 64)
    cross, more = _pasts(layers, 1, 6, 1500, 64, prefix="cross")
    keys = ["decoder_input_ids", "encoder_outputs", "decoder_position_ids"]

    class Decode(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = model.model.decoder, model.proj_out

        def forward(self, input_ids: Any, encoder_hidden_states: Any, position_ids: Any, **other: Any) -> Any:
            found = self.inner(
                input_ids=input_ids, encoder_hidden_states=encoder_hidden_states,
                position_ids=position_ids, **other,
            )  # fmt: skip
            found.last_hidden_state = self.head(found.last_hidden_state)
            return found

    keys = ["input_ids", "encoder_hidden_states", "position_ids"]
    args = (tokens(51865, 1, 1), torch.randn(1, 1500, 384), torch.tensor([[63]]), *own, *cross)
    return Network(_stepping(Decode(), layers, keys, both=True), args, (*keys, *names, *more))


@network("gpt2-step-127")
def _gpt2() -> Network:
    import torch
    import transformers as tf

    pasts, names = _pasts(12, 1, 12, 127, 64)
    keys = ["input_ids", "attention_mask", "position_ids"]
    args = (tokens(50257, 1, 1), torch.ones(1, 128, dtype=torch.int64), torch.tensor([[127]]), *pasts)
    return Network(_stepping(tf.GPT2LMHeadModel(tf.GPT2Config()), 12, keys, False), args, (*keys, *names))


@network("gpt2-prompt-256")
def _gpt2_prompt() -> Network:
    import transformers as tf

    config = tf.GPT2Config(use_cache=False)
    return _transformer("GPT2LMHeadModel", config, ["input_ids"], ["logits"], tokens(50257, 1, 256))


@network("qwen2-0.5b-step-127")
def _qwen() -> Network:
    import torch
    import transformers as tf

    config = tf.Qwen2Config(
        hidden_size=896, intermediate_size=4864, num_hidden_layers=4, num_attention_heads=14,
        num_key_value_heads=2, vocab_size=32000,
    )  # fmt: skip
    pasts, names = _pasts(4, 1, 2, 127, 64)
    keys = ["input_ids", "attention_mask", "position_ids"]
    args = (tokens(32000, 1, 1), torch.ones(1, 128, dtype=torch.int64), torch.tensor([[127]]), *pasts)
    return Network(_stepping(tf.Qwen2ForCausalLM(config), 4, keys, False), args, (*keys, *names))


__all__ = ["MAKERS", "Network", "network", "sized_recipes"]
