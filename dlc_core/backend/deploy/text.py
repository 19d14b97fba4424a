"""The C text of a host program, from its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_core.backend.deploy.dims import over_symbols
from dlc_core.backend.deploy.plan import Plan
from dlc_core.backend.deploy.steps import (
    Branch,
    Copy,
    DevicePlace,
    HostPlace,
    Launch,
    Loop,
    Move,
    Native,
    Read,
    Reserve,
    Step,
    Write,
)
from dlc_core.backend.packed import ENTRY_SUFFIX
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, Var, as_expr, const, const_value
from dlc_core.runtime.interface.signature import Signature
from dlc_core.target.source import C99, FunctionWriter, Unit
from dlc_core.target.source.tokens import folded
from dlc_core.tir.stmt import PrimFunc, Store, seq

RECORD = 64
"""The bytes of the workspace before its slots, if a kernel has checks."""


class StepsText:
    """The function that runs the steps of a call, and the bytes of its workspace."""

    def __init__(self, name: str, plan: Plan, signature: Signature, known: Mapping[Var, Expr]) -> None:
        self.name = name
        self.plan = plan
        self.signature = signature
        self._known = known
        self._sizes: dict[Expr, int] = {}
        offsets, self.workspace = plan.host.offsets(const(RECORD if plan.sites else 0))
        self.workspace = self._over_symbols(self.workspace)
        self._offsets = [self._number(offset) for offset in offsets]
        self._lines = [line for step in plan.steps for line in self._step(step)]

    def _over_symbols(self, expr: Expr) -> Expr:
        return over_symbols(expr, self._known, self.signature.symbols)

    def _number(self, expr: Expr) -> str:
        """An integer as text: a literal, or an element of the table of sizes."""
        found = self._over_symbols(as_expr(expr))
        value = const_value(found)
        if value is not None:
            return str(int(value))
        return f"s[{self._sizes.setdefault(found, len(self._sizes))}]"

    # Text

    def sizes_function(self) -> str:
        """The function that computes the table of sizes; empty if all are constant."""
        if not self._sizes:
            return ""
        table = Buffer("s", (len(self._sizes),), INDEX)
        body = seq(*(Store(table, (const(i),), e) for e, i in self._sizes.items()))
        func = PrimFunc(f"{self.name}_sizes", (table, *self.signature.symbols), body)
        unit = Unit(C99)
        unit.functions.append(FunctionWriter(unit).function(func, f"static void {self.name}_sizes"))
        return unit.text()

    def steps_function(self) -> str:
        """The function that runs the steps."""
        name = self.name
        symbols = [f"scalars[{i}]" for i in range(len(self.signature.symbols))]
        ins, outs = len(self.signature.inputs), len(self.signature.outputs)
        head = [
            f"static int {name}_steps(void *const *buffers, const int64_t *scalars, int32_t threads,",
            "        struct dlc_host_frame *frame)",
            "{",
            f"    struct dlc_host *const host = &{name}_host;",
            f"    char *const text = {name}_text;",
            f"    const uint8_t *const weights = (const uint8_t *)buffers[{ins + outs}];",
            f"    uint8_t *const work = (uint8_t *)buffers[{ins + outs + 1}];",
            "    int status = DLC_HOST_OK;",
        ]
        if self._sizes:
            head.append(f"    int64_t s[{len(self._sizes)}];")
        unused = ["scalars", "threads", "host", "frame", "text", "weights", "work"]
        head += ["    " + " ".join(f"(void){word};" for word in unused)]
        if self._sizes:
            head.append(f"    {name}_sizes({', '.join(['s', *symbols])});")
        if self.plan.sites:
            head.append("    memset(work, 0, DLC_HOST_RECORD);")
        return "\n".join([*head, *self._lines, "    return status;", "}", ""])

    def _step(self, step: Step) -> list[str]:
        match step:
            case Reserve():
                return _checked(
                    f"dlc_host_reserve(host, frame, {step.slot}, {self._number(step.size)}, text)"
                )
            case Write():
                source, size = self._host(step.source), self._number(step.size)
                return _checked(f"dlc_host_write(host, frame, {step.slot}, {source}, {size}, text)")
            case Read():
                to, size = self._host(step.to), self._number(step.size)
                return _checked(f"dlc_host_read(host, frame, {step.slot}, {to}, {size}, text)")
            case Move():
                buffer, size = self._host(step.buffer), self._number(step.size)
                slots = f"{step.to}, {step.slot}"
                return _checked(f"dlc_host_move(host, frame, {slots}, {buffer}, {size}, text)")
            case Copy():
                size = self._number(step.size)
                call = f"    memcpy({self._host(step.to)}, {self._host(step.source)}, (size_t){size});"
                return list(folded(call))
            case Native():
                return self._native(step)
            case Launch():
                return self._launch(step)
            case Branch():
                condition = f"*(const uint8_t *)({self._host(step.condition)})"
                then, orelse = self._inner(step.then), self._inner(step.orelse)
                return [f"    if ({condition}) {{", *then, "    } else {", *orelse, "    }"]
            case Loop():
                condition = f"*(const uint8_t *)({self._host(step.condition)})"
                before, body = self._inner(step.before), self._inner(step.body)
                leave = f"        if (!{condition}) break;"
                return ["    for (;;) {", *before, leave, *body, "    }"]

    def _inner(self, steps: Sequence[Step]) -> list[str]:
        """Steps of a branch or loop."""
        return [f"    {line}" for step in steps for line in self._step(step)]

    def _native(self, step: Native) -> list[str]:
        arena = "NULL" if step.arena is None else f"work + {self._offsets[step.arena]}"
        values = [self._host(p) for p in (*step.inputs, *step.outputs)]
        lines = [
            "    {",
            *_table("void *", "given", [*(f"(void *)({v})" for v in values), "(void *)weights", arena]),
        ]
        lines += _table("int64_t ", "numbers", [self._number(e) for e in step.scalars])
        if step.sites is not None:
            lines.append(f"        memset({arena}, 0, DLC_HOST_RECORD);")
        lines.append(f"        status = {step.symbol}{ENTRY_SUFFIX}(given, numbers, threads);")
        if step.sites is not None:
            lines.append(
                f"        if (!status) status = dlc_host_record((int64_t *)work, {arena}, {step.sites});"
            )
        return [*lines, "        if (status) return status;", "    }"]

    def _launch(self, step: Launch) -> list[str]:
        arena = "0" if step.arena is None else f"frame->memory[{step.arena}]"
        weights = f"host->regions[{step.region}].memory"
        memory = [*(_device(p) for p in (*step.inputs, *step.outputs)), weights, arena]
        lines = ["    {", *_table("dlc_memory ", "given", memory)]
        lines += _table("int64_t ", "numbers", [self._number(e) for e in step.scalars])
        if step.sites is not None:
            zeros = "static const int64_t record[4] = {0, 0, 0, 0};"
            write = f"dlc_host_write(host, frame, {step.arena}, record, sizeof record, text)"
            lines += [f"        {zeros}", f"        status = {write};", "        if (status) return status;"]
        given = f"given, {len(memory)}, numbers, {len(step.scalars)}, threads, text"
        lines.append(f"        status = dlc_host_launch(host, {step.region}, {given});")
        if step.sites is not None:
            check = f"host, frame, {step.arena}, (int64_t *)work, {step.sites}, text"
            lines.append(f"        if (!status) status = dlc_host_region_record({check});")
        return [*lines, "        if (status) return status;", "    }"]

    def _host(self, place: HostPlace) -> str:
        ins = len(self.signature.inputs)
        match place.kind:
            case "input":
                return f"buffers[{place.index}]"
            case "output":
                return f"buffers[{ins + place.index}]"
            case "constant":
                return f"weights + {place.index}"
            case _:
                return f"work + {self._offsets[place.index]}"


def _device(place: DevicePlace) -> str:
    if place.kind == "constant":
        return f"host->constants[{place.index}].memory"
    return f"frame->memory[{place.index}]"


def _checked(call: str) -> list[str]:
    return [*folded(f"    status = {call};"), "    if (status) return status;"]


def _table(type_: str, name: str, values: Sequence[str]) -> list[str]:
    """A local array. C has no empty ones."""
    items = ", ".join(values) or "0"
    return list(folded(f"        {type_}{name}[] = {{{items}}};"))


__all__ = ["StepsText"]
