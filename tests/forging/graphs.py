"""Changes of graphs that keep most types right, so that they reach the compiler and calls.

Each change is made by the constructor of an op, which infers the types of all later nodes again. Changes that
inference refuses are dropped.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from dlc_core.diag import DlcError
from dlc_core.graph.node import (
    CONST,
    GET,
    TUPLE,
    Function,
    Node,
    constant,
    get_item,
    make_tuple,
    node,
    param,
    post_order,
)
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, tensor_type
from dlc_core.op.declare import OpDecl
from dlc_core.op.lookup import registered_ops

INTEGERS = (0, 1, -1, 2, 3, 5, 7, 16, 64, 127, 255, 1 << 16, 1 << 31, -(1 << 31), 1 << 40, 1 << 62)
SIZES = (0, 1, 2, 3, 4, 6, 8, 12, 17, 64)
TEXTS = ("", "x", "linear", "nearest", "constant", "reflect", "edge", "NHWC", "add", "max")
DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "bool", "int4")


def changed(module: IRModule, rng: random.Random) -> IRModule:
    """The module with a few changes in one of its functions."""
    name = rng.choice(list(module.functions))
    return module.with_function(name, _Changes(rng).function(module[name]))


class _Changes:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.vars: list[Var] = []
        self.made: list[Node] = []

    def function(self, function: Function) -> Function:
        order = list(post_order(function.body))
        self.vars = [v for n in function.params for v in getattr(n.type, "symbols", tuple)()]
        memo: dict[Node, Node] = {}
        for old in function.params:
            memo[old] = self._param(old) if self.rng.random() < 0.15 else old
        chosen = set(self.rng.choices(order, k=self.rng.choice((1, 1, 2, 3))))
        for old in order:
            if old in memo:
                continue
            memo[old] = self._rebuilt(old, [memo[arg] for arg in old.args], old in chosen)
            self.made.append(memo[old])
        params = tuple(memo[own] for own in function.params)
        return replace(function, params=params, body=memo[function.body])

    def _rebuilt(self, old: Node, args: list[Node], change: bool) -> Node:
        if old.op is CONST:
            return self._constant(old) if change else old
        if old.op is TUPLE:
            return make_tuple(args)
        if old.op is GET:
            return get_item(args[0], old.attrs["index"])
        if not isinstance(old.op, OpDecl):
            return node(old.op, args, old.attrs, old.type)
        for _ in range(8 if change else 0):
            try:
                return self._changed(old, args)
            except (DlcError, ValueError, TypeError, OverflowError, IndexError, ArithmeticError):
                continue
        return old.op.build(*args, **old.attrs)

    def _changed(self, old: Node, args: list[Node]) -> Node:
        op, attrs = old.op, dict(old.attrs)
        assert isinstance(op, OpDecl)
        how = self.rng.randrange(4)
        if how == 0 and self.made and args:
            args[self.rng.randrange(len(args))] = self.rng.choice(self.made)
        elif how == 1:
            op = self.rng.choice(list(registered_ops().values()))
            sample = self.rng.choice(op.samples) if op.samples else None
            attrs = dict(sample.attrs) if sample else {}
            args = (args + self.rng.choices(self.made or args, k=3))[: max(len(op.inputs), 1)]
            if sample is not None:
                args = args[: max(1, len(sample.inputs))]
        if attrs and how >= 2:
            key = self.rng.choice(list(attrs))
            attrs[key] = self._value(attrs[key])
        return op.build(*args, **attrs)

    def _value(self, value: Any) -> Any:
        rng = self.rng
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return rng.choice((rng.choice(INTEGERS), value + 1, value - 1, *self.vars[:2]))
        if isinstance(value, tuple) and value:
            at = rng.randrange(len(value))
            kind = rng.randrange(4)
            if kind == 0:
                return value[:at] + value[at + 1 :]
            if kind == 1:
                return (*value[:at], value[at], *value[at:])
            return (*value[:at], self._value(value[at]), *value[at + 1 :])
        if isinstance(value, float):
            return rng.choice((0.0, -0.0, 1e30, -1.0, float("inf"), float("nan"), 1e-45))
        if isinstance(value, str):
            return rng.choice(TEXTS)
        if self.vars and not isinstance(value, Function):
            var = rng.choice(self.vars)
            return rng.choice((var, var + 1, var * 2, var // 2, var - 3, 7 // var, 4))
        return value

    def _constant(self, old: Node) -> Node:
        data = old.attrs["value"].data
        rng = np.random.default_rng(self.rng.randrange(1 << 32))
        shape = list(data.shape)
        if shape and self.rng.random() < 0.3:
            shape[self.rng.randrange(len(shape))] = self.rng.choice(SIZES)
        with np.errstate(all="ignore"):
            values = rng.choice(np.array(INTEGERS, np.int64), shape)
            return constant(np.asarray(values).astype(data.dtype))

    def _param(self, old: Node) -> Node:
        if not isinstance(old.type, TensorType):
            return old
        shape = list(old.type.shape)
        if shape:
            at = self.rng.randrange(len(shape))
            var = (
                Var("z", "int64", Bounds(1, self.rng.choice((1, 4, 64))))
                if self.rng.random() < 0.5
                else Var("z")
            )
            self.vars.append(var)
            shape[at] = self.rng.choice((var, self.rng.choice(SIZES)))
        dtype = self.rng.choice(DTYPES) if self.rng.random() < 0.3 else old.type.dtype
        return param(str(old.attrs["name"]), tensor_type(shape, dtype))


__all__ = ["changed"]
