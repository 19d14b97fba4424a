"""The outcomes of an operator's samples: `outcomes`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.graph.node import GraphContext, using_context
from dlc_core.support.record import record
from dlc_frontend_torch.score.comparing import difference, is_contraction
from dlc_frontend_torch.score.references import StableSorts
from dlc_frontend_torch.score.results import CRASHED, RANDOM, REFUSED, RIGHT, WRONG, Outcome
from dlc_frontend_torch.score.running import Prepared, prepared, results
from dlc_frontend_torch.score.samples import Case, cases
from dlc_frontend_torch.score.ties import OPEN, same_elements
from dlc_frontend_torch.score.tracing import called, draws, traced

Mark = Callable[[str, int], None]
"""Is told the dtype and the number of each sample before native code runs for it."""
UNDEFINED = (
    "aten.empty.", "aten.empty_like.", "aten.new_empty", "aten.empty_strided.", "aten.empty_permuted.",
    "aten.resize.",
)  # fmt: skip
"""Operators whose elements have no defined values. Results of graphs that call them may differ."""
LONGEST = 300


@record(frozen=True)
class Options:
    """How samples are judged. `limit` is the maximum number of samples of a dtype (None: all); `group` the
    number of samples that are compiled together.
    """

    dtypes: tuple[str, ...]
    target: str = "llvm"
    limit: int | None = 40
    group: int = 16


@record(frozen=True)
class _Ready:
    """A sample that is imported, with what eager torch returns for it."""

    case: Case
    called: tuple[str, ...]
    expected: Sequence[Any]
    sample: Prepared


def outcomes(
    info: Any, options: Options, mark: Mark, crashed: Collection[tuple[str, int]] = ()
) -> list[Outcome]:
    """The outcomes of the samples of an OpInfo. `crashed` are samples that have ended a process."""
    found: list[Outcome] = []
    ready: list[_Ready] = []
    with using_context(GraphContext()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in options.dtypes:
            for case in cases(info, dtype, options.limit):
                if (dtype, case.index) in crashed:
                    found.append(Outcome(dtype, case.index, CRASHED, "the process ended"))
                    continue
                mark(dtype, case.index)
                made = _ready(case)
                if isinstance(made, _Ready):
                    ready.append(made)
                elif made is not None:
                    found.append(made)
        for begin in range(0, len(ready), options.group):
            part = ready[begin : begin + options.group]
            mark(part[0].case.dtype, part[0].case.index)
            found += _judged(info, part, options.target)
    return found


def _ready(case: Case) -> _Ready | Outcome | None:
    """The sample imported, or its outcome; None if eager torch cannot run it."""
    expected = eager(case)
    if expected is None:
        return None
    try:
        module = traced(case)
    except Exception as error:  # noqa: BLE001 (many kinds; torch.compile runs these samples in torch)
        why = f"torch cannot trace it: {type(error).__name__}"
        return Outcome(case.dtype, case.index, REFUSED, why)
    names = tuple(dict.fromkeys(str(each) for each in called(module)))
    if draws(module):
        return Outcome(case.dtype, case.index, RANDOM, "", names)
    try:
        return _Ready(case, names, expected, prepared(module, case.tensors))
    except Exception as error:  # noqa: BLE001 (it is counted)
        return Outcome(case.dtype, case.index, *failure(error), names)


def eager(case: Case, convert: Callable[[Any], Any] = lambda x: x) -> Sequence[Any] | None:
    """The results of eager torch, as a flat list; None if it raises."""
    try:
        with torch.no_grad(), StableSorts():
            copies = [convert(each.detach().clone()) for each in case.tensors]
            return [
                each.clone() if isinstance(each, torch.Tensor) else each
                for each in pytree.tree_leaves(case.function(*copies))
            ]
    except Exception:  # noqa: BLE001 (torch does not support the sample)
        return None


def failure(error: Exception) -> tuple[str, str]:
    """The status and the reason of a sample that raised."""
    if isinstance(error, UnsupportedError):
        return REFUSED, reason(error)
    if isinstance(error, DlcError):
        return CRASHED, _short(f"{type(error).__name__}: {error.what}: {error.why}")
    if type(error).__module__.startswith("torch.") and not isinstance(error, AssertionError):
        return REFUSED, _short(f"torch cannot trace it: {type(error).__name__}")
    return CRASHED, _short(f"{type(error).__name__}: {error}")


def reason(error: UnsupportedError) -> str:
    """The refusal in one line."""
    return _short("; ".join(map(str, error.details)) or f"{error.what}{error.why and ': '}{error.why}")


def _judged(info: Any, group: Sequence[_Ready], target: str) -> list[Outcome]:
    """The outcomes of a group. If its compile fails, each sample is compiled alone."""
    try:
        made = results([each.sample for each in group], target)
    except Exception as error:  # noqa: BLE001 (it is counted)
        if len(group) > 1:
            return [outcome for each in group for outcome in _judged(info, [each], target)]
        ready = group[0]
        return [Outcome(ready.case.dtype, ready.case.index, *failure(error), ready.called)]
    return [_compared(info, ready, own) for ready, own in zip(group, made, strict=True)]


def _compared(info: Any, ready: _Ready, made: Sequence[Any]) -> Outcome:
    case = ready.case
    undefined = any(name.startswith(UNDEFINED) for name in ready.called)
    problem = None
    if len(made) != len(ready.expected):
        problem = f"{len(made)} results instead of {len(ready.expected)}"
    exact: Sequence[Any] | None = None
    open_order = (
        info.name in OPEN and problem is None and same_elements(case.tensors[0], made, ready.expected)
    )
    for place, (own, expected) in enumerate(zip(made, ready.expected)):
        if problem is not None or open_order:
            break
        problem = difference(own, expected, info)
        if problem is not None and undefined:
            problem = None if own.shape == expected.shape and own.dtype == expected.dtype else problem
        elif problem is not None:
            exact = exact or eager(case, _exact)
            if exact is not None and len(exact) == len(ready.expected):
                by_norm = is_contraction(ready.called)
                problem = difference(own, expected, info, exact, place, by_norm=by_norm)
    status = RIGHT if problem is None else WRONG
    return Outcome(case.dtype, case.index, status, _short(problem or ""), ready.called)


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def _short(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x…", " ".join(text.split()))[:LONGEST]


__all__ = ["Mark", "Options", "eager", "failure", "outcomes", "reason"]
