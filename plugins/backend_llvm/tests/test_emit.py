"""Each construct of the emitter, compared with the interpreter or NumPy."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Expr, Var, binary, broadcast, cast_to, const, load, ramp, select
from dlc_core.tir import interpreter
from dlc_core.tir.functor import buffers_written
from dlc_core.tir.intrinsics import address_of, if_then_else, prefetch, vector_concat, vector_shuffle
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, Let, PrimFunc, Stmt, Store, View, While, seq

Array = np.ndarray[Any, Any]
N = 16


def loop(extent: Any, body: Callable[[Var], Stmt], kind: str = "serial", begin: int = 0) -> For:
    var = Var("i")
    size = const(extent) if isinstance(extent, int) else extent
    return For(var, const(begin), size, body(var), kind)


def ints(count: int = N, low: int = -50, high: int = 50, type_: str = "int32") -> Array:
    return np.random.default_rng(3).integers(low, high, count).astype(type_)


# Registers and control flow


@pytest.mark.parametrize("n", [0, 1, 5])
def test_loops_carry_registers_in_phis(native: Any, agree: Any, n: int) -> None:
    """A sum and a maximum in registers, also of loops without iterations."""
    x, out, size = Buffer("x", (N,), "int32"), Buffer("out", (2,), "int32"), Var("n")
    r = Buffer("r", (2,), "int32", scope="local")
    body = Alloc(
        r,
        seq(
            Store(r, (const(0),), const(7, "int32")),
            Store(r, (const(1),), const(-100, "int32")),
            loop(
                size,
                lambda i: seq(
                    Store(r, (const(0),), r[0] + x[i]),
                    Store(r, (const(1),), binary("max", r[1], x[i] - r[0])),
                ),
            ),
            Store(out, (const(0),), r[0]),
            Store(out, (const(1),), r[1]),
        ),
    )
    func = PrimFunc("f", (x, out, size), body)
    agree(func, [ints(), np.zeros(2, np.int32)], [n])
    assert "alloca" not in native(func).text


@pytest.mark.parametrize("with_else", [False, True])
def test_branches_merge_registers(agree: Any, with_else: bool) -> None:
    x, out = Buffer("x", (N,), "int32"), Buffer("out", (1,), "int32")
    r = Buffer("r", (1,), "int32", scope="local")
    zero = (const(0),)

    def step(i: Var) -> Stmt:
        other = If(x[i] < 10, Store(r, zero, r[0] * 3)) if with_else else None
        return If(x[i] > 0, seq(Store(r, zero, r[0] + x[i]), Store(r, zero, r[0] ^ i_of(i))), other)

    def i_of(i: Var) -> Expr:
        return cast_to("int32", i)

    body = Alloc(r, seq(Store(r, zero, const(1, "int32")), loop(N, step), Store(out, zero, r[0])))
    agree(PrimFunc("f", (x, out), body), [ints(), np.zeros(1, np.int32)])


def test_neighbouring_lanes_of_vectors_in_registers(native: Any, agree: Any) -> None:
    """A tail of a store takes some lanes of a promoted vector."""
    x, out = Buffer("x", (N,), "float32"), Buffer("out", (7,), "float32")
    r = Buffer("r", (8,), "float32", scope="local")
    lanes = (ramp(const(0), 1, 8),)
    body = Alloc(
        r,
        seq(
            Store(r, lanes, load(x, lanes) * 2.0),
            Store(out, (ramp(const(0), 1, 4),), load(r, (ramp(const(0), 1, 4),))),
            Store(out, (ramp(const(4), 1, 2),), load(r, (ramp(const(4), 1, 2),))),
            Store(out, (const(6),), load(r, (const(6),))),
        ),
    )
    func = PrimFunc("f", (x, out), body)
    agree(func, [ints().astype(np.float32), np.zeros(7, np.float32)])
    assert "alloca" not in native(func).text


def test_vectors_in_registers(native: Any, agree: Any) -> None:
    """Scalar reads of the lanes of a promoted vector."""
    x, out = Buffer("x", (N,), "float32"), Buffer("out", (4,), "float32")
    r = Buffer("r", (4,), "float32", scope="local")
    lanes = (ramp(const(0), 1, 4),)
    body = Alloc(
        r,
        seq(
            Store(r, lanes, broadcast(const(0.0, "float32"), 4)),
            loop(4, lambda i: Store(r, lanes, load(r, lanes) + load(x, (ramp(i * 4, 1, 4),)))),
            *(Store(out, (const(k),), load(r, (const(3 - k),)) * 2.0) for k in range(4)),
        ),
    )
    func = PrimFunc("f", (x, out), body)
    agree(func, [ints().astype(np.float32), np.zeros(4, np.float32)])
    assert "alloca" not in native(func).text


@pytest.mark.parametrize("limit", [0, 3, 1000])
def test_while(agree: Any, limit: int) -> None:
    """Collatz steps of a number, at most `limit`."""
    out, top = Buffer("out", (2,), "int64"), Var("top")
    n, steps = load(out, (const(0),)), load(out, (const(1),))
    following = select(_is_even(n), binary("floordiv", n, 2), n * 3 + 1)
    cond = binary("and", binary("ne", n, 1), steps < top)
    body = While(cond, seq(Store(out, (const(0),), following), Store(out, (const(1),), steps + 1)))
    agree(PrimFunc("f", (out, top), body), [np.array([27, 0])], [limit])


def _is_even(n: Expr) -> Expr:
    return binary("eq", binary("floormod", n, 2), 0)


def test_values_read_before_a_store_are_not_read_after_it(agree: Any) -> None:
    out = Buffer("out", (3,), "int32")
    twice = out[0] * 2
    body = seq(
        Store(out, (const(1),), twice),
        Store(out, (const(0),), const(5, "int32")),
        Store(out, (const(2),), twice),
    )
    agree(PrimFunc("f", (out,), body), [np.array([1, 0, 0], np.int32)])


def test_values_of_a_branch_are_not_reused_after_it(agree: Any) -> None:
    x, out = Buffer("x", (N,), "int32"), Buffer("out", (N,), "int32")

    def body(i: Var) -> Stmt:
        value = x[i] * x[i] + 1
        return seq(If(x[i] > 0, Store(out, (i,), value)), Store(out, (i,), value + out[i]))

    agree(PrimFunc("f", (x, out), loop(N, body)), [ints(), ints()])


def test_expressions_of_a_let_are_emitted_after_it(agree: Any) -> None:
    x, out, v = Buffer("x", (N,), "int32"), Buffer("out", (N,), "int32"), Var("v", "int32")

    def body(i: Var) -> Stmt:
        return seq(
            Store(out, (i,), const(2, "int32")),
            Let(v, x[i] + out[i], loop(3, lambda j: Store(out, (i,), v * v + out[i]))),
        )

    agree(PrimFunc("f", (x, out), loop(N, body)), [ints(), ints()])


def test_deeply_nested_expressions(agree: Any) -> None:
    x, out = Buffer("x", (N,), "int32"), Buffer("out", (N,), "int32")

    def body(i: Var) -> Stmt:
        values = [Var(f"v{k}", "int32") for k in range(1500)]
        inner: Stmt = Store(out, (i,), values[-1])
        for var, before in reversed(list(zip(values, [x[i], *values]))):
            inner = Let(var, before + 1, inner)
        return inner

    agree(PrimFunc("f", (x, out), loop(N, body)), [ints(), ints()])


def test_deeply_nested_statements(native: Any) -> None:
    """Sixty nested loops and branches. Six of the loops have two iterations."""
    out = Buffer("out", (1,), "int32")
    total: Stmt = Store(out, (const(0),), out[0] + 1)
    for depth in range(60):
        extent = const(2 if depth % 10 == 9 else 1)
        total = If(out[0] < 1000 + depth, For(Var(f"i{depth}"), const(0), extent, total))
    found = np.zeros(1, np.int32)
    native(PrimFunc("f", (out,), total))("f", [found])
    assert found == 2**6


def test_many_statements(agree: Any) -> None:
    out = Buffer("out", (64,), "int32")
    stores = [Store(out, (const(k % 64),), out[(k * 7) % 64] + k) for k in range(3000)]
    agree(PrimFunc("f", (out,), seq(*stores)), [np.zeros(64, np.int32)])


# Memory


@pytest.fixture
def edge() -> Iterator[Callable[[Array], Array]]:
    """edge(values): a copy that ends at an unreadable page."""
    if not sys.platform.startswith("linux"):
        pytest.skip("pages are protected through libc")
    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    held: list[tuple[mmap.mmap, int]] = []

    def make(values: Array) -> Array:
        block = mmap.mmap(-1, 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(block))
        assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
        held.append((block, start))
        pages = np.frombuffer((ctypes.c_char * page).from_address(start), np.uint8)
        placed: Array = pages[page - values.nbytes :].view(values.dtype).reshape(values.shape)
        placed[...] = values
        return placed

    yield make
    for _, start in held:
        libc.mprotect(ctypes.c_void_p(start + page), page, 3)


@pytest.mark.parametrize("type_", ["float32", "int8", "float16", "bool"])
def test_masked_lanes_are_not_read(native: Any, edge: Callable[[Array], Array], type_: str) -> None:
    """Masked accesses with contiguous, strided and loaded indices, whose disabled lanes are out of bounds."""
    count, n = 5, Var("n")
    x, out = Buffer("x", (count,), type_), Buffer("out", (24,), type_)
    zero = broadcast(const(0, type_), 8)
    lanes = ramp(const(0), 1, 8)
    on = binary("lt", lanes, broadcast(n, 8))
    plain = if_then_else(on, load(x, (lanes,)), zero)
    spread = if_then_else(
        binary("lt", lanes * broadcast(const(2), 8), broadcast(n, 8)), load(x, (ramp(const(0), 2, 8),)), zero
    )
    one = if_then_else(on, broadcast(load(x, (n - 1,)), 8), zero)
    body = seq(
        Store(out, (ramp(const(0), 1, 8),), plain),
        Store(out, (ramp(const(8), 1, 8),), spread),
        Store(out, (ramp(const(16), 1, 8),), one),
    )
    values = ints(count, 0, 2).astype(dtype(type_).numpy)
    found = np.zeros(24, dtype(type_).numpy)
    native(PrimFunc("f", (x, out, n), body))("f", [edge(values), found], [count])
    padded = np.zeros(8, values.dtype)
    padded[:count] = values
    np.testing.assert_array_equal(found[:8], padded)
    np.testing.assert_array_equal(found[8:16], [*padded[::2][:3], 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(found[16:], np.where(np.arange(8) < count, values[-1], 0))


def test_only_the_chosen_side_of_a_lazy_select_is_read(native: Any, edge: Callable[[Array], Array]) -> None:
    x, out = Buffer("x", (5,), "int32"), Buffer("out", (N,), "int32")
    body = loop(N, lambda i: Store(out, (i,), if_then_else(i < 5, x[i] * 3, const(-1, "int32"))))
    values, found = ints(5), np.zeros(N, np.int32)
    native(PrimFunc("f", (x, out), body))("f", [edge(values), found])
    np.testing.assert_array_equal(found, [*(values * 3), *[-1] * (N - 5)])


def test_views_have_their_own_offset_and_dtype(agree: Any) -> None:
    out = Buffer("out", (N,), "float32")
    window = Buffer("w", (4,), "int32", offset=8)
    tail = Buffer("t", (2, 2), "float32", strides=(4, 2), offset=1)
    body = seq(
        View(window, out, loop(4, lambda i: Store(window, (i,), cast_to("int32", i) + 0x3F800000))),
        View(tail, out, loop(2, lambda i: Store(tail, (i, const(1)), tail[i, 0] + 1.0))),
    )
    agree(PrimFunc("f", (out,), body), [np.arange(N, dtype=np.float32)])


def test_symbolic_strides(native: Any) -> None:
    row, n = Var("row"), Var("n")
    x = Buffer("x", (n, 3), "int32", strides=(row, 1))
    out = Buffer("out", (n, 3), "int32")
    body = loop(n, lambda i: Store(out, (i, ramp(const(0), 1, 3)), load(x, (i, ramp(const(0), 1, 3)))))
    data, found = ints(4 * 7).reshape(4, 7), np.zeros((4, 3), np.int32)
    native(PrimFunc("f", (x, out, row, n), body))("f", [data, found], [7, 4])
    np.testing.assert_array_equal(found, data[:, :3])


def test_scattered_vector_stores(agree: Any) -> None:
    x, out = Buffer("x", (N,), "float16"), Buffer("out", (N,), "float16")
    indices = Buffer("indices", (N,), "int64")
    body = seq(
        Store(out, (ramp(const(15), -2, 8),), load(x, (ramp(const(0), 1, 8),))),
        Store(out, (load(indices, (ramp(const(0), 1, 4),)),), load(x, (ramp(const(8), 1, 4),))),
    )
    order = np.random.default_rng(0).permutation(N)
    agree(
        PrimFunc("f", (x, indices, out), body),
        [ints().astype(np.float16), order, np.zeros(N, np.float16)],
    )


def test_prefetches_outside_of_memory_have_no_effect(agree: Any) -> None:
    a, out = Buffer("a", (N,), "int32"), Buffer("out", (N,), "int32")
    func = PrimFunc(
        "f",
        (a, out),
        loop(N, lambda i: seq(Eval(prefetch(address_of(a, i + (1 << 40)))), Store(out, (i,), a[i] + 1))),
    )
    assert buffers_written(func.body) == [out]
    agree(func, [ints(), np.zeros(N, np.int32)])


def test_a_temporary_that_is_too_large_is_refused(native: Any) -> None:
    out, t = Buffer("out", (1,)), Buffer("t", (1 << 22,))
    body = Alloc(t, seq(Store(t, (const(0),), const(1.0, "float32")), Store(out, (const(0),), t[0])))
    with pytest.raises(CodegenError, match="too large for the stack"):
        native(PrimFunc("f", (out,), body))


def test_blocks_are_refused(native: Any) -> None:
    out = Buffer("out", (1,))
    block = Block("b", (), (), (), (), Store(out, (const(0),), const(1.0, "float32")))
    with pytest.raises(CodegenError, match="lower_blocks"):
        native(PrimFunc("f", (out,), block))


# Parallel loops


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_parallel_loops_capture_what_they_use(native: Any, threads: int) -> None:
    """Captures of parallel loops: buffers, integers, loop variables, and values of all widths
    bound by `let`.
    """
    x, out, n = Buffer("x", (N,), "float32"), Buffer("out", (3, N), "float32"), Var("n")
    flag, half, small = Var("flag", "bool"), Var("half", "float64"), Var("small", "int8")

    def inner(i: Var) -> Stmt:
        def body(j: Var) -> Stmt:
            value = if_then_else(flag, x[j] * cast_to("float32", half), cast_to("float32", small + 1))
            return Store(out, (i, j), value + cast_to("float32", n + i))

        return loop(N, body, "parallel")

    lets = Let(half, const(0.5, "float64") * cast_to("float64", n), loop(3, inner))
    lets = Let(small, cast_to("int8", n * 100), lets)
    func = PrimFunc("f", (x, out, n), Let(flag, n > 2, lets))
    for count in (1, 3):
        expected = [ints().astype(np.float32), np.zeros((3, N), np.float32)]
        found = [a.copy() for a in expected]
        interpreter.run(func, *expected, count)
        native(func)("f", found, [count], threads)
        np.testing.assert_array_equal(found[1], expected[1])


def test_nested_parallel_loops(agree: Any) -> None:
    out = Buffer("out", (8, 8), "int32")
    body = loop(
        8,
        lambda i: loop(8, lambda j: Store(out, (i, j), cast_to("int32", i * 10 + j)), "parallel"),
        "parallel",
    )
    agree(PrimFunc("f", (out,), body), [np.zeros((8, 8), np.int32)])


def test_parallel_loops_with_nonzero_begin(agree: Any) -> None:
    out, n = Buffer("out", (N,), "int32"), Var("n")
    body = loop(n, lambda i: Store(out, (i,), cast_to("int32", i)), "parallel", begin=3)
    for count in (0, 1, 13):
        agree(PrimFunc("f", (out, n), body), [np.zeros(N, np.int32)], [count])


def test_stores_are_visible_through_views(native: Any) -> None:
    a, b = Buffer("a", (4,), "int32"), Buffer("b", (4,), "int32")
    window = Buffer("w", (4,), "int32")
    body = seq(
        Store(b, (const(0),), window[1] + 1),
        Store(a, (const(1),), const(5, "int32")),
        Store(b, (const(1),), window[1] + 1),
        Store(window, (const(1),), const(7, "int32")),
        Store(b, (const(2),), a[1] + 1),
    )
    run = native(PrimFunc("f", (a, b), View(window, a, body)))
    arrays = [np.zeros(4, "int32"), np.zeros(4, "int32")]
    run("f", arrays)
    assert arrays[1].tolist() == [1, 6, 8, 0]


@pytest.mark.parametrize("type_", ["float32", "int8", "float16", "bool"])
def test_lanes_of_one_or_more_vectors(agree: Any, type_: str) -> None:
    """Concatenations of vectors and scalars of equal and of different lengths, and shuffles of them."""
    x, out = Buffer("x", (32,), type_), Buffer("out", (32,), type_)

    def part(start: int, lanes: int) -> Expr:
        return load(x, (ramp(start, 1, lanes) if lanes > 1 else const(start),))

    parts = [
        vector_shuffle(vector_concat(part(0, 4), part(8, 4)), [0, 4, 1, 5, 2, 6, 3, 7]),
        vector_shuffle(vector_concat(part(1, 2), part(9, 8)), [9, 0, 4, 4]),
        vector_shuffle(part(16, 8), [7, 5, 3, 1]),
        vector_concat(part(20, 2), part(3, 1), part(30, 1), part(5, 4)),
        vector_concat(vector_shuffle(part(24, 4), [2]), part(11, 1)),
    ]
    stores, next_index = [], 0
    for value in parts:
        lanes = value.dtype.lanes
        stores.append(Store(out, (ramp(next_index, 1, lanes),), value))
        next_index += lanes
    values = np.random.default_rng(4).integers(0, 2 if type_ == "bool" else 100, 32).astype(type_)
    agree(PrimFunc("f", (x, out), seq(*stores)), [values, np.zeros(32, type_)])
