"""Reduced networks of transformers, by both of PyTorch's exporters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.corpus.small.images import both

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


def _plain(
    name: str, values: dict[str, Any], keys: Sequence[str], args: tuple[Any, ...], cls: str = "", **fixed: Any
) -> tuple[Any, tuple[Any, ...]]:
    """A model of transformers that returns only its first result, with a given name."""
    import torch
    import transformers as tf

    class Plain(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *args: Any) -> Any:
            found = self.inner(**dict(zip(keys, args)), **fixed, return_dict=True)
            for key in ("logits", "last_hidden_state", "logits_per_image"):
                if getattr(found, key, None) is not None:
                    return getattr(found, key)
            return found[0]

    config = getattr(tf, f"{name}Config")(**values)
    config._attn_implementation = "eager"
    return Plain(getattr(tf, cls or f"{name}Model")(config)), args


def _ids() -> tuple[Any, Any]:
    import torch

    return torch.randint(3, 99, (2, 9)), torch.ones(2, 9, dtype=torch.int64)


def _texts(name: str, values: dict[str, Any], **fixed: Any) -> tuple[Any, tuple[Any, ...]]:
    return _plain(name, values, TOKENS, _ids(), **fixed)


def _pair(name: str, values: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    ids, _ = _ids()
    return _plain(name, values, PAIR, (ids, ids[:, :5]), use_cache=False)


def _seen(name: str, values: dict[str, Any], size: int, cls: str = "") -> tuple[Any, tuple[Any, ...]]:
    import torch

    return _plain(name, values, PIXELS, (torch.rand(1, 3, size, size),), cls)


def _t5() -> tuple[Any, tuple[Any, ...]]:
    values = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return _pair("T5", values)


def _whisper() -> tuple[Any, tuple[Any, ...]]:
    import torch

    places = {"num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 32}
    marks = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    args = (torch.randn(1, 16, 60), _ids()[0][:1, :5])
    keys = ("input_features", "decoder_input_ids")
    return _plain("Whisper", {**BOTH, "vocab_size": 99, **places, **marks}, keys, args, use_cache=False)


def _wav2vec2() -> tuple[Any, tuple[Any, ...]]:
    import torch

    waves = {"conv_dim": (16,) * 3, "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3)}
    waves |= {"num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    waves |= {name: SMALL[name] for name in list(SMALL)[:4]}
    return _plain("Wav2Vec2", waves, ("input_values",), (torch.randn(1, 1600),))


def _detr() -> tuple[Any, tuple[Any, ...]]:
    import transformers as tf

    resnet = tf.ResNetConfig(embedding_size=8, **STAGES, out_features=["stage4"])
    detr = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    return _seen("Detr", {**BOTH, **detr, "backbone_config": resnet, "num_queries": 5}, 64)


def _clip() -> tuple[Any, tuple[Any, ...]]:
    import torch

    clip = {"text_config": {**SMALL, "eos_token_id": 98}, "vision_config": SEEING, "projection_dim": 16}
    return _plain("CLIP", clip, ("input_ids", "pixel_values"), (_ids()[0], torch.rand(1, 3, 32, 32)))


BART = {**BOTH, "vocab_size": 99, "max_position_embeddings": 64}
SWIN = {
    "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4],
    "window_size": 4,
}  # fmt: skip
SEGFORMER = {**STAGES, "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16}
MAKERS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    **{name: lambda n=name, v=values: _texts(n, v) for name, values in TEXT.items()},  # type: ignore[misc]
    **{name: lambda n=name, v=values: _texts(n, v, use_cache=False) for name, values in DECODERS.items()},  # type: ignore[misc]
    "T5": _t5,
    "Bart": lambda: _pair("Bart", BART),
    "Whisper": _whisper,
    "Wav2Vec2": _wav2vec2,
    "ViT": lambda: _seen("ViT", SEEING, 32),
    "Swin": lambda: _seen("Swin", SWIN, 32),
    "Segformer": lambda: _seen("Segformer", SEGFORMER, 64, "SegformerForSemanticSegmentation"),
    "ConvNext": lambda: _seen("ConvNext", STAGES, 64),
    "Detr": _detr,
    "CLIP": _clip,
}
for _name, _make in MAKERS.items():
    both(f"transformers/{_name.lower()}", _make)
