"""Modules as C: the table of this language, checks and clocks, and the packed entry points.

    int32_t <name>__entry(void *const *buffers, const int64_t *scalars, int32_t threads)

The result is 0, or the code of a check that failed where the module is checked.  A file has two parts: the
functions of the model, which exported sources take as they are, and, from `PACKED` on, what only this package
calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Call, const_value
from dlc_core.ir.module import IRModule
from dlc_core.runtime.profile import PROFILE_SUFFIX
from dlc_core.target.source import C99, FunctionWriter, Unit
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import PrimFunc, View

ENTRY_SUFFIX = "__entry"
FAILURE = "dlc_failure"
"""The symbol of three int64_t: the code of the first check that failed, or 0; the numbers it has seen."""

PACKED = "/* What dlc calls in its own process. */"

_FAIL = f"""int64_t {FAILURE}[3];

static void dlc_fail(int64_t code, int64_t index, int64_t extent)
{{
    if ({FAILURE}[0] == 0) {{
        {FAILURE}[0] = code;
        {FAILURE}[1] = index;
        {FAILURE}[2] = extent;
    }}
}}
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
class COptions:
    """What the C of a module may use."""

    vectors: bool = False
    parallel: bool = False
    index: str = "int64_t"


@dataclass(frozen=True)
class Emitted:
    """The C of a module: its text, its entry points, the windows of the model on its weights."""

    text: str
    entries: tuple[str, ...]
    windows: tuple[tuple[str, int, str, int], ...]
    """Name, first byte, dtype and elements of each."""


class CUnit(Unit):
    """A C file with the functions that checks and clocks need."""

    def __init__(self, options: COptions) -> None:
        dialect = replace(
            C99,
            index=options.index,
            vectors="extension" if options.vectors else "",
            alignment="__attribute__((aligned({align})))" if options.vectors else "",
            parallel="#pragma omp parallel for schedule(static) num_threads({threads})"
            if options.parallel
            else "",
        )
        super().__init__(dialect)
        self.uses: dict[str, None] = {}
        """Which of "fail" and "clock" functions call."""

    def prelude(self) -> str:
        return "\n".join([super().prelude(), *([_FAIL] if "fail" in self.uses else ())])


class CFunctionWriter(FunctionWriter):
    """Functions in C, with checks and clocks."""

    unit: CUnit

    def effect(self, value: Call) -> None:
        text = self.text
        if value.name == "clock":
            self.unit.uses["clock"] = None
            at, sign = value.args
            self.line(f"dlc_clock({text.value(at)}, {text.value(sign)});")
            return
        if value.name not in ("check", "check_index"):
            raise CodegenError(f"intrinsic {value.name} has no effect that C knows")
        self.unit.uses["fail"] = None
        self.prepare(*value.args)
        *checked, code = value.args
        if value.name == "check":
            numbers, bad = "0, 0", f"!({text.value(checked[0])})"
        else:
            index, extent = (text.value(e.astype(INDEX)) for e in checked)
            numbers, bad = f"{index}, {extent}", f"(uint64_t)({index}) >= (uint64_t)({extent})"
        self.line(f"if ({bad})")
        self.line(f"    dlc_fail({text.value(code)}, {numbers});")


def emit_module(module: IRModule, options: COptions) -> Emitted:
    """The C of a module."""
    unit = CUnit(options)
    funcs = list(module.of_kind(PrimFunc).values())
    entries = [func for func in funcs if func.attrs.get("entry")]
    profiles = [func for func in entries if func.name.endswith(PROFILE_SUFFIX)]
    for func in [f for f in funcs if f not in entries] + [f for f in entries if f not in profiles]:
        unit.functions.append(_written(unit, func))
    tail = [_written(unit, func) for func in profiles]
    if "clock" in unit.uses:
        tail.insert(0, _CLOCK)
    tail += [packed_entry(unit, func, options) for func in entries]
    text = "\n".join([unit.text(), PACKED, "", *tail])
    return Emitted(text, tuple(func.name for func in entries), _windows(entries))


def _written(unit: CUnit, func: PrimFunc) -> str:
    about = f"/* {_comment(func)} */\n" if func.spans and not func.attrs.get("entry") else ""
    return about + CFunctionWriter(unit).function(func, f"static void {unit.symbol(func.name)}")


def _comment(func: PrimFunc) -> str:
    """The model's nodes that a function computes, as C's comments may hold them."""
    names = ", ".join(dict.fromkeys(str(span.name) for span in func.spans))
    return names.encode("ascii", "replace").decode().replace("*/", "* /").replace("/*", "/ *")


def _windows(entries: list[PrimFunc]) -> tuple[tuple[str, int, str, int], ...]:
    """The views of the first entry on its parameter `weights`."""
    for func in entries:
        weights = next((p for p in func.buffers if p.name == "weights"), None)
        if weights is None:
            continue
        found = []
        for stmt in stmts(func.body):
            if isinstance(stmt, View) and stmt.base is weights:
                offset, count = const_value(stmt.buffer.offset), const_value(stmt.buffer.num_elements())
                if offset is not None and count is not None:
                    size = stmt.buffer.dtype.itemsize
                    found.append((stmt.buffer.name, int(offset) * size, stmt.buffer.dtype.name, int(count)))
        return tuple(found)
    return ()


def packed_entry(unit: CUnit, func: PrimFunc, options: COptions) -> str:
    """The function that callers outside of C find by name."""
    args, buffers, scalars = [], 0, 0
    for param in func.params:
        if isinstance(param, Buffer):
            args.append(f"buffers[{buffers}]")
            buffers += 1
        else:
            args.append(f"({unit.dialect.index})scalars[{scalars}]")
            scalars += 1
    unused = [f"    (void){n};" for n, used in (("buffers", buffers), ("scalars", scalars)) if not used]
    if options.parallel:
        args.append("(int)threads")
    else:
        unused.append("    (void)threads;")
    lines = [f"    {unit.symbol(func.name)}({', '.join(args)});"]
    if "fail" in unit.uses:
        lines.append(f"    const int32_t status = (int32_t){FAILURE}[0];")
        lines += [f"    {FAILURE}[0] = 0;", "    return status;"]
    else:
        lines.append("    return 0;")
    head = f"int32_t {func.name}{ENTRY_SUFFIX}(void *const *buffers, const int64_t *scalars, int32_t threads)"
    return "\n".join([head + ";", head, "{", *unused, *lines, "}", ""])


__all__ = ["ENTRY_SUFFIX", "FAILURE", "PACKED", "COptions", "Emitted", "emit_module"]
