"""Language models with and without a cache of keys and values; encoders with decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.corpus.exporting import call, eager, tokens
from benchmarks.corpus.recipe import Network, published


def stepping(model: Any, layers: int, keys: Sequence[str], *, cross: bool = False) -> Any:
    """A module for one step of a decoder: tokens and a cache of keys and values; logits and the new cache.

    `cross`: a cache of the encoder's keys and values is another input, which does not change.
    """
    import torch
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, *args: Any) -> Any:
            given, past = args[: len(keys)], args[len(keys) :]
            own, other = DynamicCache(), DynamicCache()
            for layer in range(layers):
                own.update(past[2 * layer], past[2 * layer + 1], layer)
                if cross:
                    at = 2 * (layers + layer)
                    other.update(past[at], past[at + 1], layer)
            cache = EncoderDecoderCache(own, other) if cross else own
            found = self.inner(
                **dict(zip(keys, given)), past_key_values=cache, use_cache=True, return_dict=True
            )
            kept = found.past_key_values.self_attention_cache if cross else found.past_key_values
            flat = [part for layer in kept.layers for part in (layer.keys, layer.values)]
            return (found.logits if hasattr(found, "logits") else found.last_hidden_state, *flat)

    eager(model)
    return Step()


def pasts(layers: int, *shape: int, prefix: str = "past") -> tuple[list[Any], list[str]]:
    """Keys and values of each layer, and their names."""
    import torch

    names = [f"{prefix}_{layer}_{kind}" for layer in range(layers) for kind in "kv"]
    return [torch.randn(shape) for _ in names], names


def prompt(batch: int, length: int, name: str, vocabulary: int, model: str = "", **values: Any) -> Network:
    """A text through a decoder, without a cache."""
    import transformers as tf

    config = getattr(tf, f"{name}Config")(use_cache=False, **values)
    inner = getattr(tf, model or f"{name}ForCausalLM")(config)
    args = (tokens(vocabulary, batch, length),)
    return Network(call(inner, ["input_ids"], ["logits"]), args, ("input_ids",), ({0: "batch", 1: "length"},))


def step(batch: int, past: int, model: Any, layers: int, heads: int, size: int, vocabulary: int) -> Network:
    """One token after `past` others."""
    import torch

    cache, names = pasts(layers, batch, heads, past, size)
    keys = ("input_ids", "attention_mask", "position_ids")
    mask = torch.ones(batch, past + 1, dtype=torch.int64)
    args = (tokens(vocabulary, batch, 1), mask, torch.full((batch, 1), past), *cache)
    axes = ({0: "batch"}, {0: "batch", 1: "total"}, {0: "batch"}, *({0: "batch", 2: "past"},) * len(cache))
    return Network(stepping(model, layers, keys), args, (*keys, *names), axes)


TEXT = {"batch": 2, "length": 100}
STEP = {"batch": 2, "past": 127, "total": 128}
LLAMA = {
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 2, "num_attention_heads": 32,
    "num_key_value_heads": 4, "vocab_size": 32000,
}  # fmt: skip
QWEN = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 4, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 32000,
}  # fmt: skip


@published("gpt2/gpt2-prompt-256", "transformers", batches=(1,), dims=TEXT)
def _gpt2(batch: int, length: int = 256) -> Network:
    return prompt(batch, length, "GPT2", 50257, "GPT2LMHeadModel")


@published("gpt2/gpt2-step-127", "transformers", dims=STEP)
def _gpt2_step(batch: int, past: int = 127, total: int = 128) -> Network:
    import transformers as tf

    return step(batch, past, tf.GPT2LMHeadModel(tf.GPT2Config()), 12, 12, 64, 50257)


@published("llama/tinyllama-prompt-128", "transformers", batches=(1,), dims=TEXT)
def _llama(batch: int, length: int = 128) -> Network:
    return prompt(batch, length, "Llama", 32000, **LLAMA)


@published("llama/tinyllama-step-127", "transformers", dims=STEP)
def _llama_step(batch: int, past: int = 127, total: int = 128) -> Network:
    import transformers as tf

    return step(batch, past, tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA)), 2, 4, 64, 32000)


@published("qwen/qwen2-0.5b-step-127", "transformers", dims=STEP)
def _qwen2(batch: int, past: int = 127, total: int = 128) -> Network:
    import transformers as tf

    return step(batch, past, tf.Qwen2ForCausalLM(tf.Qwen2Config(**QWEN)), 4, 2, 64, 32000)


@published("qwen/qwen3-0.6b-prompt-128", "transformers", batches=(1,))
def _qwen3(batch: int, length: int = 128) -> Network:
    values = {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000,
    }  # fmt: skip
    return prompt(batch, length, "Qwen3", 32000, **values)


@published("gemma/gemma3-270m-prompt-128", "transformers", batches=(1,))
def _gemma(batch: int, length: int = 128) -> Network:
    values = {
        "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 32000, "sliding_window": 64,
    }  # fmt: skip
    return prompt(batch, length, "Gemma3Text", 32000, "Gemma3ForCausalLM", **values)


@published("phi/phi-1-prompt-128", "transformers", batches=(1,))
def _phi(batch: int, length: int = 128) -> Network:
    return prompt(batch, length, "Phi", 51200, num_hidden_layers=1)


@published("neox/pythia-160m-prompt-128", "transformers", batches=(1,))
def _neox(batch: int, length: int = 128) -> Network:
    values = {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 6, "num_attention_heads": 12,
        "vocab_size": 32000,
    }  # fmt: skip
    return prompt(batch, length, "GPTNeoX", 32000, **values)


@published("opt/opt-125m-prompt-128", "transformers", batches=(1,))
def _opt(batch: int, length: int = 128) -> Network:
    return prompt(batch, length, "OPT", 50272)


@published("bloom/bloom-560m-prompt-128", "transformers", batches=(1,))
def _bloom(batch: int, length: int = 128) -> Network:
    """With positions as biases of the attention (ALiBi)."""
    return prompt(batch, length, "Bloom", 32000, hidden_size=1024, n_layer=4, n_head=16, vocab_size=32000)


@published("t5/t5-small-128", "transformers", dims=TEXT)
def _t5(batch: int, length: int = 128) -> Network:
    import torch
    import transformers as tf

    keys = ("input_ids", "attention_mask", "decoder_input_ids")
    mask = torch.ones(batch, length, dtype=torch.int64)
    args = (tokens(32000, batch, length), mask, tokens(32000, batch, 16))
    model = tf.T5ForConditionalGeneration(tf.T5Config(use_cache=False))
    model.config.use_cache = False
    both = {0: "batch", 1: "length"}
    return Network(call(model, keys, ["logits"]), args, keys, (both, both, {0: "batch"}))


@published("bart/bart-base-128", "transformers", batches=(1,))
def _bart(batch: int, length: int = 128) -> Network:
    import transformers as tf

    config = tf.BartConfig(
        d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, use_cache=False,
        decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=32000,
    )  # fmt: skip
    keys = ("input_ids", "decoder_input_ids")
    args = (tokens(32000, batch, length), tokens(32000, batch, 16))
    return Network(
        call(tf.BartForConditionalGeneration(config), keys, ["logits"], use_cache=False), args, keys
    )


@published("marian/marian-step-31", "transformers", batches=(1,))
def _marian(batch: int) -> Network:
    """One token of a translation after 31, over an encoded text of 64 tokens."""
    import torch
    import transformers as tf

    config = tf.MarianConfig(
        vocab_size=32000, d_model=512, encoder_layers=1, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, pad_token_id=0,
        decoder_start_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = tf.MarianMTModel(config)
    own, names = pasts(6, batch, 8, 31, 64)
    other, more = pasts(6, batch, 8, 64, 64, prefix="cross")
    keys = ("input_ids", "encoder_hidden_states")
    args = (tokens(32000, batch, 1), torch.randn(batch, 64, 512), *own, *other)
    module = stepping(model.model.decoder, 6, keys, cross=True)
    return Network(module, args, (*keys, *names, *more))
