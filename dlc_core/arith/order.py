"""A total order on expressions, the same in every run: what makes canonical forms canonical.

Variables come first, by name; other atoms by operator and a hash of their structure.  Two that look alike
(variables of one name, or the same expression of them) are told apart by who was seen first.
"""

from __future__ import annotations

import zlib
from itertools import count
from weakref import WeakKeyDictionary

from dlc_core.ir.expr import Binary, Call, Const, Expr, Load, Unary, Var, post_order

OrderKey = tuple[int, str, int, int]

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


def order_key(e: Expr, hashes: dict[Expr, int]) -> OrderKey:
    """Sort key of an atom.  `hashes` caches the structural hashes of subexpressions."""
    serial = _serials.get(e)
    if serial is None:
        serial = _serials.setdefault(e, next(_counter))
    if isinstance(e, Var):
        return (0, e.name, 0, serial)
    return (1, _label(e), _structural_hash(e, hashes), serial)


def _structural_hash(root: Expr, hashes: dict[Expr, int]) -> int:
    found = hashes.get(root)
    if found is not None:
        return found
    for e in post_order(root):
        if e in hashes:
            continue
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
