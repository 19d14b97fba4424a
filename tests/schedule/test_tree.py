"""The index of a program's statements, and its update by primitives that keep the structure."""

from __future__ import annotations

from dlc_core import te
from dlc_core.schedule import Schedule
from dlc_core.schedule.tree import Tree


def _scheduled() -> Schedule:
    """A schedule of two stages; the first is computed in a loop of the second."""
    x = te.placeholder((8, 16), "float32", "x")
    doubled = te.compute((8, 16), lambda i, j: x[i, j] + x[i, j], "doubled")
    result = te.compute((8, 16), lambda i, j: doubled[i, j] * doubled[i, 15 - j], "result")
    schedule = Schedule(te.create_prim_func([x], [result], "example"))
    schedule.compute_at(schedule.get_block("doubled"), schedule.get_loops(schedule.get_block("result"))[0])
    return schedule


def _same_index(schedule: Schedule) -> bool:
    """Whether the program's index equals one that is made of its body, in order."""
    known, fresh = schedule._program.tree, Tree(schedule.func.body)
    return known.root is fresh.root and all(
        list(getattr(known, part).items()) == list(getattr(fresh, part).items())
        for part in ("parent", "loops", "blocks", "allocs")
    )


def test_changes_of_fields_update_the_index() -> None:
    schedule = _scheduled()
    block = schedule.get_block("result")
    rows, columns = schedule.get_loops(block)
    outer = schedule._program.tree.outermost
    assert [block.name for block in outer] == ["doubled", "result"]
    for change in (
        lambda: schedule.parallel(rows),
        lambda: schedule.vectorize(columns),
        lambda: schedule.annotate(columns, "note", 1),
        lambda: schedule.annotate(block, "note", 2),
    ):
        change()
        assert _same_index(schedule)
    kinds = [loop.kind for loop in schedule._program.tree.loops.values()]
    assert kinds == ["parallel", "serial", "serial", "vectorized"]
    named = schedule._program.tree.blocks["result"]
    assert dict(named.annotations) == {"note": 2}
    assert schedule._program.tree.outermost[1] is named


def test_the_users_of_buffers_are_known_after_changes_of_fields() -> None:
    schedule = _scheduled()
    (buffer,) = schedule._program.tree.allocs
    before = len(schedule._program.tree.users(buffer))
    schedule.unroll(schedule.get_loops(schedule.get_block("doubled"))[1])
    tree = schedule._program.tree
    assert len(tree.users(buffer)) == before
    assert all(stmt in tree.parent for stmt in tree.touching(buffer))
