"""The functional simulator of instructions: exact arithmetic, no time.

Memories are arrays [entries, rows, columns]; the memory of the card is one array of bytes for each base
register.  Instructions run in the order of the stream, which every order that keeps the tokens agrees with
(`hazards` proves that for a stream, or finds where it is wrong).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dlc_backend_vta.config import ACC, INP, UOP, WGT, Config
from dlc_backend_vta.isa import TWO, Alu, Gemm, Instruction, Load, Op, Store
from dlc_backend_vta.transfer import on_card, on_chip
from dlc_core.diag import RuntimeFailure

NDArray = np.ndarray[Any, Any]
INT32 = np.iinfo(np.int32)


class Machine:
    """The memories on the chip, and the execution of single instructions."""

    def __init__(self, config: Config) -> None:
        self.config = config
        dtypes = (np.int8, np.int8, np.int32, np.uint8)
        self.memories: list[NDArray] = [
            np.zeros((count, *shape), dtype)
            for count, shape, dtype in zip(config.entries, config.shapes, dtypes)
        ]

    def run(self, program: Iterable[Instruction], card: Sequence[NDArray]) -> None:
        """Execute a stream on the memory of the card, which stores change in place."""
        for one in program:
            self.step(one, card)

    def step(self, one: Instruction, card: Sequence[NDArray]) -> None:
        """Execute one instruction; RuntimeFailure for one that reaches outside of a memory."""
        if isinstance(one, (Load, Store)) and one.base >= len(card):
            raise RuntimeFailure(f"{one}: base register {one.base}, of {len(card)}")
        if isinstance(one, Load):
            self._load(one, card[one.base])
        elif isinstance(one, Store):
            self._store(one, card[one.base])
        elif isinstance(one, Gemm):
            self._gemm(one)
        elif isinstance(one, Alu):
            self._alu(one)

    def _load(self, one: Load, memory: NDArray) -> None:
        data = on_card(one, memory)
        entries = on_chip(one, self.config)
        target = self.memories[one.memory]
        block = np.full((*entries.shape, *target.shape[1:]), one.fill, np.int32).astype(target.dtype)
        inside = block[:, one.top : one.top + one.y, one.left : one.left + one.x, : one.a, : one.b]
        inside[...] = data ^ np.int8(-128) if one.flip else data.view(np.uint8) if one.memory == UOP else data
        target[entries] = block

    def _store(self, one: Store, memory: NDArray) -> None:
        if one.top or one.bottom or one.left or one.right:
            raise RuntimeFailure(f"{one}: a store has no border")
        found = self.memories[ACC][on_chip(one, self.config)][..., : one.a, : one.b]
        target = on_card(one, memory)
        narrow = found if one.wide else found.astype(np.int8)
        target[...] = narrow ^ np.int8(-128) if one.flip else narrow

    def uops(self, begin: int, end: int) -> NDArray:
        """Micro-operations as rows (acc, inp or src, wgt)."""
        if not 0 <= begin <= end <= self.config.entries[UOP]:
            raise RuntimeFailure(f"micro-operations {begin}:{end} are outside their memory")
        raw = np.ascontiguousarray(self.memories[UOP][begin:end].reshape(-1, 8))
        return raw.view(np.uint16).astype(np.int64)[:, :3]

    def indices(self, one: Gemm | Alu) -> tuple[NDArray, ...]:
        """The entries of an instruction by operand: [loops, micro-operations] each."""
        uops = self.uops(one.begin, one.end)
        i, j = np.divmod(np.arange(one.outer * one.inner), one.inner)
        found = [(one.acc + i * one.acc_i + j * one.acc_j)[:, None] + uops[:, 0]]
        if isinstance(one, Gemm):
            found.append((one.inp + i * one.inp_i + j * one.inp_j)[:, None] + uops[:, 1])
            found.append((one.wgt + i * one.wgt_i + j * one.wgt_j)[:, None] + uops[:, 2])
            limits = (ACC, INP, WGT)
        else:
            found.append((one.src + i * one.src_i + j * one.src_j)[:, None] + uops[:, 1])
            limits = (ACC, ACC, ACC)
        for entries, memory in zip(found[: 1 if _lone(one) else 3], limits):
            if entries.size and int(entries.max()) >= self.config.entries[memory]:
                raise RuntimeFailure(f"{one}: entry {int(entries.max())} is outside its memory")
        return tuple(found)

    def _gemm(self, one: Gemm) -> None:
        acc, inp, wgt = self.indices(one)
        if not acc.size:
            return
        steady = bool((wgt == wgt[:1]).all())
        if one.fresh and np.unique(acc).size < acc.size:
            self._one_by_one(one, acc.ravel(), inp.ravel(), wgt.ravel())
            return
        for columns in _groups(acc, steady):
            first = acc[:, columns[0]]
            if not steady or np.unique(first).size < first.size:
                for u in columns:
                    self._one_by_one(one, acc[:, u], inp[:, u], wgt[:, u])
                continue
            # Products of bytes summed over any depth that fits here are exact in float64.
            left = self.memories[INP][inp[:, columns]].transpose(0, 2, 1, 3).astype(np.float64)
            right = self.memories[WGT][wgt[0, columns]].transpose(0, 2, 1).astype(np.float64)
            rows, batch = left.shape[:2]
            made = left.reshape(rows * batch, -1) @ right.reshape(-1, right.shape[2])
            product = made.astype(np.int64).astype(np.int32).reshape(rows, batch, -1)
            if one.fresh:
                self.memories[ACC][first] = product
            else:
                self.memories[ACC][first] += product

    def _one_by_one(self, one: Gemm, acc: NDArray, inp: NDArray, wgt: NDArray) -> None:
        for d, s, w in zip(acc, inp, wgt):
            product = self.memories[INP][s].astype(np.int32) @ self.memories[WGT][w].astype(np.int32).T
            self.memories[ACC][d] = product if one.fresh else self.memories[ACC][d] + product

    def _alu(self, one: Alu) -> None:
        acc, src = self.indices(one)
        memory = self.memories[ACC]
        for u in range(acc.shape[1]):
            d, s = acc[:, u], src[:, u]
            apart = one.immediate or not np.intersect1d(d, s).size or bool((d == s).all())
            if np.unique(d).size == d.size and apart:
                memory[d] = self._apply(one, memory[d], s)
            else:
                for k in range(d.size):
                    memory[d[k]] = self._apply(one, memory[d[k]], s[k])

    def _apply(self, one: Alu, d: NDArray, src: Any) -> NDArray:
        op = Op(one.op)
        if one.immediate:
            return alu(op, d, np.int32(one.first), np.int32(one.second))
        memory = self.memories[ACC]
        return alu(op, d, memory[src], memory[src + 1] if op in TWO else np.int32(0))


def _lone(one: Gemm | Alu) -> bool:
    """Whether an instruction names accumulators alone."""
    return isinstance(one, Alu) and one.immediate


def _groups(acc: NDArray, steady: bool) -> list[list[int]]:
    """Micro-operations that go to the same accumulators, in order; each alone where weights move."""
    if not steady:
        return [[u] for u in range(acc.shape[1])]
    found: dict[int, list[int]] = {}
    for u, first in enumerate(acc[0].tolist()):
        found.setdefault(first, []).append(u)
    return list(found.values())


def alu(op: Op, d: NDArray, s: Any, r: Any) -> NDArray:
    """The result of a vector operation on arrays of int32."""
    if op is Op.MOV:
        return np.broadcast_to(s, d.shape).astype(np.int32)
    if op is Op.ADD:
        return np.asarray(d + s)
    if op is Op.MUL:
        return np.asarray(d * s)
    if op is Op.MAX:
        return np.asarray(np.maximum(d, s))
    if op is Op.MIN:
        return np.asarray(np.minimum(d, s))
    if op is Op.CLIP:
        return np.asarray(np.minimum(np.maximum(d, s), r))
    wide = d.astype(np.int64)
    if op in (Op.SHR, Op.RSHR):
        by = np.clip(s, 0, 31).astype(np.int64)
        half = (np.int64(1) << by) >> 1 if op is Op.RSHR else np.int64(0)
        return np.asarray((wide + half) >> by).astype(np.int32)
    if op is Op.FIXED:
        product, by = wide * s, np.clip(r, 0, 62).astype(np.int64)
        floor = product >> by
        twice = 2 * (product - (floor << by)) + (floor & 1)
        rounded = floor + (twice > (np.int64(1) << by))
        return np.asarray(np.clip(rounded, INT32.min, INT32.max).astype(np.int32))
    factor = np.asarray(s, np.int32).view(np.float32)
    with np.errstate(all="ignore"):
        product = np.rint(d.astype(np.float32) * factor).astype(np.float64)
        limited = np.clip(np.nan_to_num(product, nan=0.0), INT32.min, INT32.max)
    return np.asarray(limited.astype(np.int32))


__all__ = ["Machine", "alu"]
