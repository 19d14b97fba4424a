"""Classic networks of torch.nn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.torch_models.recipe import Inputs, Sizes, add, images, signal, values, words


def _made(module: str, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    return getattr(import_module(f"benchmarks.torch_models.networks.{module}"), name)(*args, **given)


def classic(
    name: str, module: str, of: str, inputs: Inputs, *args: Any, dynamic: bool = True, trains: str = "",
    **given: Any,
) -> None:  # fmt: skip
    """Register a network by its module and its class or function."""
    add(name, partial(_made, module, of, args, given), inputs, dynamic=dynamic, trains=trains)


def tokens(*names: str, length: int = 8) -> Inputs:
    """Several texts of equal batches and lengths of their own."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        return {
            name: torch.randint(0, 30, (sizes["batch"], sizes[f"of_{name}"]), generator=random)
            for name in names
        }

    axes = {name: {0: "batch", 1: f"of_{name}"} for name in names}
    lengths = {f"of_{name}": length + index for index, name in enumerate(names)}
    return Inputs(
        draw, axes, {"batch": 2, **lengths}, ({"batch": 3, **{n: s + 4 for n, s in lengths.items()}},)
    )


def drawn(make: Callable[[int, Any], dict[str, Any]], names: tuple[str, ...], batch: int = 4) -> Inputs:
    """Inputs of a function of the batch."""
    return Inputs(
        lambda sizes, random: make(sizes["batch"], random),
        {name: {0: "batch"} for name in names},
        {"batch": batch},
        ({"batch": batch + 3}, {"batch": 1}),
    )


def _features(batch: int, random: Any) -> dict[str, Any]:
    import torch

    return {
        "dense": torch.randn(batch, 6, generator=random),
        "sparse": torch.randint(0, 50, (batch, 4), generator=random),
    }


def _pairs(batch: int, random: Any) -> dict[str, Any]:
    import torch

    return {name: torch.randint(0, 30, (batch,), generator=random) for name in ("user", "item")}


def graph() -> Inputs:
    """Features of nodes, and edges between them."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        nodes, edges = sizes["nodes"], sizes["edges"]
        return {
            "x": torch.randn(nodes, 8, generator=random),
            "edges": torch.randint(0, nodes, (2, edges), generator=random),
        }

    return Inputs(
        draw, {"x": {0: "nodes"}, "edges": {1: "edges"}}, {"nodes": 12, "edges": 40},
        ({"nodes": 7, "edges": 90},),
    )  # fmt: skip


TEXT = words(mask=False)
classic("rnn", "sequences", "Tagger", TEXT, "RNN", num_layers=2, trains="classes")
classic("rnn-relu", "sequences", "Tagger", TEXT, "RNN", nonlinearity="relu", bidirectional=True)
classic("lstm", "sequences", "Tagger", TEXT, "LSTM", num_layers=2, trains="classes")
classic("lstm-both", "sequences", "Tagger", TEXT, "LSTM", num_layers=2, bidirectional=True)
classic("lstm-projected", "sequences", "Tagger", TEXT, "LSTM", proj_size=8)
classic("gru", "sequences", "Tagger", TEXT, "GRU", num_layers=2, trains="classes")
classic("gru-both", "sequences", "Tagger", TEXT, "GRU", bidirectional=True)
for kind in ("RNNCell", "LSTMCell", "GRUCell"):
    classic(f"cells-{kind.lower()}", "sequences", "Cells", values({"x": (6, 8)}), kind)
classic("attentive", "sequences", "Attentive", tokens("source", "target"), trains="classes")
classic("transformer", "sequences", "Translator", tokens("source", "target"), trains="classes")
classic("transformer-encoder", "sequences", "Encoder", values({"x": (9, 32)}), trains="classes")
classic("transformer-prenorm", "sequences", "Encoder", values({"x": (9, 32)}), norm_first=True,
        activation="gelu")  # fmt: skip
classic("textcnn", "sequences", "TextCnn", TEXT, trains="classes")
classic("fasttext", "sequences", "Bag", TEXT, trains="classes")
classic("tcn", "sequences", "Temporal", signal("x", 8, "length", length=20, others=(31,)))
classic("wavenet", "sequences", "WaveNet", signal("x", 1, "length", length=40, others=(64,)))

SMALL = images(16, name="x")
FLAT = values({"input": (3, 8, 8)})
INPUT = images(32, name="input", batch=4)
classic("perceptron", "figures", "perceptron", FLAT, trains="classes")
classic("activations", "figures", "activations", FLAT)
classic("cnn", "figures", "convolutional", INPUT, trains="classes")
classic("lenet", "figures", "lenet", INPUT, trains="classes")
classic("autoencoder", "figures", "Autoencoder", SMALL, trains="values")
classic("vae", "figures", "Variational", values({"x": (48,), "noise": (8,)}), trains="values")
classic("unet", "figures", "UNet", SMALL, trains="values")
classic("unet-resized", "figures", "UNet", SMALL, resize=True)
classic("dcgan", "figures", "generator", values({"input": (16, 1, 1)}), trains="values")
classic("dcgan-discriminator", "figures", "discriminator", images(32, name="input"))
classic("espcn", "figures", "enlarger", images(16, name="input"), trains="values")
classic("mlpmixer", "figures", "Mixer", images(32, name="x"), trains="classes")
classic("convlstm", "figures", "ConvLstm", values({"frames": (4, 3, 8, 8)}), trains="values")
classic("crnn", "figures", "Reader", values({"x": (1, 16, 40)}))
classic("stn", "figures", "Spatial", SMALL)

classic("dlrm", "sets", "Recommender", drawn(_features, ("dense", "sparse")))
classic("ncf", "sets", "Factorisation", drawn(_pairs, ("user", "item")))
classic("gcn", "sets", "Graph", graph())
classic("gat", "sets", "GraphAttention", graph())
classic("pointnet", "sets", "Points", values({"points": (3, 20)}, batch=4))
classic("nerf", "sets", "Radiance", values({"points": (12, 3)}, batch=4), trains="values")
classic("moe", "sets", "Experts", values({"x": (16,)}, batch=4))
classic("vqvae", "sets", "Memory", values({"x": (16,)}, batch=4))
