"""A total order of expressions for canonical forms. It is the same in every run.

Variables come first, by name; other atoms follow by operator and a hash of their structure.  Atoms with equal
keys (variables with one name, or equal expressions of them) are ordered by the creation of their variables.
So a replayed schedule orders them like the first one, whatever else was simplified between.
"""

from __future__ import annotations

import zlib
from itertools import count
from weakref import WeakKeyDictionary

from dlc_core.ir.expr import Binary, Call, Const, Expr, Load, Unary, Var

_serials: WeakKeyDictionary[Expr, int] = WeakKeyDictionary()
_counter = count()
_MASK = (1 << 61) - 1


def _label(e: Expr) -> str:
    if isinstance(e, Binary | Unary):
        return e.op
    if isinstance(e, Call):
        return f"call {e.name}"
    if isinstance(e, Load):
        return f"load {e.buffer.name}"
    return type(e).__name__


class Tie:
    """The last part of a sort key. It orders atoms with equal keys by the creation of their variables, and
    atoms of the same or of too many variables by first use.
    """

    __slots__ = ("atom",)

    def __init__(self, atom: Expr) -> None:
        self.atom = atom

    def serial(self) -> int:
        found = _serials.get(self.atom)
        return _serials.setdefault(self.atom, next(_counter)) if found is None else found

    def created(self) -> tuple[int, ...]:
        """The serial numbers of the variables, in the order of first use."""
        if isinstance(self.atom, Var):
            return (self.atom.serial,)
        return tuple(v.serial for v in self.atom.operand_vars or ())

    def __lt__(self, other: Tie) -> bool:
        mine, others = self.created(), other.created()
        if mine != others:
            return mine < others
        # Number both from the left operand, regardless of the order in which the sort compares them.
        return self.serial() < other.serial()


OrderKey = tuple[int, str, int, Tie]


def order_key(e: Expr, hashes: dict[Expr, int]) -> OrderKey:
    """The sort key of an atom. `hashes` caches the structural hashes of subexpressions."""
    if isinstance(e, Var):
        return (0, e.name, 0, Tie(e))
    return (1, _label(e), _structural_hash(e, hashes), Tie(e))


def _structural_hash(root: Expr, hashes: dict[Expr, int]) -> int:
    found = hashes.get(root)
    if found is not None:
        return found
    stack = [root]
    while stack:
        e = stack[-1]
        missing = [child for child in e.children if child not in hashes]
        if missing:
            stack += missing
            continue
        stack.pop()
        if isinstance(e, Var):
            mixed = zlib.crc32(e.name.encode())
        elif isinstance(e, Const):
            mixed = zlib.crc32(repr(e.value).encode()) + 1
        else:
            mixed = zlib.crc32(f"{_label(e)} {e.dtype}".encode()) + 2
            for child in e.children:
                mixed = (mixed * 1_000_003 + hashes[child] + 0x9E3779B97F4A7C15) & _MASK
        hashes[e] = mixed
    return hashes[root]
