"""Networks of random weights and small sizes, and how their exporters write them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

KEPT: list[Any] = []
"""Objects that must live as long as the process."""

RECIPES: dict[str, Callable[[Path], None]] = {}
SEED = 0
EXPORTERS = {"dynamo": True, "script": False}


def recipe(name: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Registers a function that writes a model to a path."""

    def register(function: Callable[[Path], None]) -> Callable[[Path], None]:
        RECIPES[name] = function
        return function

    return register


# --- PyTorch ---


def export(module: Any, args: tuple[Any, ...], path: Path, dynamo: bool, **options: Any) -> None:
    """A module as a model file by one of PyTorch's exporters."""
    import torch

    module.eval()
    torch.backends.mha.set_fastpath_enabled(False)  # it is one operator that only PyTorch knows
    names = [f"x{i}" for i in range(len(args))]
    with torch.no_grad():
        torch.onnx.export(
            module,
            args,
            str(path),
            dynamo=dynamo,
            input_names=names,
            opset_version=18,
            external_data=False,
            **options,
        )


def torch_recipes() -> None:
    """Plain PyTorch: recurrent networks and others."""
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self, cell: Any) -> None:
            super().__init__()
            self.embed = nn.Embedding(50, 16)
            self.cell = cell(16, 12, num_layers=2, bidirectional=True, batch_first=True)
            self.out = nn.Linear(24, 5)

        def forward(self, tokens: Any) -> Any:
            return self.out(self.cell(self.embed(tokens))[0]).log_softmax(-1)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(3, 8, 3, 2, 1)
            self.mid = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
            self.up = nn.ConvTranspose2d(8, 8, 2, 2)
            self.out = nn.Conv2d(11, 2, 1)

        def forward(self, x: Any) -> Any:
            y = self.up(self.mid(self.down(x)))
            return self.out(torch.cat([x, y], 1))

    modules: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
        "lstm_tagger": (lambda: Tagger(nn.LSTM), (torch.randint(0, 50, (2, 7)),)),
        "gru_tagger": (lambda: Tagger(nn.GRU), (torch.randint(0, 50, (2, 7)),)),
        "unet": (UNet, (torch.randn(1, 3, 32, 32),)),
        "transformer_encoder": (
            lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2),
            (torch.randn(2, 6, 16),),
        ),
    }
    for name, (make, args) in modules.items():
        for kind, dynamo in EXPORTERS.items():
            recipe(f"torch/{name}/{kind}")(
                lambda path, make=make, args=args, dynamo=dynamo: export(make(), args, path, dynamo)  # type: ignore[misc]
            )


VISION = {
    "mobilenet_v3_small": 64, "efficientnet_b0": 64, "convnext_tiny": 64, "regnet_y_400mf": 64,
    "shufflenet_v2_x0_5": 64, "densenet121": 64, "googlenet": 64, "inception_v3": 96, "mnasnet0_5": 64,
    "swin_t": 64, "swin_v2_t": 64, "maxvit_t": 224, "squeezenet1_1": 64,
}  # fmt: skip
SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50")
DETECTION = (
    "ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", "fasterrcnn_mobilenet_v3_large_320_fpn",
    "maskrcnn_resnet50_fpn", "fcos_resnet50_fpn",
)  # fmt: skip
VIDEO = ("r3d_18", "mc3_18", "r2plus1d_18", "s3d")


def stand_in_operators() -> None:
    """The operators of torchvision's library where that does not load (its CUDA build without CUDA).

    Exporting needs their shapes alone: what models should give is asked of onnxruntime.
    """
    import torch

    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
    else:
        return
    lib = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        lib.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    lib.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width,"
        " int sampling_ratio, bool aligned) -> Tensor"
    )

    def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
        return scores.argsort(descending=True)

    def roi_align(x: Any, rois: Any, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Any:
        return x.new_zeros(rois.shape[0], x.shape[1], height, width)

    lib.impl("nms", nms, "CPU")
    lib.impl("roi_align", roi_align, "CPU")
    KEPT.append(lib)
    import torchvision
    from torchvision.ops import boxes
    from torchvision.ops import roi_align as module

    def there() -> bool:
        return True

    # PyTorch's older exporter reads the sources of what a model calls, which lambdas have not.
    for module_ in (torchvision.extension, boxes, sys.modules[module.__module__]):
        module_._has_ops = there
        module_._assert_has_ops = there


def vision_recipes() -> None:
    """torchvision: classification, segmentation, detection, video."""
    import torch

    stand_in_operators()
    import torchvision.models as zoo

    class First(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            found = self.inner(x)
            return found["out"] if isinstance(found, dict) else found

    class Boxes(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            found = self.inner([x])[0]
            return tuple(found[key] for key in ("boxes", "scores", "labels"))

    def add(name: str, make: Callable[[], Any], shape: tuple[int, ...]) -> None:
        for kind, dynamo in EXPORTERS.items():
            recipe(f"vision/{name}/{kind}")(
                lambda path, dynamo=dynamo: export(make(), (torch.rand(shape),), path, dynamo)  # type: ignore[misc]
            )

    for name, size in VISION.items():
        more = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        add(name, lambda name=name, more=more: zoo.get_model(name, weights=None, **more), (1, 3, size, size))  # type: ignore[misc]
    for name in SEGMENTATION:
        add(
            name,
            lambda name=name: First(zoo.get_model(name, weights=None, weights_backbone=None)),  # type: ignore[misc]
            (1, 3, 64, 64),
        )
    for name in DETECTION:
        more = {} if name.startswith("ssd") else {"min_size": 96, "max_size": 128}
        add(
            name,
            lambda name=name, more=more: Boxes(  # type: ignore[misc]
                zoo.get_model(name, weights=None, weights_backbone=None, **more)
            ),
            (3, 96, 128),
        )
    for name in VIDEO:
        add(
            name,
            lambda name=name: zoo.get_model(name, weights=None),
            (1, 3, 8 if name != "s3d" else 16, 64, 64),
        )  # type: ignore[misc]


TIMM = {
    "crossvit_tiny_240": 240, "dla34": 64, "edgenext_xx_small": 64, "efficientformer_l1": 224,
    "efficientvit_b0": 64, "ese_vovnet19b_dw": 64, "eva02_tiny_patch14_224": 224, "fastvit_t8": 64,
    "focalnet_tiny_srf": 64, "ghostnetv2_100": 96, "hardcorenas_a": 64, "hrnet_w18_small": 64,
    "inception_next_atto": 64, "levit_128s": 224, "mambaout_femto": 64, "mixer_s32_224": 224,
    "mobilenetv4_conv_small": 96, "mobilevit_xxs": 64, "mobilevitv2_050": 64, "nf_regnet_b0": 64,
    "poolformer_s12": 64, "pvt_v2_b0": 64, "regnety_002": 64, "repvgg_a0": 64, "res2net50_26w_4s": 64,
    "resnest14d": 64, "skresnet18": 64, "starnet_s1": 64, "tiny_vit_5m_224": 224, "vit_tiny_patch16_224": 224,
    "xcit_nano_12_p16_224": 224, "convnextv2_atto": 64,
}  # fmt: skip


def timm_recipes() -> None:
    """timm: image models, each at a size that it takes."""
    import torch

    stand_in_operators()
    import timm

    def made(name: str) -> Any:
        model = timm.create_model(name, pretrained=False, num_classes=10)
        for param in model.parameters():
            if param.dim() > 1 and not param.detach().any():
                torch.nn.init.normal_(param, std=0.05)  # else nothing that is fed would matter
        return model

    for name, size in TIMM.items():
        for kind, dynamo in EXPORTERS.items():
            recipe(f"timm/{name}/{kind}")(
                lambda path, name=name, size=size, dynamo=dynamo: export(  # type: ignore[misc]
                    made(name), (torch.rand(1, 3, size, size),), path, dynamo
                )
            )


SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "vocab_size": 99, "max_position_embeddings": 64,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2}
SEEING = {name: SMALL[name] for name in list(SMALL)[:4]} | {"image_size": 32, "patch_size": 8}
BOTH = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
}  # fmt: skip
STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 16, 32]}
TEXT: dict[str, dict[str, Any]] = {
    "Bert": SMALL,
    "Roberta": {**SMALL, "pad_token_id": 1},
    "Electra": {**SMALL, "embedding_size": 32},
    "Albert": {**SMALL, "embedding_size": 16},
    "DistilBert": {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "DebertaV2": SMALL,
    "MobileBert": {**SMALL, "embedding_size": 32, "intra_bottleneck_size": 32},
    "MPNet": SMALL,
}
DECODERS: dict[str, dict[str, Any]] = {
    "Llama": GROUPED,
    "Qwen2": GROUPED,
    "Mistral": {**GROUPED, "sliding_window": None},
    "Phi": SMALL,
    "GPTNeoX": SMALL,
    "Gemma": {**GROUPED, "head_dim": 8},
    "GPT2": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "OPT": {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "Bloom": {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Falcon": {**SMALL, "new_decoder_architecture": True},
}
TOKENS = ("input_ids", "attention_mask")
PAIR = ("input_ids", "decoder_input_ids")
PIXELS = ("pixel_values",)


def text_recipes() -> None:
    """transformers: encoders, decoders, both, speech, pictures."""
    import torch

    stand_in_operators()
    import transformers as tf

    class Plain(torch.nn.Module):
        def __init__(self, inner: Any, keys: Sequence[str], fixed: dict[str, Any]) -> None:
            super().__init__()
            self.inner, self.keys, self.fixed = inner, keys, fixed

        def forward(self, *args: Any) -> Any:
            found = self.inner(**dict(zip(self.keys, args)), **self.fixed, return_dict=True)
            for key in ("logits", "last_hidden_state", "logits_per_image"):
                if getattr(found, key, None) is not None:
                    return getattr(found, key)
            return found[0]

    def add(
        name: str,
        values: dict[str, Any],
        keys: Sequence[str],
        args: tuple[Any, ...],
        cls: str = "",
        **fixed: Any,
    ) -> None:
        if not hasattr(tf, f"{name}Config"):
            return

        def make() -> Any:
            config = getattr(tf, f"{name}Config")(**values)
            config._attn_implementation = "eager"
            return Plain(getattr(tf, cls or f"{name}Model")(config), keys, fixed)

        for kind, dynamo in EXPORTERS.items():
            recipe(f"transformers/{name.lower()}/{kind}")(
                lambda path, dynamo=dynamo: export(make(), args, path, dynamo)  # type: ignore[misc]
            )

    tokens, ones = torch.randint(3, 99, (2, 9)), torch.ones(2, 9, dtype=torch.int64)
    for name, values in TEXT.items():
        add(name, values, TOKENS, (tokens, ones))
    for name, values in DECODERS.items():
        add(name, values, TOKENS, (tokens, ones), use_cache=False)
    picture, larger = torch.rand(1, 3, 32, 32), torch.rand(1, 3, 64, 64)
    t5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    add("T5", t5, PAIR, (tokens, tokens[:, :5]), use_cache=False)
    bart = {**BOTH, "vocab_size": 99, "max_position_embeddings": 64}
    add("Bart", bart, PAIR, (tokens, tokens[:, :5]), use_cache=False)
    sizes = {"num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 32}
    marks = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    speech = ("input_features", "decoder_input_ids")
    whisper = {**BOTH, "vocab_size": 99, **sizes, **marks}
    add("Whisper", whisper, speech, (torch.randn(1, 16, 60), tokens[:1, :5]), use_cache=False)
    waves = {"conv_dim": (16,) * 3, "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3)}
    waves |= {"num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    waves |= {name: SMALL[name] for name in list(SMALL)[:4]}
    add("Wav2Vec2", waves, ("input_values",), (torch.randn(1, 1600),))
    add("ViT", SEEING, PIXELS, (picture,))
    swin = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4]}
    add("Swin", {**swin, "window_size": 4}, PIXELS, (picture,))
    segformer = {**STAGES, "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16}
    add("Segformer", segformer, PIXELS, (larger,), "SegformerForSemanticSegmentation")
    add("ConvNext", STAGES, PIXELS, (larger,))
    resnet = tf.ResNetConfig(embedding_size=8, **STAGES, out_features=["stage4"])
    detr = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    add("Detr", {**BOTH, **detr, "backbone_config": resnet, "num_queries": 5}, PIXELS, (larger,))
    clip = {"text_config": {**SMALL, "eos_token_id": 98}, "vision_config": SEEING, "projection_dim": 16}
    add("CLIP", clip, ("input_ids", "pixel_values"), (tokens, picture))


# --- Trees and linear models ---


def classic_recipes() -> None:
    """scikit-learn, LightGBM, XGBoost."""
    from skl2onnx import to_onnx
    from sklearn import (
        ensemble,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
    )

    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((200, 6)).astype(np.float32)
    labels = (x[:, 0] * x[:, 1] > 0).astype(np.int64) + (x[:, 2] > 1)
    numbers = (x @ rng.standard_normal(6) + x[:, 0] ** 2).astype(np.float32)
    models: dict[str, tuple[Any, Any]] = {
        "logistic": (linear_model.LogisticRegression(), labels),
        "ridge": (linear_model.Ridge(), numbers),
        "forest": (ensemble.RandomForestClassifier(10, random_state=0), labels),
        "extra_trees": (ensemble.ExtraTreesRegressor(10, random_state=0), numbers),
        "boosting": (ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0), labels),
        "histogram": (ensemble.HistGradientBoostingRegressor(max_iter=10), numbers),
        "svc": (svm.SVC(probability=True, random_state=0), labels),
        "svr": (svm.SVR(), numbers),
        "mlp": (neural_network.MLPClassifier((16, 8), random_state=0, max_iter=50), labels),
        "bayes": (naive_bayes.GaussianNB(), labels),
        "neighbors": (neighbors.KNeighborsClassifier(3), labels),
        "pipeline": (
            pipeline.make_pipeline(
                preprocessing.StandardScaler(), preprocessing.PolynomialFeatures(2), linear_model.Ridge()
            ),
            numbers,
        ),
    }

    def write(path: Path, name: str) -> None:
        model, target = models[name]
        options = {"zipmap": False} if hasattr(model, "predict_proba") else None
        made = to_onnx(model.fit(x, target), x[:4], options=options, target_opset=18)
        path.write_bytes(made.SerializeToString())

    for name in models:
        recipe(f"sklearn/{name}")(lambda path, name=name: write(path, name))  # type: ignore[misc]

    def boosted(path: Path, kind: str, classes: bool) -> None:
        from onnxmltools import convert_lightgbm, convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType

        types = [("x0", FloatTensorType([None, 6]))]
        if kind == "lightgbm":
            import lightgbm as lgb

            model = (lgb.LGBMClassifier if classes else lgb.LGBMRegressor)(n_estimators=10, verbose=-1)
            model.fit(x, labels if classes else numbers)
            made = convert_lightgbm(model, initial_types=types, zipmap=False, target_opset=15)
        else:
            import xgboost as xgb

            model = (xgb.XGBClassifier if classes else xgb.XGBRegressor)(n_estimators=10)
            model.fit(x, labels if classes else numbers)
            made = convert_xgboost(model, initial_types=types, target_opset=15)
        path.write_bytes(made.SerializeToString())

    for kind in ("lightgbm", "xgboost"):
        for classes in (True, False):
            name = f"{kind}/{'classifier' if classes else 'regressor'}"
            recipe(name)(lambda path, kind=kind, classes=classes: boosted(path, kind, classes))  # type: ignore[misc]
