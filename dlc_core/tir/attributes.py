"""The attributes of PrimFuncs: which of them a program from outside may state.

A program that a user gives, as a script or as an object, is not trusted. Passes believe the attributes that
other passes have written, for example that `sizes` are not negative. So a compile begins with the attributes
that may be stated, and derives the others itself. A module of any stage can be printed and parsed with all
its attributes; they are dropped when its text is compiled.

Names with a dot, such as "plugin.tile", belong to plugins, which check them where they read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dlc_core.tir.failures import INDEX_CHECKS, SITE, numbered, report_codes
from dlc_core.tir.stmt import PrimFunc

STATED = MappingProxyType(
    {
        "conditions": "conditions on dims, which each call checks",
        INDEX_CHECKS: "descriptions of checks; written again if they do not fit the program",
        "plan": "the plan of an op, by which rules schedule the program",
        "repack": "parameters in another layout; a program from outside with it is refused",
        "scheduled": "whether rules leave the schedule as it is",
    }
)
"""The attributes that programs from outside keep, with their meaning."""

DERIVED = MappingProxyType(
    {
        "applied": "the plans that a schedule has applied",
        "bounds": "the numbers of accesses that are proved and that are checked",
        "checks": "descriptions of the checks in the program",
        "constants": "the parameters that are constants of the model",
        "cycles": "the predicted time",
        "decisions": "the choices that were made for the program",
        "denormals": "whether rounding may flush denormal numbers",
        "entry": "whether callers outside of the module call the program",
        "in_place": "pairs of buffers that are one memory",
        "launch": "the thread axes of a device kernel",
        "origin": "the program before its schedule",
        "overwrites": "pairs of buffers that may be one memory",
        "private": "whether only the module calls the program",
        "regions": "the number of regions that are proved",
        "rule": "the rule that has scheduled the program",
        "shared_bytes": "the shared memory of a launch",
        "sizes": "sizes that callers ensure to be non-negative",
        "trace": "the steps of the schedule",
        "traces": "the traces of candidates",
        "tuned": "whether a tuner has scheduled the program",
        "why_not": "why rules have refused the program",
        "workspaces": "the number of last buffers that are scratch memory",
    }
)
"""The attributes that only passes write, with their meaning."""


def stated(func: PrimFunc) -> PrimFunc:
    """The program with the attributes that it may state. Other attributes are dropped, and unfitting
    descriptions of index checks are replaced.
    """
    kept = {name: value for name, value in func.attrs.items() if name in STATED or "." in name}
    if len(kept) < len(func.attrs):
        func = PrimFunc(func.name, func.params, func.body, MappingProxyType(kept), func.spans)
    codes, texts = report_codes(func), kept.get(INDEX_CHECKS, {})
    if isinstance(texts, Mapping) and codes <= texts.keys() and all(map(_is_description, texts.items())):
        return func
    kept.pop(INDEX_CHECKS, None)
    return numbered(PrimFunc(func.name, func.params, func.body, MappingProxyType(kept), func.spans))


def _is_description(entry: tuple[object, object]) -> bool:
    return type(entry[0]) is int and 0 < entry[0] < SITE and isinstance(entry[1], str)


__all__ = ["DERIVED", "STATED", "stated"]
