"""Calls in graph functions whose arguments are not those of an op: `G.call_tir`, `G.call_te`, `G.call_dps`,
`G.match_cast`, and calls of the module's functions by name.

    f = G.call_dps("vendor.gemm", (x, y))                        # a foreign function
    y = G.call_tir(scale, (x,), G.Tensor((4, 8), "float32"))     # a tensor program of the module, or captured
    z = G.call_te(te_function, x, y)                             # a captured Python function over te tensors
    m = G.match_cast(x, G.Tensor(("n", 4), "float32"))           # x with a more specific shape, checked
    w = helper(x)                                                # a graph function of the module
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dlc_core.graph.node import CALL_PRIM, Function, Node, Op, node
from dlc_core.ir.types import TensorType, TupleType, Type, may_be_equal
from dlc_core.script.literal_parser import LiteralParser
from dlc_core.script.source import Source, dotted, short, suggestion
from dlc_core.support.lazy import lazy
from dlc_core.tir.stmt import PrimFunc

if TYPE_CHECKING:
    from dlc_core.op.std import control, programs, shape_checks
else:
    # Parsing a tensor program does not need the ops.
    control = lazy("dlc_core.op.std.control")
    programs = lazy("dlc_core.op.std.programs")
    shape_checks = lazy("dlc_core.op.std.shape_checks")

OUT = ("out", "out_type", "out_sinfo", "out_ty")
"""The keywords for the type of a call's result."""
Operand = Callable[[ast.expr], Node]
Make = Callable[[Op, tuple[Node, ...], Mapping[str, Any]], Node]
"""Builds a node by inference, if the text does not give its type."""


class Callees:
    """The functions that a text may call by name. `find` returns the key and the function of a name of the
    module, or None.
    """

    def __init__(
        self,
        source: Source,
        find: Callable[[str], tuple[str, Any] | None] = lambda name: None,
        graphs: Mapping[str, str] | None = None,
        programs: Mapping[str, str] | None = None,
        module: str = "",
        is_open: Callable[[str], bool] = lambda key: False,
    ) -> None:
        self.source = source
        self.find = find
        self.graphs = graphs or {}
        """The keys of the module's graph functions by the names of their definitions."""
        self.programs = programs or {}
        """The keys of the module's tensor programs."""
        self.is_open = is_open
        """Whether the function of a key is still being read."""
        self.module = module
        """The name of the class that defines the module."""

    def named(self, at: ast.expr, scope: Mapping[str, Any]) -> tuple[str, Any]:
        """The (key, function) of a name or string. The key is empty for a function that is not one of the
        module.
        """
        owner, _, name = dotted(at).rpartition(".")
        if isinstance(at, ast.Constant) and isinstance(at.value, str):
            found = self.find(at.value)
            return found or (at.value, None)
        if owner in ("", "cls", self.module) and name:
            if not owner and isinstance(scope.get(name), (Function, PrimFunc)):
                return "", scope[name]
            found = self.find(name)
            if found is not None:
                return found
            if not owner and name in self.source.captured:
                return "", self.source.captured[name]
        known = [
            *self.graphs,
            *self.programs,
            *(n for n, v in scope.items() if isinstance(v, (Function, PrimFunc))),
        ]
        hint = suggestion(name or short(at), known, "functions")
        return self.source.fail(at, f"{short(at)} is no function defined here", hint)


class GraphCalls:
    """Parses these calls. `operand` reads a value of the graph."""

    def __init__(
        self, callees: Callees, literals: LiteralParser, scope: Mapping[str, Any], operand: Operand
    ) -> None:
        self.source = callees.source
        self.callees = callees
        self.literals = literals
        self.scope = scope
        self.operand = operand

    def call_tir(self, call: ast.Call, type_: Type | None) -> Node:
        """`G.call_tir(program, (x, …), type)`."""
        if not call.args:
            self.source.fail(call, "G.call_tir needs a program", "G.call_tir(program, (x,), G.Tensor(...))")
        key, program = self.callees.named(call.args[0], self.scope)
        args, word = self._arguments(call, call.args[1:])
        given = {k.arg: self.literals.value(k.value) for k in call.keywords if k.arg and k.arg not in OUT}
        out = self._out(word, call, type_)
        if "tir_vars" in given:
            given["scalars"] = given.pop("tir_vars")
        if key and isinstance(program, Function):
            return self._symbol_call(call, key, program, args, out)
        known = type_ is not None and word is None and not any(k.arg in OUT for k in call.keywords)
        if key and out is not None and (known or program is None):
            # A printed call states the type of its line; passes check it. The module may be elsewhere.
            return node(CALL_PRIM, args, {"symbol": key, **given}, out)
        if not isinstance(program, PrimFunc):
            hint = "decorate it: @T.prim_func"
            self.source.fail(call.args[0], f"{short(call.args[0])} is no tensor program", hint)
        made = programs.CALL_TIR.build(*args, **{**given, "program": program})
        self._check_out(call, made.type, out)
        if key:
            return node(CALL_PRIM, args, {"symbol": key, **given}, made.type if out is None else out)
        return made

    def call_te(self, call: ast.Call, type_: Type | None) -> Node:
        """`G.call_te(function, x, …)`: a captured Python function over te tensors is called."""
        name = dotted(call.args[0]) if call.args else ""
        function = self.source.captured.get(name)
        if not callable(function):
            hint = "G.call_te(function, x, y), with a function over te tensors of the Python code around"
            self.source.fail(call, f"{name or 'the first argument'} is no captured function", hint)
        args, word = self._arguments(call, call.args[1:])
        made = programs.call_te(function, *args, name=name)
        self._check_out(call, made.type, self._out(word, call, type_))
        return made

    def call_dps(self, call: ast.Call, type_: Type | None, make: Make, op: Op) -> Node:
        """`G.call_dps("name", (x, …), type)`: a foreign function, which writes results that the caller
        allocates.
        """
        name = self.literals.value(call.args[0])
        args, word = self._arguments(call, call.args[1:])
        given = {k.arg: self.literals.value(k.value) for k in call.keywords if k.arg and k.arg not in OUT}
        with self.source.at(call):
            made = make(op, tuple(args), {**given, "function": name})
        self._check_out(call, made.type, self._out(word, call, type_))
        return made

    def match_cast(self, call: ast.Call, symbols: dict[str, Any]) -> Node:
        """`G.match_cast(x, type)`: names of dims that are new here stand for the dims of `x`."""
        if len(call.args) != 2:
            self.source.fail(call, "G.match_cast takes a value and a type", "G.match_cast(x, G.Tensor(...))")
        value = self.operand(call.args[0])
        _bind_new_dims(call.args[1], value, symbols)
        wanted = self.literals.type(call.args[1])
        if not isinstance(wanted, TensorType) or not isinstance(value.type, TensorType):
            self.source.fail(call, f"{wanted} is no type of one tensor")
        if wanted.dtype is not value.dtype:
            self.source.fail(call, f"a value of {value.dtype} is not one of {wanted.dtype}", "use G.cast")
        return shape_checks.MATCH_CAST.build(value, shape=wanted.shape)

    def body(self, name: ast.Name) -> Function | None:
        """The graph function of the module that an attribute names; None if there is none.

        The attribute gets the function itself, which cannot be one that is still being read.
        """
        if name.id in self.scope or name.id not in self.callees.graphs:
            return None
        key, function = self.callees.named(name, self.scope)
        if self.callees.is_open(key):
            hint = "define a function here that calls it by name"
            self.source.fail(name, f"{name.id} cannot be a part of itself", hint)
        assert isinstance(function, Function)
        return function

    def by_name(self, call: ast.Call, type_: Type | None) -> Node:
        """`function(x, …)` of a function of the module."""
        args = [self.operand(a) for a in call.args]
        own = self.callees.graphs.get(short(call.func))
        if own is not None and type_ is not None and not call.keywords:
            return node(CALL_PRIM, args, {"symbol": own}, type_)
        key, function = self.callees.named(call.func, self.scope)
        if not isinstance(function, Function):
            hint = f"write G.call_tir({short(call.func)}, (...), G.Tensor(...))"
            self.source.fail(call.func, f"{short(call.func)} is no graph function", hint)
        if call.keywords:
            self.source.fail(call.keywords[0].value, "a call of a function takes positional arguments")
        return self._symbol_call(call, key, function, args, type_)

    def _symbol_call(
        self, call: ast.Call, key: str, function: Function, args: list[Node], out: Type | None
    ) -> Node:
        made = control.call_types(function, [a.type for a in args], key)
        found = TupleType(made) if isinstance(function.body.type, TupleType) else made[0]
        self._check_out(call, found, out)
        return node(CALL_PRIM, args, {"symbol": key}, found if out is None else out)

    def _arguments(self, call: ast.Call, given: list[ast.expr]) -> tuple[list[Node], ast.expr | None]:
        """The values, and the expression of a type that follows them."""
        if given and isinstance(given[0], (ast.Tuple, ast.List)):
            values, rest = given[0].elts, given[1:]
        else:
            values = [a for a in given if not _is_type(a)]
            rest = given[len(values) :]
        if len(rest) > 1:
            self.source.fail(rest[1], "there are too many arguments", "give the type of the results once")
        return [self.operand(v) for v in values], rest[0] if rest else None

    def _out(self, given: ast.expr | None, call: ast.Call, type_: Type | None) -> Type | None:
        """The type of the results that the call states, or else that of its line."""
        word = next((k.value for k in call.keywords if k.arg in OUT), given)
        if word is None:
            return type_
        if isinstance(word, (ast.List, ast.Tuple)):
            return TupleType(tuple(map(self.literals.type, word.elts)))
        return self.literals.type(word)

    def _check_out(self, call: ast.Call, found: Type, given: Type | None) -> None:
        if given is not None and not may_be_equal(found, given):
            self.source.fail(call, f"this call gives {found}, not {given}")


def _is_type(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and short(value.func) in ("G.Tensor", "G.Tuple")


def _bind_new_dims(type_: ast.expr, value: Node, symbols: dict[str, Any]) -> None:
    """Let each dim's name that has no meaning yet stand for the dim of `value` in its place."""
    shape = type_.args[0] if isinstance(type_, ast.Call) and type_.args else None
    if not isinstance(shape, (ast.Tuple, ast.List)) or not isinstance(value.type, TensorType):
        return
    for text, size in zip(shape.elts, value.type.dim_exprs()):
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and text.value.isidentifier():
            symbols.setdefault(text.value, size)


__all__ = ["Callees", "GraphCalls", "Make"]
