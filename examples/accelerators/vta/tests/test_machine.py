"""The functional simulator: arithmetic, transfers, and accesses out of bounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from dlc_backend_vta.config import ACC, INP, UOP, Config
from dlc_backend_vta.isa import Alu, Gemm, Load, Op, Store
from dlc_backend_vta.machine import Machine, alu
from helpers import flat
from hypothesis import given
from hypothesis import strategies as st

from dlc_core.diag import RuntimeFailure

CONFIG = Config(inp_kb=1, wgt_kb=1, acc_kb=4, uop_kb=1)
INT32 = st.integers(-(2**31), 2**31 - 1)


def wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def one(op: Op, d: int, s: int, r: int = 0) -> int:
    return int(alu(op, np.array([d], np.int32), np.int32(s), np.int32(r))[0])


@given(INT32, INT32)
def test_sums_and_products_wrap_around(d, s):
    with np.errstate(over="ignore"):
        assert one(Op.ADD, d, s) == wrapped(d + s)
        assert one(Op.MUL, d, s) == wrapped(d * s)
    assert (one(Op.MAX, d, s), one(Op.MIN, d, s), one(Op.MOV, d, s)) == (max(d, s), min(d, s), s)


@given(INT32, st.integers(0, 31))
def test_shifts_round_down_or_to_the_nearest(d, by):
    assert one(Op.SHR, d, by) == d >> by
    assert one(Op.RSHR, d, by) == wrapped((d + (1 << by >> 1)) >> by)


@given(INT32, st.integers(0, 2**31 - 1), st.integers(0, 62))
def test_fixed_products_are_exact_and_rounded_once(d, mantissa, shift):
    exact = round(Fraction(d * mantissa, 1 << shift))  # ties to even
    assert one(Op.FIXED, d, mantissa, shift) == max(-(2**31), min(2**31 - 1, exact))


@given(INT32, st.floats(0, 1, width=32))
def test_scales_round_in_float32(d, factor):
    bits = int(np.float32(factor).view(np.int32))
    expected = np.rint(np.float32(d) * np.float32(factor))
    assert one(Op.SCALE, d, bits) == int(np.clip(float(expected), -(2**31), 2**31 - 1))


def machine_with(uops: list[tuple[int, int, int]]) -> Machine:
    machine = Machine(CONFIG)
    rows = np.array([(*row, 0) for row in uops], np.uint16)
    machine.memories[UOP][: len(uops)] = rows.view(np.uint8).reshape(-1, 1, 8)
    return machine


def test_a_load_makes_a_border_and_fills_partial_entries():
    machine = Machine(CONFIG)
    data = np.arange(2 * 3, dtype=np.int8).reshape(2, 3)  # two channels of three pixels
    load = Load(memory=INP, x=3, b=2, xs=1, bs=3, left=1, right=2, top=1, y_pitch=6, fill=-7, sram=1)
    machine.step(load, [flat(data)])
    found = machine.memories[INP][1:13, 0].reshape(2, 6, 16)
    assert (found[0] == -7).all()
    assert found[1, 1:4, :2].tolist() == data.T.tolist()
    assert (found[1, [0, 4, 5]] == -7).all()
    assert (found[1, :, 2:] == -7).all()


def test_flipped_bytes_are_less_128():
    machine = Machine(CONFIG)
    card = [np.arange(256, dtype=np.uint8)]
    machine.step(Load(memory=ACC, flip=True, x=16, b=16, xs=16, bs=1), card)
    assert machine.memories[ACC][:16].ravel().tolist() == [value - 128 for value in range(256)]
    back = [np.zeros(256, np.uint8)]
    machine.step(Store(flip=True, x=16, b=16, xs=16, bs=1), back)
    assert back[0].tolist() == card[0].tolist()


def test_a_chain_within_an_instruction_is_in_order():
    machine = machine_with([(0, 1, 0), (0, 2, 0)])
    machine.memories[ACC][:3] = np.array([0, 5, 7])[:, None, None]
    machine.step(Alu(op=Op.ADD, begin=0, end=2, outer=3), [])  # three iterations, all on entry 0
    assert (machine.memories[ACC][0] == 3 * 12).all()
    machine = machine_with([(1, 0, 0)])
    machine.memories[ACC][:3] = np.array([1, 5, 7])[:, None, None]
    machine.step(Alu(op=Op.ADD, begin=0, end=1, inner=2, acc_j=1, src_j=1), [])  # each reads the one before
    assert machine.memories[ACC][:3, 0, 0].tolist() == [1, 6, 13]


def test_products_add_or_overwrite():
    rng = np.random.default_rng(0)
    machine = machine_with([(0, 0, 0), (0, 1, 1)])
    for memory in machine.memories[:2]:
        memory[...] = rng.integers(-128, 128, memory.shape)
    inp, wgt = (memory[:2].astype(np.int32) for memory in machine.memories[:2])
    parts = [inp[i] @ wgt[i].T for i in range(2)]
    machine.memories[ACC][0] = 1000
    machine.step(Gemm(begin=0, end=2), [])
    assert (machine.memories[ACC][0] == 1000 + parts[0] + parts[1]).all()
    machine.step(Gemm(begin=0, end=2, fresh=True), [])
    assert (machine.memories[ACC][0] == parts[1]).all()


def test_moving_weights_and_repeated_sums():
    rng = np.random.default_rng(1)
    machine = machine_with([(0, 0, 0)])
    for memory in machine.memories[:2]:
        memory[...] = rng.integers(-128, 128, memory.shape)
    machine.memories[ACC][0] = 0
    machine.step(Gemm(begin=0, end=1, outer=3, inp_i=1, wgt_i=1), [])
    inp, wgt = (memory[:3].astype(np.int32) for memory in machine.memories[:2])
    assert (machine.memories[ACC][0] == sum(inp[i] @ wgt[i].T for i in range(3))).all()


@pytest.mark.parametrize(
    "instruction",
    [
        Load(memory=INP, x=100, b=16, xs=1, bs=1),
        Load(memory=INP, sram=63, x=2, b=1, xs=1),
        Load(memory=INP, base=3),
        Load(memory=ACC, wide=True, offset=2),
        Store(left=1),
        Gemm(begin=0, end=1, acc=64),
        Gemm(begin=0, end=200),
        Alu(op=Op.ADD, begin=0, end=1, src=64),
    ],
)
def test_accesses_out_of_bounds_are_refused(instruction):
    with pytest.raises(RuntimeFailure):
        machine_with([(0, 0, 0)]).step(instruction, [np.zeros(100, np.uint8)])
