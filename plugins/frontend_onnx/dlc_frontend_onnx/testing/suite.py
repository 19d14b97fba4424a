"""The node tests of the onnx package for the importer and the backends.

`cases()` returns them. `judge(case, run)` imports one, calls `run(function, feeds)` and compares the results.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import node as node_cases
from onnx.backend.test.loader import load_model_tests

from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.graph.node import Function, Node
from dlc_core.graph.verify import verify_function
from dlc_core.ir.dtype import DType
from dlc_core.op.declare import OpDecl
from dlc_core.op.reference import evaluate
from dlc_frontend_onnx.custom import importers_for
from dlc_frontend_onnx.flattening import gathered
from dlc_frontend_onnx.importer import import_parts
from dlc_frontend_onnx.reader import read_model

Run = Callable[[Function, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case: "pass", "frozen" (passes with inputs made constants), "unsupported" (with the
    reason), "refused" (another DlcError) or "wrong". `notes` are further remarks.
    """

    name: str
    outcome: str
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass
class Score:
    """Verdicts of many cases."""

    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        return Counter(v.outcome for v in self.verdicts)

    def of(self, outcome: str) -> list[Verdict]:
        return [v for v in self.verdicts if v.outcome == outcome]


@cache
def cases(*modules: str) -> tuple[Any, ...]:
    """The node tests of the installed package, sorted by name: all, or those of some of its modules.

    A module makes its cases at import, mostly those of one operator. All modules take ten seconds.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deliberate overflows in the package
        return _generated(modules)


def _generated(modules: Sequence[str]) -> tuple[Any, ...]:
    if not modules:
        return tuple(sorted(load_model_tests(kind="node"), key=lambda case: case.name))
    for module in modules:
        import_module(f"onnx.backend.test.case.node.{module}")
    chosen = [
        case for case in node_cases._NodeTestCases if case.model.graph.node[0].op_type.lower() in modules
    ]
    return tuple(sorted(chosen, key=lambda case: case.name))


def interpret(function: Function, feeds: Mapping[str, Any]) -> Any:
    """Run a graph by the ops' references."""
    return evaluate(function, feeds)


def judge(case: Any, run: Run = interpret) -> Verdict:
    """Import one case, run it on each of its data sets, and compare.

    If shapes or axes are inputs, the case is tried again with integer and scalar inputs as constants. It then
    passes as "frozen".
    """
    verdict = _judge(case, run, freeze=False)
    if verdict.outcome != "unsupported":
        return verdict
    again = _judge(case, run, freeze=True)
    return replace(again, outcome="frozen") if again.outcome == "pass" else again


def _judge(case: Any, run: Run, *, freeze: bool) -> Verdict:
    try:
        for inputs, outputs in case.data_sets:
            given = [as_array(item) for item in inputs]
            wanted = [part for item in outputs for part in _parts(as_array(item))]
            problem = _run(case, given, wanted, run, freeze)
            if problem:
                return Verdict(case.name, "wrong", problem)
    except UnsupportedError as error:
        return Verdict(case.name, "unsupported", str(error))
    except DlcError as error:
        return Verdict(case.name, "refused", str(error))
    return Verdict(case.name, "pass")


def judge_all(chosen: Iterable[Any], run: Run = interpret) -> Score:
    """The verdicts of many cases."""
    return Score([judge(case, run) for case in chosen])


def _run(case: Any, given: Sequence[Any], wanted: Sequence[Any], run: Run, freeze: bool) -> str:
    model = case.model
    names = [info.name for info in model.graph.input]
    values = dict(zip(names, given))
    read = read_model(with_constants(model, values) if freeze else model)
    read.importers = importers_for(())
    module, layouts = import_parts(read, None, None)
    function = module["main"]
    verify_function(function, infer=_infer)
    feeds = {param.attrs["name"]: values[param.attrs["name"]] for param in function.params}
    result = run(function, feeds)
    outputs = dict(zip(function.attrs["outputs"], result if isinstance(result, tuple) else (result,)))
    found = [part for layout in layouts for part in _parts(gathered(layout, outputs))]
    if len(found) != len(wanted):
        return f"{len(found)} outputs, {len(wanted)} are wanted"
    for index, (a, b) in enumerate(zip(found, wanted)):
        if case.name.startswith(COINS):
            problem = coins_problem(np.asarray(a), b)
        else:
            problem = _difference(np.asarray(a), b, case.rtol, case.atol)
        if problem:
            return f"output {index}: {problem}"
    return ""


COINS = "test_bernoulli"
"""Prefix of the cases whose expected values are draws without a seed."""


def coins_problem(found: np.ndarray[Any, Any], wanted: Any) -> str:
    """Check random bits by dtype, shape, values 0 or 1, and the number of ones. Returns the problem, or "".

    The suite's probabilities are uniform in [0, 1), so each of n draws is 0 or 1 with equal probability. A
    difference from n / 2 of more than 4 standard deviations (of sqrt(n) / 2) is a failure.
    """
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{found.shape}, {wanted.dtype}{wanted.shape} is wanted"
    if not np.isin(found, (0, 1)).all():
        return "a draw is neither 0 nor 1"
    ones, count = float(found.sum()), found.size
    return f"{ones:g} ones in {count} draws" if abs(ones - count / 2) > 2 * count**0.5 else ""


def _infer(node: Node) -> Any:
    if not isinstance(node.op, OpDecl):
        return None
    return node.op.infer_type([arg.type for arg in node.args], node.attrs, node.args)


def with_constants(model: onnx.ModelProto, values: Mapping[str, Any]) -> onnx.ModelProto:
    """The model with its integer, bool and one-element inputs as constants."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for name, value in values.items():
        if isinstance(value, (np.ndarray, np.generic)) and (
            value.dtype.kind in "iub" or value.size == 1 or name in ("scales", "roi")
        ):
            made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return made


def _parts(value: Any) -> list[Any]:
    """The outputs of a value; the elements of a sequence are separate outputs."""
    return list(value) if isinstance(value, list) else [value]


def _difference(found: np.ndarray[Any, Any], wanted: Any, rtol: float, atol: float) -> str:
    expected = np.asarray(wanted)
    if found.dtype != expected.dtype:
        return f"dtype {found.dtype}, not {expected.dtype}"
    if found.shape != expected.shape:
        return f"shape {found.shape}, not {expected.shape}"
    if found.dtype.kind == "c" or DType.of(found.dtype).is_float:
        if found.dtype.itemsize < 4:
            # The suite rounds after each step, dlc may not: allow two units in the last digit.
            rtol = max(rtol, 2 * float(ml_dtypes.finfo(found.dtype).eps))  # type: ignore[no-untyped-call]
        finite = np.abs(expected[np.isfinite(expected)])
        if finite.size and expected.dtype.kind == "f":
            # After cancellation the error is relative to the terms, not to the small difference.
            atol = max(atol, 4 * float(np.finfo(np.float32).eps * finite.max()))
        a, b = (x.astype(np.float64) if x.dtype.kind != "c" else x for x in (found, expected))
        if not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
            with np.errstate(all="ignore"):
                return f"differs by {np.nanmax(np.abs(a - b))}"
        return ""
    return "" if np.array_equal(found, expected) else "differs"


def as_array(item: Any) -> Any:
    """A value of a data set: an array, or a list or optional of arrays."""
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    if isinstance(item, onnx.SequenceProto):
        return numpy_helper.to_list(item)
    if isinstance(item, onnx.OptionalProto):
        return numpy_helper.to_optional(item)
    return item


__all__ = [
    "COINS",
    "Score",
    "Verdict",
    "as_array",
    "cases",
    "coins_problem",
    "interpret",
    "judge",
    "judge_all",
    "with_constants",
]
