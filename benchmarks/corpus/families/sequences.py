"""Recurrent and state-space networks, and forecasts of series."""

from __future__ import annotations

from typing import Any

from benchmarks.corpus.exporting import call, tokens
from benchmarks.corpus.recipe import Network, published

TEXT = {"batch": 2, "length": 50}


def _here(make: str, *args: Any, names: tuple[str, ...] = ("x",), **options: Any) -> Network:
    from benchmarks.corpus.networks import sequences

    return Network(getattr(sequences, make)(), args, names, **options)


@published("lstm/lstm-language-model-35", "here", dims={"batch": 2})
def _language_model(batch: int) -> Network:
    return _here("LanguageModel", tokens(10000, batch, 35))


@published("lstm/bilstm-tagger-50", "here", dims={"batch": 2})
def _tagger(batch: int) -> Network:
    return _here("Tagger", tokens(20000, batch, 50))


@published("gru/gru-forecast-96", "here", dims={"batch": 2})
def _gru(batch: int) -> Network:
    import torch

    return _here("GruForecast", torch.randn(batch, 96, 16))


@published("gru/gru-step", "here")
def _gru_step(batch: int) -> Network:
    """One step of a recurrent denoiser of speech, with its state."""
    import torch

    args = (torch.randn(batch, 1, 42), torch.randn(2, batch, 256))
    return _here("GruStep", *args, names=("x", "state"), axes=({0: "batch"}, {1: "batch"}))


@published("tcn/tcn-400", "here", dims={"batch": 2}, dtypes=("int8",))
def _tcn(batch: int) -> Network:
    import torch

    return _here("Tcn", torch.randn(batch, 1, 400))


@published("nbeats/nbeats-48", "here", dims={"batch": 2})
def _nbeats(batch: int) -> Network:
    import torch

    return _here("NBeats", torch.randn(batch, 48))


@published("patchtst/patchtst-512", "transformers")
def _patchtst(batch: int) -> Network:
    import torch
    import transformers as tf

    config = tf.PatchTSTConfig(
        num_input_channels=7, context_length=512, prediction_length=96, patch_length=16, patch_stride=16,
        scaling="std",
    )  # fmt: skip
    inner = call(tf.PatchTSTForPrediction(config), ["past_values"], ["prediction_outputs"])
    return Network(inner, (torch.randn(batch, 512, 7),), ("past_values",))


@published("mamba/mamba-130m-24", "transformers", batches=(1,))
def _mamba(batch: int) -> Network:
    import transformers as tf

    config = tf.MambaConfig(num_hidden_layers=4, use_cache=False)
    inner = call(tf.MambaForCausalLM(config), ["input_ids"], ["logits"])
    return Network(inner, (tokens(50280, batch, 24),), ("input_ids",))


@published("mamba/mamba-step", "here", dims={"batch": 2})
def _mamba_step(batch: int) -> Network:
    """One token, with the states of four layers of 768 channels."""
    import torch

    states = torch.randn(4, batch, 1536, 16), torch.randn(4, batch, 1536, 3)
    axes = ({0: "batch"}, {1: "batch"}, {1: "batch"})
    return _here("MambaStep", tokens(32000, batch), *states, names=("tokens", "states", "windows"), axes=axes)


@published("s4/s4d-1024", "here", dims={"batch": 2})
def _s4(batch: int) -> Network:
    """Diagonal state spaces as long convolutions."""
    import torch

    return _here("DiagonalStates", torch.randn(batch, 1024, 4))


@published("rwkv/rwkv-step", "here", dims={"batch": 2})
def _rwkv(batch: int) -> Network:
    import torch

    args = (tokens(32000, batch), torch.randn(6, 5, batch, 512) * 0.1)
    axes = ({0: "batch"}, {2: "batch"})
    return _here("RwkvStep", *args, names=("tokens", "states"), axes=axes)


@published("ecg/ecg-resnet-4096", "here", dims={"batch": 2}, dtypes=("int8",))
def _ecg(batch: int) -> Network:
    """Twelve leads of an electrocardiogram through a residual network of one axis."""
    import torch

    return _here("EcgNet", torch.randn(batch, 12, 4096))
