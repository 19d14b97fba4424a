"""The keywords of `T`, and accepted synonyms with their canonical forms."""

from __future__ import annotations

from dlc_core.ir.dtype import scalar_dtypes
from dlc_core.ir.expr import ARITH, BITS, COMPARE, LOGIC
from dlc_core.tir.intrinsics import INTRINSICS

LOOPS = {
    "serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unroll": "unrolled",
    "thread_binding": "thread", "vectorize": "vectorized", "unrolled": "unrolled",
}  # fmt: skip
"""Words of loops, with their kinds."""

SYNONYMS = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "FloorDiv": "floordiv", "FloorMod": "floormod",
    "Mod": "truncmod", "indexdiv": "floordiv", "indexmod": "floormod", "Min": "min", "Max": "max",
    "EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge",
    "And": "and", "Or": "or", "Not": "not", "logical_and": "and", "logical_or": "or", "logical_not": "not",
    "bitwise_and": "bitand", "bitwise_or": "bitor", "bitwise_xor": "bitxor", "bitwise_not": "bitnot",
    "shift_left": "shl", "shift_right": "shr", "Select": "select", "Ramp": "ramp", "Broadcast": "broadcast",
    "Shuffle": "vector_shuffle", "power": "pow", "fabs": "abs", "nearbyint": "round", "rint": "round",
    "boolean": "bool",
}  # fmt: skip
"""Other names of expressions."""

BINARY = ARITH | BITS | COMPARE | LOGIC

SPECIAL = (
    "Cast", "all", "any", "address_of", "bitnot", "broadcast", "call", "call_extern", "call_kernel",
    "call_pure_extern", "cast", "ceildiv", "if_then_else", "infinity", "launch_kernel", "likely",
    "max_value", "min_value", "neg", "not", "ramp", "reinterpret", "select", "subgroup_matrix",
    "vector_concat", "vector_dot", "vector_shuffle",
)  # fmt: skip
"""Calls with special syntax."""

STATEMENTS = (
    "Buffer", "alloc_buffer", "axis", "block", "block_attr", "dim", "evaluate", "expr", "func_attr", "grid",
    "handle", "init", "let", "match_buffer", "prim_func", "reads", "seq", "view", "where", "writes",
)  # fmt: skip

EXPRESSION_WORDS = sorted(
    {*BINARY, *SPECIAL, *SYNONYMS, *INTRINSICS, *scalar_dtypes()} - {"and", "or", "not"}
)
ALL_WORDS = sorted({*EXPRESSION_WORDS, *STATEMENTS, *LOOPS})

BINDERS = {
    "let": "let", "Let": "let", "LetStmt": "let", "bind": "let", "alloc_buffer": "alloc_buffer",
    "decl_buffer": "alloc_buffer", "allocate": "alloc_buffer", "view": "view", "match_buffer": "match_buffer",
}  # fmt: skip
"""Words whose value must be named."""

HEADS = {
    "where": "where", "reads": "reads", "writes": "writes", "block_attr": "block_attr",
    "sblock_attr": "block_attr",
}  # fmt: skip
"""Lines of the head of a block."""

AXES = {"spatial": "spatial", "S": "spatial", "reduce": "reduce", "R": "reduce"}
BLOCKS = ("block", "sblock")
