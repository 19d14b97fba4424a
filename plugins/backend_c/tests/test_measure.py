"""Cycles of kernels on emulated boards: counts, results, errors, and what remains after them."""

from __future__ import annotations

import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c import boards
from dlc_backend_c.boards import measure
from dlc_backend_c.boards.measure import Program, Result, measure_cycles, measure_program
from dlc_backend_c.micro import Session

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import CodegenError, RuntimeFailure, UnsupportedError, UsageError
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import registry

needs_board = pytest.mark.skipif(boards.problem() is not None, reason=str(boards.problem()))
A = np.arange(128, dtype=np.float32).reshape(8, 16)


def doubled(rows: int = 8, target: str = "c -mcpu=cortex-m4"):
    """An executable that computes 2 A + 1."""
    a = te.placeholder((rows, 16), "float32", "A")
    b = te.compute((rows, 16), lambda i, j: a[i, j] * 2.0 + 1.0, "B")
    return dlc.build(te.create_prim_func([a, b]), target)


def c_program(tmp_path: Path, body: str) -> Program:
    """A program whose call runs the statements."""
    source = tmp_path / "own.c"
    source.write_text(f"#include <stdint.h>\nint own(void);\nint own(void)\n{{\n{body}\n}}\n")
    return Program([source], "own()", "int own(void);")


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """A folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def running(word: str) -> list[str]:
    """The emulators whose command contains a word."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended
        if boards.EMULATOR in command and word in command:
            found.append(command)
    return found


@needs_board
@pytest.mark.parametrize("name", sorted(boards.BOARDS))
def test_every_board_counts_and_computes(name, own_folder):
    exe = doubled(target=f"c -mcpu={boards.board(name).cpu}")
    cycles, (b,) = measure_cycles(exe, [A], name, timeout=60)
    again, _ = measure_cycles(exe, [A], name, timeout=60)
    np.testing.assert_array_equal(b, 2 * A + 1)
    assert abs(cycles - again) <= 2
    assert cycles > A.size  # more than one instruction for each element
    assert not list(own_folder.iterdir())


@needs_board
@pytest.mark.parametrize("name", sorted(boards.BOARDS))
def test_a_cycle_is_an_instruction(tmp_path, name):
    """A loop of two instructions takes twice as many cycles as it has iterations."""
    count = 1 << 20
    loop = f'uint32_t n = {count}u;\n__asm__ volatile("1: subs %0, #1\\n\\tbne 1b" : "+l"(n) : : "cc");'
    cycles, _ = measure_program(c_program(tmp_path, loop + "\nreturn 0;"), [], [], name, timeout=60)
    assert abs(cycles - 2 * count) < 100


@needs_board
def test_the_count_is_that_of_a_session():
    exe = doubled()
    with Session(exe, "mps2-an386") as session:
        session.run(A)
        assert abs(session.cycles - measure_cycles(exe, [A], "mps2-an386", timeout=60)[0]) < 50


@needs_board
def test_more_work_takes_more_cycles():
    rows = 64
    small, _ = measure_cycles(doubled(), [A], "mps2-an386", timeout=60)
    large, _ = measure_cycles(doubled(rows), [np.tile(A, (8, 1))], "mps2-an386", timeout=60)
    assert 7 < large / small < 9


@needs_board
def test_a_program_that_does_not_end_is_killed(tmp_path, own_folder):
    with pytest.raises(RuntimeFailure, match="did not end in"):
        measure_program(c_program(tmp_path, "for (;;)\n;"), [], [], "mps2-an386", timeout=2)
    assert not running(str(own_folder))
    assert not list(own_folder.iterdir())


@needs_board
def test_a_program_that_nobody_kills_ends_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "RATE", 1)
    with pytest.raises(RuntimeFailure, match="did not end in time"):
        measure_program(c_program(tmp_path, "for (;;)\n;"), [], [], "mps2-an386", timeout=60)


@needs_board
@pytest.mark.parametrize("name", ["mps2-an386", "mps2-an505"])
def test_a_fault_names_its_function(tmp_path, own_folder, name):
    body = "*(volatile uint32_t *)0x90000000u = 1;\nreturn 0;"
    with pytest.raises(RuntimeFailure, match="faulted in own") as failure:
        measure_program(c_program(tmp_path, body), [], [], name, timeout=60)
    assert "program counter 0x" in str(failure.value)
    assert not list(own_folder.iterdir())


@needs_board
def test_a_status_of_the_model_is_an_error(tmp_path):
    with pytest.raises(RuntimeFailure, match="returned -3"):
        measure_program(c_program(tmp_path, "return -3;"), [], [], "mps2-an386", timeout=60)


@needs_board
def test_arrays_too_large_for_the_board_are_refused(tmp_path):
    output = Result((8 << 20,), np.dtype(np.int8))
    with pytest.raises(CodegenError, match="cannot be built"):
        measure_program(c_program(tmp_path, "return 0;"), [], [output], "mps2-an386", timeout=60)


@needs_board
def test_the_compiler_has_a_time_limit(tmp_path, monkeypatch):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    exe = doubled()
    measure_cycles(exe, [A], "mps2-an386", timeout=60)
    monkeypatch.setattr(boards, "COMPILER", str(slow))
    with pytest.raises(RuntimeFailure, match="compiler"):
        measure_cycles(exe, [A], "mps2-an386", timeout=0.5)


@needs_board
def test_wrong_arguments_are_refused():
    exe = doubled()
    with pytest.raises(UsageError, match="0 inputs given, 1 needed"):
        measure_cycles(exe, [], "mps2-an386", timeout=60)
    with pytest.raises(UsageError, match="input 'A' is float64"):
        measure_cycles(exe, [A.astype(np.float64)], "mps2-an386", timeout=60)
    with pytest.raises(UsageError, match="timeout"):
        measure_cycles(exe, [A], "mps2-an386", timeout=0)
    with pytest.raises(UnsupportedError, match="unknown board"):
        measure_cycles(exe, [A], "acme", timeout=60)
    with pytest.raises(UnsupportedError, match="does not run on a board"):
        measure_cycles(doubled(target="reference"), [A], "mps2-an386", timeout=60)


def one_measurement(_: int) -> tuple[int, bool]:
    cycles, (b,) = measure_cycles(doubled(), [A], "mps2-an386", timeout=60)
    return cycles, bool((b == 2 * A + 1).all())


@needs_board
def test_several_threads_measure_at_once():
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one_measurement, range(8)))
    assert all(right for _, right in found)
    assert max(cycles for cycles, _ in found) - min(cycles for cycles, _ in found) <= 2


@needs_board
def test_several_processes_measure_at_once():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(one_measurement, range(4)))
    assert all(right for _, right in found)
    assert max(cycles for cycles, _ in found) - min(cycles for cycles, _ in found) <= 2


def compiled(op: str, shape, dtype: str, options: str = ""):
    """An executable of one operator."""
    x = param("x", tensor_type(shape, dtype))
    body = registry().ops[op].build(x)
    module = IRModule({"main": Function("main", (x,), body, {"inputs": ("x",), "outputs": ("y",)})})
    return dlc.compile(module, f"c -mcpu=cortex-m4{options}", cache=False)


@needs_board
@pytest.mark.parametrize(
    ("op", "shape", "dtype"),
    [
        ("logical_not", (5, 7), "bool"),
        ("relu", (5, 7), "bfloat16"),
        ("neg", (5, 7), "int64"),
        ("neg", (5, 7), "float64"),
        ("neg", (), "float32"),
        ("neg", (0, 3), "float32"),
    ],
)
def test_dtypes_and_shapes(op, shape, dtype):
    exe = compiled(op, shape, dtype)
    x = np.random.default_rng(0).integers(0, 2, shape).astype(exe.inputs[0].type.dtype.numpy)
    _, (y,) = measure_cycles(exe, [x], "mps2-an386", timeout=60)
    wanted = {"logical_not": np.logical_not, "neg": np.negative, "relu": np.abs}[op](x)
    assert (y.shape, y.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(y, wanted)


@needs_board
def test_models_that_cannot_be_measured_are_refused():
    symbolic = compiled("neg", (Var("n", "int64"), 4), "float32")
    with pytest.raises(UnsupportedError, match="fixed sizes"):
        measure_cycles(symbolic, [A], "mps2-an386", timeout=60)
    x = param("x", tensor_type((4, 4), "float32"))
    body = registry().ops["matmul"].build(x, constant(A[:4, :4]))
    module = IRModule({"main": Function("main", (x,), body, {"inputs": ("x",), "outputs": ("y",)})})
    separate = dlc.compile(module, "c -mcpu=cortex-m4 -weights=binary", cache=False)
    with pytest.raises(UnsupportedError, match="separate file"):
        measure_cycles(separate, [A[:4, :4]], "mps2-an386", timeout=60)
