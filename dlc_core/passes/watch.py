"""Watchers, which observe passes.

    PassContext(watchers=(Time(), Verify(), NumericCheck()))

A watcher is called with the module before and after each pass. If it raises, the pass fails. Dumping, timing,
verifying, comparing results and tracking spans are watchers. `bisect` finds the first pass after which a
check fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dlc_core.config import config
from dlc_core.diag import DlcError, PassError, Span, VerifyError
from dlc_core.graph.node import CONST, Function, Node, functions_of, post_order
from dlc_core.graph.verify import verify_function
from dlc_core.ir.module import IRModule
from dlc_core.op.declare import OpDecl
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.numeric import Feeds, compare_results, results_of, sample_feeds
from dlc_core.passes.pipeline import Pipeline
from dlc_core.passes.reproducer import text_of
from dlc_core.script.printer import excerpt
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func


class Watcher(Protocol):
    """Called around each pass, in the order in which the context lists the watchers."""

    @property
    def name(self) -> str: ...

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None: ...

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None: ...


class Dump:
    """Writes the module's text into a folder: the input's, and after every pass that changed it."""

    name = "dump"

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._count = 0
        self._last: IRModule | None = None

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None:
        if self._last is None:
            self._write("input", module)

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
        self._count += 1
        if module is not self._last:
            self._write(one.name, module)

    def _write(self, name: str, module: IRModule) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self._count:03}-{name}.py").write_text(text_of(module), encoding="utf-8")
        self._last = module


@dataclass(frozen=True)
class Timing:
    """One run of a pass: wall seconds and the numbers of nodes of all graphs."""

    name: str
    seconds: float
    before: int
    after: int


class Time:
    """Measures each pass; `report()` is a table."""

    name = "time"

    def __init__(self) -> None:
        self.timings: list[Timing] = []
        self._started = 0.0
        self._nodes = 0

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None:
        self._nodes = count_nodes(module)
        self._started = time.perf_counter()

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
        elapsed = time.perf_counter() - self._started
        self.timings.append(Timing(one.name, elapsed, self._nodes, count_nodes(module)))

    def report(self) -> str:
        """Return a table with a line for each pass run: milliseconds, percentage, nodes before and after."""
        total = sum(t.seconds for t in self.timings)
        width = max([len(t.name) for t in self.timings] + [5])
        lines = [f"{'pass':{width}}         ms      %   nodes"]
        for t in self.timings:
            percent = 100 * t.seconds / total if total else 0.0
            lines.append(
                f"{t.name:{width}} {1000 * t.seconds:10.2f} {percent:6.1f}   {t.before} -> {t.after}"
            )
        lines.append(f"{'total':{width}} {1000 * total:10.2f}")
        return "\n".join(lines)


class Verify:
    """Verifies graphs and PrimFuncs after every pass; with `types`, graphs must have the inferred types."""

    name = "verify"

    def __init__(self, *, types: bool = True) -> None:
        self.types = types

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None:
        pass

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
        for function in module.of_kind(Function).values():
            verify_function(function, infer=inferred_type if self.types else None, module=module)
        for kernel in module.of_kind(PrimFunc).values():
            verify_func(kernel, module=module, render=excerpt)


def inferred_type(value: Node) -> Any:
    """Return the type that a node's declaration infers; None for structural ops."""
    if not isinstance(value.op, OpDecl):
        return None
    return value.op.infer_type([a.type for a in value.args], value.attrs, value.args)


class NumericCheck:
    """Evaluates the entry on the reference after every pass and compares with before.

    Exact passes must keep every bit; other passes must keep results within the tolerance of the dtype. The
    inputs are seeded random values and boundary values, or `feeds`. If a module cannot be evaluated before a
    pass, it is not compared.
    """

    name = "numeric"

    def __init__(self, feeds: Iterable[Feeds] | None = None, *, scale: float = 1.0) -> None:
        self.feeds = None if feeds is None else list(feeds)
        self.scale = scale
        self.checked: list[str] = []
        self._module: IRModule | None = None
        self._results: list[Any] = []

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None:
        if module is not self._module:
            if self.feeds is None and isinstance(module.functions.get(module.entry), Function):
                self.feeds = sample_feeds(module[module.entry])
            self._module, self._results = module, self._evaluate(module)

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
        if module is self._module:
            return
        results = self._evaluate(module)
        for index, (old, new) in enumerate(zip(self._results, results, strict=False)):
            if isinstance(old, DlcError):
                continue
            if isinstance(new, DlcError):
                raise new
            problem = compare_results(old, new, exact=one.exact, scale=self.scale)
            if problem:
                raise VerifyError(f"the pass {one.name!r} changes results of input set {index}: {problem}")
        self.checked.append(one.name)
        self._module, self._results = module, results

    def _evaluate(self, module: IRModule) -> list[Any]:
        function = module.functions.get(module.entry)
        if not isinstance(function, Function) or "signature" in module.attrs:
            return []  # native entries also take the weights and scratch memory
        return [results_of(function, feeds, module) for feeds in self.feeds or ()]


class KeepSpans:
    """Raises VerifyError if the span of an operation is lost, except for passes that remove unused nodes.

    Spans that only constants have may be lost.
    """

    name = "spans"

    def __init__(self) -> None:
        self._before: dict[Span, None] = {}

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None:
        self._before = spans_of(module, constants=False)

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
        if one.drops_spans:
            return
        now = spans_of(module)
        lost = [span for span in self._before if span not in now]
        if lost:
            raise VerifyError(f"the pass {one.name!r} loses {len(lost)} model nodes", spans=lost[:10])


def spans_of(module: IRModule, *, constants: bool = True) -> dict[Span, None]:
    """Return all spans of the graphs' nodes, including functions in attributes, in order."""
    found: dict[Span, None] = {}
    for current in _all_nodes(module):
        if constants or current.op is not CONST:
            found.update(dict.fromkeys(current.spans))
    return found


def count_nodes(module: IRModule) -> int:
    """Count the nodes of all graphs, including functions in attributes."""
    return sum(1 for _ in _all_nodes(module))


def _all_nodes(module: IRModule) -> Iterable[Node]:
    stack: list[Function] = list(module.of_kind(Function).values())
    seen: set[int] = set()
    while stack:
        function = stack.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        for current in post_order(function.body):
            yield current
            stack.extend(functions_of(current))


@dataclass(frozen=True)
class Culprit:
    """The first pass after which a check fails: its index, and the module before and after it."""

    index: int
    one: Pass
    before: IRModule
    after: IRModule


def bisect(
    module: IRModule,
    pipeline: Pipeline,
    check: Callable[[IRModule], bool],
    context: PassContext | None = None,
) -> Culprit | None:
    """Find the first pass after which `check` is false; None if it is true after all of them.

    It runs each pass once, and the check for about log2 of them. So it assumes that after the first failure
    the check always fails. Raises PassError if the input itself fails.
    """
    context = PassContext.current() if context is None else context
    passes = pipeline.active(context).passes
    modules = [module]
    for one in passes:
        modules.append(Pipeline((one,)).run(modules[-1], context))
    if check(modules[-1]):
        return None
    if not check(module):
        raise PassError("the check fails before the first pass", hint="the input is wrong, or the check is")
    good, bad = 0, len(modules) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if check(modules[middle]) else (good, middle)
    return Culprit(good, passes[good], modules[good], modules[bad])


def same_results(module: IRModule, *, scale: float = 1.0) -> Callable[[IRModule], bool]:
    """Make a check for `bisect`: whether the entry computes the same as in `module`, within tolerance."""
    feeds = sample_feeds(module[module.entry])
    expected = [results_of(module[module.entry], f) for f in feeds]

    def check(other: IRModule) -> bool:
        found = [results_of(other[other.entry], f) for f in feeds]
        pairs = zip(expected, found, strict=True)
        return not any(compare_results(a, b, exact=False, scale=scale) for a, b in pairs)

    return check


def configured_watchers() -> tuple[Watcher, ...]:
    """Return the watchers that the settings `verify` (structure or each) and `dump_dir` require."""
    chosen: list[Watcher] = []
    if config.verify != "off":
        chosen.append(Verify())
    if config.verify == "each":
        chosen.append(NumericCheck())
    if config.dump_dir is not None:
        chosen.append(Dump(config.dump_dir))
    return tuple(chosen)
