"""resolve_calls: calls of a module's functions by name become part of the caller.

Law: the module computes the same values.

    call_prim(x){symbol=scale}       =>     call_tir(x){program=scale}      a tensor program, as an op
    call_prim(x){symbol=helper}      =>     the body of helper over x       a graph function

A tensor program as an op takes part in type inference, in placement and in fusion. A function that does
nothing but call one program keeps the call by name, so that the kernel keeps the program's name.

Recursive graph functions are not inlined: a host program calls them (`lower/host.py`). The option `keep`, the
setting `keep_functions` and the function attribute `inline = False` keep other functions in the same way. A
host program cannot be exported as a library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from dlc_core.graph.node import (
    CALL_PRIM,
    GET,
    PARAM,
    TUPLE,
    Function,
    Node,
    functions_of,
    node,
    nodes_of,
    post_order,
    rewrite,
)
from dlc_core.ir.module import IRModule
from dlc_core.op.std.programs import CALL_TIR
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.graph.inline import inlined_call
from dlc_core.support.record import record
from dlc_core.tir.calls import called_kernels
from dlc_core.tir.interface import bind_dims, is_scheduled
from dlc_core.tir.stmt import PrimFunc

INLINE = "inline"
"""Function attribute: False if calls of the function by name are not inlined."""
SCHEDULED = "scheduled"
"""PrimFunc attribute: the program keeps its own schedule."""
KEEP = "keep_functions"
"""The setting that keeps all graph functions that calls name."""


@record(frozen=True)
class ResolveCalls(Pass):
    """Inline graph functions that are called by name, and make called tensor programs ops.

    With `keep`, graph functions stay functions that a host program calls. None takes the setting
    `keep_functions`.
    """

    name: ClassVar[str] = "resolve_calls"
    settings: ClassVar[tuple[str, ...]] = (KEEP,)
    checks_model: ClassVar[bool] = True
    keep: bool | None = None

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        graphs: dict[str, Function] = module.of_kind(Function)
        called = {name: list(dict.fromkeys(called_symbols(f))) for name, f in graphs.items()}
        if not any(called.values()):
            return module
        keep = context.config.get(KEEP, False) if self.keep is None else self.keep
        kept = frozenset(
            name
            for name, f in graphs.items()
            if keep or f.attrs.get(INLINE) is False or _is_recursive(name, called)
        )
        resolver = _Resolver(module, kept)
        made = {name: resolver.function(name) for name in graphs}
        return _without_resolved(module.with_functions({**made, **resolver.programs}), called, kept)


def kept_functions(module: IRModule) -> frozenset[str]:
    """The graph functions that calls name, after this pass."""
    graphs: Mapping[str, Function] = module.of_kind(Function)
    return frozenset(s for f in graphs.values() for s in called_symbols(f) if s in graphs)


def calls_by_name(function: Function) -> Iterator[Node]:
    """The calls by name in a function, also in functions among its attributes."""
    return (n for n in nodes_of(function) if n.op is CALL_PRIM)


def called_symbols(function: Function) -> Iterator[str]:
    """The symbols that a function calls by name."""
    return (call.attrs["symbol"] for call in calls_by_name(function))


def _is_recursive(name: str, called: Mapping[str, list[str]]) -> bool:
    """Whether a function calls itself, directly or through others."""
    work, seen = list(called[name]), set[str]()
    while work:
        symbol = work.pop()
        if symbol == name:
            return True
        if symbol not in seen:
            seen.add(symbol)
            work += called.get(symbol, ())
    return False


class _Resolver:
    """The functions of a module with resolved calls. Functions that are inlined are resolved first."""

    def __init__(self, module: IRModule, kept: frozenset[str]) -> None:
        self._module = module
        self._kept = kept
        self._made: dict[str, Function] = {}
        self.programs: dict[str, PrimFunc] = {}
        """Tensor programs that are still called by name."""

    def function(self, name: str) -> Function:
        found = self._made.get(name)
        if found is None:
            function = self._module[name]
            by_name = _is_wrapper(function)
            found = self._made[name] = self._resolved(function, by_name)
        return found

    def _resolved(self, function: Function, by_name: bool = False) -> Function:
        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            inner = functions_of(old)
            if inner:
                changed = {id(f): self._resolved(f) for f in inner}
                if all(changed[id(f)] is f for f in inner):
                    return None
                attrs = {k: changed[id(v)] if isinstance(v, Function) else v for k, v in old.attrs.items()}
                return node(old.op, args, attrs, old.type)
            if old.op is not CALL_PRIM:
                return None
            callee = self._module[old.attrs["symbol"]]
            if isinstance(callee, PrimFunc):
                return self._program(old, args, callee, by_name)
            return self._graph(old.attrs["symbol"], args)

        body = rewrite(function.body, visit)
        return function if body is function.body else function.with_body(body)

    def _program(self, old: Node, args: tuple[Node, ...], func: PrimFunc, by_name: bool) -> Node:
        symbol, dims = old.attrs["symbol"], old.attrs.get("dims")
        if not by_name and dims is None and not called_kernels(func.body):
            return CALL_TIR.build(*args, program=func, scalars=old.attrs.get("scalars", ()))
        if dims is None:
            bound = bind_dims(func, [a.tensor_type for a in args], old.attrs.get("scalars", ()))
            dims = tuple(bound[v] for v in func.scalars)
        if is_scheduled(func):
            self.programs[symbol] = func.with_attrs(**{SCHEDULED: True})
        return node(CALL_PRIM, args, {"symbol": symbol, "dims": dims}, old.type)

    def _graph(self, symbol: str, args: tuple[Node, ...]) -> Node | None:
        return None if symbol in self._kept else inlined_call(self.function(symbol), args)


def _is_wrapper(function: Function) -> bool:
    """Whether a function only calls one program or function on its parameters."""
    structural = (PARAM, GET, TUPLE)
    others = [n for n in post_order(function.body) if n.op not in structural]
    return len(others) == 1 and others[0].op is CALL_PRIM


def _without_resolved(module: IRModule, called: Mapping[str, list[str]], kept: frozenset[str]) -> IRModule:
    """Remove called functions that nothing calls by name any more."""
    entries = {module.entry, *module.attrs.get("entries", {}).values()}
    before = {symbol for symbols in called.values() for symbol in symbols}
    still = {s for f in module.of_kind(Function).values() for s in called_symbols(f)}
    still |= {s for p in module.of_kind(PrimFunc).values() for s in called_kernels(p.body)}
    gone = [name for name in before if name not in still and name not in entries and name not in kept]
    return replace(module, functions={n: f for n, f in module.functions.items() if n not in gone})
