"""Hostile scripts do not end the process, read other memory, or call what is not theirs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import RuntimeFailure, UsageError, VerifyError
from dlc_core.ir.module import IRModule
from dlc_core.script import parse
from dlc_core.tir.attributes import DERIVED, STATED, stated
from dlc_core.tir.stmt import PrimFunc
from tests.script.hostile import REFUSED, outcome

TARGETS = ("llvm", "c", "reference")


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> None:
    """Skip a test whose target is not installed, or has no compiler."""
    target = getattr(request.node, "callspec", None) and request.node.callspec.params.get("target")
    if target is not None and target not in dlc.targets():
        pytest.skip(f"the backend {target} is not installed")
    if target == "c" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")


def program(*lines: str, head: str = 'A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")') -> str:
    return "\n".join(["@T.prim_func", f"def main({head}):", *(f"    {line}" for line in lines)])


def parsed(text: str) -> PrimFunc:
    made = parse(text)
    assert isinstance(made, PrimFunc)
    return made


COPY = ("for i in range(8):", "    B[i] = A[i]")
SYMBOLIC = 'A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32"), n: T.int64'


# Attributes


LIE = program(
    'T.func_attr({"sizes": (n - 1000000000,), "bounds": (2, 0), "launch": ("x",), "own.key": 1})',
    "for i in range(n):",
    "    B[i] = A[900000000]",
    head=SYMBOLIC,
)


def test_a_program_keeps_only_the_attributes_that_it_may_state() -> None:
    assert dict(stated(parsed(LIE)).attrs) == {"own.key": 1}
    assert not STATED.keys() & DERIVED.keys()


@pytest.mark.parametrize("target", ["reference", "c"])
def test_a_false_fact_about_sizes_removes_no_check(target: str) -> None:
    with pytest.raises(RuntimeFailure, match="out of bounds"):
        dlc.build(parsed(LIE), target)(np.ones(8, np.float32))


def test_programs_in_graphs_lose_derived_attributes_too() -> None:
    module = parse("""
@module
class Model:
    @T.prim_func
    def copy(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        T.func_attr({"workspaces": 1, "entry": True})
        for i in range(8):
            B[i] = A[i]

    @G.function
    def main(x: G.Tensor((8,), "float32")):
        y: G.Tensor((8,), "float32") = G.call_prim(x, symbol="copy")
        return y
""")
    assert isinstance(module, IRModule)
    assert not dlc.load(module)["copy"].attrs


def test_checks_of_indices_get_their_descriptions_again() -> None:
    text = program("for i in range(8):", "    B[i] = A[T.report_index(A[i] * 9, 8, 77)]")
    func = stated(parsed(text))
    assert list(func.attrs["index_checks"]) == [1]
    with pytest.raises(RuntimeFailure, match="index"):
        dlc.build(parsed(text), "reference")(np.ones(8, np.int64))


@pytest.mark.parametrize("target", ["c"])
def test_attributes_that_passes_write_are_declared(target: str) -> None:
    a = dlc.te.placeholder((4, 8), "float32", "a")
    b = dlc.te.compute((4, 8), lambda i, j: a[i, j] * 2, "b")
    func = dlc.te.create_prim_func([a, b], name="f")
    lowered = dlc.lower(func, target=target)
    made = {name for each in lowered.of_kind(PrimFunc).values() for name in each.attrs}
    assert "bounds" in made
    assert made <= STATED.keys() | DERIVED.keys()


# Calls


CALLS = {
    "a function of libc": ('T.evaluate(T.call_kernel("system", T.address_of(A[0])))', "does not have"),
    "an intrinsic by its name": ('T.evaluate(T.call("kernel.abort", dtype="int32"))', "does not have"),
    "a launch": ('T.evaluate(T.launch_kernel("system", T.address_of(A[0])))', "for passes alone"),
    "a clock": ('T.evaluate(T.call("clock", T.address_of(A[7]), T.int64(1), dtype="int32"))', "passes alone"),
    "a note": ('T.evaluate(T.call("note", T.address_of(A[7]), T.int64(1), dtype="int32"))', "passes alone"),
    "a pointer from a number": (
        'T.evaluate(T.prefetch(T.reinterpret("handle", T.int64(4096))))', "is a value"
    ),
    "a pointer with a name": ("p = T.let(T.address_of(A[0]))", "is a value"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "why"), CALLS.values(), ids=CALLS)
def test_what_a_program_may_not_call(line: str, why: str) -> None:
    with pytest.raises(VerifyError) as caught:
        dlc.build(parsed(program(line, *COPY)), "reference")
    assert why in str(caught.value)


CALLEE = """
    @T.prim_func
    def inner(P: T.Buffer(({size},), "float32", align={align}), Q: T.Buffer((8,), "float32"){scalar}):
        {body}
"""
CALLER = """
    @T.prim_func
    def outer(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        T.evaluate(T.call_kernel("inner", {args}))
"""


def module_of(
    args: str, *, size: int = 8, align: int = 0, scalar: str = "", body: str = "Q[0] = P[7]"
) -> IRModule:
    callee = CALLEE.format(size=size, align=align, scalar=scalar, body=body)
    made = parse(f"@module\nclass M:{callee}{CALLER.format(args=args)}")
    assert isinstance(made, IRModule)
    return made


WHOLE = "T.address_of(A[0]), T.address_of(B[0])"
UNFIT = {
    "larger": module_of(WHOLE, size=9),
    "inside": module_of("T.address_of(A[1]), T.address_of(B[0])"),
    "twice": module_of("T.address_of(A[0]), T.address_of(A[0])"),
    "more aligned": module_of(WHOLE, align=4096),
    "negative": module_of(WHOLE + ", T.int64(-1)", scalar=", k: T.int64"),
    "missing": module_of("T.address_of(A[0])"),
    "recursive": module_of(
        WHOLE, body='T.evaluate(T.call_kernel("inner", T.address_of(P[0]), T.address_of(Q[0])))'
    ),
}


@pytest.mark.parametrize("module", UNFIT.values(), ids=UNFIT)
def test_calls_of_kernels_that_do_not_fit(module: IRModule) -> None:
    with pytest.raises(VerifyError):
        dlc.build(module, "reference")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_program_may_call_a_kernel_of_its_module(target: str) -> None:
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    dlc.build(module_of(WHOLE), target)(a, b)
    assert b[0] == 7


def test_the_entry_of_a_module_is_called_by_none() -> None:
    text = (
        "@module\nclass M:" + CALLEE.format(size=8, align=0, scalar="", body="Q[0] = P[7]") + CALLER
    ).replace("inner", "main")
    module = parse(text.format(args=WHOLE))
    assert isinstance(module, IRModule)
    with pytest.raises(UsageError, match="entry"):
        dlc.build(module, "reference")


# Memory and indices


REFUSED_PROGRAMS = {
    "an offset": ('W = T.alloc_buffer((8,), "int64", offset=400000000)', "W[0] = A[0]", "B[0] = W[0]"),
    "an alignment": ('W = T.alloc_buffer((8,), "int64", align=3)', "W[0] = A[0]", "B[0] = W[0]"),
    "handles": ('W = T.alloc_buffer((8,), "handle")', "B[0] = A[0]"),
    "a condition that overflows": (
        "for i in range(9):",
        "    if i * 2305843009213693952 < 8 and i > 0:",
        "        B[0] = A[i * 1000000]",
    ),
    "a minimum that overflows": ("for i in range(5):", "    B[0] = A[T.min(i * 3458764513820540928, 7)]"),
    "conditions": ('T.func_attr({"conditions": 5})', *COPY),
    "rows of conditions": ('T.func_attr({"conditions": (1, 2)})', *COPY),
    "a plan": ('T.func_attr({"plan": "x"})', *COPY),
    "layouts": ('T.func_attr({"repack": 7})', *COPY),
}


@pytest.mark.parametrize("lines", REFUSED_PROGRAMS.values(), ids=REFUSED_PROGRAMS)
def test_programs_that_are_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(VerifyError):
        dlc.build(parsed(program(*lines)), "reference")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_sizes_of_memory_do_not_overflow(target: str) -> None:
    shape, index = "n * 4294967296, n * 536870912", "0, n * 536870912 - 1 - i"
    lines = (f'W = T.alloc_buffer(({shape},), "float32")', "for i in range(n):", f"    W[{index}] = A[i]")
    exe = dlc.build(parsed(program(*lines, f"    B[i] = W[{index}]", head=SYMBOLIC)), target)
    with pytest.raises(RuntimeFailure, match="memory"):
        exe(np.ones(8, np.float32))


# Integer divisions


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
def test_integer_divisions_never_trap(dtype: str, target: str) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, 7, info.min + 1, 0], dtype)
    divisors = np.array([0, info.max if info.min == 0 else -1, 3, 1, info.max, 2], dtype)
    a, b = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(values, divisors))
    n = a.size
    ops = ("truncdiv", "truncmod", "floordiv", "floormod")
    lines = [f"    B{i}[i] = T.{op}(A[i], C[i])" for i, op in enumerate(ops)]
    results = ", ".join(f'B{i}: T.Buffer(({n},), "{dtype}")' for i in range(4))
    head = f'A: T.Buffer(({n},), "{dtype}"), C: T.Buffer(({n},), "{dtype}"), {results}'
    exe = dlc.build(parsed(program(f"for i in range({n}):", *lines, head=head)), target)
    found = exe(a, b)
    for op, got in zip(ops, found, strict=True):
        want = [_divided(op, int(x), int(y)) for x, y in zip(a, b, strict=True)]
        wide = np.array([w & ((1 << info.bits) - 1) for w in want], f"uint{info.bits}")
        np.testing.assert_array_equal(got, wide.view(dtype), op)


def _divided(op: str, a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = a // b if op.startswith("floor") else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if op.endswith("div") else a - quotient * b


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_proof_does_not_rely_on_a_divisor(target: str) -> None:
    buffers = (
        'A: T.Buffer((16,), "int64"), N: T.Buffer((n,), "int64"), B: T.Buffer((8,), "int64"), n: T.int64'
    )
    lines = ("for i in range(4):", "    B[i] = A[(i + 8) // n - 1 + n * 0]")
    with pytest.raises(RuntimeFailure, match="out of bounds"):
        dlc.build(parsed(program(*lines, head=buffers)), target)(np.ones(16, np.int64), np.ones(0, np.int64))


# Processes


SCRIPTS = {
    "shell": program('T.evaluate(T.call_kernel("system", T.address_of(A[0])))', *COPY),
    "sizes": LIE,
    "division": program("for i in range(8):", "    B[i] = T.truncdiv(A[i] << 63, A[i] - 2) // (A[i] - 1)"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_ends_the_process(name: str, target: str, tmp_path: Path) -> None:
    status, text = outcome(SCRIPTS[name], target, tmp_path)
    assert status in (0, REFUSED), text
