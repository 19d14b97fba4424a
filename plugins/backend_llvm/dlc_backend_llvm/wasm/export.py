"""Export of models as WebAssembly modules.

    exe.export("net.wasm")      one module: code, weights, and a description of inputs and outputs

The module imports nothing and exports its memory, `net_run`, `net_workspace_size`, the shape functions of
symbolic outputs, and `__heap_base`, the first free address, where arrays of the caller begin. The custom
section `dlc` is JSON that names the inputs and outputs; `examples/wasm/dlc.mjs` is a loader.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.header import dim_names, symbolic_outputs
from dlc_backend_llvm.pool_text import pool_ir
from dlc_backend_llvm.wasm.builtins import builtins_object
from dlc_backend_llvm.wasm.linking import link_module
from dlc_backend_llvm.wasm.module import with_data, with_section
from dlc_core.diag import UnsupportedError, bytes_text
from dlc_core.ir.expr import as_expr, const_value
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.runtime.memory.host import bytes_of

if TYPE_CHECKING:
    from dlc_core.runtime.executable import Executable

SECTION = "dlc"
"""The name of the custom section with the description."""
MEMORY = 1 << 32
"""The largest memory of a module, in bytes."""
_VERSION = 1


def module_of(exe: Executable, name: str, cpu: HostCpu, interface: str) -> bytes:
    """The module of an executable. `interface` is the LLVM IR of the functions that call its entry point.

    Raises UnsupportedError if the model does not fit into a module's memory, or if there is no linker.
    """
    weights, symbol = bytes_of(exe.weights), f"{name}_weights"
    needed = weights.nbytes + int(const_value(as_expr(exe.signature.arena_size)) or 0)
    if needed >= MEMORY:
        raise UnsupportedError(
            "the model does not fit into the memory of a WebAssembly module",
            why=f"weights and scratch memory take {bytes_text(needed)}; addresses have 32 bits",
        )
    reserved = f"@{symbol} = hidden global [{max(1, weights.nbytes)} x i8] zeroinitializer, align 64\n"
    texts = interface, pool_ir(cpu.triple) + reserved
    machine = cpu.triple, cpu.cpu, cpu.features
    objects = [exe.artifact.code, *(compile_ir(text, *machine) for text in texts), builtins_object(*machine)]
    functions = [f"{name}_run", f"{name}_workspace_size"]
    functions += [f"{name}_output{index}_shape" for index, _ in symbolic_outputs(exe.signature)]
    functions += [f"{name}_dims"] * bool(exe.signature.data_dims)
    module = with_data(link_module(objects, [*functions, symbol]), symbol, weights)
    description = json.dumps(describe(name, exe.signature, str(exe.target))).encode()
    return with_section(module, SECTION, description)


def describe(name: str, signature: Signature, target: str) -> dict[str, Any]:
    """The description of a module as JSON data: inputs, outputs, and the names of symbolic dims."""
    words: dict[Any, str] = dict(zip(signature.symbols, dim_names(signature)))

    def value(one: Value) -> dict[str, Any]:
        shape = one.type.static_shape() or [words.get(dim, str(dim)) for dim in one.type.shape]
        return {"name": one.name, "dtype": str(one.dtype), "shape": list(shape)}

    return {
        "version": _VERSION,
        "name": name,
        "target": target,
        "inputs": [value(one) for one in signature.inputs],
        "outputs": [value(one) for one in signature.outputs],
        "dims": list(words.values()),
    }


def write_module(exe: Executable, path: Path, name: str, cpu: HostCpu, interface: str) -> list[Path]:
    """Write the module of an executable. Raises UnsupportedError unless the path ends with `.wasm`."""
    if path.suffix != ".wasm":
        raise UnsupportedError(
            f"a model for {cpu.triple} is exported as a WebAssembly module", hint='for example "model.wasm"'
        )
    path.write_bytes(module_of(exe, name, cpu, interface))
    return [path]


__all__ = ["MEMORY", "SECTION", "describe", "module_of", "write_module"]
