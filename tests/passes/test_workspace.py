"""Temporaries become parameters: a slice for each iteration of a parallel loop, or for each of its parts."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.arith import eval_expr
from dlc_core.decisions import forced
from dlc_core.diag import CodegenError, RuntimeFailure
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, as_expr, const_value
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir import workspace
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.registers import promote_registers
from dlc_core.passes.tir.storage import StorageRewrite
from dlc_core.passes.tir.workspace import HoistWorkspace, hoist_workspace
from dlc_core.target import Description, MemoryScope
from dlc_core.testing.schedules import target_of
from dlc_core.tir import interpreter
from dlc_core.tir.failures import with_parameters
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import Alloc, For, PrimFunc, Store, View, loop, seq, store
from dlc_core.tir.verify import verify_func


@pytest.fixture
def small_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporaries of more than 40 floats do not fit on the stack."""
    monkeypatch.setattr(workspace, "STACK_BYTES", 160)


def reversed_rows(kind: str, size: object = None) -> PrimFunc:
    """out[i, :] = x[i, ::-1] through a temporary that is allocated in the loop over i."""
    rows, columns, i, j, k = Var("rows"), Var("columns"), Var("i"), Var("j"), Var("k")
    x = Buffer("x", (rows * columns,), "float32")
    out = Buffer("out", (rows * columns,), "float32")
    t = Buffer("t", (columns if size is None else i * size,), "float32", scope="local")
    first = For(j, as_expr(0), columns, Store(t, (j,), x[i * columns + j]))
    second = For(k, as_expr(0), columns, Store(out, (i * columns + k,), t[columns - 1 - k]))
    loop = For(i, as_expr(0), rows, Alloc(t, seq(first, second)), kind)
    return PrimFunc("f", (x, out, rows, columns), loop)


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_a_temporary_of_a_loop_becomes_a_parameter(kind: str) -> None:
    func = hoist_workspace(reversed_rows(kind))
    assert func.attrs["workspaces"] == 1
    rows, columns = 5, 7
    x = np.arange(rows * columns, dtype=np.float32)
    out = np.zeros_like(x)
    size = eval_expr(func.buffers[-1].shape[0], dict(zip(func.scalars, (rows, columns), strict=True)))
    # Slices are cache lines of 16 elements.
    assert size == (columns if kind == "serial" else 64 * 16)
    interpreter.run(func, x, out, np.zeros(size, np.float32), rows, columns, check=True)
    np.testing.assert_array_equal(out.reshape(rows, columns), x.reshape(rows, columns)[:, ::-1])


def test_a_size_that_varies_is_bounded_by_its_largest() -> None:
    func = hoist_workspace(reversed_rows("serial", size=3))
    assert [str(d) for d in func.buffers[-1].shape] == ["rows * 3 - 3"]


@pytest.mark.parametrize(("threads", "count"), [(1, 1), (4, 0)])
def test_launches_of_one_thread_get_temporaries_of_symbolic_size(threads: int, count: int) -> None:
    func = reversed_rows("serial")
    thread = For(Var("thread"), as_expr(0), as_expr(threads), func.body, "thread", "thread.x")
    made = hoist_workspace(PrimFunc("f", func.params, thread))
    assert made.attrs.get("workspaces", 0) == count
    assert any(isinstance(s, Alloc) for s in stmts(made.body)) == (not count)


def test_a_size_without_a_bound_is_refused() -> None:
    func = reversed_rows("serial")
    i = func.body.var
    t = Buffer("t", (i * i % (i + Var("free")),), "float32")
    with pytest.raises(CodegenError, match="depends on the loops"):
        hoist_workspace(
            PrimFunc("f", func.params, For(i, func.body.begin, func.body.extent, Alloc(t, seq())))
        )


def sums(extent: int, *, kind: str = "parallel", width: object = 200) -> PrimFunc:
    """out[i] = sum of i + j over a temporary seen through a view."""
    i, j, k = Var("i"), Var("j"), Var("k")
    out = Buffer("out", (extent,), "float32")
    t = Buffer("t", (width(i) if callable(width) else width,), "float32", scope="local")
    seen = Buffer("seen", t.shape, "int32", offset=1, scope="local")
    fill = loop(j, t.shape[0] - 1, store(seen, (j,), (i + j).astype("int32")))
    total = loop(k, t.shape[0] - 1, store(out, (i,), out[i] + seen[k].astype("float32")))
    return PrimFunc("f", (out,), loop(i, extent, Alloc(t, View(seen, t, seq(fill, total))), kind))


@pytest.mark.parametrize(("extent", "parts"), [(1, 4), (3, 4), (3, 64), (5, 1), (7, 3)])
@pytest.mark.parametrize("width", [165, lambda i: i * 30 + 165], ids=["same", "varying"])
def test_memory_is_bounded_by_the_number_of_parts(
    small_stack, extent: int, parts: int, width: object
) -> None:
    before = sums(extent, width=width)
    func = hoist_workspace(before, parts)
    verify_func(func)
    expected, found = np.zeros(extent, np.float32), np.zeros(extent, np.float32)
    interpreter.run(before, expected)
    (size,) = func.buffers[-1].static_shape()
    widest = 165 if width == 165 else (extent - 1) * 30 + 165
    assert 0 <= size - widest * min(extent, parts) < 16 * parts
    interpreter.run(func, found, np.zeros(size, np.float32), check=True)
    np.testing.assert_array_equal(found, expected)
    outermost = func.body
    assert isinstance(outermost, For)
    assert outermost.kind == "parallel"
    assert const_value(outermost.extent) == min(extent, parts)


def test_the_outermost_of_nested_parallel_loops_stays_parallel(small_stack) -> None:
    i, j, k = Var("i"), Var("j"), Var("k")
    out, t = Buffer("out", (3, 2), "float32"), Buffer("t", (200,), "float32")
    inner = Alloc(t, seq(loop(k, 200, store(t, (k,), 2.0)), store(out, (i, j), t[i] + t[j + 190])))
    func = PrimFunc("f", (out,), loop(i, 3, loop(j, 2, inner, "parallel"), "parallel"))
    func = flatten_and_simplify(func)
    hoisted = hoist_workspace(func)
    assert [s.kind for s in stmts(hoisted.body) if isinstance(s, For)] == ["parallel", "serial", "serial"]
    found = np.zeros(6, np.float32)
    interpreter.run(hoisted, found, np.zeros(hoisted.buffers[-1].static_shape(), np.float32), check=True)
    assert (found == 4.0).all()


def test_small_temporaries_and_those_of_devices_stay(small_stack) -> None:
    small = sums(3, width=20)
    assert hoist_workspace(small) is small
    body = sums(3).body
    thread = PrimFunc("f", sums(3).params, For(body.var, body.begin, body.extent, body.body, "thread", "x"))
    assert hoist_workspace(thread) is thread


def test_the_record_of_checks_stays_the_last_buffer(small_stack) -> None:
    checked = with_parameters(sums(3), {0: "an index"})
    record = checked.buffers[-1]
    hoisted = hoist_workspace(checked)
    assert [b.name for b in hoisted.buffers] == ["out", "t", record.name]
    assert hoisted.params[2:] == (record, *checked.scalars)
    verify_func(hoisted)


def through(scope: str, size: int, inner: str = "") -> PrimFunc:
    """out = x[::-1] through a temporary of a scope; with `inner` through a second one, inside the first."""
    i, j, k = Var("i"), Var("j"), Var("k")
    x, out = Buffer("x", (size,), "float32"), Buffer("out", (size,), "float32")
    t, u = (
        Buffer("tile", (size,), "float32", scope=scope),
        Buffer("second", (size,), "float32", scope=inner or scope),
    )
    fill = For(i, as_expr(0), as_expr(size), Store(t, (i,), x[i]))
    drain = For(j, as_expr(0), as_expr(size), Store(out, (j,), t[size - 1 - j]))
    if not inner:
        return PrimFunc("f", (x, out), Alloc(t, seq(fill, drain)))
    again = For(k, as_expr(0), as_expr(size), Store(u, (k,), t[k]))
    last = For(j, as_expr(0), as_expr(size), Store(out, (j,), u[size - 1 - j]))
    return PrimFunc("f", (x, out), Alloc(t, seq(fill, Alloc(u, seq(again, last)))))


def allocated(func: PrimFunc) -> list[str]:
    return [s.buffer.name for s in stmts(func.body) if isinstance(s, Alloc)]


@pytest.mark.parametrize(("scope", "moves"), [("global", True), ("local", True), ("spad", False)])
def test_only_buffers_in_main_memory_move(scope: str, moves: bool) -> None:
    made = hoist_workspace(through(scope, 1 << 16), stack=1 << 10)
    assert (allocated(made) == []) == moves
    assert made.attrs.get("workspaces", 0) == moves


def hoisted_on(machine: Description, func: PrimFunc) -> PrimFunc:
    return HoistWorkspace().run_function(func, PassContext(target=target_of(machine)))


def test_a_scratchpad_buffer_that_does_not_fit_is_an_error() -> None:
    pad = MemoryScope("spad", bytes=128 << 10)
    machine = Description(memory_scopes=("global", "local", pad), stack_bytes=1 << 10)
    assert allocated(hoisted_on(machine, through("spad", 1 << 15))) == ["tile"]
    with pytest.raises(
        CodegenError,
        match=r"f: buffer tile of 262,144 bytes does not fit the scope 'spad'[^$]*scope has 131,072 bytes",
    ):
        hoisted_on(machine, through("spad", 1 << 16))


def test_buffers_that_exist_together_share_the_capacity() -> None:
    machine = Description(memory_scopes=("global", MemoryScope("spad", bytes=1 << 10)))
    hoisted_on(machine, through("spad", 128, "spad"))
    with pytest.raises(CodegenError, match=r"second of 800 bytes does not fit[^$]*other buffers.*take 800"):
        hoisted_on(machine, through("spad", 200, "spad"))
    func = through("spad", 200, "spad")
    with pytest.raises(RuntimeFailure, match=r"second of 800 bytes[^$]*224 of its 1,024 bytes are free"):
        interpreter.run(
            func, np.zeros(200, np.float32), np.zeros(200, np.float32), capacities=machine.capacities
        )


def test_the_arena_takes_no_scratchpad_buffer() -> None:
    machine = Description(memory_scopes=("global", "spad"))
    with forced("temporaries.memory=arena"):
        assert allocated(hoisted_on(machine, through("spad", 64))) == ["tile"]
        assert allocated(hoisted_on(machine, through("local", 64))) == []


@pytest.mark.parametrize(("scope", "kept"), [("local", []), ("spad", ["t"])])
def test_registers_take_no_scratchpad_buffer(scope: str, kept: list[str]) -> None:
    t, x, out = (
        Buffer("t", (1,), "float32", scope=scope),
        Buffer("x", (4,), "float32"),
        Buffer("out", (4,), "float32"),
    )
    body = Alloc(t, seq(Store(t, (as_expr(0),), x[1]), Store(out, (as_expr(2),), t[0])))
    assert allocated(promote_registers(PrimFunc("f", (x, out), body), 8)) == kept


def test_shared_storage_has_the_largest_alignment() -> None:
    i, j = Var("i"), Var("j")
    x, out = Buffer("x", (64,), "float32"), Buffer("out", (64,), "float32")
    large = Buffer("large", (64,), "float32", scope="spad", align=4)
    small = Buffer("small", (32,), "float32", scope="spad", align=256)
    first = Alloc(
        small, seq(loop(i, 32, store(small, (i,), x[i])), loop(j, 32, store(out, (j,), small[31 - j])))
    )
    second = seq(loop(i, 64, store(large, (i,), x[i])), loop(j, 64, store(out, (j,), large[63 - j])))
    func = PrimFunc("f", (x, out), Alloc(large, seq(first, second)))
    made = StorageRewrite().run_function(func, PassContext())
    bases = [s.buffer for s in stmts(made.body) if isinstance(s, Alloc) and s.buffer.align >= 256]
    assert bases
    assert all(s.base in bases for s in stmts(made.body) if isinstance(s, View))
