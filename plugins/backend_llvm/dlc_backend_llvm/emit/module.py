"""Emission of a module of PrimFuncs as LLVM IR, with its entry points."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.emit.clock import has_clock
from dlc_backend_llvm.emit.kernel import emit_function
from dlc_backend_llvm.emit.kernels import Kernel
from dlc_backend_llvm.emit.unit import Unit
from dlc_backend_llvm.form import ENTRY_SUFFIX, STOPPED
from dlc_backend_llvm.pool_text import STOP_WORD
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.module import IRModule
from dlc_core.runtime.measure.profile import PROFILE_SUFFIX
from dlc_core.tir.stmt import PrimFunc


def packed_entry(func: PrimFunc, unit: Unit) -> str:
    """The entry point `i32 @<name>__entry(ptr buffers, ptr scalars, i32 threads)`. Its arguments are an array
    of pointers, an array of 64-bit integers, and the number of threads. It returns 0, or
    `STOPPED` if the call was cancelled.
    """
    lines, args = [], []
    buffers = scalars = 0
    for index, param in enumerate(func.params):
        if isinstance(param, Buffer):
            lines.append(f"  %p{index} = getelementptr ptr, ptr %buffers, i64 {buffers}")
            lines.append(f"  %a{index} = load ptr, ptr %p{index}, align 8")
            args.append(f"ptr %a{index}")
            buffers += 1
        else:
            lines.append(f"  %p{index} = getelementptr i64, ptr %scalars, i64 {scalars}")
            lines.append(f"  %a{index} = load i64, ptr %p{index}, align 8")
            args.append(f"i64 %a{index}")
            scalars += 1
    name = f"{func.name}{ENTRY_SUFFIX}"
    head = f"define i32 @{name}(ptr %buffers, ptr %scalars, i32 %threads) nounwind {{"
    call = f"  call void @{func.name}({', '.join([*args, 'i32 %threads'])})"
    if not unit.stops:
        return "\n".join([head, *lines, call, "  ret i32 0", "}", ""])
    unit.declare(STOP_WORD, f"ptr @{STOP_WORD}()")
    status = [
        f"  %stop = call ptr @{STOP_WORD}()",
        "  %word = load atomic i32, ptr %stop monotonic, align 4",
        "  %bit = and i32 %word, 1",
        "  %asked = icmp ne i32 %bit, 0",
        f"  %status = select i1 %asked, i32 {STOPPED}, i32 0",
        "  ret i32 %status",
    ]
    return "\n".join([head, *lines, call, *status, "}", ""])


class Emitted(NamedTuple):
    """A module: its IR, its entry points, the IR of the functions that no kernel's object defines, and the
    names of the foreign functions that it calls.
    """

    text: str
    entries: tuple[str, ...]
    rest: str
    foreign: tuple[str, ...]


def emit_module(
    module: IRModule, cpu: HostCpu, kernels: Mapping[str, Kernel] = MappingProxyType({})
) -> Emitted:
    """Emit a module.  `kernels` has functions that are already emitted, by name.

    Instrumented entry points are left out on systems without a clock.
    """
    whole, rest = Unit(cpu), Unit(cpu)
    entries = []
    short = {name for name, kernel in kernels.items() if STOP_WORD not in kernel.part.declared}
    for name, func in module.of_kind(PrimFunc).items():
        if name in kernels:
            whole.add(kernels[name].part)
            rest.declare(name, kernels[name].signature)
            continue
        if name.endswith(PROFILE_SUFFIX) and not has_clock(cpu.triple):
            continue
        own = Unit(cpu)
        emit_function(own, func, short=short)
        if func.attrs.get("entry"):
            entries.append(name)
            own.functions.append(packed_entry(func, own))
        whole.add(own.part())
        rest.add(own.part())
    return Emitted(whole.text(), tuple(entries), rest.text(), tuple(whole.foreign))


def metadata_of(cpu: HostCpu, level: int) -> dict[str, Any]:
    return {"triple": cpu.triple, "cpu": cpu.cpu, "features": cpu.features, "opt": level}


__all__ = ["Emitted", "emit_module", "metadata_of", "packed_entry"]
