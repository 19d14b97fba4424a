"""Expressions as Python text that parses back to the same expression.

Text is built bottom-up and iteratively. If it would nest deeper than Python's parser allows, or become long
by repeating shared parts, a part is bound to a name in a line before: `e = T.expr(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr import (
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    const_value,
    post_order,
)
from dlc_core.script.literals import float_text, quoted
from dlc_core.tir.intrinsics import EXTERN, KERNEL, LAUNCH, PURE_EXTERN, STATUS, check_call, lookup

MAX_DEPTH = 40
MAX_INLINE = 1500
MIN_SHARED = 30
_PRECEDENCE = {
    "or": 1, "and": 2, "eq": 4, "ne": 4, "lt": 4, "le": 4, "gt": 4, "ge": 4, "bitor": 5, "bitxor": 6,
    "bitand": 7, "shl": 8, "shr": 8, "add": 9, "sub": 9, "mul": 10, "div": 10, "floordiv": 10, "floormod": 10,
}  # fmt: skip
_SIGN = {
    "or": "or", "and": "and", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitor": "|", "bitxor": "^", "bitand": "&", "shl": "<<", "shr": ">>", "add": "+", "sub": "-", "mul": "*",
    "div": "/", "floordiv": "//", "floormod": "%",
}  # fmt: skip
_NOT, _SIGNED, _ATOM = 3, 11, 20
_UNARY = {"neg": ("-", _SIGNED), "bitnot": ("~", _SIGNED), "not": ("not ", _NOT)}


@dataclass
class ExprPrinter:
    """Prints with names from outside.

    `alias` is called with the text of a part and gives the name to use for it; without it everything is
    printed in place.  `explicit`: literals of index and bool type are `T.int64(1)`, not `1`.
    """

    var: Callable[[Var], str]
    buffer: Callable[[Buffer], str]
    alias: Callable[[str], str] | None = None
    explicit: bool = False
    aliases: dict[Expr, str] = field(default_factory=dict)

    def text(self, root: Expr) -> str:
        return self.texts((root,))[0]

    def texts(self, roots: Iterable[Expr]) -> list[str]:
        """The texts of all expressions. Parts that must not be printed in place are passed to `alias`, in
        order."""
        roots = tuple(roots)
        order = post_order(*roots)
        done: dict[Expr, tuple[str, int]] = {}
        if self.alias is None:
            for e in order:
                done[e] = self._node(e, done)
            return [done[root][0] for root in roots]
        length: dict[Expr, int] = {}
        for e in order:
            length[e] = 8 + sum([length[c] for c in e.children])
        uses = _uses(roots, order) if sum(length[r] for r in roots) > MAX_INLINE else {}
        depth: dict[Expr, int] = {}
        for e in order:
            children = e.children
            depth[e] = 1 + max([depth[c] for c in children]) if children else 1
            done[e] = self._node(e, done)
            shared = uses and uses[e] > 1 and length[e] > MIN_SHARED
            if children and (shared or depth[e] > MAX_DEPTH):
                if e not in self.aliases:
                    self.aliases[e] = self.alias(done[e][0])
                done[e], depth[e] = (self.aliases[e], _ATOM), 0
        return [done[root][0] for root in roots]

    def _node(self, e: Expr, done: Mapping[Expr, tuple[str, int]]) -> tuple[str, int]:
        """The text of a node over its operands' texts, and how tightly it binds."""

        def bound(child: Expr, level: int) -> str:
            text, own = done[child]
            return text if own >= level else f"({text})"

        if isinstance(e, Var):
            return self.var(e), _ATOM
        if isinstance(e, Const):
            return self._literal(e)
        if isinstance(e, Binary):
            # On bools & and | mean `and` and `or`, so the bit operators need their names there.
            if e.op not in _SIGN or (e.a.dtype.is_bool and e.op in ("bitand", "bitor")):
                return f"T.{e.op}({done[e.a][0]}, {done[e.b][0]})", _ATOM
            level = _PRECEDENCE[e.op]
            left = level + 1 if level == _PRECEDENCE["eq"] else level
            return f"{bound(e.a, left)} {_SIGN[e.op]} {bound(e.b, level + 1)}", level
        if isinstance(e, Unary):
            if e.op == "bitnot" and e.dtype.is_bool:
                return f"T.bitnot({done[e.a][0]})", _ATOM
            sign, level = _UNARY[e.op]
            return f"{sign}{bound(e.a, level)}", level
        if isinstance(e, Load):
            return f"{self.buffer(e.buffer)}[{', '.join(done[i][0] for i in e.indices) or '()'}]", _ATOM
        texts = [done[c][0] for c in e.children]
        if isinstance(e, Call):
            return self._call(e, texts), _ATOM
        texts += [f'"{e.dtype}"' for name, role in e.parts if role == "dtype"] + list(map(str, e.data))
        return f"T.{type(e).__name__.lower()}({', '.join(texts)})", _ATOM

    def _literal(self, e: Const) -> tuple[str, int]:
        if e.dtype is BOOL and not self.explicit:
            return str(e.value), _ATOM
        if e.dtype is INDEX and not self.explicit:
            return str(e.value), _ATOM if e.value >= 0 else _SIGNED
        if not e.dtype.is_float:
            return f"T.{e.dtype}({e.value})", _ATOM
        value = float(e.value)
        text = float_text(value, "T.")
        if e.dtype.name in ("float16", "float32") and np.isfinite(value):
            # The shortest digits that reproduce this value in its type.
            text = str(e.dtype.numpy.type(value))
        return f"T.{e.dtype}({text})", _ATOM

    def _call(self, e: Call, texts: list[str]) -> str:
        args = ", ".join(texts)
        if e.name.startswith(KERNEL) and e.dtype is STATUS:
            return f"T.call_kernel({_joined(quoted(e.name[len(KERNEL) :]), args)})"
        if e.name.startswith(LAUNCH) and e.dtype is STATUS:
            return f"T.launch_kernel({_joined(quoted(e.name[len(LAUNCH) :]), args)})"
        for prefix, word in ((EXTERN, "call_extern"), (PURE_EXTERN, "call_pure_extern")):
            if e.name.startswith(prefix):
                return f'T.{word}({_joined(quoted(e.name[len(prefix) :]), args)}, dtype="{e.dtype}")'
        entry = lookup(e.name)
        if entry is None or check_call(e) is not None:
            return f'T.call({_joined(quoted(e.name), args)}, dtype="{e.dtype}")'
        if e.name == "reinterpret":
            return f'T.reinterpret({args}, "{e.dtype}")'
        if e.name == "address_of":
            load = e.args[0]
            if isinstance(load, Load) and all(i.dtype is INDEX and const_value(i) == 0 for i in load.indices):
                return f"T.address_of({self.buffer(load.buffer)})"
        return f"T.{e.name}({args})"


def _uses(roots: tuple[Expr, ...], order: list[Expr]) -> dict[Expr, int]:
    """The number of uses of each part, including those as a root."""
    uses: dict[Expr, int] = {}
    for used in (*roots, *(child for e in order for child in e.children)):
        uses[used] = uses.get(used, 0) + 1
    return uses


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
