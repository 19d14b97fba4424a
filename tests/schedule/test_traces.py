"""Traces print as Python that runs, convert to JSON, and replay on equal and on similar programs."""

from __future__ import annotations

import contextlib
import json
import re

import pytest

from dlc_core.diag import ArtifactError, DlcError, ScheduleError, UsageError
from dlc_core.ir.expr import Var, maximum
from dlc_core.ir.structural import first_difference, structural_equal
from dlc_core.schedule import BlockRV, IndexMap, LoopRV, Schedule, Trace
from dlc_core.schedule.trace import Step


def worked(sch: Schedule) -> Schedule:
    """A schedule whose trace has every kind of argument and result."""
    matmul = sch.get_block("matmul")
    i, j, r = sch.get_loops(matmul)
    n0, n1 = sch.sample_perfect_tile(j, 2, decision=[6, 8])
    outer, _ = sch.split(j, [n0, n1])
    size = sch.sample_categorical([2, 4], [0.5, 0.5], decision=1)
    loops = sch.split(i, [None, size], tail="partition")
    sch.reorder(r, outer)
    sch.transform_layout(matmul, ("read", 1), lambda k, n: (n // 8, k, n % 8))
    relu = sch.get_block("relu")
    first, rest = sch.partition(sch.get_loops(relu)[0], [20])
    sch.vectorize(sch.get_loops(rest[relu])[1])
    sch.parallel(first.loop)
    sch.annotate(loops[0], "note", {"grain": 4, "kind": ("a", 0.5)})
    sch.compute_inline(sch.get_block("bias"))
    return sch


def symbolic(matmul, name="n") -> Schedule:
    n = Var(name)
    sch = matmul(n)
    relu = sch.get_block("relu")
    i = sch.get_loops(relu)[0]
    outer, inner = sch.split(i, [None, maximum(n // 2, 1)], tail="shrink")
    sch.split(inner, [maximum((outer.var + n) % 7, 1), None])
    return sch


def test_json_replays_to_the_same_program(sch, matmul):
    worked(sch)
    text = sch.trace.to_json()
    again = matmul()
    Trace.from_json(text).replay(again)
    assert first_difference(again.func, sch.func) is None
    assert again.trace.to_json() == text
    assert Trace.from_json(text).as_python() == sch.trace.as_python()


def test_a_printed_trace_runs(sch, matmul):
    worked(sch)
    fresh = matmul()
    exec(sch.trace.as_python(), {"sch": fresh})  # noqa: S102
    assert first_difference(fresh.func, sch.func) is None
    assert fresh.trace.as_python() == sch.trace.as_python()


def test_symbolic_factors_find_dims_by_name(matmul):
    done = symbolic(matmul)
    for replay in (
        lambda sch: done.trace.replay(sch),
        lambda sch: Trace.from_json(done.trace.to_json()).replay(sch),
        lambda sch: exec(done.trace.as_python(), {"sch": sch}),  # noqa: S102
    ):
        other = matmul(Var("n"))
        replay(other)
        assert structural_equal(other.func, done.func)
    with pytest.raises(ScheduleError, match="symbolic dim n, which the program does not have"):
        done.trace.replay(matmul(Var("m")))


def test_composed_layouts_are_replayed():
    layout = IndexMap.of(lambda i, j: (j, i)).then(IndexMap.of(lambda i, j: (i // 4, j, i % 4)))
    trace = Trace()
    trace.steps.append(Step("transform_layout", (BlockRV("x"), "A", layout), {}, ()))
    again = Trace.from_json(trace.to_json())
    assert again.as_python() == trace.as_python()
    assert ".then(IndexMap.of(" in trace.as_python()
    assert again.steps[0].args[2].output_shape((5, 6)) == layout.output_shape((5, 6)) == (2, 5, 4)


def test_other_decisions_change_dependent_steps(sch, matmul):
    worked(sch)
    assert sch.trace.decisions == [[6, 8], 1]
    other = matmul()
    sch.trace.with_decisions([[3, 16], 0]).replay(other)
    assert "range(16)" in other.show()
    assert other.trace.decisions == [[3, 16], 0]
    drawn = [matmul() for _ in range(2)]
    for schedule in drawn:
        sch.trace.with_decisions([None, None]).replay(schedule)
    assert drawn[0].trace.decisions == drawn[1].trace.decisions
    with pytest.raises(ScheduleError, match="1 decisions for a trace that draws 2 times"):
        sch.trace.with_decisions([None])


def test_replay_on_another_structure_is_refused(sch, matmul):
    worked(sch)
    with pytest.raises(ScheduleError, match="no primitive"):
        Trace([Step("copy", (), {}, ())]).replay(sch)
    with pytest.raises(ScheduleError, match="not 2 positive factors of 20"):
        sch.trace.replay(matmul(32, 20))
    unlike = Trace([Step("get_loops", (BlockRV("relu"),), {}, ())])
    with pytest.raises(ScheduleError, match="another structure"):
        unlike.replay(matmul())


def test_arguments_that_json_cannot_represent(sch):
    sch.annotate(BlockRV("relu"), "key", object())
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        sch.trace.to_json()


def test_malformed_json_is_refused(sch, matmul):
    text = worked(sch).trace.to_json()
    good = json.loads(text)
    for bad in (
        "",
        "{",
        "[]",
        "null",
        "7",
        '"x"',
        '{"schema": "dlc-trace"}',
        '{"schema": "dlc-ir", "version": 1}',
    ):
        with pytest.raises(ArtifactError):
            Trace.from_json(bad)
    with pytest.raises(ArtifactError, match="version 9"):
        Trace.from_json(json.dumps({**good, "version": 9}))
    for position, record in enumerate(good["records"]):
        for key in record:
            for wrong in (None, -1, 10**9, [], {}, "x", True):
                if record[key] == wrong:
                    continue
                records = list(good["records"])
                records[position] = {**record, key: wrong}
                with contextlib.suppress(DlcError):
                    Trace.from_json(json.dumps({**good, "records": records})).replay(matmul())


def test_truncated_json_is_refused(sch):
    text = worked(sch).trace.to_json()
    for end in range(0, len(text) - 1, 97):
        with pytest.raises(ArtifactError):
            Trace.from_json(text[:end])


def test_loops_of_no_step_are_printed_by_name(sch):
    trace = Trace()
    trace.steps.append(Step("unroll", (LoopRV(Var("q")),), {}, ()))
    assert re.search(r"sch\.unroll\(LoopRV\('q'\)\)", trace.as_python())
