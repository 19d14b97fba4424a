"""The schedules of kernels as Python: one function for each, which replays the primitives that made it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from textwrap import indent

from dlc_core.cli.tables import shortened
from dlc_core.diag import UsageError
from dlc_core.ir.module import IRModule
from dlc_core.runtime.executable import Executable
from dlc_core.script.names import Names
from dlc_core.tir.stmt import PrimFunc


@dataclass(frozen=True)
class KernelSchedule:
    """The schedule of a kernel; `trace` is None if no rule made it, or if it was not stored."""

    rule: str
    nodes: tuple[str, ...]
    trace: str | None


def schedules_of(module: IRModule) -> dict[str, KernelSchedule]:
    """Return the schedules of all kernels of a scheduled module."""
    return {
        name: KernelSchedule(
            str(func.attrs.get("rule", "")),
            tuple(span.name for span in func.spans if span.name),
            func.attrs.get("trace"),
        )
        for name, func in module.of_kind(PrimFunc).items()
    }


def schedules_kept(exe: Executable) -> dict[str, KernelSchedule]:
    """Return the schedules in an artefact. Raises UsageError if it has none."""
    kernels = exe.explain().kernels
    if kernels and not any(kernel.trace for kernel in kernels):
        raise UsageError(
            "the artefact has no traces",
            hint='dlc inspect MODEL --traces, or compile it with config={"traces": True}',
        )
    return {k.name: KernelSchedule(k.rule, k.nodes, k.trace) for k in kernels}


def as_python(schedules: Mapping[str, KernelSchedule]) -> str:
    """Return Python text: for each kernel a function of a schedule `sch`."""
    names = Names()
    parts = []
    for kernel, found in schedules.items():
        about = ": ".join(filter(None, (found.rule or "scheduled by hand", shortened(list(found.nodes)))))
        body = found.trace or "# no primitives: the kernel is not scheduled"
        empty = "" if found.trace else "    pass\n"
        name = names.fresh(kernel)
        parts.append(f"def {name}(sch):\n    {about!r}\n{indent(body, '    ')}\n{empty}")
    return "\n\n".join(parts)


def print_schedules(
    schedules: Mapping[str, KernelSchedule], function: str | None = None, as_json: bool = False
) -> None:
    """Print all schedules, or that of one kernel, as Python or as JSON."""
    if function is not None and function not in schedules:
        raise UsageError(
            f"there is no kernel {function!r}", hint=f"kernels: {', '.join(schedules) or 'none'}"
        )
    chosen = {name: found for name, found in schedules.items() if function in (None, name)}
    if as_json:
        print(json.dumps({name: asdict(found) for name, found in chosen.items()}, indent=2))
    else:
        print(as_python(chosen), end="")


__all__ = ["KernelSchedule", "as_python", "print_schedules", "schedules_kept", "schedules_of"]
