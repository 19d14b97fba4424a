"""The recipes as a table."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

from benchmarks.corpus.recipe import Recipe
from benchmarks.report import NONE

TITLES = ("name", "family", "source", "batch", "dims", "dtype", "parameters", "inputs")


def rows(wanted: Sequence[Recipe], folder: Path | None) -> list[list[str]]:
    """A row for each recipe. If its file is in the folder, the row has the number of parameters and the
    inputs.
    """
    return [
        [
            each.name,
            each.family,
            each.source,
            str(each.batch),
            ", ".join(f"{name}={size}" for name, size in each.dims.items()),
            each.dtype,
            *built(each, folder),
        ]
        for each in wanted
    ]


def built(recipe: Recipe, folder: Path | None) -> tuple[str, str]:
    """The parameters in millions, and the inputs with their shapes."""
    path = None if folder is None else folder / f"{recipe.stem}.onnx"
    if path is None or not path.exists():
        return NONE, NONE
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    constants = {each.name for each in graph.initializer}
    inputs = [each for each in graph.input if each.name not in constants]
    shapes = [[d.dim_param or str(d.dim_value) for d in each.type.tensor_type.shape.dim] for each in inputs]
    texts = [f"{each.name} {'×'.join(shape)}" for each, shape in zip(inputs, shapes)]
    if len(texts) > MOST:
        texts = [*texts[: MOST - 1], f"and {len(texts) - MOST + 1} more"]
    return f"{sum(prod(each.dims) for each in graph.initializer) / 1e6:.2f} M", "; ".join(texts)


MOST = 4
"""The maximum number of inputs in a row."""
