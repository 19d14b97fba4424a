"""Emission of a module of PrimFuncs as LLVM IR, with its entry points."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.emit.kernel import emit_function
from dlc_backend_llvm.emit.unit import Part, Unit
from dlc_backend_llvm.form import ENTRY_SUFFIX
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.module import IRModule
from dlc_core.tir.stmt import PrimFunc


def packed_entry(func: PrimFunc) -> str:
    """The entry point `i32 @<name>__entry(ptr buffers, ptr scalars, i32 threads)`. Its arguments are an array
    of pointers, an array of 64-bit integers, and the number of threads. It returns 0.
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
    return "\n".join([head, *lines, call, "  ret i32 0", "}", ""])


def function_part(func: PrimFunc, cpu: HostCpu) -> Part:
    """Emit one function, with the declarations and helpers that it needs."""
    unit = Unit(cpu)
    emit_function(unit, func)
    return unit.part()


def module_text(
    module: IRModule, cpu: HostCpu, parts: Mapping[str, Part] = MappingProxyType({})
) -> tuple[str, tuple[str, ...]]:
    """The LLVM IR of a module, and the names of its entry points. `parts` has functions that are already
    emitted, by name.
    """
    unit = Unit(cpu)
    entries: dict[int, PrimFunc] = {}
    for name, func in module.of_kind(PrimFunc).items():
        if name in parts:
            unit.add(parts[name])
        else:
            emit_function(unit, func)
        if func.attrs.get("entry"):
            entries[len(unit.functions)] = func
            unit.functions.append("")
    for index, func in entries.items():
        unit.functions[index] = packed_entry(func)
    return unit.text(), tuple(func.name for func in entries.values())


def metadata_of(cpu: HostCpu, level: int) -> dict[str, Any]:
    return {"triple": cpu.triple, "cpu": cpu.cpu, "features": cpu.features, "opt": level}


__all__ = ["function_part", "metadata_of", "module_text", "packed_entry"]
