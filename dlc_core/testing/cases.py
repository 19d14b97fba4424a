"""Conformance cases: a graph, inputs, and expected outputs. They are made from the ops' samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dlc_core.diag import DlcError, TypeInferenceError
from dlc_core.graph.node import Function, Node, constant, param, rewrite
from dlc_core.ir.conditions import check_conditions, conditions_of
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, tensor_type
from dlc_core.op.declare import NDArray, OpDecl, Sample, Tensor
from dlc_core.op.reference import evaluate, evaluate_dim
from dlc_core.op.samples import make_array, make_inputs, sample_dtypes, tolerance
from dlc_core.passes.graph.dim_conditions import dim_conditions

Tolerance = tuple[float, float]


@dataclass(frozen=True)
class Trial:
    """Inputs and the expected results."""

    inputs: Sequence[NDArray]
    expected: Sequence[NDArray]


@dataclass(frozen=True)
class Case:
    """A model that is compiled once and run on several inputs."""

    name: str
    module: IRModule
    trials: Sequence[Trial]
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    """The (rtol, atol) of results by dtype. Results of missing dtypes are compared exactly."""


def with_constants(case: Case) -> Case | None:
    """The case with constants in place of all inputs but the first, as a model has weights. None if it has
    one input, inputs of symbolic sizes, or texts, which cannot be constants.
    """
    function = case.module[case.module.entry]
    if len(function.params) < 2 or len(case.trials) != 1:
        return None
    if any(p.tensor_type.static_shape() is None for p in function.params):
        return None
    (trial,) = case.trials
    if any(a.dtype.hasobject for a in trial.inputs):
        return None
    first, *others = function.params
    values = {p: constant(a) for p, a in zip(others, trial.inputs[1:], strict=True)}
    body = rewrite(function.body, lambda old, _: values.get(old))
    return replace(case, module=module_of(body, [first]), trials=[Trial(trial.inputs[:1], trial.expected)])


def outputs_of(value: Any) -> tuple[NDArray, ...]:
    """The arrays of a result, with nested tuples flattened in order."""
    if isinstance(value, (tuple, list)):
        return tuple(array for item in value for array in outputs_of(item))
    return (value,)


def fits_type(array: NDArray, type_: TensorType) -> bool:
    """Whether an array has the inferred type; data-dependent dims may have any size."""
    sizes = list(zip(type_.shape, array.shape, strict=False))
    same = all(size == have for size, have in sizes if not isinstance(size, Var))
    return same and array.ndim == type_.ndim and array.dtype == type_.dtype.numpy


def module_of(body: Node, params: Sequence[Node]) -> IRModule:
    """A module whose entry point is this graph."""
    return IRModule({"main": Function("main", tuple(params), body)})


def op_cases(decl: OpDecl, dtypes: Sequence[str] = ()) -> Iterator[Case]:
    """All samples of an op, in each of their dtypes that is in `dtypes`."""
    for number, sample in enumerate(decl.samples):
        for dtype in sample_dtypes(decl, sample):
            if dtypes and dtype not in dtypes:
                continue
            arrays = make_inputs(sample, dtype)
            params = [param(f"x{i}", tensor_type(a.shape, a.dtype)) for i, a in enumerate(arrays)]
            node = decl.build(*params, **sample.attrs)
            yield Case(
                f"ops/{decl.name}/{number}/{dtype}",
                module_of(node, params),
                [_trial(node, params, arrays)],
                tolerances_of(decl),
            )


def symbolic_cases(
    decl: OpDecl, dtypes: Sequence[str] = (), first: int = 0, last: int | None = None
) -> Iterator[Case]:
    """The samples `first` to `last` (exclusive; None is all) with symbolic dims, each in its first dtype.
    They are compiled once and run with two sizes.
    """
    for number, sample in list(enumerate(decl.samples))[first:last]:
        allowed = [d for d in sample_dtypes(decl, sample) if not dtypes or d in dtypes]
        if not allowed or not sample.inputs:
            continue
        arrays = make_inputs(sample, allowed[0])
        built = symbolic_node(decl, sample, arrays)
        if built is None:
            continue
        node, params, symbols = built
        trials = [_trial(node, params, arrays)]
        larger = _larger(sample, allowed[0], params, symbols)
        if larger is not None:
            # Attributes of a sample and constant dims may be valid only for its own size.
            with suppress(DlcError, ValueError, IndexError):
                conditions = conditions_of(dim_conditions(Function("main", tuple(params), node)))
                check_conditions(conditions, {var: n + 1 for n, var in symbols.items()}, evaluate_dim)
                trials.append(_trial(node, params, larger))
        name = f"ops/{decl.name}/{number}/symbolic"
        yield Case(name, module_of(node, params), trials, tolerances_of(decl))


def tolerances_of(decl: OpDecl) -> dict[str, Tolerance]:
    """The tolerances of an op's results against its reference, by dtype."""
    return {name: tolerance(decl, DType(name)) for name in ("float16", "bfloat16", "float32", "float64")}


def symbolic_node(
    decl: OpDecl, sample: Sample, arrays: Sequence[NDArray]
) -> tuple[Node, list[Node], dict[int, Var]] | None:
    """A use of an op over symbolic dims, its params, and the symbol of each size.

    All dims above 1 become symbols, and equal sizes become one symbol. If the op needs some constant
    dims, only dims of the first input become symbols: all but its second, all but its last, or all but its
    first two; at last, all dims of all inputs but the second of the first input. None if the op needs
    constant dims only.
    """
    all_axes = [set(range(a.ndim)) for a in arrays]
    rank = arrays[0].ndim if arrays else 0
    no_axes: list[set[int]] = [set() for _ in arrays[1:]]
    partial = [set(range(rank)) - {1}, set(range(rank - 1)), set(range(2, rank))]
    candidates = [all_axes, *([first, *no_axes] for first in partial), [partial[0], *all_axes[1:]]]
    for chosen in candidates:
        symbols: dict[int, Var] = {}
        params = []
        for i, (array, axes) in enumerate(zip(arrays, chosen, strict=True)):
            dims: list[Any] = [
                symbols.setdefault(n, Var(f"n{n}")) if n > 1 and axis in axes else n
                for axis, n in enumerate(array.shape)
            ]
            params.append(param(f"x{i}", tensor_type(dims, array.dtype)))
        try:
            return decl.build(*params, **sample.attrs), params, symbols
        except TypeInferenceError:
            continue
    return None


def _larger(
    sample: Sample, dtype: str, params: Sequence[Node], symbols: Mapping[int, Var]
) -> list[NDArray] | None:
    """Inputs of a sample whose symbolic dims are larger by one; None if the sample fixes the values of an
    input.
    """
    sizes = {var: n + 1 for n, var in symbols.items()}
    arrays = []
    for position, (tensor, own) in enumerate(zip(sample.inputs, params, strict=True)):
        shape = tuple(d if isinstance(d, int) else sizes[d] for d in own.shape)
        if not isinstance(tensor.values, str) and shape != tuple(tensor.shape):
            return None
        larger = Tensor(shape, tensor.values, tensor.dtype)
        try:
            arrays.append(make_array(larger, DType(tensor.dtype or dtype), 4001 + position))
        except DlcError:
            return None
    return arrays


def _trial(node: Node, params: Sequence[Node], arrays: Sequence[NDArray]) -> Trial:
    with np.errstate(all="ignore"):
        return Trial(arrays, outputs_of(evaluate(node, dict(zip(params, arrays, strict=True)))))


def difference(
    found: Sequence[NDArray], expected: Sequence[NDArray], tolerances: Mapping[str, Tolerance]
) -> str | None:
    """The difference of results from the expected ones in count, dtypes, shapes or values; None if they
    agree."""
    if len(found) != len(expected):
        return f"{len(found)} results, {len(expected)} are expected"
    for index, (have, want) in enumerate(zip(found, expected, strict=True)):
        which = f"result {index}: " if len(found) > 1 else ""
        if have.dtype != want.dtype or have.shape != want.shape:
            return f"{which}{have.dtype}{have.shape}, but {want.dtype}{want.shape} is expected"
        close = _close(have, want, tolerances.get(DType.of(want.dtype).name, (0.0, 0.0)))
        if not close.all():
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            wrong = int((~close).sum())
            return f"{which}{wrong} of {close.size} differ; at {at} {have[at]} instead of {want[at]}"
    return None


def _close(found: NDArray, expected: NDArray, allowed: Tolerance) -> NDArray:
    """The elements that agree within the tolerance. NaN agrees with NaN, and infinities only with
    themselves.
    """
    if not DType.of(expected.dtype).is_float:
        return np.asarray(found == expected)
    a, b = convert(found, np.float64), convert(expected, np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= allowed[1] + allowed[0] * np.abs(b)
        near &= np.isfinite(a) & np.isfinite(b)
        return np.asarray(near | (a == b) | (np.isnan(a) & np.isnan(b)))


__all__ = [
    "Case",
    "Trial",
    "difference",
    "module_of",
    "op_cases",
    "outputs_of",
    "symbolic_cases",
    "symbolic_node",
    "tolerances_of",
    "with_constants",
]
