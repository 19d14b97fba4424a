"""Export models as libraries with a C interface, which need neither Python nor dlc.

    exe.export("resnet50.so")       the library and its header resnet50.h
    exe.export("folder/")           the header, the objects, and a program that runs the model on files; they
                                    are linked elsewhere, and no compiler is needed here

A library contains the model's code, its weights as read-only data (which processes share), the thread pool,
the functions that `header` declares, and a description for `dlc.load_library`. The C compiler of this machine
is only used as linker.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.data_object import hidden, machine_of, write_data_object
from dlc_backend_llvm.descriptors import emit_run_dlpack
from dlc_backend_llvm.dim_program import emit_dims
from dlc_backend_llvm.emit.kernel import emit_function
from dlc_backend_llvm.emit.unit import Unit
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.header import header_text, symbolic_outputs
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.kind import cpu_of
from dlc_backend_llvm.linking import link_shared
from dlc_backend_llvm.objects import read_object
from dlc_backend_llvm.pool import pool_ir
from dlc_backend_llvm.program import program_text
from dlc_backend_llvm.wasm import export as wasm_export
from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.foreign.needed import link_lines
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, as_expr, const
from dlc_core.runtime.interface.dim_program import condition_program, conditions_on_symbols
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.library import CHECK_FAILED, c_name, describe, signature_symbol
from dlc_core.runtime.memory.host import bytes_of
from dlc_core.tir.stmt import PrimFunc, Store, seq

if TYPE_CHECKING:
    from dlc_core.runtime.executable import Executable

ENTRY_SUFFIX = "__entry"


def export(exe: Executable, path: Path) -> list[Path]:
    """Write a library, a folder of objects if `path` is a folder, or a WebAssembly module. Returns the files.

    Raises UnsupportedError if there is no linker for the target, and ArtifactError if files cannot be
    written.
    """
    folder = path.is_dir() or not path.suffix
    name = c_name(path.name if folder else path.stem)
    cpu = cpu_of(exe.target)
    linked = link_lines(exe.artifact.metadata)
    header = header_text(name, exe.signature, f"{exe.target} ({cpu.triple})", linked)
    try:
        if cpu.arch == "wasm32":
            entry = exe.entry + ENTRY_SUFFIX
            return wasm_export.write_module(
                exe, path, name, cpu, interface_ir(name, entry, exe.signature, cpu)
            )
        if folder:
            path.mkdir(parents=True, exist_ok=True)
            return _write_objects(exe, path, name, cpu, header)
        return _write_library(exe, path, name, cpu, header)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path} cannot be written", why=why) from None


def _write_objects(exe: Executable, folder: Path, name: str, cpu: HostCpu, header: str) -> list[Path]:
    paths = [folder / f"{name}.h", folder / f"{name}.o", folder / f"{name}_interface.o"]
    paths += [folder / f"{name}_pool.o", folder / f"{name}_weights.o", folder / f"{name}_main.c"]
    code, interface, pool = _code_objects(exe, name, cpu)
    paths[0].write_text(header)
    for path, data in zip(paths[1:], (code, interface, pool)):
        path.write_bytes(data)
    write_data_object(paths[-2], machine_of(code), weights_symbol(name), bytes_of(exe.weights))
    paths[-1].write_text(program_text(name, exe.signature))
    return paths


def _write_library(exe: Executable, path: Path, name: str, cpu: HostCpu, header: str) -> list[Path]:
    if not path.parent.is_dir():
        raise ArtifactError(f"{path} cannot be written", why=f"there is no folder {path.parent}")
    objects = _code_objects(exe, name, cpu)
    native = cpu.triple == host_cpu().triple
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export") as folder:
        weights = Path(folder, "weights.o")
        write_data_object(weights, machine_of(objects[0]), weights_symbol(name), bytes_of(exe.weights))
        link_shared([*objects, weights], path, triple="" if native else cpu.triple)
    declared = path.with_name(f"{name}.h")
    declared.write_text(header)
    return [path, declared]


def weights_symbol(name: str) -> str:
    return f"{name}_weights"


def _code_objects(exe: Executable, name: str, cpu: HostCpu) -> tuple[bytes, bytes, bytes]:
    """The objects of the model, of the functions in the header, and of the thread pool."""
    if "linux" not in cpu.triple and "-none" not in cpu.triple:
        raise UnsupportedError(
            f"libraries for {cpu.triple} are not supported", hint="exe.save writes a file for dlc.open"
        )
    # Entry points and texts of foreign functions are called from within the library only.
    code = hidden(exe.artifact.code, set(read_object(exe.artifact.code).defined))
    description = describe(name, exe.signature, exe.target, exe.artifact.metadata)
    text = interface_ir(name, exe.entry + ENTRY_SUFFIX, exe.signature, cpu) + _constant(name, description)
    interface, pool = (compile_ir(t, cpu.triple, cpu.cpu, cpu.features) for t in (text, pool_ir(cpu.triple)))
    return code, interface, pool


def interface_ir(name: str, entry: str, signature: Signature, cpu: HostCpu) -> str:
    """The LLVM IR of the functions that the header declares."""
    unit = Unit(cpu)
    dims = [f"i64 %d{i}" for i in range(len(signature.symbols))]
    names = [f"%d{i}" for i in range(len(dims))]
    scalars = "".join(f"i64 {n}, " for n in names)
    emit_function(unit, _sizes(f"{name}.arena", signature, [signature.arena_size]))
    unit.functions.append(f"""
define i64 @{name}_workspace_size({", ".join(dims)}) nounwind {{
  %size = alloca i64, align 8
  call void @{name}.arena(ptr %size, {scalars}i32 1)
  %bytes = load i64, ptr %size, align 8
  ret i64 %bytes
}}""")
    for index, value in symbolic_outputs(signature):
        shape = [as_expr(d) for d in value.type.shape]
        emit_function(unit, _sizes(f"{name}.shape{index}", signature, shape))
        unit.functions.append(f"""
define void @{name}_output{index}_shape({", ".join(["ptr %shape", *dims])}) nounwind {{
  call void @{name}.shape{index}(ptr %shape, {scalars}i32 1)
  ret void
}}""")
    if signature.data_dims:
        emit_dims(unit, name, signature)
    if conditions_on_symbols(signature):
        emit_function(unit, condition_program(f"{name}.needs", signature))
    unit.functions.append(_run_ir(name, entry, signature, dims, names))
    emit_run_dlpack(unit, name, signature)
    unit.declare(entry, f"hidden i32 @{entry}(ptr, ptr, i32)")
    weights = f"@{weights_symbol(name)} = external hidden constant i8, align 64\n"
    return weights + unit.text()


def _constant(name: str, data: bytes) -> str:
    """LLVM IR of the library's description: read-only data with a global name, by which loaders find it."""
    quoted = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
    return f'\n@{signature_symbol(name)} = constant [{len(data)} x i8] c"{quoted}"\n'


def _sizes(name: str, signature: Signature, values: Sequence[Expr]) -> PrimFunc:
    """A PrimFunc that computes integers from the dims and stores them."""
    out = Buffer("sizes", (max(1, len(values)),), INDEX)
    body = seq(*(Store(out, (const(i),), value) for i, value in enumerate(values)))
    return PrimFunc(name, (out, *signature.symbols), body)


def _run_ir(name: str, entry: str, signature: Signature, dims: Sequence[str], names: Sequence[str]) -> str:
    """The function `<name>_run`: it arranges the pointers for the entry point. It refuses NULL pointers, dims
    outside of their bounds, and dims that contradict each other.
    """
    ins, outs = len(signature.inputs), len(signature.outputs)
    lines, bad = [], "%bad0"
    lines.append("  %bad0 = icmp ne i32 0, 0")
    position = 0
    for table, count in (("inputs", ins), ("outputs", outs)):
        for index in range(count):
            lines += [
                f"  %at{position} = getelementptr ptr, ptr %{table}, i64 {index}",
                f"  %p{position} = load ptr, ptr %at{position}, align 8",
                f"  %null{position} = icmp eq ptr %p{position}, null",
                f"  %bad{position + 1} = or i1 {bad}, %null{position}",
                f"  %to{position} = getelementptr ptr, ptr %buffers, i64 {position}",
                f"  store ptr %p{position}, ptr %to{position}, align 8",
            ]
            bad = f"%bad{position + 1}"
            position += 1
    for value in (f"@{weights_symbol(name)}", "%workspace"):
        lines += [
            f"  %to{position} = getelementptr ptr, ptr %buffers, i64 {position}",
            f"  store ptr {value}, ptr %to{position}, align 8",
        ]
        position += 1
    for index, dim in enumerate(names):
        lines += [
            f"  %dim{index} = getelementptr i64, ptr %scalars, i64 {index}",
            f"  store i64 {dim}, ptr %dim{index}, align 8",
        ]
    needs = [
        f"  %need = call i64 @{name}_workspace_size({', '.join(dims)})",
        "  %some = icmp ne i64 %need, 0",
        "  %nowhere = icmp eq ptr %workspace, null",
        "  %lacking = and i1 %some, %nowhere",
    ]
    tables = []
    for table, count in (("inputs", ins), ("outputs", outs)):
        if count:
            tables += [f"  %no_{table} = icmp eq ptr %{table}, null"]
    bounds: list[str] = []
    for symbol, dim in zip(signature.symbols, names, strict=True):
        ends = (symbol.bounds.low, symbol.bounds.high) if symbol.bounds else (None, None)
        for word, end in zip(("slt", "sgt"), ends, strict=True):
            if end is not None:
                bounds.append(f"  %out{len(bounds)} = icmp {word} i64 {dim}, {end}")
    fitting: list[str] = []
    if conditions_on_symbols(signature):
        scalars = "".join(f"i64 {dim}, " for dim in names)
        fitting = [
            f"  call void @{name}.needs(ptr %fit, {scalars}i32 1)",
            "  %fits = load i64, ptr %fit, align 8",
            "  %unfit = icmp ne i64 %fits, 0",
            "  br i1 %unfit, label %refuse, label %size",
            "size:",
        ]
    refused = ["%lacking", *(t.split()[0] for t in (*tables, *bounds))]
    chain, last = [], refused[0]
    for index, flag in enumerate(refused[1:]):
        chain.append(f"  %any{index} = or i1 {last}, {flag}")
        last = f"%any{index}"
    head = ", ".join(["ptr %inputs", "ptr %outputs", "ptr %workspace", "i32 %threads", *dims])
    return "\n".join(
        [
            f"define i32 @{name}_run({head}) nounwind {{",
            f"  %buffers = alloca [{position} x ptr], align 64",
            f"  %scalars = alloca [{max(1, len(names))} x i64], align 64",
            "  %fit = alloca i64, align 64",
            *fitting,
            *needs,
            *tables,
            *bounds,
            *chain,
            f"  br i1 {last}, label %refuse, label %collect",
            "collect:",
            *lines,
            f"  br i1 {bad}, label %refuse, label %run",
            "run:",
            *(_checked_call if signature.sites else _plain_call)(entry),
            "refuse:",
            "  ret i32 -1",
            "}",
        ]
    )


def _plain_call(entry: str) -> list[str]:
    return [
        f"  %status = call i32 @{entry}(ptr %buffers, ptr %scalars, i32 %threads)",
        "  ret i32 %status",
    ]


def _checked_call(entry: str) -> list[str]:
    """The call of an entry point with checks. The workspace begins with the record of failed checks, which is
    zeroed before the call and tested after it.
    """
    return [
        "  store i64 0, ptr %workspace, align 8",
        f"  %status = call i32 @{entry}(ptr %buffers, ptr %scalars, i32 %threads)",
        "  %record = load i64, ptr %workspace, align 8",
        "  %failed = icmp ne i64 %record, 0",
        f"  %result = select i1 %failed, i32 {CHECK_FAILED}, i32 %status",
        "  ret i32 %result",
    ]


__all__ = ["export", "interface_ir"]
