"""Networks of packages: those of transformers from configs, and the import of torchvision.

timm needs torchvision. Wheels of torchvision from the registry are built for CUDA: beside torch for CPU their
operators do not load, and the import fails when it registers shapes for them. The networks use none of these
operators, so `with_torchvision` declares them.
"""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from benchmarks.torch_models.recipe import Inputs, add, words

CLASSES = 10
"""Classes of networks for images."""

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "vocab_size": 99, "max_position_embeddings": 64,
}  # fmt: skip
VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


def transformer(model: str, config: str, **given: Any) -> Any:
    """A network of transformers with random weights."""
    with_torchvision()
    import transformers as tf

    return getattr(tf, model)(getattr(tf, config)(**given))


def encoder(
    name: str, model: str, config: str, inputs: Inputs | None = None, *, dynamic: bool = True,
    trains: str = "", base: dict[str, Any] = SMALL, **given: Any,
) -> None:  # fmt: skip
    """Register a network of transformers."""
    make = partial(transformer, model, f"{config}Config", **{**base, **given})
    add(name, make, inputs or words(), dynamic=dynamic, trains=trains)


@cache
def with_torchvision() -> Any:
    """Import torchvision if it is installed, which transformers and timm do too, with declarations of its
    operators where its library does not load. Returns what keeps them declared.
    """
    import torch

    if find_spec("torchvision") is None:
        return None
    try:
        return import_module("torchvision")
    except RuntimeError:  # "operator torchvision::nms does not exist"
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return import_module("torchvision"), library


__all__ = ["CLASSES", "SMALL", "VIT", "encoder", "transformer", "with_torchvision"]
