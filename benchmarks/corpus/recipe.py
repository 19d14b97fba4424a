"""The record of a recipe, and the list of all recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

SEED = 0
DTYPES = ("float32", "bfloat16", "int8")


@dataclass(frozen=True)
class Recipe:
    """A recipe that makes a model's file with random weights of a fixed seed, without downloads.

    `make` writes the model to a path and, unless onnxruntime is to compute the outputs, the inputs
    `in_<name>` and outputs `out_<index>` to the `.npz` file beside it. It imports its packages itself, so
    that the list is complete if they are not installed.
    """

    name: str
    """`family/model-variant`, unique."""
    family: str
    source: str
    """The package that has the network; `here` is this repository."""
    make: Callable[[Path], None]
    batch: int = 1
    dims: Mapping[str, int] = field(default_factory=dict)
    """The symbolic dims, each with the size that is measured; empty where all shapes are static."""
    dtype: str = "float32"
    """bfloat16: the float32 model, computed with `precision="bfloat16"`; int8: onnxruntime's QDQ form."""
    small: bool = False
    """Whether it is a reduced network that checks an exporter and is not worth measuring."""

    @property
    def shapes(self) -> str:
        return "symbolic" if self.dims else "static"

    @property
    def stem(self) -> str:
        """The name of its files."""
        return self.name.replace("/", "-")

    @property
    def of_largest(self) -> float | None:
        """The maximum error relative to an output's largest value; None if the dtype determines it. A network
        that rounds to 8 bits may round a value in the other direction after an error in its last bit.
        """
        return 5e-2 if self.dtype == "int8" else None


@dataclass(frozen=True)
class Network:
    """A module of PyTorch with its inputs."""

    module: Any
    args: tuple[Any, ...]
    names: tuple[str, ...] = ("x",)
    axes: tuple[Mapping[int, str], ...] = ()
    """For each input the symbolic dims by axis; by default axis 0 of each is the batch."""
    dynamo: bool = True
    """Whether the newer of PyTorch's exporters writes it."""

    def symbolic_axes(self, dims: Iterable[str]) -> tuple[dict[int, str], ...]:
        """For each input the axes of these dims."""
        wanted = set(dims)
        given = self.axes or ({0: "batch"},) * len(self.args)
        return tuple({axis: dim for axis, dim in axes.items() if dim in wanted} for axes in given)


Make = Callable[..., Network]
"""Takes the batch, and the sizes of other symbolic dims by their names."""

REGISTERED: dict[str, Recipe] = {}


def add(recipe: Recipe) -> None:
    """Add a recipe to the list."""
    if recipe.name in REGISTERED:
        raise ValueError(f"two recipes are named {recipe.name}")
    REGISTERED[recipe.name] = recipe


def published(
    name: str,
    source: str,
    *,
    batches: Iterable[int] = (1, 8),
    dims: Mapping[str, int] | None = None,
    dtypes: Iterable[str] = (),
) -> Callable[[Make], Make]:
    """Register a network of a published size, `family/model`, as recipes of several variants.

    Each of `batches` gives a static model `-b1`, `-b8`; `dims` gives a symbolic one `-any`; each of `dtypes`
    gives one of the first batch, `-int8`, `-bfloat16`.
    """
    from benchmarks.corpus.exporting import write
    from benchmarks.corpus.quantizing import write_int8

    family = name.partition("/")[0]

    def register(network: Make) -> Make:
        first = min(batches)
        for batch in batches:
            make = partial(write, network, batch, {})
            add(Recipe(f"{name}-b{batch}", family, source, make, batch))
        if dims:
            batch = dims.get("batch", first)
            make = partial(write, network, batch, dims)
            add(Recipe(f"{name}-any", family, source, make, batch, dims))
        for dtype in dtypes:
            make = partial(write_int8 if dtype == "int8" else write, network, first, {})
            add(Recipe(f"{name}-{dtype}", family, source, make, first, dtype=dtype))
        return network

    return register


def small(name: str, source: str = "", dtype: str = "float32") -> Callable[[Callable[[Path], None]], None]:
    """Register a function that writes a reduced network; its family is the first part of the name."""
    family = name.partition("/")[0]

    def register(make: Callable[[Path], None]) -> None:
        add(Recipe(name, family, source or family, make, dtype=dtype, small=True))

    return register
