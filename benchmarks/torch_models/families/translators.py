"""Encoders with decoders, from texts to texts."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.torch_models.making import transformer
from benchmarks.torch_models.recipe import Inputs, Sizes, add

T5 = {"vocab_size": 99, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
BART = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "pad_token_id": 1, "decoder_start_token_id": 2,
}  # fmt: skip


def pair(source: int = 8, target: int = 6) -> Inputs:
    """A text with its mask, and the beginning of another text."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        batch, source, target = sizes["batch"], sizes["source"], sizes["target"]
        seen = torch.ones(batch, source, dtype=torch.int64)
        seen[-1, -2:] = 0
        return {
            "input_ids": torch.randint(3, 99, (batch, source), generator=random),
            "attention_mask": seen,
            "decoder_input_ids": torch.randint(3, 99, (batch, target), generator=random),
        }

    given = {0: "batch", 1: "source"}
    axes = {"input_ids": given, "attention_mask": given, "decoder_input_ids": {0: "batch", 1: "target"}}
    sizes = {"batch": 2, "source": source, "target": target}
    return Inputs(draw, axes, sizes, ({"batch": 3, "source": 11, "target": 9},))


def translator(
    name: str, prefix: str, base: dict[str, Any], *, dynamic: bool = True, trains: str = "", **given: Any
) -> None:
    """Register a network of transformers that has an encoder and a decoder."""
    model = f"{prefix}ForConditionalGeneration"
    make = partial(transformer, model, f"{prefix}Config", **{**base, **given, "use_cache": False})
    add(name, make, pair(), dynamic=dynamic, trains=trains)


translator("t5", "T5", T5, trains="classes")
translator("t5-gated", "T5", T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
translator("mt5", "MT5", T5)
translator("umt5", "UMT5", T5)
translator("longt5", "LongT5", T5, local_radius=3, encoder_attention_type="local", dynamic=False)
translator("switch", "SwitchTransformers", T5, num_experts=4, num_sparse_encoder_layers=1,
           num_sparse_decoder_layers=1)  # fmt: skip
translator("bart", "Bart", BART, trains="classes")
translator("mbart", "MBart", BART)
translator("pegasus", "Pegasus", BART)
translator("pegasusx", "PegasusX", BART, block_size=4, num_global_tokens=2, dynamic=False)
translator("blenderbot", "Blenderbot", BART)
translator("blenderbotsmall", "BlenderbotSmall", BART)
translator("m2m100", "M2M100", BART)
translator("plbart", "PLBart", BART)
translator("bigbirdpegasus", "BigBirdPegasus", BART, attention_type="original_full")
translator("led", "LED", {**BART, "max_encoder_position_embeddings": 64,
           "max_decoder_position_embeddings": 64}, attention_window=4, dynamic=False)  # fmt: skip
translator("prophetnet", "ProphetNet", {
    "vocab_size": 99, "hidden_size": 32, "num_encoder_layers": 2, "num_decoder_layers": 2,
    "num_encoder_attention_heads": 2, "num_decoder_attention_heads": 2, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_position_embeddings": 64, "ngram": 2, "num_buckets": 8,
    "relative_max_distance": 16,
})  # fmt: skip

add(
    "marian",
    partial(transformer, "MarianMTModel", "MarianConfig", **BART, use_cache=False),
    pair(),
)
add("fsmt", partial(transformer, "FSMTForConditionalGeneration", "FSMTConfig", langs=["en", "de"],
    src_vocab_size=99, tgt_vocab_size=99, use_cache=False, **{k: v for k, v in BART.items()
    if k != "vocab_size"}), pair())  # fmt: skip
