"""Executables with several functions, called by name: `exe["add"](a, b)`.

The PrimFuncs of a module are entry points of one code. Other functions are *parts*: executables of their own
inside one executable, saved in one file. Parts are the functions of other targets (`dlc.build` with a
mapping) and further graphs of a module. Their weights are separate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.driver.job import Job
from dlc_core.driver.target_list import TargetLike, find_target
from dlc_core.graph.extract import is_region
from dlc_core.graph.node import Function
from dlc_core.ir.module import IRModule
from dlc_core.passes.graph.resolve_calls import called_symbols
from dlc_core.passes.lower import single
from dlc_core.runtime.artefact.compiled import ENTRIES, PART
from dlc_core.runtime.executable import Executable
from dlc_core.schedule import Schedule
from dlc_core.target import Target
from dlc_core.tir.calls import called_kernels
from dlc_core.tir.stmt import PrimFunc

ENTRY = "main"
"""The name of the entry of a module that is compiled."""
KERNELS = "kernels"
"""The part with the PrimFuncs that no graph calls."""


def graphs_of(module: IRModule) -> dict[str, Function]:
    """The graphs of a module that are no regions, its entry first."""
    found: dict[str, Function] = {n: f for n, f in module.of_kind(Function).items() if not is_region(f)}
    if module.entry in found:
        found = {module.entry: found[module.entry], **found}
    return found


def separated(module: IRModule) -> Iterator[tuple[str, IRModule]]:
    """Yield the graphs that no other graph calls, each with all that it calls, as entries of modules of their
    own; the entry of the module is first. Functions that are called belong to their callers.

    The last item has the name "" and the PrimFuncs that no graph calls, if there are any.
    """
    callees = {name: dict.fromkeys(_callees(f)) for name, f in module.functions.items()}
    graphs = graphs_of(module)
    uncalled = [n for n in graphs if not any(n in found for c, found in callees.items() if c != n)]
    reached: set[str] = set()
    for name in (*list(graphs)[:1], *uncalled, *graphs):  # the last are graphs that call each other
        if name not in reached:
            own = _reached(name, callees)
            reached |= own
            yield name, _with_entry(module, name, own)
    free = {n: f for n, f in module.of_kind(PrimFunc).items() if n not in reached}
    if free:
        yield "", IRModule(free, entry=module.entry)


def _with_entry(module: IRModule, name: str, own: Collection[str]) -> IRModule:
    """The module of the functions `own`, whose entry is the graph `name` under the name of entries."""
    if name == ENTRY and len(own) == len(module.functions):
        return module
    functions = {n: f for n, f in module.functions.items() if n in own}
    entry = functions[name] if name in _callees(functions[name]) else functions.pop(name)
    return IRModule({ENTRY: replace(entry, name=ENTRY), **functions}, module.attrs)


def _reached(name: str, callees: Mapping[str, Iterable[str]]) -> set[str]:
    """A function and all that it calls, directly or through others."""
    found: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        if current in callees and current not in found:
            found.add(current)
            pending += callees[current]
    return found


def _callees(function: Any) -> Iterator[str]:
    """The names of the functions that a graph or a PrimFunc calls."""
    return iter(called_kernels(function.body)) if isinstance(function, PrimFunc) else called_symbols(function)


def with_parts(first: Executable, name: str, parts: Sequence[tuple[str, str, Executable]]) -> Executable:
    """An executable that also has other functions. `name` is that of its own function, if it has no entries.

    Each part is the name of the part, the name of its function if it has no entries, and the executable.
    Raises UsageError if two functions have the same name.
    """
    entries = dict(first.about.get(ENTRIES, {})) or {name: {PART: ""}}
    for part, function, exe in parts:
        for each in exe.entries or (function,):
            if each in entries:
                raise UsageError(f"two functions are called {each!r}", hint="rename one")
            entries[each] = {PART: part}
    first.about = {**first.about, ENTRIES: entries}
    first.parts = {part: exe for part, _, exe in parts}
    return first


def compile_each(
    module: IRModule,
    reload: Callable[[], IRModule],
    job: Job,
    compile_part: Callable[[IRModule], Executable],
) -> Executable:
    """Compile all functions of a module. The entry is compiled by `job`, the others by `compile_part`.

    `reload` makes the module again when a readable source is requested later.
    """
    graphs = graphs_of(module)
    if module.entry == ENTRY and len(graphs) == 1 and len(module.functions) == 1:
        return job.executable(module, reload)
    if not graphs:
        raise UsageError("the module has no graph", hint="dlc.build takes PrimFuncs")
    (name, entry), *others = separated(module)
    exe = job.executable(entry, lambda: next(separated(reload()))[1])
    if not others:
        return exe
    return with_parts(exe, name, [(n or KERNELS, n, compile_part(one)) for n, one in others])


def build_for_each(
    functions: Mapping[TargetLike, Any], build: Callable[[IRModule, Target], Executable]
) -> Executable:
    """Build functions for several targets as one executable, which calls the first function of the first
    target. Raises UsageError for a target or function name that occurs twice.
    """
    if not functions:
        raise UsageError("there are no functions to build", hint='build({"KIND": [f, g]})')
    made: dict[str, Executable] = {}
    kinds: list[str] = []
    for key, subject in functions.items():
        target = find_target(key)
        if str(target) in made:
            raise UsageError(f"the target {target} is given twice")
        made[str(target)] = build(_module_of(subject), target)
        kinds.append(target.kind.name)
    (_, first), *others = made.items()
    names = [f"{kind}_{i}" if kinds.count(kind) > 1 else kind for i, kind in enumerate(kinds)]
    return with_parts(first, "", [(n, "", exe) for n, (_, exe) in zip(names[1:], others, strict=True)])


def _module_of(subject: Any) -> IRModule:
    """The module of functions that one target gets."""
    if isinstance(subject, IRModule):
        return subject
    if isinstance(subject, Schedule):
        return single.scheduled_module(subject)
    functions = list(subject) if isinstance(subject, (list, tuple)) else [subject]
    for each in functions:
        if not isinstance(each, (PrimFunc, Function)):
            raise UsageError(
                f"a {type(each).__name__} has no name to call it by",
                hint="te.create_prim_func(tensors, name=...) makes a function",
            )
    if not functions:
        raise UsageError("there are no functions to build for a target")
    return IRModule.of(*functions)


__all__ = ["build_for_each", "compile_each", "graphs_of"]
