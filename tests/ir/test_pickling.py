"""Parts of programs as bytes: expressions come back as themselves, what both sides know as well."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Expr,
    Var,
    binary,
    broadcast,
    call,
    cast_to,
    const,
    ramp,
    select,
    unary,
)
from dlc_core.ir.pickling import dumps, loads
from dlc_core.schedule.index_map import IndexMap

N, X = Var("n"), Var("x", "float32")
A = Buffer("A", (N, 8), "float32")
KNOWN = (N, X, A)


@pytest.mark.parametrize(
    "expr",
    [
        N,
        const(3),
        const(-0.0, "float32"),
        const(True, "bool"),
        N // 4 + 1,
        unary("neg", X),
        binary("max", N, const(2)),
        cast_to("float32", N),
        select(N > 1, X, X * 2.0),
        call("exp", (X,), "float32"),
        ramp(N, 2, 4),
        broadcast(X, 8),
        A[N, 3] + X,
    ],
    ids=str,
)
def test_expressions_over_what_is_known_come_back_as_themselves(expr: Expr) -> None:
    assert loads(dumps(expr, KNOWN), KNOWN) is expr


def test_other_variables_and_buffers_are_new_but_shared() -> None:
    found, again, buffer = loads(dumps((N, N + 1, A)))
    assert found is not N
    assert (found.name, found.dtype) == ("n", N.dtype)
    assert again is found + 1
    assert buffer.shape == (found, const(8))
    assert (buffer.name, buffer.dtype, buffer.scope, buffer.align) == (A.name, A.dtype, A.scope, A.align)


def test_layouts_and_read_only_mappings() -> None:
    layout = IndexMap.of(lambda k, n: (n // 32, k, n % 32))
    found = loads(dumps(MappingProxyType({1: layout})))
    assert isinstance(found, MappingProxyType)
    assert str(found[1]) == str(layout)
    assert found[1].output_shape((64, 100)) == layout.output_shape((64, 100))


def test_what_has_no_bytes_is_refused() -> None:
    with pytest.raises(Exception, match="pickle"):
        dumps(lambda: None)
