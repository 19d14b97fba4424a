"""Modules in a language of the C family: the functions, clocks, and the packed entry points.

A file has two parts. The first has the functions of the model, which exported sources contain unchanged. The
second begins with `PACKED` and has the entry points for calls from this process (see `packed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc_core.backend.packed import ENTRY_SUFFIX
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, const_value
from dlc_core.ir.module import IRModule
from dlc_core.runtime.measure.profile import PROFILE_SUFFIX
from dlc_core.target.source import Dialect, FunctionWriter, Unit
from dlc_core.target.source.tokens import comment
from dlc_core.tir.functor import child_stmts, loads_in, stmts_of
from dlc_core.tir.intrinsics import NOTE, kernel_symbol
from dlc_core.tir.stmt import Eval, For, PrimFunc, Stmt, View, While

PACKED = "/* What dlc calls in its own process. */"

_NOINLINE = """/* For functions that loops call: if GCC inlines them, it assumes that "restrict" holds across
   iterations, as if no iteration read what an earlier one has written.  On machines with few registers also
   for other kernels, because one large function needs more registers for addresses. */
#ifndef DLC_NOINLINE
#ifdef __GNUC__
#define DLC_NOINLINE __attribute__((noinline))
#else
#define DLC_NOINLINE
#endif
#endif
"""
_CLOCK = """#include <time.h>

static void dlc_clock(void *at, int64_t sign)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *(int64_t *)at += sign * ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
}
"""


@dataclass(frozen=True)
class Emitted:
    """The code of a module: its text, its entry points, and the views of its weights."""

    text: str
    entries: tuple[str, ...]
    windows: tuple[tuple[str, int, str, int], ...]
    """The views of the weights: name, byte offset, dtype, number of elements."""
    foreign: tuple[list[str], ...] = ()
    """The foreign functions that the code must be linked to: name, signature, symbol."""


class ModuleUnit(Unit):
    """A file that may contain the clock function."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self.noinline: frozenset[str] = frozenset()
        """The functions that must not be inlined."""
        self.uses: dict[str, None] = {}
        """The helpers that the functions need: "clock", "noinline" (the macro that forbids inlining)."""

    def prelude(self) -> str:
        return "\n".join([super().prelude(), *([_NOINLINE] if "noinline" in self.uses else [])])


class ModuleWriter(FunctionWriter):
    """Writes functions of a module, with calls of clocks."""

    unit: ModuleUnit

    def effect(self, value: Call) -> None:
        text = self.text
        if value.name == "clock":
            self.unit.uses["clock"] = None
            at, sign = value.args
            self.line(f"dlc_clock({text.value(at)}, {text.value(sign)});")
            return
        if value.name == NOTE:
            at, number = value.args
            self.line(f"*(volatile int64_t *)({text.value(at)}) = {text.value(number)};")
            return
        super().effect(value)


def emit_module(module: IRModule, dialect: Dialect, writer: type[ModuleWriter] = ModuleWriter) -> Emitted:
    """The code of a module, with functions written by `writer`. Raises CodegenError for features that the
    language lacks."""
    unit = ModuleUnit(dialect)
    funcs = list(module.of_kind(PrimFunc).values())
    unit.noinline = _not_inlined(funcs)
    if dialect.separate_kernels:
        unit.noinline |= {func.name for func in funcs if not func.attrs.get("entry") and _has_loops(func)}
    unit.take_foreign(funcs)
    entries = [func for func in funcs if func.attrs.get("entry")]
    profiles = [func for func in entries if func.name.endswith(PROFILE_SUFFIX)]
    for func in [f for f in funcs if f not in entries] + [f for f in entries if f not in profiles]:
        unit.functions.append(_written(writer(unit), func))
    tail = [_written(writer(unit), func) for func in profiles]
    if "clock" in unit.uses:
        tail.insert(0, _CLOCK)
    tail += [packed_entry(unit, func) for func in entries]
    text = "\n".join([unit.text(), PACKED, "", *tail])
    windows = _windows({func.name: func for func in funcs})
    return Emitted(text, tuple(func.name for func in entries), windows, tuple(unit.foreign.needed()))


def _written(writer: ModuleWriter, func: PrimFunc) -> str:
    about = f"{comment(_nodes(func))}\n" if func.spans and not func.attrs.get("entry") else ""
    noinline = ""
    if func.name in writer.unit.noinline:
        writer.unit.uses["noinline"] = None
        noinline = "DLC_NOINLINE "
    return about + writer.function(func, f"static {noinline}void {writer.unit.symbol(func.name)}")


def _not_inlined(funcs: Sequence[PrimFunc]) -> frozenset[str]:
    """The functions that must not be inlined: bodies of scans and while loops, which loops of other functions
    call, and functions whose callers record that they begin.
    """
    found: set[str] = set()
    work: list[tuple[Stmt, bool]] = [(func.body, _notes(func)) for func in funcs]
    while work:
        stmt, inside = work.pop()
        match stmt:
            case Eval() if inside and (symbol := kernel_symbol(stmt.value)) is not None:
                found.add(symbol)
            case For() | While():
                inside = True
        work += [(child, inside) for child in child_stmts(stmt)]
    return frozenset(found)


def _has_loops(func: PrimFunc) -> bool:
    return next(iter(stmts_of(func.body, For)), None) is not None


def _notes(func: PrimFunc) -> bool:
    return any(isinstance(s.value, Call) and s.value.name == NOTE for s in stmts_of(func.body, Eval))


def _nodes(func: PrimFunc) -> str:
    """A comment with the nodes of the model that a function computes, and their operators."""
    named = (f"{span.name} ({span.op})" if span.op else span.name for span in func.spans)
    return ", ".join(dict.fromkeys(named))


def _windows(funcs: Mapping[str, PrimFunc]) -> tuple[tuple[str, int, str, int], ...]:
    """The views of the parameter `weights` in entry points, and in the functions that they pass it to: the
    bodies of branches and loops.
    """
    entries = [func for func in funcs.values() if func.attrs.get("entry")]
    work = [(func, p) for func in entries for p in func.buffers if p.name == "weights"]
    met = set(work)
    found: dict[tuple[str, int, str, int], None] = {}
    for func, weights in work:
        for window in (view.buffer for view in stmts_of(func.body, View) if view.base is weights):
            offset, count = const_value(window.offset), const_value(window.num_elements())
            if offset is not None and count is not None:
                size = window.dtype.itemsize
                found[window.name, int(offset) * size, window.dtype.name, int(count)] = None
        for stmt in stmts_of(func.body, Eval):
            called = funcs.get(kernel_symbol(stmt.value) or "")
            if called is not None:
                for param, arg in zip(called.params, stmt.value.children, strict=False):
                    given = [load.buffer for load in loads_in(arg)]
                    if given == [weights] and isinstance(param, Buffer) and (called, param) not in met:
                        met.add((called, param))
                        work.append((called, param))
    return tuple(found)


def packed_entry(unit: ModuleUnit, func: PrimFunc) -> str:
    """The entry point of a function, which callers outside of the file find by its name."""
    args, buffers, scalars = [], 0, 0
    for param in func.params:
        if isinstance(param, Buffer):
            args.append(f"buffers[{buffers}]")
            buffers += 1
        else:
            args.append(f"({unit.dialect.index})scalars[{scalars}]")
            scalars += 1
    unused = [f"    (void){n};" for n, used in (("buffers", buffers), ("scalars", scalars)) if not used]
    if unit.dialect.parallel:
        args.append("(int)threads")
    else:
        unused.append("    (void)threads;")
    lines = [f"    {unit.symbol(func.name)}({', '.join(args)});"]
    lines.append("    return 0;")
    head = f"int32_t {func.name}{ENTRY_SUFFIX}(void *const *buffers, const int64_t *scalars, int32_t threads)"
    return "\n".join([head + ";", head, "{", *unused, *lines, "}", ""])


__all__ = ["PACKED", "Emitted", "ModuleUnit", "ModuleWriter", "emit_module"]
