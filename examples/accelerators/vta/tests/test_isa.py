"""Instructions as values and as bytes."""

from __future__ import annotations

from dataclasses import fields

import pytest
from dlc_backend_vta.isa import KINDS, Alu, Gemm, Load, Op, decode, decode_all, encode, encode_all
from hypothesis import given
from hypothesis import strategies as st

from dlc_core.diag import ArtifactError, UsageError


@st.composite
def instructions(draw):
    cls = draw(st.sampled_from(list(KINDS.values())))
    values = {}
    for f in fields(cls):
        bits = f.metadata["bits"]
        low = -(1 << (bits - 1)) if f.metadata["signed"] else 0
        value = draw(st.integers(low, low + (1 << bits) - 1))
        values[f.name] = bool(value) if bits == 1 else value
    if cls is Alu:
        values["op"] = draw(st.sampled_from(list(Op)))
    return cls(**values)


@given(st.lists(instructions(), max_size=5))
def test_encoded_programs_are_decoded(program):
    data = encode_all(program)
    assert len(data) == 64 * len(program)
    assert decode_all(data) == program


@given(st.binary(min_size=64, max_size=64))
def test_bytes_are_an_instruction_or_an_error(data):
    try:
        one = decode(data)
    except ArtifactError:
        return
    assert encode(one) == data


@pytest.mark.parametrize(
    ("one", "field"), [(Gemm(acc=1 << 16), "acc"), (Load(x=-1), "x"), (Alu(first=1 << 31), "first")]
)
def test_numbers_that_do_not_fit_their_field_are_named(one, field):
    with pytest.raises(UsageError, match=rf"\.{field} = "):
        encode(one)


def test_instructions_are_shown_with_their_tokens():
    assert str(Alu(op=Op.MAX, pop_prev=True, push_next=True)) == "alu pop_prev push_next max"
    assert str(Load(memory=1, sram=7)) == "load wgt[7]"
