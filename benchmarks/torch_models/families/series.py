"""Networks of transformers for series of numbers and for decisions."""

from __future__ import annotations

from typing import Any

from benchmarks.torch_models.making import encoder
from benchmarks.torch_models.recipe import Inputs, Sizes, values

PATCHES = {
    "context_length": 32, "patch_length": 8, "patch_stride": 8, "num_input_channels": 3, "d_model": 16,
    "prediction_length": 8,
}  # fmt: skip


def decisions() -> Inputs:
    """States, actions and returns of an episode."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        batch, steps = sizes["batch"], sizes["steps"]
        return {
            "states": torch.randn(batch, steps, 7, generator=random),
            "actions": torch.randn(batch, steps, 3, generator=random),
            "rewards": torch.randn(batch, steps, 1, generator=random),
            "returns_to_go": torch.randn(batch, steps, 1, generator=random),
            "timesteps": torch.arange(steps).repeat(batch, 1),
            "attention_mask": torch.ones(batch, steps, dtype=torch.int64),
        }

    both = {0: "batch", 1: "steps"}
    names = ("states", "actions", "rewards", "returns_to_go", "timesteps", "attention_mask")
    return Inputs(draw, dict.fromkeys(names, both), {"batch": 2, "steps": 5}, ({"batch": 3, "steps": 8},))


def forecasts(past: int = 16, future: int = 6, lags: int = 3) -> Inputs:
    """The past of a series with features of its times, and the features of its future."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        batch, whole = sizes["batch"], past + lags
        return {
            "past_values": torch.randn(batch, whole, generator=random),
            "past_time_features": torch.randn(batch, whole, 2, generator=random),
            "past_observed_mask": torch.ones(batch, whole),
            "future_values": torch.randn(batch, future, generator=random),
            "future_time_features": torch.randn(batch, future, 2, generator=random),
        }

    names = (
        "past_values", "past_time_features", "past_observed_mask", "future_values", "future_time_features",
    )  # fmt: skip
    return Inputs(draw, {name: {0: "batch"} for name in names}, {"batch": 2}, ({"batch": 5},))


FORECAST = {
    "prediction_length": 6, "context_length": 16, "lags_sequence": [1, 2, 3], "num_time_features": 2,
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "use_cache": False,
}  # fmt: skip

encoder("patchtst", "PatchTSTForPrediction", "PatchTST", values({"past_values": (32, 3)}), base=PATCHES,
        num_hidden_layers=2, num_attention_heads=2, ffn_dim=32, loss="mse")  # fmt: skip
encoder("patchtsmixer", "PatchTSMixerForPrediction", "PatchTSMixer", values({"past_values": (32, 3)}),
        base=PATCHES, num_layers=2, loss="mse")  # fmt: skip
encoder("timeseries", "TimeSeriesTransformerModel", "TimeSeriesTransformer", forecasts(), base=FORECAST)
encoder("informer", "InformerModel", "Informer", forecasts(), base=FORECAST, attention_type="full")
encoder("autoformer", "AutoformerModel", "Autoformer", forecasts(), base=FORECAST)
encoder("decisions", "DecisionTransformerModel", "DecisionTransformer", decisions(), base={
    "state_dim": 7, "act_dim": 3, "hidden_size": 32, "n_layer": 2, "n_head": 2, "max_ep_len": 32,
    "n_positions": 64})  # fmt: skip
