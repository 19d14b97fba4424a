"""Every primitive refuses wrong arguments with a ScheduleError, and changes nothing."""

from __future__ import annotations

import pytest

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.schedule import BlockRV, IndexMap, LoopRV, Schedule
from dlc_core.schedule.trace import primitive_names
from tests.schedule.conftest import program
from tests.schedule.products import SCRIPTED

GETTERS = ("get_blocks", "get_output_blocks", "compact_buffers")
"""Primitives without arguments, which cannot be wrong."""


class Scene:
    """A schedule with invalid handles of all kinds."""

    def __init__(self) -> None:
        self.sch = Schedule(IRModule({"main": program(), "other": program(8, 8, 8)}), seed=3)
        sch = self.sch
        self.matmul, self.bias, self.relu = (sch.get_block(n) for n in ("matmul", "bias", "relu"))
        self.i, self.j, self.r = sch.get_loops(self.matmul)
        self.stale = sch.get_loops(self.relu)[0]
        sch.split(self.stale, [None, 4])
        self.elsewhere = sch.get_loops(sch.get_block("relu", func="other"))[0]
        self.nowhere = LoopRV(Var("q"))
        self.unknown = BlockRV("nothing")
        self.foreign = BlockRV("relu", "nothing")

    def bad_loops(self) -> list:
        return [self.stale, self.nowhere, self.matmul, self.unknown, None, 3, "i", [self.i]]

    def bad_blocks(self) -> list:
        return [self.unknown, self.foreign, self.i, self.stale, None, 3, "matmul", [self.matmul]]


def calls(name: str, s: Scene) -> list[tuple]:
    """Argument lists that the primitive must refuse, besides bad handles as the first argument."""
    far = LoopRV(Var("far"))
    return {
        "work_on": [("nothing",), (3,), (None,)],
        "get_block": [("nothing",), (3,), ("relu", "nothing"), ("relu", 5), (None,)],
        "get_loops": [],
        "get_child_blocks": [],
        "get_producers": [],
        "get_consumers": [],
        "split": [
            (s.i, []),
            (s.i, [4]),
            (s.i, [None, None]),
            (s.i, [None, 0]),
            (s.i, [None, -2]),
            (s.i, [2, 2]),
            (s.i, ["a", 2]),
            (s.i, 4),
            (s.i, [None, 4], "odd"),
            (s.i, [None, 5], "exact"),
            (s.i, [None, Var("m")]),
            (s.i, [None, 1.5]),
        ],
        "partition": [(s.i, [40]), (s.i, [-1]), (s.i, [9, 4]), (s.i, ["a"]), (s.i, 4), (s.i, [Var("m")])],
        "decide": [],
        "trim": [],
        "widen": [(s.i, 100), (s.j, 1), (s.r, 64), (s.i, "a")],
        "skip_zeros": [(s.i,), (s.j,)],
        "fuse": [(), (s.i,), (s.i, s.r), (s.j, s.i), (s.i, s.elsewhere), (s.i, s.i), (s.i, s.matmul)],
        "reorder": [(s.i, s.i), (s.i, s.elsewhere), (s.i, s.nowhere), (s.i, s.matmul)],
        "unroll": [],
        "vectorize": [(s.r,)],
        "parallel": [(s.r,)],
        "serial": [],
        "bind": [(s.r, "block.x"), (s.i, ""), (s.i, 3), (s.i, None)],
        "swizzle": [(s.i, s.r, 2), (s.i, s.i, 2), (s.i, s.j, 0), (s.i, s.j, "a"), (s.i, s.elsewhere, 2)],
        "software_pipeline": [(s.i, [0, 1]), (s.i, ["a"]), (s.i, 3)],
        "bulk_copy": [(s.i,), (s.r,), (s.bias,), ("a",)],
        "double_buffer": [(s.relu,)],
        "prefetch": [(s.i, "nothing", 4), (s.i, "A", 0), (s.i, 3, 4), (s.elsewhere, "A", 4)],
        "prefetch_at": [
            (s.i, "nothing", [s.i], lambda i: (i, 0)),
            (s.i, "A", [s.i], lambda i: (i,)),
            (s.i, "A", [s.i], lambda i, j: (i, j)),
            (s.i, "A", [s.elsewhere], lambda i: (i, 0)),
            (s.i, "A", 3, lambda i: (i, 0)),
        ],
        "annotate": [(s.i, 3, 4), (s.i, None, 4)],
        "add_unit_loop": [],
        "compute_inline": [(s.matmul,), (s.relu,)],
        "reverse_compute_inline": [(s.matmul,), (s.bias,)],
        "compute_at": [
            (s.matmul, s.i),
            (s.relu, s.i),
            (s.bias, far),
            (s.bias, s.elsewhere),
            (s.bias, s.relu),
            (s.bias, s.i, "yes"),
            (s.bias, s.sch.get_loops(s.relu)[0], True, 9),
            (s.bias, s.sch.get_loops(s.relu)[0], True, "0"),
        ],
        "reverse_compute_at": [
            (s.bias, s.r),
            (s.relu, s.i),
            (s.bias, far),
            (s.bias, s.elsewhere),
            (s.bias, s.i, True, 0),
        ],
        "duplicate": [
            (s.bias, []),
            (s.relu, [s.bias]),
            (s.bias, [s.matmul]),
            (s.bias, [3]),
            (s.bias, s.relu),
        ],
        "set_scope": [(s.relu, 0, "local"), (s.bias, 3, "local"), (s.bias, "x", "local"), (s.bias, 0, 3)],
        "cache_read": [
            (s.bias, 7, "local"),
            (s.bias, "x", "local"),
            (s.bias, 0, None),
            (s.bias, -1, "local"),
        ],
        "cache_write": [(s.bias, 7, "local"), (s.bias, "x", "local"), (s.bias, 0, None)],
        "reindex": [
            (s.bias, "x"),
            (s.bias, ("read", 9)),
            (s.bias, ("odd", 0)),
            (s.bias, 0),
            (s.bias, ("read",)),
        ],
        "storage_align": [
            (s.relu, 0, 0, 8),
            (s.bias, 0, 5, 8),
            (s.bias, 0, 0, 0),
            (s.bias, 0, 0, 8, 8),
            (s.bias, 0, 0, 8, -1),
            (s.bias, 0, 0.5, 8),
        ],
        "transform_layout": [
            (s.bias, "x", lambda i, j: (j, i)),
            (s.bias, "bias", lambda i: (i,)),
            (s.bias, "bias", 3),
            (s.relu, "relu", lambda i, j: (j, i)),
            (s.bias, ("odd", 0), lambda i, j: (j, i)),
            (s.bias, "bias", lambda i, j: (j, i), "zero"),
        ],
        "reorder_block_axes": [
            (s.bias, [0]),
            (s.bias, [0, 0]),
            (s.bias, [0, 2]),
            (s.bias, "10"),
            (s.bias, 1),
        ],
        "transform_block_layout": [
            (s.bias, lambda i: (i,)),
            (s.bias, lambda i, j: (i + j, j)),
            (s.bias, IndexMap.of(lambda i, j: (i // 5, j, i % 5))),
            (s.bias, 3),
            (s.relu, lambda i, j: (j, i)),
        ],
        "fuse_block_axes": [
            (s.bias, 0, 3),
            (s.bias, -1, 2),
            (s.bias, 1, 0),
            (s.matmul, 1, 2),
            (s.bias, "a", 2),
        ],
        "blockize": [],
        "tensorize": [
            (s.i, "nothing"),
            (s.i, SCRIPTED),
            (s.relu, SCRIPTED),
            (s.i, 3),
            (s.i, None),
        ],
        "decompose_reduction": [(s.relu, s.i), (s.matmul, s.elsewhere), (s.matmul, s.stale), (s.matmul, 3)],
        "rfactor": [(s.i, 0), (s.r, 9), (s.r, -1), (s.r, "a")],
        "decompose_padding": [(s.bias, s.i), (s.matmul, s.i), (s.bias, s.elsewhere), (s.bias, None)],
        "pad_einsum": [(s.relu, [4, 4]), (s.matmul, [4]), (s.matmul, [0, 1, 1]), (s.matmul, ["a", 1, 1])],
        "sample_perfect_tile": [(s.i, 0), (s.i, 2, 0), (s.i, 2, 16, [5, 5]), (s.i, "a"), (s.i, 2, 16, 3)],
        "sample_categorical": [([],), ([1], [1, 2]), ([1, 2], [0, 0]), ([1], None, 3), (3,), (["a"],)],
        "sample_compute_location": [(s.bias, 99), (s.bias, -2), (s.bias, "a")],
    }[name]


ALL = [name for name in primitive_names(Schedule) if name not in GETTERS]


@pytest.mark.parametrize("name", ALL)
def test_refused_arguments_change_nothing(name: str) -> None:
    scene = Scene()
    sch = scene.sch
    lists = calls(name, scene)
    method = getattr(sch, name)
    first = next(iter(method.__wrapped__.__annotations__.values()), "")
    if "LoopRV" in first or "BlockRV" in first:
        both = "LoopRV" in first and "BlockRV" in first
        bad = scene.bad_loops() if "LoopRV" in first else scene.bad_blocks()
        good = next((a[1:] for a in lists), ())
        lists += [(handle, *good) for handle in bad if not (both and handle == scene.matmul)]
    before, steps, state = sch.mod, len(sch.trace.steps), sch._random.getstate()
    assert lists, name
    for arguments in lists:
        with pytest.raises((ScheduleError, TypeError)) as caught:
            method(*arguments)
        if isinstance(caught.value, TypeError):
            assert "argument" in str(caught.value), (arguments, caught.value)
        assert sch.mod.functions.keys() == before.functions.keys()
        for one in before.functions:
            assert sch.mod[one] is before[one], arguments
        assert len(sch.trace.steps) == steps
        assert sch._random.getstate() == state
        assert sch.func is before["main"]


def test_every_primitive_is_tried():
    scene = Scene()
    for name in ALL:
        calls(name, scene)
