"""A check for those who write spaces: a point keeps the results of the kernel, and its trace replays.

    made = check_point(space, task, answer)        AssertionError if results differ

The interpreter of tensor programs runs the kernel before and after, so that no hardware of the target is
needed. It is slow: take small kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dlc_core.ir.expr import Var
from dlc_core.ir.structural import first_difference
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.schedule import Trace
from dlc_core.testing.cases import difference
from dlc_core.testing.schedules import TOLERANCES, lower_kernel, make_arrays, run_kernel
from dlc_core.tir.functor import buffers_written
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func
from dlc_tune.choices import Answer
from dlc_tune.space import Candidate, Invalid, Space, candidate
from dlc_tune.task import Task


def check_point(
    space: Space, task: Task, answer: Answer, sizes: Mapping[Var, int] = MappingProxyType({})
) -> Candidate | Invalid:
    """Make a candidate of a task, and compare its results on small integers with those of the kernel.

    `sizes` are the values of symbolic dims. Raises AssertionError if results differ, or if the trace, read
    from its JSON, makes another program. Raises RuntimeFailure for accesses out of bounds and for parallel
    iterations that conflict. An invalid point is returned unchecked.
    """
    made = candidate(space, task, answer)
    if isinstance(made, Candidate):
        verify_func(made.func, level=2)
        again = task.schedule()
        Trace.from_json(made.trace.to_json()).replay(again)
        other = first_difference(again.func, made.func)
        if other is not None:
            raise AssertionError(f"the trace of {made.point} makes another program: {other}")
        _check_results(task.func, made, sizes)
    return made


def _check_results(func: PrimFunc, made: Candidate, sizes: Mapping[Var, int]) -> None:
    arrays = make_arrays(func, sizes, 0)
    written = set(buffers_written(func.body))
    outputs = [number for number, buffer in enumerate(func.buffers) if buffer in written]
    expected = run_kernel(lower_blocks(func), arrays, sizes, outputs)
    packed = list(arrays)
    for position, layout in made.func.attrs.get("repack", {}).items():
        packed[position] = layout.apply_numpy(arrays[position])
    found = run_kernel(lower_kernel(made.func), packed, sizes, outputs, check=True)
    wrong = difference(found, expected, TOLERANCES)
    if wrong is not None:
        raise AssertionError(f"{wrong}, with {made.point}:\n{made.trace}")


__all__ = ["check_point"]
