"""Tests of the methods that are derived from the fields of expression classes."""

from __future__ import annotations

import pytest

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    EXPRESSIONS,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Var,
    broadcast,
    call,
    cast_to,
    const,
    load,
    post_order,
    ramp,
    select,
    transform,
    unary,
)
from dlc_core.ir.json import EXPR_KINDS, decode, encode
from dlc_core.ir.structural import first_difference, structural_equal
from dlc_core.script.json import from_json, to_json

N, M = Var("n"), Var("m")
BUFFER = Buffer("b", (16, N), "float32")
SAMPLES: dict[type[Expr], Expr] = {
    type(e): e
    for e in (
        N,
        const(2.5, "float32"),
        unary("neg", N),
        N + M,
        cast_to("float32", N),
        select(N < M, N, M),
        call("f", (N, M), "int32"),
        ramp(N, M, 4),
        broadcast(N, 8),
        load(BUFFER, (N, M)),
    )
}


def test_each_class_has_a_sample():
    assert list(SAMPLES) == EXPRESSIONS


@pytest.mark.parametrize("e", SAMPLES.values(), ids=lambda e: type(e).__name__)
def test_an_expression_is_remade_from_its_fields(e):
    """A variable is identified by its object, so its fields make another one."""
    again = e.make(*e.values)
    assert structural_equal(again, e)
    assert (again is e) is not isinstance(e, Var)
    assert e.rebuild(e.children) is e
    assert structural_equal(from_json(to_json(e)), e)
    known = [
        value for one in post_order(e) for value in (one, *one.values) if isinstance(value, (Buffer, Var))
    ]
    assert decode(encode(e, EXPR_KINDS, known=known), EXPR_KINDS, known=known) is e
    assert not hasattr(e, "__dict__")


@pytest.mark.parametrize(
    "e",
    [e for e in SAMPLES.values() if e.children],
    ids=[c.__name__ for c, e in SAMPLES.items() if e.children],
)
def test_rebuild_with_other_operands(e):
    other = Var("other")
    new = transform(e, lambda part: other if part is N else None)
    assert type(new) is type(e)
    assert new.data == e.data
    assert new.dtype is e.dtype
    assert other in new.children or any(other in child.children for child in new.children)
    assert first_difference((N, e), (N, new)) is not None


def test_operands_and_data_are_separate_fields():
    assert (SAMPLES[Cast].children, SAMPLES[Cast].data) == ((N,), ())
    assert (SAMPLES[Ramp].children, SAMPLES[Ramp].data) == ((N, M), (4,))
    assert (SAMPLES[Call].children, SAMPLES[Call].data) == ((N, M), ("f",))
    assert (SAMPLES[Load].children, SAMPLES[Load].values) == ((N, M), (BUFFER, (N, M)))
    assert (SAMPLES[Const].children, SAMPLES[Const].data) == ((), (2.5,))


def test_a_rebuilt_cast_has_the_lanes_of_its_operand():
    wide = SAMPLES[Cast].rebuild((ramp(N, 1, 4),))
    assert wide.dtype.name == "float32x4"
