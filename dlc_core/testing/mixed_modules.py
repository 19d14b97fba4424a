"""Random modules of graph functions and tensor programs that call each other.

`mixed_module` divides a graph into a module with the same results. Some nodes become calls of tensor
programs by name, some become programs as ops (`call_tir`), and runs of nodes become graph functions that the
entry calls, with dims of their own. Some of these functions are kept, so that a host program calls them.
"""

from __future__ import annotations

import random
from dataclasses import replace

from dlc_core.diag import DlcError
from dlc_core.graph.extract import extract, reads_of
from dlc_core.graph.node import (
    CALL_PRIM,
    CONST,
    PARAM,
    TUPLE,
    Function,
    Node,
    node,
    param,
    post_order,
    rewrite,
)
from dlc_core.graph.resize import replace_dims
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, symbols_of
from dlc_core.op.declare import OpDecl, lowering_of
from dlc_core.op.lower_graph import INLINE_CONSTANTS
from dlc_core.op.std.programs import CALL_TIR
from dlc_core.passes.graph.resolve_calls import INLINE
from dlc_core.passes.lower.group import lower_group
from dlc_core.tir.functor import replace_scalars
from dlc_core.tir.interface import bind_dims
from dlc_core.tir.stmt import PrimFunc

PROGRAMS, NAMED, KEPT = 0.4, 0.5, 0.3
"""The probabilities that a node becomes a program, that a program is called by name, and that a function is
kept."""


def mixed_module(function: Function, rng: random.Random) -> IRModule:
    """A module with the results of a function, whose computation is divided among several functions."""
    made = _Mixer(rng)
    main = function.with_body(rewrite(function.body, made.visit))
    for number in range(rng.randint(0, 2)):
        main = made.outlined(main, f"part_{number}")
    return IRModule({function.name: main, **made.functions}, {}, function.name)


class _Mixer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.functions: dict[str, Function | PrimFunc] = {}

    def visit(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        """Replace some nodes by calls of tensor programs."""
        if not isinstance(old.op, OpDecl) or lowering_of(old) is None or self.rng.random() > PROGRAMS:
            return None
        program = self._program(old, args)
        if program is None:
            return None
        func, given = program
        if self.rng.random() > NAMED:
            return CALL_TIR.build(*given, program=func)
        self.functions[func.name] = func
        return node(CALL_PRIM, given, {"symbol": func.name}, old.type)

    def _program(self, old: Node, args: tuple[Node, ...]) -> tuple[PrimFunc, list[Node]] | None:
        """The tensor program of a node and its arguments; None if the node has no program of its own."""
        outer: list[Node] = []
        inner: list[Node] = []
        for arg in args:
            literal = arg.op is CONST and arg.attrs["value"].data.size <= INLINE_CONSTANTS
            if not literal and not isinstance(arg.type, TensorType):
                return None
            if literal or arg in outer:
                inner.append(arg if literal else inner[args.index(arg)])
            else:
                outer.append(arg)
                inner.append(param(f"x{len(outer)}", arg.type))
        params = tuple(n for n in dict.fromkeys(inner) if n.op is PARAM)
        name = f"{old.op.name}_{len(self.functions)}_{self.rng.randrange(1 << 20)}"
        try:
            func = lower_group(Function(name, params, node(old.op, inner, old.attrs, old.type)), name)
            bind_dims(func, [p.tensor_type for p in params])
        except DlcError:  # such as large constants, or dims that no argument determines
            return None
        own = {v: Var(v.name, v.dtype) for v in func.scalars}
        return replace(replace_scalars(func, own), attrs={}), outer

    def outlined(self, main: Function, name: str) -> Function:
        """Move a run of nodes into a graph function that is called by name."""
        order = [n for n in post_order(main.body) if n.op not in (PARAM, CONST) and n is not main.body]
        if not order:
            return main
        begin = self.rng.randrange(len(order))
        members = order[begin : begin + self.rng.randint(1, len(order))]
        if any(n.op is TUPLE for n in members):
            return main
        inside = set(members)
        users = {a for n in post_order(main.body) if n not in inside for a in n.args}
        inputs = reads_of(dict.fromkeys(members))
        if not all(isinstance(i.type, TensorType) for i in inputs):
            return main
        bound = {v for i in inputs for v in i.shape if isinstance(v, Var)}
        if not bound.issuperset(v for n in members for v in symbols_of(n.type)):
            return main
        attrs = {INLINE: False} if self.rng.random() < KEPT else {}
        part = extract(name, members, inputs, lambda n: n in users, attrs)
        own = {v: Var(f"{v.name}_{name}") for v in bound}
        self.functions[name] = replace_dims(part.function, own)
        call = node(CALL_PRIM, part.inputs, {"symbol": name}, part.function.body.type)
        results = part.results(call)

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            return results.get(old)

        return main.with_body(rewrite(main.body, visit))


__all__ = ["mixed_module"]
