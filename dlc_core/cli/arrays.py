"""Arrays of the command line: inputs from files or drawn at random, outputs compared with expected ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.arith import eval_expr
from dlc_core.diag import UsageError
from dlc_core.ir.convert import convert
from dlc_core.ir.expr import Expr, Var, free_vars
from dlc_core.ir.types import Dim
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.interface.signature import Value
from dlc_core.support.array_files import load_arrays

Array = np.ndarray[Any, Any]


def read_array(path: Path) -> Array:
    """Read the array of a `.npy` file, without pickles."""
    found = _load(path)
    if not isinstance(found, np.ndarray):
        raise UsageError(f"{path} holds several arrays", hint="give it with --inputs")
    return found


def read_arrays(path: Path) -> dict[str, Array]:
    """Read the arrays of a `.npz` file by name."""
    found = _load(path)
    if isinstance(found, np.ndarray):
        raise UsageError(f"{path} holds one array without a name", hint="give it with --input NAME=FILE")
    return found


def _load(path: Path) -> Array | dict[str, Array]:
    try:
        return load_arrays(path)
    except (ValueError, OSError) as error:
        raise UsageError(f"{path} cannot be read", why=str(error), hint="a .npy or .npz file") from None


def given_inputs(
    names: Sequence[str], single: Sequence[str] | None, together: Path | None
) -> dict[str, Array]:
    """Return the given inputs by name.

    `single` are NAME=FILE or NAME=[1, 2]. `together` is a `.npz` file, whose names may have the prefix `in_`.
    Raises UsageError for files and names that match no input.
    """
    found: dict[str, Array] = {}
    if together is not None:
        given = read_arrays(together)
        found = {n: given[key] for n in names for key in (f"in_{n}", n) if key in given}
        if not found:
            raise UsageError(
                f"{together} has none of the inputs {', '.join(names) or '(the model has none)'}",
                hint=f"it has: {', '.join(given) or 'nothing'}",
            )
    for text in single or ():
        name, equals, path = text.rpartition("=")
        if not equals and len(names) == 1:
            name = names[0]
        if name not in names:
            raise UsageError(
                f"--input {text!r} names no input", hint=f"write NAME=FILE; inputs: {', '.join(names)}"
            )
        found[name] = _literal(path) if path.startswith("[") else read_array(Path(path))
    return found


def _literal(text: str) -> Array:
    """Parse a list of numbers to an array of int64 or float32."""
    try:
        found = np.array(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{text!r} is no array", why=str(error), hint="such as [3, 8]") from None
    if found.dtype.kind not in "if":
        raise UsageError(f"{text!r} is no array of numbers", hint="such as [3, 8]")
    return found.astype(np.int64 if found.dtype.kind == "i" else np.float32)


def gather_inputs(
    exe: Executable,
    single: Sequence[str] | None,
    together: Path | None,
    seed: int | None,
    sizes: Mapping[str, Any] | None = None,
) -> dict[str, Array]:
    """Return all inputs of a call by name: `given_inputs`, and random ones if there is a `seed`."""
    names = [value.name for value in exe.inputs]
    found = given_inputs(names, single, together)
    missing = [value for value in exe.inputs if value.name not in found]
    if missing and seed is None:
        raise UsageError(
            f"input {missing[0].name!r} is not given",
            details=[str(value) for value in missing],
            hint="--input NAME=FILE, --inputs FILE.npz, or --random",
        )
    needed_for_sizes = {exe.inputs[index].name for _, index, _ in exe.signature.elements}
    for value in missing:
        if value.name in needed_for_sizes:
            raise UsageError(
                f"input {value.name!r} is not given",
                why="sizes of the model depend on its values, so that they cannot be random",
                hint="--input NAME=[1,2] or --input NAME=FILE, or --inputs FILE.npz",
            )
    found.update(random_inputs(missing, seed or 0, _known_sizes(exe, found, sizes or {})))
    return {name: found[name] for name in names}


def _known_sizes(exe: Executable, given: Mapping[str, Array], sizes: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of symbolic dims: those of given inputs, and those that the user sets."""
    sizes_known: dict[str, int] = {}
    for value in exe.inputs:
        shape = given[value.name].shape if value.name in given else sizes.get(value.name, ())
        for dim, extent in zip(value.shape, shape if isinstance(shape, tuple) else ()):
            if isinstance(dim, Var) and isinstance(extent, int):
                sizes_known[dim.name] = extent
    sizes_known.update({name: size for name, size in sizes.items() if isinstance(size, int)})
    return sizes_known


def random_inputs(values: Sequence[Value], seed: int, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return random inputs: normal floats, and integers 0 and 1, which are valid as most indices.

    Symbolic dims without a size get their lower bound, or 1.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for value in values:
        shape = tuple(_extent(dim, sizes) for dim in value.shape)
        drawn = rng.standard_normal(shape) if value.dtype.is_float else rng.integers(0, 2, shape)
        found[value.name] = convert(drawn, value.dtype)
    return found


def _extent(dim: Dim, sizes: Mapping[str, int]) -> int:
    if not isinstance(dim, Expr):
        return dim
    return int(eval_expr(dim, {v: sizes.get(v.name, _least(v)) for v in free_vars(dim)}))


def _least(var: Var) -> int:
    return 1 if var.bounds is None else max(1, var.bounds.low)


@dataclass(frozen=True)
class Comparison:
    """The comparison of an output with the expected array."""

    name: str
    elements: int
    wrong: int
    max_abs: float
    max_rel: float
    problem: str = ""
    constant: bool = False
    """Whether all of several expected elements are nearly equal, so that the comparison proves little."""

    @property
    def fits(self) -> bool:
        return not self.problem and not self.wrong

    def __str__(self) -> str:
        if self.problem:
            return f"{self.name}: {self.problem}"
        verdict = "fits" if self.fits else f"{self.wrong} of {self.elements} elements differ"
        errors = f"largest error {self.max_abs:.3g} absolute, {self.max_rel:.3g} relative"
        note = "; all expected elements are nearly equal, so this proves little" if self.constant else ""
        return f"{self.name}: {verdict}; {errors}{note}"


def compare(name: str, actual: Array, expected: Array, rtol: float, atol: float) -> Comparison:
    """|got - wanted| <= atol + rtol * |wanted| for every element, NaN being NaN."""
    if actual.shape != expected.shape:
        return Comparison(
            name, actual.size, actual.size, 0, 0, f"shape {actual.shape}, expected {expected.shape}"
        )
    if expected.dtype.kind in "OSUV" and expected.dtype.itemsize != actual.dtype.itemsize:
        return Comparison(
            name, actual.size, actual.size, 0, 0, f"dtype {actual.dtype}, expected {expected.dtype}"
        )
    a = convert(actual, np.float64)
    b = convert(expected.view(actual.dtype) if expected.dtype.kind == "V" else expected, np.float64)
    with np.errstate(all="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        error = np.where(np.isnan(error), np.inf, error)
        size = np.where(np.isfinite(b), np.abs(b), 0.0)
        wrong = int(np.count_nonzero(error > atol + rtol * size))
        relative = np.where(error == 0, 0.0, error / size)
    largest = (float(error.max()), float(relative.max())) if error.size else (0.0, 0.0)
    spread = np.ptp(b) if b.size > 1 and np.isfinite(b).all() else np.inf
    constant = bool(spread <= rtol * np.abs(b).max(initial=0.0)) if expected.dtype.kind == "f" else False
    return Comparison(name, actual.size, wrong, *largest, constant=constant)


def compare_all(
    outputs: Mapping[str, Array], expected: Mapping[str, Array], rtol: float, atol: float
) -> list[Comparison]:
    """Compare the outputs that `expected` has: by name, or by position as `out_0`, `out_1`, …"""
    found = []
    for index, (name, actual) in enumerate(outputs.items()):
        key = next((k for k in (name, f"out_{index}") if k in expected), None)
        if key is not None:
            found.append(compare(name, actual, expected[key], rtol, atol))
    if not found:
        raise UsageError(
            "the expected arrays have none of the outputs",
            details=[f"outputs: {', '.join(outputs)}", f"expected: {', '.join(expected)}"],
        )
    return found
