"""Compile LLVM IR to object code, and load object code into this process.

    compile_ir(text, triple="", cpu="", features="", *, opt=2, reloc="pic", jit=False, passes="", apart=False)
        -> bytes
    assemble(text, triple="", cpu="", features="", *, opt=2, passes="") -> str      assembly listing
    optimise(text, passes, ...) -> str                                             IR after a pass pipeline
    engine() -> Engine                                        the one engine of this process
    engine().load(object, ..., keep=False) -> Loaded          .address(symbol) .symbols .close()

An empty triple means this machine, and empty cpu and features then mean its own. `passes` names an LLVM
pipeline: "" (none, because dlc's passes have optimised the code), "light" (always-inline, SROA, CSE and CFG
simplification), or "O1", "O2", "O3". All functions are thread-safe; they hold `binding.LOCK`.

Each `load` creates its own LLJIT, which takes 0.7 ms. Closing it frees all its memory; libraries closed
inside a shared LLJIT would leak 10 KB each. JITLink allocates one contiguous block per load, so the small
code model works at any distance between loads. Calls of external symbols (libc, libm, the pool) go through
stubs. External symbols are resolved before linking, in this order: the other objects of the load,
`symbols.add_symbol`, the process, libm, libgcc. If a name is in none of these, the error lists all such
names.

`Loaded.close()` unmaps the code. The caller must ensure that none of it is still running. The thread pool,
whose workers always run, is loaded with `keep=True` and stays until the process ends.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from dlc_backend_llvm.binding import LOCK, llvm, target_of
from dlc_backend_llvm.host import abi_name, describe, host_cpu, is_host
from dlc_backend_llvm.loaded import Loaded
from dlc_backend_llvm.objects import read_object
from dlc_backend_llvm.symbols import find_symbol
from dlc_backend_llvm.triples import GPU_ARCHITECTURES, full_triple, normal_arch
from dlc_core.cancel import stoppable
from dlc_core.diag import CodegenError, UsageError

_SPEED = {"O1": 1, "O2": 2, "O3": 3}
_CONTEXT_LINES = 3

LONG = 1 << 15
"""The least length of a text that may take more than some 50 ms; a thread takes some 0.1 ms."""


def compile_ir(
    text: str,
    triple: str = "",
    cpu: str = "",
    features: str = "",
    *,
    opt: int = 2,
    reloc: str = "pic",
    jit: bool = False,
    passes: str = "",
    apart: bool = False,
) -> bytes:
    """Compile LLVM IR to the bytes of an object file.

    `opt` is the code generator's level, 0 to 3. `reloc` is "pic" or "default". `jit` means that the object is
    only used by `Engine.load`. Raises CodegenError, which shows the lines, if LLVM's parser or verifier
    refuses the IR. `apart`: a long text is compiled in another thread, so that tokens and Ctrl-C
    stop the wait for it. The caller must not hold `LOCK`.
    """

    def compiled() -> bytes:
        with LOCK, _prepared(text, triple, cpu, features, opt, reloc, jit, passes) as (module, machine):
            try:
                return bytes(machine.emit_object(module))
            except RuntimeError as error:
                what = "LLVM cannot generate code for this module"
                raise CodegenError(what, why=str(error).strip()) from error

    return stoppable(compiled) if apart and len(text) >= LONG else compiled()


def assemble(
    text: str, triple: str = "", cpu: str = "", features: str = "", *, opt: int = 2, passes: str = ""
) -> str:
    """Compile LLVM IR to assembly. Raises the same errors as `compile_ir`."""
    with LOCK, _prepared(text, triple, cpu, features, opt, "pic", False, passes) as (module, machine):
        return str(machine.emit_assembly(module))


def optimise(text: str, passes: str, triple: str = "", cpu: str = "", features: str = "") -> str:
    """The IR after a pass pipeline ("light", "O1", "O2", "O3"). Raises the same errors as `compile_ir`."""
    with LOCK, _prepared(text, triple, cpu, features, 2, "pic", False, passes) as (module, _):
        return str(module)


def resolve_machine(triple: str, cpu: str, features: str) -> tuple[str, str, str]:
    """Complete a machine. An empty triple is this machine; for other triples an empty cpu is the baseline of
    the architecture.
    """
    if not triple:
        host = host_cpu()
        if not cpu and not features:
            return host.triple, host.cpu, host.features
        triple = host.triple
    if normal_arch(triple) in GPU_ARCHITECTURES or is_host(triple, cpu, features):
        return triple, cpu, features
    known = describe(triple, cpu, features)
    return triple, known.cpu, known.features


def link_ir(text: str, *others: str) -> str:
    """The IR of one module with the definitions of others. Raises CodegenError if a symbol has two."""
    with LOCK:
        context = llvm().create_context()
        try:
            module = _parse(text, context)
            try:
                for other in others:
                    module.link_in(_parse(other, context))
                return str(module)
            except RuntimeError as error:
                raise CodegenError("LLVM cannot link the modules", why=str(error).strip()) from error
            finally:
                module.close()
        finally:
            context.close()


@contextlib.contextmanager
def _prepared(
    text: str, triple: str, cpu: str, features: str, opt: int, reloc: str, jit: bool, passes: str
) -> Iterator[tuple[Any, Any]]:
    """A context with the parsed module and the target machine.

    The module and then its context are freed here, in this order. After an exception, the garbage collector
    might free a context before its module, which crashes the process.
    """
    if opt not in (0, 1, 2, 3) or reloc not in ("pic", "default"):
        raise UsageError(f"opt must be 0..3 and reloc 'pic' or 'default'; got {opt!r} and {reloc!r}")
    triple, cpu, features = resolve_machine(triple, cpu, features)
    triple = full_triple(triple)
    if normal_arch(triple) == "wasm32":
        reloc = "static"  # modules are linked at fixed addresses
    machine = _machine(triple, cpu, features, opt, reloc, jit)
    context = llvm().create_context()
    try:
        module = _parse(text, context)
        try:
            _verify(text, module)
            module.triple = triple
            module.data_layout = str(machine.target_data)
            if passes:
                _run_passes(module, machine, passes)
            yield module, machine
        finally:
            module.close()
    finally:
        context.close()


@lru_cache(maxsize=32)
def _machine(triple: str, cpu: str, features: str, opt: int, reloc: str, jit: bool) -> Any:
    return target_of(triple).create_target_machine(
        cpu=cpu,
        features=features,
        opt=opt,
        reloc=reloc,
        codemodel="small",
        jit=jit,
        abiname=abi_name(triple, features),
    )


def _parse(text: str, context: Any) -> Any:
    try:
        return llvm().parse_assembly(text, context=context)
    except RuntimeError as error:
        message = str(error)
    location = re.search(r"<string>:(\d+):(\d+): error: ([^\n]*)", message)
    line, column, why = (
        (int(location[1]), int(location[2]), location[3]) if location else (0, 0, message.strip())
    )
    details = _around(text, line, column)
    raise CodegenError("LLVM cannot parse the generated IR", why=why, details=details)


def _verify(text: str, module: Any) -> None:
    try:
        module.verify()
    except RuntimeError as error:
        message = str(error).strip()
        details = _around(text, _line_of(text, message), 0)
        raise CodegenError("LLVM's verifier refuses the generated IR", why=message, details=details) from None


def _line_of(text: str, message: str) -> int:
    """The line, from 1, of the instruction that a verifier message quotes; 0 if it is not found."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for quoted in message.splitlines()[1:]:
        wanted = " ".join(quoted.split())
        if len(wanted) > 3 and wanted in lines:
            return lines.index(wanted) + 1
    return 0


def _around(text: str, line: int, column: int) -> list[str]:
    if not line:
        return []
    lines = text.splitlines()
    first = max(1, line - _CONTEXT_LINES)
    shown = []
    for number in range(first, min(len(lines), line + _CONTEXT_LINES) + 1):
        shown.append(f"{'>' if number == line else ' '} {number:5d} | {lines[number - 1]}")
        if number == line and column:
            shown.append(" " * (column + 9) + "^")
    return shown


def _run_passes(module: Any, machine: Any, passes: str) -> None:
    binding = llvm()
    if passes == "light":
        builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=1))
        manager = binding.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.add_sroa_pass()
        manager.add_instruction_combine_pass()
        manager.add_new_gvn_pass()
        manager.add_simplify_cfg_pass()
        manager.add_dead_code_elimination_pass()
    elif passes in _SPEED:
        options = binding.create_pipeline_tuning_options(speed_level=_SPEED[passes])
        builder = binding.create_pass_builder(machine, options)
        manager = builder.getModulePassManager()
    else:
        known = ", ".join(["light", *_SPEED])
        raise UsageError(f"unknown LLVM pipeline {passes!r}", hint=f"one of: {known}; empty for none")
    manager.run(module, builder)


def _free(jit: Any, tracker: Any) -> None:
    with LOCK:
        tracker.close()
        jit.close()


class Engine:
    """Loads object code into this process. `engine()` returns the only instance."""

    def __init__(self) -> None:
        host = host_cpu()
        self._triple = host.triple
        self._machine = target_of(host.triple).create_target_machine(reloc="pic", codemodel="small", jit=True)

    def load(
        self, *objects: bytes, keep: bool = False, resolve: Callable[[str], int] = find_symbol
    ) -> Loaded:
        """Link relocatable objects into executable memory and return a handle. `resolve` returns the address
        of an external symbol, or 0.

        Raises CodegenError for objects of another machine, and for undefined references.
        """
        infos = [read_object(data) for data in objects]
        for info in infos:
            if info.machine != normal_arch(self._triple):
                raise CodegenError(
                    f"cannot load {info.machine} code into a process on {normal_arch(self._triple)}",
                    hint="export it and run it on such a machine, or compile for this one",
                )
        defined = {name: None for info in infos for name in info.defined}
        wanted = {name: None for info in infos for name in info.undefined if name not in defined}
        with LOCK:
            builder = llvm().JITLibraryBuilder()
            missing = []
            for name in wanted:
                address = resolve(name)
                if address:
                    builder.import_symbol(name, address)
                else:
                    missing.append(name)
            if missing:
                raise CodegenError(
                    "generated code refers to functions that this process does not define",
                    details=sorted(missing),
                    hint="pass their addresses to symbols.add_symbol before loading",
                )
            for data in objects:
                builder.add_object_img(data)
            for name in defined:
                builder.export_symbol(name)
            jit = llvm().create_lljit_compiler(self._machine, use_jit_link=True, suppress_errors=True)
            try:
                tracker = builder.link(jit, "dlc")
            except RuntimeError as error:
                jit.close()
                raise CodegenError("LLVM cannot load the object code", why=str(error).strip()) from error
            return Loaded(
                {name: tracker[name] for name in defined}, None if keep else partial(_free, jit, tracker)
            )


def engine() -> Engine:
    """The engine of this process. It is created on first use."""
    with LOCK:
        return _only_engine()


@lru_cache(maxsize=1)
def _only_engine() -> Engine:
    return Engine()


__all__ = [
    "Engine",
    "Loaded",
    "assemble",
    "compile_ir",
    "engine",
    "link_ir",
    "optimise",
    "resolve_machine",
]
