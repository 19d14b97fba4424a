"""Values that are live at the same time are disjoint in the arena. This is proved from the code of entries,
so wrong plans are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.arith import Analyzer
from dlc_core.diag import PassError
from dlc_core.graph.node import Function, Node, constant, param
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import EQUAL, Condition
from dlc_core.ir.expr import Expr, Var, const, const_value, substitute
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes.lower import arena, memory_plan
from dlc_core.passes.lower.arena import Request, nonnegative_bound
from dlc_core.passes.lower.disjoint import prove_disjoint
from dlc_core.passes.lower.joins import TensorRef, Window, windows_of
from dlc_core.passes.lower.memory_plan import Steps
from dlc_core.passes.tir.bounds import Proof
from dlc_core.script import parse
from dlc_core.tir.functor import stmts
from dlc_core.tir.intrinsics import call_kernel
from dlc_core.tir.stmt import Eval, PrimFunc, View, seq, store

CHECKED = "reference -level=tir -check=true"

KERNELS = """
@ir_module
class M:
    @T.prim_func
    def one(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
        {attrs}
        for i in range(8): b[i] = a[i]

    @T.prim_func
    def two(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), c: T.Buffer((8,), "float32")):
        for i in range(8): c[i] = a[i] + b[i]

    @T.prim_func
    def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), arena: T.Buffer(({size},), "uint8")):
        {body}
"""
"""`one` reads a and writes b, `two` reads two and writes c."""


def call(kernel: str, *buffers: str) -> str:
    return f'T.call_kernel("{kernel}", {", ".join(f"T.address_of({b})" for b in buffers)})'


def window(name: str, begin: object, size: object = 8, base: str = "arena") -> str:
    return f'{name} = T.view({base}, ({size},), "float32", offset={begin})'


def proof(*body: str, attrs: str = "", size: object = 128, written: Sequence[str] = ()) -> Proof:
    lines = [line for text in body for line in text.splitlines()]
    made = parse(
        KERNELS.format(body="\n        ".join(lines), attrs=attrs or 'T.func_attr({"k": 1})', size=size)
    )
    assert isinstance(made, IRModule)
    func: PrimFunc = made["main"]
    arena = next(b for b in func.buffers if b.name == "arena")
    named = {s.buffer.name: s.buffer for s in stmts(func.body) if isinstance(s, View)}
    return prove_disjoint(func, arena, made.functions, written=[named[name] for name in written])


def chain(p: object, q: object, r: object) -> tuple[str, ...]:
    """Values p and q live together, and q and r; p and r do not."""
    windows = (window("p", p), window("q", q), window("r", r))
    return (*windows, call("one", "x", "p"), call("two", "x", "p", "q"), call("two", "x", "q", "r"),
            call("one", "r", "y"))  # fmt: skip


@pytest.mark.parametrize(
    ("offsets", "fits"),
    [
        ((0, 8, 16), True),
        ((0, 8, 0), True),  # r reuses the memory of p
        ((8, 0, 8), True),
        ((0, 7, 16), False),
        ((0, 8, 8), False),
        ((0, 8, 1), False),
        ((0, 8, 15), False),
    ],
)
def test_offsets_of_a_chain(offsets: tuple[int, int, int], fits: bool) -> None:
    found = proof(*chain(*offsets))
    assert (not found.open) is fits
    assert found.proved + len(found.open) == 2
    for access in found.open:
        assert access.when is None
        assert "is live" in str(access)


def test_a_value_lives_until_its_last_reader() -> None:
    """The reader is not adjacent to the step that overwrites the value."""
    body = (window("p", 0), window("q", 8), window("r", 0), call("one", "x", "p"), call("one", "x", "q"),
            call("one", "q", "r"), call("two", "p", "r", "y"))  # fmt: skip
    assert [str(a) for a in proof(*body).open] == [
        "r: float32[8] overlaps p: float32[8], which is live: bytes 0 to 32, and 0 to 32"
    ]
    assert not proof(*body[:-1], call("one", "r", "y")).open


def test_views_extend_the_live_range_of_their_base() -> None:
    body = (window("p", 0), window("v", 4, 4, "p"), window("q", 0), call("one", "x", "p"))
    after = (call("one", "x", "q"), call("one", "v", "y"))
    assert len(proof(*body, *after).open) == 1
    assert not proof(*body, *after[::-1]).open


def test_outputs_may_overwrite_inputs_only_if_the_kernel_allows_it() -> None:
    body = (
        window("p", 0),
        window("q", 0),
        call("one", "x", "p"),
        call("one", "p", "q"),
        call("one", "q", "y"),
    )
    allowed = 'T.func_attr({"overwrites": ((0, 1),)})'
    assert len(proof(*body).open) == 1
    assert not proof(*body, attrs=allowed).open
    later = (*body[:4], call("two", "p", "q", "y"))
    assert len(proof(*later, attrs=allowed).open) == 1  # p is read afterwards
    shifted = (window("p", 0), window("q", 4), *body[2:])
    assert len(proof(*shifted, attrs=allowed).open) == 1


def test_branches_and_loops_are_one_step() -> None:
    inside = f"for i in range(2):\n    {call('one', 'x', 'p')}\n    {call('one', 'p', 'q')}"
    before = (window("p", 0), window("q", 8), window("r", 0), call("one", "x", "r"))
    assert len(proof(*before, inside, call("two", "r", "q", "y")).open) == 1
    assert not proof(*before, call("one", "r", "y"), inside, call("one", "q", "y")).open


def test_written_parts_are_disjoint() -> None:
    def joined(first: str, second: str) -> Proof:
        whole = 'w = T.view(arena, (2, 16), "float32")'
        parts = [f'{n} = T.view(w, (2, 8), "float32", {at})' for n, at in (("p", first), ("q", second))]
        return proof(whole, *parts, call("one", "x", "p"), call("one", "x", "q"), written=["p", "q"])

    strided = "strides=(16, 1), offset={}".format
    assert not joined(strided(0), strided(8)).open
    assert len(joined(strided(0), strided(7)).open) == 1
    assert len(joined(strided(0), strided(9)).open) == 1  # it goes on in the next row
    assert not joined("offset=0", "offset=16").open
    assert len(joined("offset=0", "offset=15").open) == 1


def test_parts_that_follow_each_other_take_one_proof_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A detector joins the boxes of each class, whose numbers are symbolic."""
    sizes = [Var(f"n{i}") for i in range(12)]
    offsets = [const(0), *sizes]
    for i in range(1, len(offsets)):
        offsets[i] = offsets[i - 1] + offsets[i]
    arena = Buffer("arena", (offsets[-1] * 4,), "uint8")
    whole = Buffer("whole", (offsets[-1],))
    parts = [Buffer(f"p{i}", (n,), offset=at) for i, (n, at) in enumerate(zip(sizes, offsets, strict=False))]
    body = seq(*(store(part, [0], const(0, "float32")) for part in parts))
    for part in parts:
        body = View(part, whole, body)
    func = PrimFunc("main", (arena, *sizes), View(whole, arena, body))
    proofs = 0
    prove = Analyzer.prove

    def counted(self: Analyzer, cond: object) -> bool:
        nonlocal proofs
        proofs += 1
        return prove(self, cond)  # type: ignore[arg-type]

    monkeypatch.setattr(Analyzer, "prove", counted)
    found = prove_disjoint(func, arena, {}, written=parts)
    assert (found.proved, found.open) == (12 * 11 // 2, [])
    assert proofs <= 3 * len(parts)


def test_symbolic_offsets() -> None:
    n = Var("n")
    x, arena = Buffer("x", (n, 4)), Buffer("arena", (64 * n + 64,), "uint8")

    def at(offset: Expr) -> Proof:
        p, q = Buffer("p", (n, 4)), Buffer("q", (n, 4), offset=offset)
        body = seq(store(p, [0, 0], x[0, 0]), store(q, [0, 0], x[0, 0]), store(x, [0, 0], p[0, 0]))
        func = PrimFunc("main", (x, arena, n), View(p, arena, View(q, arena, body)))
        return prove_disjoint(func, arena, {})

    assert not at(n * 4).open
    assert not at((n * 16 + 63) // 64 * 16).open
    assert at(n * 4 - 1).open[0].when is None  # there are sizes for which they overlap
    (unsure,) = at(n * n).open
    assert unsure.when is not None  # they are disjoint from n = 4 on
    for size, apart in ((3, False), (4, True), (9, True)):
        assert bool(const_value(Analyzer().simplify(substitute(unsure.when, {n: const(size)})))) is apart


def test_dims_equal_to_a_constant_are_that_constant() -> None:
    """A kernel writes 8 elements over a value of n elements; the call requires that n is 8."""
    n = Var("n")
    a, b = Buffer("a", (n,)), Buffer("b", (8,))
    kernel = PrimFunc("one", (a, b), store(b, [0], a[0]), {"overwrites": ((0, 1),)})
    x, y, arena = Buffer("x", (n,)), Buffer("y", (8,)), Buffer("arena", (4 * n + 64,), "uint8")
    p, q = Buffer("p", (n,)), Buffer("q", (8,))
    body = seq(store(p, [0], x[0]), Eval(call_kernel("one", p, q)), store(y, [0], q[0]))
    func = PrimFunc("main", (x, y, arena, n), View(p, arena, View(q, arena, body)))
    functions = {"one": kernel, "main": func}
    needed = Condition(EQUAL, n, const(8), "rows of x")
    assert not prove_disjoint(func, arena, functions, conditions=[needed]).open
    assert len(prove_disjoint(func, arena, functions).open) == 1
    other = Condition(EQUAL, n, const(9), "rows of x")
    assert len(prove_disjoint(func, arena, functions, conditions=[other]).open) == 1


def test_workspaces_of_empty_tensors_take_no_memory_of_others() -> None:
    """Rows have padding after each but the last. Without rows the size must not be negative."""
    n = Var("n")
    rows = (n * 1040 - 16) * 4
    requests = [Request(n * 64, 0, 1), Request(nonnegative_bound(rows), 0, 0), Request(n * 4096, 0, 1)]
    offsets, total = arena.plan(requests)

    def at(e: Expr, size: int) -> int:
        value = const_value(Analyzer().simplify(substitute(e, {n: const(size)})))
        assert isinstance(value, int)
        return value

    for size in (0, 1, 7):
        ends = [at(offset + request.size, size) for offset, request in zip(offsets, requests, strict=True)]
        assert max(ends) <= at(total, size)
        assert at(requests[1].size, size) >= max(0, at(rows, size))
    assert nonnegative_bound(n * 8) is n * 8
    assert at(nonnegative_bound(n * n - (n - 3) * 8), 0) >= 24


# Compiles


def model(batch: int | Var, *, joins: bool = False) -> IRModule:
    """Products. The first one is read again at the end; with `joins` three are concatenated."""
    x = param("x", tensor_type((batch, 16)))
    rng = np.random.default_rng(0)

    def product(value: Node, columns: int = 16) -> Node:
        return std.matmul(value, constant(rng.standard_normal((value.shape[1], columns)).astype(np.float32)))

    first = product(x)
    second = product(first, 24)
    third = product(second)
    if joins:
        parts = product(third), std.relu(product(third, 8)), std.exp(product(second))
        third = product(std.concat(*parts, axis=1))
    last = product(product(third))
    return IRModule({"main": Function("main", (x,), std.add(product(last), product(first)))})


def built(module: IRModule, target: str = CHECKED) -> dlc.Executable:
    return dlc.compile(module, target, cache=False)


def _shorter(request: Request) -> Request:
    return replace(request, last=max(request.first, request.last - 1))


def _later(request: Request) -> Request:
    return replace(request, first=min(request.last, request.first + 1))


def _smaller(request: Request) -> Request:
    return replace(request, size=request.size // 2)


@pytest.mark.parametrize("batch", [4, Var("n")], ids=["4", "n"])
@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("wrong", [_shorter, _later, _smaller])
def test_wrong_plans_are_refused(
    wrong: Callable[[Request], Request], joins: bool, batch: int | Var, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = built(model(batch, joins=joins))
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    expected = evaluate(model(batch, joins=joins)["main"], [x])
    np.testing.assert_allclose(exe(x), expected, rtol=1e-4, atol=1e-2)

    def plan(requests: Sequence[Request], align: int) -> object:
        return arena.plan([wrong(request) for request in requests], align)

    monkeypatch.setattr(memory_plan, "plan", plan)
    with pytest.raises(PassError, match="the memory plan of main is wrong"):
        built(model(batch, joins=joins))


def test_refuses_parts_at_wrong_offsets(monkeypatch: pytest.MonkeyPatch) -> None:

    def moved(function: Function) -> dict[TensorRef, Window]:
        found = windows_of(function)
        return {
            place: replace(window, offset=window.offset - 1) if number == 1 else window
            for number, (place, window) in enumerate(found.items())
        }

    exe = built(model(4, joins=True))
    assert sum("in_place" in kernel.name for kernel in exe.explain().kernels) == 3
    monkeypatch.setattr(memory_plan, "windows_of", moved)
    with pytest.raises(PassError, match="the memory plan of main is wrong") as caught:
        built(model(4, joins=True))
    assert "are parts of" in str(caught.value)


def test_refuses_outputs_over_inputs_that_are_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product reads the input whose memory its output would overwrite."""
    built(model(4))

    def over(
        steps: Steps, order: Sequence[Node], last: Mapping[TensorRef, int]
    ) -> dict[TensorRef, TensorRef]:
        found: dict[TensorRef, TensorRef] = {}
        for one, other in pairwise(order):
            if one in other.args and (other, 0) not in steps.results:
                found[other, 0] = found.get((one, 0), (one, 0))
        return found

    monkeypatch.setattr(memory_plan, "results_in_place", over)
    with pytest.raises(PassError, match="the memory plan of main is wrong"):
        built(model(4))
