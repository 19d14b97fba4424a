"""The tensor level: statements, functions, their walkers, verifier and interpreter.

The grammar is `tir/stmt.py` over `ir/expr/grammar.py`; `tir/intrinsics.py` is the table of calls.
"""

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var
from dlc_core.tir.stmt import (
    Alloc,
    Block,
    Eval,
    For,
    If,
    IterVar,
    Let,
    PrimFunc,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    View,
    While,
    loop,
    seq,
    store,
)

__all__ = [
    "Alloc",
    "Block",
    "Buffer",
    "Eval",
    "For",
    "If",
    "IterVar",
    "Let",
    "PrimFunc",
    "Range",
    "Region",
    "Seq",
    "Stmt",
    "Store",
    "Var",
    "View",
    "While",
    "loop",
    "seq",
    "store",
]
