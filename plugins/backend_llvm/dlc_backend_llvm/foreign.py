"""Foreign functions in generated code: the implementation that is called, its declaration, and its object.

    chosen_for(name, where, cpu)             the implementation that code calls
    with_texts(code, ir, texts, cpu, level)  an object joined with those of texts in LLVM IR and C

A text becomes an object, which is joined to that of the module. C needs a C compiler for the target; without
one the next implementation is taken.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlc_backend_llvm import binding, engine
from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.emit.types import register_type
from dlc_backend_llvm.host import is_host
from dlc_backend_llvm.joining import Part, join_objects
from dlc_backend_llvm.linking import find_compiler
from dlc_backend_llvm.triples import GPU_ARCHITECTURES
from dlc_core.backend.compiler import NATIVE, compile_c, native_flags
from dlc_core.diag import CodegenError, UnsupportedError
from dlc_core.disk_cache import disk_cached
from dlc_core.foreign.calls import Chosen, check_symbols, choose, needed_entries
from dlc_core.foreign.declare import Source
from dlc_core.foreign.lookup import get_foreign
from dlc_core.foreign.prototype import Prototype

LLVM, C = "llvm", "c"
_FLAGS = (
    "-c", "-std=gnu99", "-O2", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions", "-fno-ident",
)  # fmt: skip
"""Objects have only sections that `joining` supports."""


def chosen_for(name: str, where: str, cpu: HostCpu) -> Chosen:
    """The implementation that code for a machine calls. Raises ForeignError for an unknown function, and
    UnsupportedError if it has no implementation for this target.
    """
    function, is_gpu = get_foreign(name, where), cpu.arch in GPU_ARCHITECTURES
    languages = () if is_gpu else (LLVM, C)
    return choose(function, languages, where, links=not is_gpu, refusal=lambda source: _refusal(source, cpu))


def declaration(prototype: Prototype, symbol: str) -> str:
    """The declaration of a C function, for `Unit.declare`."""
    result = "void" if prototype.result is None else register_type(prototype.result)
    args = ["ptr" if p.is_pointer else register_type(p.dtype) for p in prototype.params]
    return f"{result} @{symbol}({', '.join(args)})"


def check_module(names: Sequence[str], cpu: HostCpu) -> tuple[list[list[str]], dict[str, Source]]:
    """The functions that a module must be linked to, and the texts that it needs by name."""
    found = [chosen_for(name, "the module", cpu) for name in names]
    check_symbols(found)
    texts = {c.function.name: c.implementation for c in found if isinstance(c.implementation, Source)}
    return needed_entries(found), texts


def with_texts(code: bytes, ir: str, texts: Mapping[str, Source], cpu: HostCpu, level: int) -> bytes:
    """The object of a module, joined with those of texts by the names of their functions. `ir` is the IR of
    the module: if objects for a machine cannot be joined, texts in LLVM IR are linked to it.

    Raises CodegenError, which names the function, if a compiler refuses a text, and UnsupportedError if C
    texts cannot be joined.
    """
    if not texts:
        return code
    objects = [_object_of(name, source, cpu, level) for name, source in texts.items()]
    joined = join_objects([Part(code), *(Part(data) for data in objects)])
    if joined is not None:
        return joined
    of_c = [name for name, source in texts.items() if source.language == C]
    if of_c:
        names = ", ".join(map(repr, of_c))
        hint = "give a Source in 'llvm', or a CSymbol that is linked"
        raise UnsupportedError(f"C texts are not linked for {cpu.triple}: {names}", hint=hint)
    linked = engine.link_ir(ir, *(source.text for source in texts.values()))
    return engine.compile_ir(linked, cpu.triple, cpu.cpu, cpu.features, opt=level)


def _object_of(name: str, source: Source, cpu: HostCpu, level: int) -> bytes:
    try:
        if source.language == LLVM:
            return engine.compile_ir(source.text, cpu.triple, cpu.cpu, cpu.features, opt=level, passes="O2")
        return _c_object(source, cpu)
    except CodegenError as error:
        what = f"the {source.language} text of foreign function {name!r} is refused"
        raise CodegenError(what, why=error.why or error.what, details=error.details) from error


def _refusal(source: Source, cpu: HostCpu) -> str:
    """Why a text cannot be compiled; empty if it can."""
    if source.language == LLVM:
        return ""
    try:
        _compiler(cpu)
    except UnsupportedError as error:
        return error.what
    return ""


def _compiler(cpu: HostCpu) -> list[str]:
    return find_compiler("" if _is_native(cpu) else cpu.triple)


def _is_native(cpu: HostCpu) -> bool:
    return is_host(cpu.triple, cpu.cpu, cpu.features)


def _c_object(source: Source, cpu: HostCpu) -> bytes:
    command = _compiler(cpu)
    flags = [*_FLAGS]
    if cpu.arch == "x86_64":
        flags.append("-fcf-protection=none")
    if _is_native(cpu) and NATIVE in native_flags():
        flags.append(NATIVE)

    def make() -> bytes:
        with tempfile.TemporaryDirectory(prefix="dlc-foreign-") as folder:
            text, made = Path(folder, "text.c"), Path(folder, "text.o")
            text.write_text(source.text)
            compile_c(command, text, made, flags)
            return made.read_bytes()

    words = [*command, *flags, binding.installed(), cpu.triple, cpu.cpu, cpu.features, source.text]
    return disk_cached("foreign", "\n".join(words), make)


__all__ = ["LLVM", "check_module", "chosen_for", "declaration", "with_texts"]
