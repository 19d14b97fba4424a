"""The conformance kit on this machine's CPU, and on emulated CPUs."""

from __future__ import annotations

from typing import Any

import pytest
from dlc_backend_llvm.emulator.qemu import problem, version
from dlc_backend_llvm.kind import cpu_of

from dlc_core.driver import find_target
from dlc_core.testing import conformance_suite

TestLlvm = conformance_suite("llvm", fast_dtypes=("float32", "float16", "int32", "uint8", "bool"))

SLICE = (
    "matmul",
    "conv",
    "softmax",
    "layer_norm",
    "exp",
    "erf",
    "reduce_max",
    "transpose",
    "concat",
    "gather",
)
"""At least one op for each rule."""


def emulated(options: str, **narrowed: Any) -> Any:
    """The kit on an emulated machine. It is skipped if the emulator or compiler is not installed."""
    target = f"emulated {options}"
    why = problem(cpu_of(find_target(target)))
    suite = conformance_suite(target, **narrowed)
    return pytest.mark.skipif(why is not None, reason=why or "")(suite)


def sliced(options: str) -> Any:
    return emulated(options, levels=("ops", "device"), dtypes=("float32", "float16", "int8"), ops=SLICE)


SSE4 = "-mcpu=nehalem"
NEON = "-mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
ARM = "-mtriple=arm-linux-gnueabihf -mcpu=cortex-a7"
RISCV = "-mtriple=riscv64-linux-gnu"
RVV = "-mtriple=riscv64-linux-gnu -mattr=+v"

TestNeon = sliced(NEON)
TestArm = sliced(ARM)
TestRvv = sliced(RVV)
TestRiscv = emulated(RISCV, levels=("device",))

TestAllSse4 = pytest.mark.slow(emulated(SSE4))
TestAllNeon = pytest.mark.slow(emulated(NEON))
TestAllRiscv = pytest.mark.slow(emulated(RISCV))
TestAllRvv = pytest.mark.slow(
    pytest.mark.skipif(
        () < version("riscv64") < (8,), reason="QEMU before 8 fails an assertion at vector conversions"
    )(emulated(RVV))
)
