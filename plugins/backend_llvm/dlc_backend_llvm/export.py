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
from pathlib import Path
from typing import TYPE_CHECKING

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.data_object import hidden, machine_of, write_data_object
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.header import header_text
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.hosted import host_objects
from dlc_backend_llvm.interface import Exported, interface_ir, library_ir, weights_symbol
from dlc_backend_llvm.kind import cpu_of
from dlc_backend_llvm.linking import link_shared
from dlc_backend_llvm.objects import read_object
from dlc_backend_llvm.pool import pool_ir
from dlc_backend_llvm.program import program_text
from dlc_backend_llvm.wasm import export as wasm_export
from dlc_core.backend.deploy import HostProgram
from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.foreign.needed import link_lines
from dlc_core.runtime.library import c_name, describe
from dlc_core.runtime.memory.host import bytes_of

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
    host = _host_program(exe, name, cpu)
    signature = exe.signature if host is None else host.signature
    devices = "" if host is None else host.declarations()
    header = header_text(name, signature, f"{exe.target} ({cpu.triple})", linked, devices)
    try:
        if cpu.arch == "wasm32":
            entry = exe.entry + ENTRY_SUFFIX
            return wasm_export.write_module(
                exe, path, name, cpu, interface_ir(name, entry, exe.signature, cpu)
            )
        if folder:
            path.mkdir(parents=True, exist_ok=True)
            return _write_objects(exe, path, name, cpu, header, host)
        return _write_library(exe, path, name, cpu, header, host)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path} cannot be written", why=why) from None


def _host_program(exe: Executable, name: str, cpu: HostCpu) -> HostProgram | None:
    """The host program of a model with regions on devices, else None."""
    if exe.program is None:
        return None
    if cpu.arch == "wasm32":
        raise UnsupportedError(
            "modules of WebAssembly call no devices",
            details=[f"{region} runs on {each.target}" for region, each in exe.regions.items()],
        )
    return HostProgram(exe, name)


def _write_objects(
    exe: Executable, folder: Path, name: str, cpu: HostCpu, header: str, host: HostProgram | None
) -> list[Path]:
    paths = [folder / f"{name}.h", folder / f"{name}.o", folder / f"{name}_interface.o"]
    paths += [folder / f"{name}_pool.o", folder / f"{name}_weights.o", folder / f"{name}_main.c"]
    code, interface, pool = _code_objects(exe, name, cpu, host)
    signature = exe.signature if host is None else host.signature
    weights = exe.weights if host is None else host.weights
    paths[0].write_text(header)
    for path, data in zip(paths[1:], (code, interface, pool)):
        path.write_bytes(data)
    write_data_object(paths[4], machine_of(code), weights_symbol(name), bytes_of(weights))
    sources = () if host is None else (f"{name}_host.c", *host.source_names)
    libraries = () if host is None else host.libraries
    paths[5].write_text(program_text(name, signature, sources, libraries))
    if host is not None:
        declared = f"#include <stdint.h>\nextern const uint8_t {weights_symbol(name)}[];\n\n"
        files = {
            f"{name}_host.c": (declared + host.source(weights=weights_symbol(name))).encode(),
            **host.files(),
        }
        for file, data in files.items():
            paths.append(folder / file)
            paths[-1].write_bytes(data)
    return paths


def _write_library(
    exe: Executable, path: Path, name: str, cpu: HostCpu, header: str, host: HostProgram | None
) -> list[Path]:
    if not path.parent.is_dir():
        raise ArtifactError(f"{path} cannot be written", why=f"there is no folder {path.parent}")
    objects = [*_code_objects(exe, name, cpu, host)]
    native = cpu.triple == host_cpu().triple
    data = exe.weights if host is None else host.weights
    libraries = ["m", "pthread"]
    if host is not None:
        objects += host_objects(host, cpu, objects[0], bare=False)
        libraries += [each for each in host.libraries if each not in libraries]
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export") as folder:
        weights = Path(folder, "weights.o")
        write_data_object(weights, machine_of(objects[0]), weights_symbol(name), bytes_of(data))
        triple = "" if native else cpu.triple
        link_shared([*objects, weights], path, triple=triple, libraries=libraries)
    declared = path.with_name(f"{name}.h")
    declared.write_text(header)
    return [path, declared]


def bare_library(exe: Executable) -> bytes:
    """The library that a `.dlc` file contains: code without weights, which `dlc_runtime.c` runs.

    Raises UnsupportedError if there is no linker for the target.
    """
    cpu = cpu_of(exe.target)
    native = cpu.triple == host_cpu().triple
    host = _host_program(exe, "model", cpu)
    objects = [*_code_objects(exe, "model", cpu, host, bare=True)]
    if host is not None:
        objects += host_objects(host, cpu, objects[0], bare=True)
    with tempfile.TemporaryDirectory(prefix="dlc-library") as folder:
        path = Path(folder, "model.so")
        link_shared(objects, path, triple="" if native else cpu.triple)
        return path.read_bytes()


def _code_objects(
    exe: Executable, name: str, cpu: HostCpu, host: HostProgram | None, *, bare: bool = False
) -> tuple[bytes, bytes, bytes]:
    """The objects of the model, of the functions in the header, and of the thread pool."""
    if "linux" not in cpu.triple and "-none" not in cpu.triple:
        raise UnsupportedError(
            f"libraries for {cpu.triple} are not supported", hint="exe.save writes a file for dlc.open"
        )
    # Entry points and texts of foreign functions are called from within the library only.
    code = hidden(exe.artifact.code, set(read_object(exe.artifact.code).defined))
    size = exe.signature.weights_size if host is None or bare else host.weights.nbytes
    text = library_ir(name, _functions(exe, name, host), cpu, size, bare=bare)
    interface, pool = (compile_ir(t, cpu.triple, cpu.cpu, cpu.features) for t in (text, pool_ir(cpu.triple)))
    return code, interface, pool


def _functions(exe: Executable, name: str, host: HostProgram | None) -> list[Exported]:
    """The functions of a library, that of the executable first."""
    if host is not None:
        description = describe(name, host.signature, exe.target, exe.artifact.metadata)
        entry = host.entry + ENTRY_SUFFIX
        return [Exported(exe.entry, name, entry, host.signature, description)]
    found: list[Exported] = []
    named = {each: exe[each] for each in exe.entries}
    first = next((each for each, function in named.items() if function.entry == exe.entry), exe.entry)
    for each, function in ({first: exe} | {n: f for n, f in named.items() if n != first}).items():
        prefix = name if each == first else f"{name}.{len(found)}"
        signature = function.signature
        description = describe(name, signature, exe.target, exe.artifact.metadata)
        found.append(Exported(each, prefix, function.entry + ENTRY_SUFFIX, signature, description))
    return found


__all__ = ["bare_library", "export"]
