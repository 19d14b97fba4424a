"""Level `ops`: every sample of every op in every dtype has the results of the op's reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from dlc_core.diag import TypeInferenceError
from dlc_core.graph.node import param
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import OpDecl
from dlc_core.op.samples import sample_dtypes
from dlc_core.plugin.registry import registry
from dlc_core.target import Target
from dlc_core.testing.cases import op_cases, symbolic_cases
from dlc_core.testing.dtypes import dtype_cases
from dlc_core.testing.levels.base import Level, Parameters, Record, Settings
from dlc_core.testing.pattern_cases import pattern_cases, patterns_of
from dlc_core.testing.runner import NOT_RUN, Outcome, check_outcomes, run_cases


def all_ops(settings: Settings) -> list[OpDecl]:
    """All ops of the registry, including those of plugins."""
    return [d for d in registry().ops.values() if not settings.ops or d.name in settings.ops]


def dtypes_of(decl: OpDecl, settings: Settings) -> list[str]:
    """The dtypes in which samples of an op are run."""
    found = dict.fromkeys(d for sample in decl.samples for d in sample_dtypes(decl, sample))
    return [d for d in found if not settings.dtypes or d in settings.dtypes]


def _dtypes(settings: Settings) -> Sequence[Any]:
    """Each op with its fast dtypes, and in a slow test with the others."""
    made = []
    for decl in all_ops(settings):
        dtypes = dtypes_of(decl, settings)
        fast = [d for d in dtypes if not settings.fast_dtypes or d in settings.fast_dtypes]
        slow = [d for d in dtypes if d not in fast]
        if fast:
            made.append(pytest.param((decl, tuple(fast)), id=decl.name))
        if slow:
            made.append(pytest.param((decl, tuple(slow)), id=f"{decl.name}-more", marks=pytest.mark.slow))
    return made


def _symbolic(settings: Settings) -> Sequence[Any]:
    """Each op with its fast samples, as (op, first, last), and in a slow test with the others."""
    fast, made = settings.fast_symbolic, []
    for decl in all_ops(settings):
        split = 0 < fast < len(decl.samples)
        made.append(pytest.param((decl, 0, fast if split else None), id=decl.name))
        if split:
            made.append(pytest.param((decl, fast, None), id=f"{decl.name}-more", marks=pytest.mark.slow))
    return made


def _ops(settings: Settings) -> Sequence[Any]:
    return [pytest.param(decl, id=decl.name) for decl in all_ops(settings)]


class OpsLevel(Level):
    """One test for each op, whose samples are compiled together."""

    level: ClassVar[str] = "ops"
    parameters: ClassVar[dict[str, Parameters]] = {
        "op_dtypes": _dtypes,
        "op_samples": _symbolic,
        "op": _ops,
    }

    def test_samples(self, op_dtypes: tuple[OpDecl, tuple[str, ...]], target: Target, record: Record) -> None:
        decl, dtypes = op_dtypes
        check_outcomes(record(run_cases(op_cases(decl, dtypes), target)))

    def test_symbolic_dims(
        self,
        op_samples: tuple[OpDecl, int, int | None],
        target: Target,
        conformance: Settings,
        record: Record,
    ) -> None:
        decl, first, last = op_samples
        check_outcomes(record(run_cases(symbolic_cases(decl, conformance.dtypes, first, last), target)))

    def test_declared_dtypes(self, target: Target, conformance: Settings, record: Record) -> None:
        """Conversions, data movement and arithmetic of the dtypes that plugins declare."""
        given = conformance.dtypes
        declared = [decl for decl in registry().dtypes.values() if not given or decl.name in given]
        if not declared:
            pytest.skip("no plugin declares a dtype")
        native = target.describe().dtypes
        cases = [c for d in declared for c in dtype_cases(d, d.emulated or d.name in native)]
        check_outcomes(record(run_cases(cases, target)))

    def test_patterns(self, target: Target, record: Record) -> None:
        """Instances of patterns of several operations, which samples of single operations do not match."""
        found = patterns_of(target)
        if not found:
            pytest.skip("no partitioner of this target has patterns of several operations")
        outcomes: list[Outcome] = []
        for partitioner, pattern in found:
            cases = pattern_cases(partitioner, pattern, target)
            outcomes += run_cases(cases, target)
            if not cases:
                name = f"ops/{partitioner.name}.{pattern.name}"
                outcomes.append(Outcome(name, NOT_RUN, "the target takes no instance that the kit can make"))
        check_outcomes(record(outcomes))

    def test_wrong_operands_are_refused(self, op: OpDecl) -> None:
        for sample in op.error_samples:
            params = [
                param(f"x{i}", tensor_type(t.shape, t.dtype or sample.dtype))
                for i, t in enumerate(sample.inputs)
            ]
            with pytest.raises(TypeInferenceError) as caught:
                op.build(*params, **sample.attrs)
            assert sample.message in str(caught.value)


__all__ = ["OpsLevel", "all_ops", "dtypes_of"]
