"""The code of single kernels: LLVM IR and an object file, as bytes that a cache keeps.

    encode_kernel(func, cpu, opt) -> bytes
    module_kernels(module, parts, cpu, opt) -> dict[str, Kernel]      those of a module
    Kernel.decode(data, name) -> Kernel       .part (LLVM IR), .code, .signature, under the name `name`

The object file defines the kernel as a hidden symbol, so a module that declares it calls it after
`joining.join_objects`.  `code` is empty for machines whose objects cannot be joined; then the IR of the whole
module is compiled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from dlc_backend_llvm import engine
from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.emit.kernel import emit_function
from dlc_backend_llvm.emit.unit import Part, Unit
from dlc_core.cancel import checkpoint
from dlc_core.ir.module import IRModule
from dlc_core.tir.calls import called_kernels
from dlc_core.tir.stmt import PrimFunc

_LENGTH = 8
_WIDE = ("x86_64", "aarch64", "riscv64")
_NOT_ELF = ("windows", "darwin", "macos")
_SIGNATURE = re.compile(r"^define internal void (@\S+\(.*\)) nounwind \{$", re.MULTILINE)


class Kernel(NamedTuple):
    """A kernel.  `old` is the name under which `code` defines it."""

    part: Part
    code: bytes
    old: str

    @staticmethod
    def decode(data: bytes, name: str) -> Kernel:
        """Read what `encode_kernel` wrote, and give the kernel a name."""
        start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        head = json.loads(data[_LENGTH:start])
        part, old = Part(*head["part"]), head["name"]
        if old != name:
            # `name.region1` is the body of a parallel loop.
            found = re.compile(rf"@{re.escape(old)}(?=[.(,])")
            part = part._replace(functions=[found.sub(f"@{name}", text) for text in part.functions])
        return Kernel(part, data[start:], old)

    @property
    def signature(self) -> str:
        """The signature of the kernel, for `Unit.declare` of another module."""
        found = _SIGNATURE.search(self.part.functions[-1])
        assert found is not None
        return f"hidden void {found[1]} nounwind"


def encode_kernel(func: PrimFunc, cpu: HostCpu, opt: int) -> bytes:
    """Emit a kernel and compile it, if `cpu` is a machine whose objects can be joined."""
    checkpoint()
    unit = Unit(cpu)
    emit_function(unit, func)
    part = unit.part()
    unit.functions[-1] = unit.functions[-1].replace("define internal", "define hidden", 1)
    code = b""
    if _is_joined(cpu):
        code = engine.compile_ir(unit.text(), cpu.triple, cpu.cpu, cpu.features, opt=opt, apart=True)
    head = json.dumps({"name": func.name, "part": part}).encode()
    return len(head).to_bytes(_LENGTH, "little") + head + code


def module_kernels(module: IRModule, parts: Mapping[str, bytes], cpu: HostCpu, opt: int) -> dict[str, Kernel]:
    """The kernels of a module: those in `parts`, and the others, which are compiled here.

    Kernels call no other functions.  Entry points and bodies of loops, which call kernels, are none.
    """
    functions: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    kernels = [
        name
        for name, func in functions.items()
        if name in parts or not (func.attrs.get("entry") or called_kernels(func.body))
    ]
    return {
        name: Kernel.decode(parts.get(name) or encode_kernel(functions[name], cpu, opt), name)
        for name in kernels
    }


def _is_joined(cpu: HostCpu) -> bool:
    """Whether objects for a machine can be joined: 64-bit little-endian ELF."""
    return cpu.arch in _WIDE and not any(word in cpu.triple for word in _NOT_ELF)


__all__ = ["Kernel", "encode_kernel", "module_kernels"]
