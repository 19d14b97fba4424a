"""Features of lowered programs: what a learned model sees of a candidate.

    rows = Features(task).of(func)          [len(NAMES)]

As in Ansor and MetaSchedule [1, 2] they are counted for the statements of the innermost loops: arithmetic by
kind, extents of vectorised, unrolled and parallel loops, bytes and distinct bytes, strides, and reuse by its
kind, distance and count. They are added up over the statements, and given for the one that runs most. The
time that the core's cost model predicts is among them, with its parts.

Most features are relative to the work of the kernel or to a size of the machine, as logarithms to base 2, so
that they mean the same in kernels of other sizes. Counts of zero are 0.

[1] Zheng et al.: Ansor: Generating High-Performance Tensor Programs for Deep Learning, OSDI 2020.
[2] Shao et al.: Tensor Program Optimization with Probabilistic Programs, NeurIPS 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dlc_core.ir.buffer import Buffer
from dlc_core.tir.functor import stmts, stmts_of
from dlc_core.tir.scopes import bytes_of
from dlc_core.tir.stmt import Alloc, For, If, PrimFunc
from dlc_tune.ranking.accesses import Access, Statement
from dlc_tune.ranking.lowered import statement_copies
from dlc_tune.ranking.operations import KINDS
from dlc_tune.ranking.predict import Prediction, Predictor, Team
from dlc_tune.ranking.reuse import Reuse
from dlc_tune.task import Task

Row = npt.NDArray[np.float32]
LEVELS = 3
"""Caches whose misses are features: more than most machines have; missing ones repeat the last."""
PARTS = (("half", 0.5), ("", 1.0), ("double", 2.0))
"""The multiples of a cache beyond which reuse distances are misses."""
SHORT_RUN = 512
"""The bytes of contiguous parts below which misses are counted apart: they are not prefetched in time."""
BUFFERS = 3
"""The buffers with the most traffic whose reuse is described one by one."""


class Features:
    """The features of the candidates of one task. Programs of equal loops are lowered each time: keep them
    by the text of the trace."""

    def __init__(self, task: Task) -> None:
        self.predictor = Predictor(task)
        self._caches = self.predictor.description.caches

    def of(self, func: PrimFunc) -> Row:
        """The features of a scheduled kernel, [len(NAMES)] float32. Raises DlcError if a pass refuses it."""
        return self.row(self.predictor.predict(func))

    def row(self, found: Prediction) -> Row:
        """The features of a prediction, [len(NAMES)] float32."""
        values = {
            **self._predicted(found),
            **self._traffic(found),
            **_loops(found.statements, found.team),
            **_arithmetic(found.statements),
            **_strides(found.statements),
            **self._buffers(found),
            **self._code(found),
        }
        return np.array([values[name] for name in NAMES], np.float32)

    def _predicted(self, found: Prediction) -> dict[str, float]:
        limit = found.limit or 1e-9
        frequency = self.predictor.machine.frequency
        parts = found.parts
        kinds = (
            dict.fromkeys(_PARTS, 0.0) if parts is None else {name: getattr(parts, name) for name in _PARTS}
        )
        cycles = 0.0 if parts is None else parts.cycles
        whole = max(cycles, 1.0)
        return {
            "seconds_over_limit": _log(found.seconds / limit),
            "cycles_over_limit": _log(cycles / frequency / limit),
            "memory_over_limit": _log(found.memory_seconds / limit),
            "cycles_over_memory": _log((cycles / frequency) / max(found.memory_seconds, 1e-9)),
            **{f"cycles_{name}": value / whole for name, value in kinds.items()},
        }

    def _traffic(self, found: Prediction) -> dict[str, float]:
        least = float(self.predictor.work.bytes or 1)
        flops = float(self.predictor.work.flops or 1)
        values = {"accessed": _log(sum(one.bytes for one in found.reuses) / least)}
        for level in range(LEVELS):
            cache = self._caches[min(level, len(self._caches) - 1)] if self._caches else 1 << 15
            for part, size in PARTS:
                missed = sum(one.bytes for one in found.reuses if one.distance > size * cache)
                values[f"misses{level}{part}"] = _log(1 + missed / least)
                values[f"intensity{level}{part}"] = _log(flops / max(missed, 1.0))
            short = sum(one.bytes for one in found.reuses if one.distance > cache and one.run < SHORT_RUN)
            values[f"short{level}"] = _log(1 + short / least)
        return values

    def _buffers(self, found: Prediction) -> dict[str, float]:
        """The reuse of the buffers with the most traffic."""
        by_buffer: dict[Buffer, list[Reuse]] = {}
        for one in found.reuses:
            by_buffer.setdefault(one.access.buffer, []).append(one)
        ordered = sorted(by_buffer.values(), key=lambda each: -sum(one.bytes for one in each))
        least = float(self.predictor.work.bytes or 1)
        nearest = float(self._caches[0]) if self._caches else float(1 << 15)
        values: dict[str, float] = {}
        for number in range(BUFFERS):
            reused = ordered[number] if number < len(ordered) else []
            main = max(reused, key=lambda one: one.bytes, default=None)
            far = max(
                (one for one in reused if one.distance > nearest), key=lambda one: one.bytes, default=None
            )
            values |= {
                f"buffer{number}_bytes": _log(1 + sum(one.bytes for one in reused) / least),
                f"buffer{number}_unique": _log(
                    max((u.access.touched[0].bytes for u in reused), default=0.0) / least
                ),
                f"buffer{number}_distance": _log(1 + main.distance / nearest) if main else 0.0,
                f"buffer{number}_times": _log(main.times) if main else 0.0,
                f"buffer{number}_far": _log(1 + far.bytes / least) if far else 0.0,
                f"buffer{number}_run": _log(1 + main.run) if main else 0.0,
                f"buffer{number}_stride": _log(1 + main.access.innermost) if main else 0.0,
                f"buffer{number}_stored": float(any(one.access.is_store for one in reused)),
                f"buffer{number}_own": float(main is not None and main.access.buffer in _allocated(found)),
            }
        return values

    def _code(self, found: Prediction) -> dict[str, float]:
        machine = self.predictor.description
        code, loops = found.lowered.code, found.lowered.loops
        sizes = [bytes_of(one.buffer) or 0 for one in stmts_of(loops.body, Alloc)]
        registers = register_values(found.statements, machine.lanes(32) * 4)
        nearest = float(machine.caches[0]) if machine.caches else float(1 << 15)
        return {
            "code": _log(sum(1 for one in stmts(code.body) if not one.child_stmts())),
            "copies": _log(statement_copies(loops.body)),
            "conditions": _log(1 + sum(1 for _ in stmts_of(code.body, If))),
            "loops": _log(1 + sum(1 for _ in stmts_of(code.body, For))),
            "allocations": float(len(sizes)),
            "allocated": _log(1 + sum(sizes) / nearest),
            "allocated_most": _log(1 + max(sizes, default=0) / nearest),
            "registers": _log(1 + registers),
            "registers_over": _log(max(1.0, registers / max(1, machine.usable_registers))),
            "registers_used": registers / max(1, machine.usable_registers),
        }


def _allocated(found: Prediction) -> set[Buffer]:
    return {one.buffer for one in stmts_of(found.lowered.loops.body, Alloc)}


def register_values(found: Sequence[Statement], vector_bytes: int) -> float:
    """The vector registers that hold the temporaries which a statement keeps in registers, of the statement
    that needs the most."""
    most = 0.0
    for one in found:
        values: dict[Buffer, float] = {}
        for access in one.accesses:
            if access.in_register:
                unique = max(_register_bytes(one, access), access.buffer.dtype.itemsize)
                values[access.buffer] = max(values.get(access.buffer, 0.0), unique)
        most = max(most, sum(math.ceil(size / vector_bytes) for size in values.values()))
    return most


def _register_bytes(one: Statement, access: Access) -> float:
    count = math.prod([loop.extent for loop, stride in zip(one.loops, access.strides) if stride])
    return float(count * access.lanes * access.buffer.dtype.itemsize)


def _loops(found: Sequence[Statement], team: Team) -> dict[str, float]:
    """The extents of loops by kind: of the statement that runs most, and of all, weighted by how often they
    run."""
    total = sum(one.times for one in found) or 1.0
    main = max(found, key=_work_of, default=None)
    values: dict[str, float] = {"statements": _log(1 + len(found)), "threads": _log(team.threads)}
    for kind in _LOOPS:
        values[f"main_{kind}"] = _log(main.copies(kind)) if main else 0.0
        values[f"mean_{kind}"] = sum(_log(one.copies(kind)) * one.times for one in found) / total
    groups = math.prod([loop.extent for loop in main.loops if loop.thread.startswith("block")]) if main else 1
    inner = [loop for loop in main.loops if loop.kind in ("serial", "unrolled")] if main else []
    position = next((i for i, loop in enumerate(main.loops) if loop.kind == "parallel"), -1) if main else -1
    values["main_groups"] = _log(groups)
    values["main_depth"] = float(len(main.loops)) if main else 0.0
    values["main_inner"] = _log(inner[-1].extent) if inner else 0.0
    values["main_inner2"] = _log(inner[-2].extent) if len(inner) > 1 else 0.0
    values["main_outer"] = _log(main.loops[0].extent) if main and main.loops else 0.0
    values["parallel_position"] = float(position)
    values["balance"] = team.balance
    values["starts"] = _log(team.starts)
    values["main_part"] = main.times / total if main else 0.0
    values["guarded"] = sum(one.times for one in found if one.conditions) / total
    return values


def _arithmetic(found: Sequence[Statement]) -> dict[str, float]:
    """Operations of each kind: of all statements relative to all operations, and of one iteration of the
    statement that runs most."""
    counts = [(one.operations, one.times) for one in found]
    sums = {kind: sum(each[kind] * times for each, times in counts) for kind in KINDS}
    total = sum(sums.values()) or 1.0
    main = max(found, key=_work_of, default=None)
    inner = main.operations if main else dict.fromkeys(KINDS, 0)
    return {
        **{f"all_{kind}": sums[kind] / total for kind in KINDS},
        **{f"main_{kind}": _log(1 + inner[kind]) for kind in KINDS},
        "operations": _log(total),
    }


def _strides(found: Sequence[Statement]) -> dict[str, float]:
    """The parts of accesses by their stride along the innermost loop, loads and stores apart."""
    sums = {(store, kind): 0.0 for store in (False, True) for kind in ("same", "next", "far", "gather")}
    registers = total = 0.0
    for one in found:
        for access in one.accesses:
            total += one.times
            if access.in_register:
                registers += one.times
                continue
            stride = access.innermost
            kind = (
                "gather" if access.is_gather else "same" if not stride else "next" if stride == 1 else "far"
            )
            sums[access.is_store, kind] += one.times
    whole = total or 1.0
    names = {False: "load", True: "store"}
    return {
        **{f"{names[store]}_{kind}": value / whole for (store, kind), value in sums.items()},
        "in_registers": registers / whole,
    }


def _work_of(one: Statement) -> float:
    return one.times * (1 + len(one.accesses) + sum(one.operations.values()))


def _log(value: float) -> float:
    return math.log2(value) if value > 0 and math.isfinite(value) else 0.0


_PARTS = ("vector", "loads", "stores", "scalar", "carried")
_LOOPS = ("parallel", "vectorized", "unrolled", "serial", "thread")
_REUSE = ("bytes", "unique", "distance", "times", "far", "run", "stride", "stored", "own")
NAMES: tuple[str, ...] = (
    *("seconds_over_limit", "cycles_over_limit", "memory_over_limit", "cycles_over_memory"),
    *(f"cycles_{part}" for part in _PARTS),
    "accessed",
    *(
        f"{name}{level}{part}"
        for level in range(LEVELS)
        for part, _ in PARTS
        for name in ("misses", "intensity")
    ),
    *(f"short{level}" for level in range(LEVELS)),
    *(f"{name}_{kind}" for kind in _LOOPS for name in ("main", "mean")),
    *("statements", "threads", "main_groups", "main_depth", "main_inner", "main_inner2", "main_outer"),
    *("parallel_position", "balance", "starts", "main_part", "guarded"),
    *(f"{name}_{kind}" for kind in KINDS for name in ("all", "main")),
    "operations",
    *(f"{access}_{kind}" for access in ("load", "store") for kind in ("same", "next", "far", "gather")),
    "in_registers",
    *(f"buffer{number}_{name}" for number in range(BUFFERS) for name in _REUSE),
    *("code", "copies", "conditions", "loops", "allocations", "allocated", "allocated_most"),
    *("registers", "registers_over", "registers_used"),
)
"""The names of the features, in their order."""

__all__ = ["NAMES", "Features", "Row", "register_values"]
