"""The record of a model, the list of all models, and the kinds of inputs that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SEED = 0
Sizes = Mapping[str, int]
Draw = Callable[..., Any]
"""Makes the inputs of a call by name, for sizes and a generator of random numbers."""


@dataclass(frozen=True)
class Inputs:
    """The arguments of a model by name, and which of their dims may be symbolic."""

    draw: Draw
    axes: Mapping[str, Mapping[int, str]]
    """For each input the symbolic dims by axis."""
    sizes: Sizes
    """The size of each symbolic dim in the example."""
    others: tuple[Sizes, ...] = ()
    """Further sizes, which the same program is called with."""
    least: Sizes = field(default_factory=dict)
    """The smallest size of a dim, if it is not 1."""


@dataclass(frozen=True)
class Model:
    """A network of random weights of a fixed seed, with its inputs.

    `make` imports the package of the network itself, so that the list is complete without it.
    """

    name: str
    """`family` or `family-variant`, unique."""
    family: str
    make: Callable[[], Any]
    inputs: Inputs
    dynamic: bool = True
    """Whether torch.export writes a program of symbolic dims for it."""
    trains: str = ""
    """The loss on its first output: "classes" is cross-entropy over the last axis (of images, axis 1),
    "values" the mean square; empty if it is not trained.
    """
    kind: str = ""
    """The module of `families` that has it."""


REGISTERED: dict[str, Model] = {}


def add(
    name: str, make: Callable[[], Any], inputs: Inputs, *, dynamic: bool = True, trains: str = ""
) -> None:
    """Add a model to the list. Its family is the name up to the first hyphen."""
    if name in REGISTERED:
        raise ValueError(f"two models are named {name}")
    REGISTERED[name] = Model(name, name.partition("-")[0], make, inputs, dynamic, trains)


def words(
    count: int = 99,
    length: int = 8,
    *,
    mask: bool = True,
    name: str = "input_ids",
    batch: int = 2,
    others: tuple[tuple[int, int], ...] = ((3, 11), (1, 16)),
    fixed_length: bool = False,
) -> Inputs:
    """Tokens [batch, length], and with `mask` an attention mask that hides the end of the last row."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        shape = (sizes["batch"], sizes.get("length", length))
        made = {name: torch.randint(3, count, shape, generator=random)}
        if mask:
            seen = torch.ones(shape, dtype=torch.int64)
            seen[-1, -2:] = 0
            made["attention_mask"] = seen
        return made

    dims = {0: "batch"} if fixed_length else {0: "batch", 1: "length"}
    axes = {name: dims, **({"attention_mask": dims} if mask else {})}
    if fixed_length:
        return Inputs(draw, axes, {"batch": batch}, tuple({"batch": n} for n, _ in others))
    sizes = {"batch": batch, "length": length}
    return Inputs(draw, axes, sizes, tuple({"batch": n, "length": size} for n, size in others))


def images(side: int = 32, channels: int = 3, *, name: str = "pixel_values", batch: int = 2) -> Inputs:
    """Images [batch, channels, side, side]."""
    return values({name: (channels, side, side)}, batch)


def values(shapes: Mapping[str, tuple[int, ...]], batch: int = 2) -> Inputs:
    """Normal numbers of these shapes after the batch."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        count = sizes["batch"]
        return {name: torch.randn(count, *shape, generator=random) for name, shape in shapes.items()}

    axes = {name: {0: "batch"} for name in shapes}
    return Inputs(draw, axes, {"batch": batch}, ({"batch": batch + 3}, {"batch": 1}))


def signal(name: str, *shape: int | str, length: int, others: tuple[int, ...] = (), batch: int = 2) -> Inputs:
    """Normal numbers [batch, *shape], where "length" in the shape is a symbolic dim."""

    def draw(sizes: Sizes, random: Any) -> dict[str, Any]:
        import torch

        found = [size if isinstance(size, int) else sizes[size] for size in shape]
        return {name: torch.randn(sizes["batch"], *found, generator=random)}

    axes = {name: {0: "batch", 1 + shape.index("length"): "length"}}
    further = tuple({"batch": batch + 1, "length": each} for each in others)
    return Inputs(draw, axes, {"batch": batch, "length": length}, further)
