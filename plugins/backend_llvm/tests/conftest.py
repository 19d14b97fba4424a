"""Fixtures: execution of one vector-math operation on arrays, and of tensor programs without passes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from dlc_backend_llvm.codegen import LlvmCodegen
from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.device import CpuDevice
from dlc_backend_llvm.emulator.device import server_for
from dlc_backend_llvm.emulator.qemu import problem
from dlc_backend_llvm.engine import compile_ir, engine
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.kind import cpu_of
from dlc_backend_llvm.vmath import OPS, Machine, VMath, llvm_type, machine_of

from dlc_core.driver import find_target
from dlc_core.ir.module import IRModule
from dlc_core.tir import interpreter
from dlc_core.tir.stmt import PrimFunc

Kernel = Callable[..., "np.ndarray[Any, Any]"]


def _loop(
    args: list[str], source: str, to: str, lanes: int, lines: list[str], result: str, name: str = "run"
) -> str:
    """The IR of a function `name(ptr..., ptr out, i64 n)` that applies `lines` to n elements."""
    taken = []
    for index in range(len(args)):
        element = llvm_type(source, 1)
        taken.append(f"%p{index} = getelementptr {element}, ptr %a{index}, i64 %i")
        taken.append(f"{args[index]} = load {llvm_type(source, lanes)}, ptr %p{index}, align 1")
    return "\n".join(
        [
            f"define void @{name}({', '.join(f'ptr %a{k}' for k in range(len(args)))}, ptr %o, i64 %n) {{",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [0, %entry], [%j, %loop]",
            *taken,
            *lines,
            f"  %q = getelementptr {llvm_type(to, 1)}, ptr %o, i64 %i",
            f"  store {llvm_type(to, lanes)} {result}, ptr %q, align 1",
            f"  %j = add i64 %i, {lanes}",
            "  %c = icmp slt i64 %j, %n",
            "  br i1 %c, label %loop, label %end",
            "end:",
            "  ret void",
            "}",
            "",
        ]
    )


def _numpy_dtype(name: str) -> Any:
    if name == "bfloat16":
        return pytest.importorskip("ml_dtypes").bfloat16
    return np.dtype(name)


@pytest.fixture
def kernel() -> Callable[..., Kernel]:
    """kernel(op, dtype, lanes=8, machine=None) or kernel("convert", source, lanes, machine, to=dtype)."""

    def build(
        op: str, dtype: str, lanes: int = 8, machine: Machine | None = None, to: str | None = None
    ) -> Kernel:
        vm = VMath(machine or machine_of(host_cpu()))
        names = iter(f"%{number}" for number in range(100))
        if to is None:
            args = [f"%v{index}" for index in range(OPS[op])]
            lines, result = vm.emit(op, args, dtype, lanes, lambda: next(names))
        else:
            args = ["%v0"]
            lines, result = vm.convert("%v0", dtype, to, lanes, lambda: next(names))
        out_dtype = to or dtype
        text = _loop(args, dtype, out_dtype, lanes, lines, result) + vm.functions()
        loaded = engine().load(compile_ir(text, jit=True))
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(args) + 1), ctypes.c_int64)(
            loaded.address("run")
        )

        def call(*arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            count = arrays[0].size
            padded = -(-count // 64) * 64
            inputs = [np.resize(np.ascontiguousarray(array, _numpy_dtype(dtype)), padded) for array in arrays]
            output = np.zeros(padded, _numpy_dtype(out_dtype))
            assert not loaded.closed
            function(*[array.ctypes.data for array in inputs], output.ctypes.data, padded)
            return output[:count]

        return call

    return build


class ForeignMath:
    """The operations of the vector math on an emulated machine: math(op, dtype, *arrays)."""

    LANES = 8

    def __init__(self, cpu: HostCpu) -> None:
        vm, texts = VMath(machine_of(cpu)), []
        for op, count in OPS.items():
            for dtype in ("float32", "float64", "float16", "bfloat16"):
                names = iter(f"%{number}" for number in range(100))
                args = [f"%v{index}" for index in range(count)]
                lines, result = vm.emit(op, args, dtype, self.LANES, lambda names=names: next(names))
                name = f"{op}_{dtype}"
                texts.append(_loop(args, dtype, dtype, self.LANES, lines, result, name))
                texts.append(self._entry(name, count + 1))
        text = "\n".join(texts) + vm.functions()
        self.code = compile_ir(text, cpu.triple, cpu.cpu, cpu.features)
        self._server = server_for(cpu)
        self._library = self._server.load(self.code)

    @staticmethod
    def _entry(name: str, pointers: int) -> str:
        buffers = range(pointers)
        taken = [f"%q{k} = getelementptr ptr, ptr %b, i64 {k}\n%p{k} = load ptr, ptr %q{k}" for k in buffers]
        given = ", ".join(f"ptr %p{k}" for k in buffers)
        lines = [*taken, "%n = load i64, ptr %s", f"call void @{name}({given}, i64 %n)", "ret i32 0"]
        return "\n".join([f"define i32 @{name}__entry(ptr %b, ptr %s, i32 %t) {{", *lines, "}", ""])

    def __call__(self, op: str, dtype: str, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        padded = -(-arrays[0].size // self.LANES) * self.LANES
        given = [np.resize(np.ascontiguousarray(a, _numpy_dtype(dtype)), padded) for a in arrays]
        server, size = self._server, given[0].nbytes
        buffers = [server.alloc(size, 64) for _ in range(len(arrays) + 1)]
        for buffer, array in zip(buffers, given, strict=False):
            server.write(buffer, memoryview(array.view(np.uint8)))
        assert server.call(server.symbol(self._library, f"{op}_{dtype}__entry"), buffers, [padded], 1) == 0
        result = np.frombuffer(server.read(buffers[-1], size), _numpy_dtype(dtype))
        for buffer in buffers:
            server.free(buffer)
        return result[: arrays[0].size]


@cache
def _foreign_math(options: str) -> ForeignMath:
    return ForeignMath(cpu_of(find_target(f"emulated {options}")))


@pytest.fixture
def foreign_math() -> Callable[[str], ForeignMath]:
    """foreign_math(options): the vector math on an emulated machine. Tests are skipped if it cannot be
    emulated.
    """

    def build(options: str) -> ForeignMath:
        why = problem(cpu_of(find_target(f"emulated {options}")))
        if why is not None:
            pytest.skip(why)
        return _foreign_math(options)

    return build


class Native:
    """Compile PrimFuncs without running passes."""

    def __init__(self, *funcs: PrimFunc, target: str = "llvm") -> None:
        entries = {f.name: replace(f, attrs={**f.attrs, "entry": True}) for f in funcs}
        self.artifact = LlvmCodegen().emit(IRModule(entries, entry=funcs[0].name), find_target(target))
        self._device = CpuDevice()
        self._loaded = self._device.load(self.artifact)

    @property
    def text(self) -> str:
        text = self.artifact.sources["llvm"]
        return text if isinstance(text, str) else text()

    def __call__(
        self, name: str, arrays: Sequence[np.ndarray[Any, Any]], scalars: Sequence[int] = (), threads: int = 2
    ) -> None:
        """Run an entry point on arrays, which it changes in place."""
        addresses = [array.ctypes.data for array in arrays]
        self._device.launch(self._loaded.entry(name), addresses, scalars, threads)


@pytest.fixture
def native() -> type[Native]:
    """native(*funcs)(name, arrays, scalars, threads) runs tensor programs."""
    return Native


@pytest.fixture
def agree() -> Callable[..., list[np.ndarray[Any, Any]]]:
    """agree(func, arrays, scalars): check that native code and the interpreter compute the same bits. Returns
    the arrays.
    """

    def check(
        func: PrimFunc, arrays: Sequence[np.ndarray[Any, Any]], scalars: Sequence[int] = ()
    ) -> list[np.ndarray[Any, Any]]:
        expected = [a.copy() for a in arrays]
        interpreter.run(func, *expected, *scalars)
        found = [a.copy() for a in arrays]
        Native(func)(func.name, found, scalars)
        for have, want in zip(found, expected, strict=True):
            np.testing.assert_array_equal(have, want)
        return expected

    return check
