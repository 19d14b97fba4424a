"""Samples through `torch.compile(backend="dlc")` with backward: `outcomes`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch.utils import _pytree as pytree

import dlc_core
from dlc_frontend_torch.score.comparing import difference, is_contraction
from dlc_frontend_torch.score.judging import Mark, Options, failure
from dlc_frontend_torch.score.references import NumbersOf, RandomRounding, StableSorts
from dlc_frontend_torch.score.results import (
    CRASHED,
    FALLBACK,
    RANDOM,
    REFUSED,
    RIGHT,
    WRONG,
    Outcome,
)
from dlc_frontend_torch.score.samples import SEED, Case, cases
from dlc_frontend_torch.score.ties import OPEN, same_gradients
from dlc_frontend_torch.score.tracing import called, traced

ROUNDINGS = 32
"""Runs of eager with other roundings."""


def outcomes(
    info: Any, options: Options, mark: Mark, crashed: Collection[tuple[str, int]] = ()
) -> list[Outcome]:
    """The outcomes of the samples of an OpInfo that have gradients: results and gradients are compared with
    eager's. A sample of which a node runs in torch is a *fallback*, if it is not wrong.
    """
    found: list[Outcome] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in options.dtypes:
            for case in cases(info, dtype, options.limit, gradients=True):
                if (dtype, case.index) in crashed:
                    found.append(Outcome(dtype, case.index, CRASHED, "the process ended"))
                    continue
                mark(dtype, case.index)
                made = _outcome(info, case, options)
                if made is not None:
                    found.append(made)
    return found


def _called(case: Case) -> tuple[str, ...]:
    """The operators that the forward of the sample calls after torch's own decompositions to Core ATen; none
    if torch cannot trace it.
    """
    try:
        return tuple(dict.fromkeys(str(each) for each in called(traced(case, core_aten_decompositions()))))
    except Exception:  # noqa: BLE001 (many kinds)
        return ()


def _outcome(info: Any, case: Case, options: Options) -> Outcome | None:
    try:
        with StableSorts():
            expected = _with_gradients(case, case.function)
    except Exception:  # noqa: BLE001 (torch does not support the sample)
        return None
    if expected is None:
        return None
    names = _called(case)
    torch._dynamo.reset()
    dlc_core.torch.reset()
    compiled = torch.compile(case.function, backend="dlc", fullgraph=True, options={"target": options.target})
    try:
        made = _with_gradients(case, compiled)
    except Exception as error:  # noqa: BLE001 (it is counted)
        return Outcome(case.dtype, case.index, *_failure(case, error), names)
    status, why = _judged(info, case, made, expected, names)
    return Outcome(case.dtype, case.index, status, why, names)


def _failure(case: Case, error: Exception) -> tuple[str, str]:
    """The status of a sample that raised. It is refused if torch.compile cannot run it without dlc either."""
    torch._dynamo.reset()
    try:
        _with_gradients(case, torch.compile(case.function, backend="aot_eager", fullgraph=True))
    except Exception as other:  # noqa: BLE001 (many kinds)
        return REFUSED, f"torch.compile runs it with no backend: {type(other).__name__}"
    return failure(error)


def _judged(
    info: Any, case: Case, made: Sequence[Any] | None, expected: Sequence[Any], names: Collection[str]
) -> tuple[str, str]:
    """The status of a sample that ran, and why."""
    report = dlc_core.torch.report()
    problem = _difference(info, case, made, expected, names)
    if problem is not None:
        return WRONG, problem
    if not report.graphs:
        return REFUSED, "torch.compile found no graph"
    if any("random" in each.why for each in report.fallbacks):
        return RANDOM, ""
    if report.fallbacks:
        return FALLBACK, "; ".join(dict.fromkeys(each.why for each in report.fallbacks))
    return RIGHT, ""


def _with_gradients(case: Case, function: Any, double: bool = False) -> Sequence[Any] | None:
    """The results, and the gradients of their weighted sum; None if no result has a gradient."""
    leaves = [_leaf(each, double) for each in case.tensors]
    torch.manual_seed(SEED)
    results = [each for each in pytree.tree_leaves(function(*leaves)) if isinstance(each, torch.Tensor)]
    sources = [each for each in results if each.requires_grad and not each.is_complex()]
    inputs = [each for each in leaves if each.requires_grad]
    if not sources or not inputs:
        return None
    generator = torch.Generator().manual_seed(SEED)
    # Weights of the sample's dtype in the exact run too.
    numbers = [torch.rand(each.shape, generator=generator).to(getattr(torch, case.dtype)) for each in sources]
    weights = [each.to(source.dtype) for each, source in zip(numbers, sources, strict=True)]
    found = torch.autograd.grad(sources, inputs, weights, allow_unused=True)
    return [*(each.detach().clone() for each in results), *found]


def _leaf(tensor: torch.Tensor, double: bool) -> torch.Tensor:
    plain = tensor.detach().clone()
    plain = plain.double() if double and plain.is_floating_point() else plain
    return plain.requires_grad_(tensor.requires_grad)


def _exact(case: Case) -> Sequence[Any] | None:
    """The results and gradients for float64 copies of the inputs, with the sample's random numbers."""
    with StableSorts(), NumbersOf(getattr(torch, case.dtype)):
        return _with_gradients(case, case.function, double=True)


def _rounded(case: Case) -> list[Sequence[Any]]:
    """The same several times, with the results of operators rounded to the dtype of the sample."""
    dtype = getattr(torch, case.dtype)
    found = []
    for seed in range(ROUNDINGS):
        with RandomRounding(dtype, seed):
            found.append(_exact(case) or ())
    return found


def _difference(
    info: Any, case: Case, made: Sequence[Any] | None, expected: Sequence[Any], names: Collection[str]
) -> str | None:
    if made is None or len(made) != len(expected):
        return "other results have gradients"
    if info.name in OPEN and len(made) > 2 and made[-1] is not None:
        x = case.tensors[0].detach()
        if made[-1].shape == x.shape and same_gradients(x, made, expected):
            return None
    exact: Sequence[Any] | None = None
    rounded: list[Sequence[Any]] = []
    for place, (own, other) in enumerate(zip(made, expected, strict=True)):
        problem = difference(own, other, info)
        if problem is not None:
            exact = exact or _exact(case)
            problem = difference(own, other, info, exact, place, by_norm=is_contraction(names))
        if problem is not None and exact is not None:
            # Terms of a gradient may cancel. Then its error depends on how each of them was rounded.
            rounded = rounded or _rounded(case)
            problem = difference(own, other, info, exact, place, rounded=rounded)
        if problem is not None:
            return problem
    return None


__all__ = ["outcomes"]
