"""The tables of everything that a code generator may receive, made from the grammar.

    python -m dlc_core.testing.emit_grammar docs/internals/emit.md

`constructs(module)` returns the constructs of one module, for example of the one that `emit` receives. So a
vendor sees which of them a model needs.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dlc_core.ir.expr import Call, Expr, post_order
from dlc_core.ir.expr.grammar import ARITH, BITS, COMPARE, EXPRESSIONS, LOGIC, UNARY
from dlc_core.ir.module import IRModule
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.intrinsics import (
    CONVERGENT,
    EFFECTS,
    EXTERN,
    FUNCTIONS,
    INTRINSICS,
    KERNEL,
    LAUNCH,
    PURE_EXTERN,
)
from dlc_core.tir.stmt import For, PrimFunc

STATEMENTS = {
    "Seq": ("stmts", "the statements in order; it may be empty"),
    "For": (
        "var, begin, extent, body, kind, thread, annotations",
        "`var` runs over [begin, begin + extent). `kind` is one of those below",
    ),
    "While": ("cond, body", "repeats the body while the condition, which may load from buffers, holds"),
    "If": ("cond, then, orelse", "`orelse` may be None; the condition is a scalar bool"),
    "Let": ("var, value, body", "a value, computed once; thousands may be nested, so do not recurse"),
    "Store": ("buffer, indices, value", "one element, or a vector if the index is a `Ramp`"),
    "Eval": ("value", "a call for its effect: a kernel, a barrier, a clock"),
    "Alloc": ("buffer, body", "memory of the scope `buffer.scope`, undefined at first, alive in the body"),
    "View": ("buffer, base, body", "a typed window on the memory of `base`; it allocates nothing"),
}
"""The statements that reach code generators: their fields and their meaning. Blocks are lowered before."""

LOOPS = {
    "serial": "an ordinary loop",
    "parallel": "iterations are independent; only if `Description.parallel`, and never nested",
    "unrolled": "only if the pass `unroll_loops` left it: its extent is a constant",
    "thread": "bound to the hardware axis `thread`; only if the description has `thread_axes`",
}
"""The kinds of loops that reach code generators. "vectorized" loops have become ramps."""

EXPRESSION_NOTES = {
    "Var": "a loop variable, a let, a dim or another scalar parameter",
    "Const": "a literal; floats may be inf or NaN, and -0.0 differs from 0.0",
    "Unary": "`neg`, `not` of bools, `bitnot` of integers",
    "Binary": "operands of one dtype; comparisons have the dtype bool",
    "Cast": "float to integer rounds towards zero; a cast to bool compares with zero",
    "Select": "both sides may be evaluated; neither traps. The condition may be a vector",
    "Call": "an intrinsic or a function, see below",
    "Ramp": "the vector base + stride * (0, 1, …, lanes - 1), almost always in an index",
    "Broadcast": "a vector of equal lanes",
    "Load": "one element, or a vector if the index is a `Ramp` or another vector (a gather)",
}

OPERATORS = (("Unary", UNARY), ("Binary", ARITH), ("Binary", COMPARE), ("Binary", LOGIC), ("Binary", BITS))

PREFIXES = {
    KERNEL: "a PrimFunc of the same module; tensors are passed by `address_of`, scalars by value",
    LAUNCH: "such a PrimFunc whose body is one launch; the extents of the thread axes come last",
    EXTERN: "a function outside of the module: a foreign function or one that the target knows",
    PURE_EXTERN: "a foreign function whose result depends on its arguments only",
}

MACHINES = {
    "barrier": "thread axes",
    "subgroup_matrix": "matrix units",
    "bulk_copy": "tensor copies (`Description.bulk`)",
    "vector_dot": "dot products (`Description.dots`)",
    "clock": "profiles",
    "note": "guard mode",
    "check": "conditions that cannot be proved",
    "report_index": "indices that are data, and `check_bounds`",
    "nextafter": "conversions of narrow floats",
}
"""The condition under which some intrinsics occur; the others may occur for every machine."""


def page(text: str) -> str:
    """The page with new tables: each is between `<!-- table: NAME -->` and `<!-- end -->`."""

    def table(found: re.Match[str]) -> str:
        lines = [f"| {' | '.join(row)} |" for row in _tables()[found[1]]]
        return "\n".join([f"<!-- table: {found[1]} -->\n", *lines, "\n<!-- end -->"])

    return re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


def _tables() -> dict[str, list[Sequence[str]]]:
    expressions = [
        (
            f"`{cls.__name__}`",
            f"`{', '.join(part.name for part in cls.parts)}`",
            EXPRESSION_NOTES[cls.__name__],
        )
        for cls in EXPRESSIONS
    ]
    return {
        "statements": [
            *_head("statement", "fields", "meaning"),
            *((f"`{name}`", f"`{fields}`", text) for name, (fields, text) in STATEMENTS.items()),
        ],
        "loops": [*_head("kind", "meaning"), *((f"`{name}`", text) for name, text in LOOPS.items())],
        "expressions": [*_head("expression", "fields", "meaning"), *expressions],
        "operators": [
            *_head("class", "`op`"),
            *((f"`{cls}`", ", ".join(f"`{op}`" for op in sorted(ops))) for cls, ops in OPERATORS),
        ],
        "functions": [
            *_head("name", "meaning"),
            *((f"`{prefix}NAME`", text) for prefix, text in PREFIXES.items()),
        ],
        "intrinsics": [
            *_head("name", "arguments", "effect", "meaning", "only with"),
            *map(_intrinsic, INTRINSICS),
        ],
    }


def _head(*names: str) -> list[Sequence[str]]:
    return [names, ["---"] * len(names)]


def constructs(module: IRModule) -> Counter[str]:
    """The number of occurrences of each statement, expression, operator, loop kind and intrinsic of a module.

    Keys are the names on the page, such as "Store", "For serial", "Binary add" and "Call exp". Expressions
    that several statements share count once for each of them.
    """
    found: Counter[str] = Counter()
    for func in module.of_kind(PrimFunc).values():
        for stmt in stmts(func.body):
            name = type(stmt).__name__
            found[f"{name} {stmt.kind}" if isinstance(stmt, For) else name] += 1
            found.update(_name(e) for e in post_order(*exprs_of(stmt)))
    return found


def _name(expr: Expr) -> str:
    name = type(expr).__name__
    if isinstance(expr, Call):
        prefix = next((p for p in (*FUNCTIONS, PURE_EXTERN) if expr.name.startswith(p)), None)
        return f"{name} {expr.name if prefix is None else prefix}"
    op = getattr(expr, "op", "")
    return f"{name} {op}" if op else name


def known() -> set[str]:
    """All keys that `constructs` may return for a module that a code generator receives."""
    return {
        *(name for name in STATEMENTS if name != "For"),
        *(f"For {kind}" for kind in LOOPS),
        *(cls.__name__ for cls in EXPRESSIONS if cls.__name__ not in ("Unary", "Binary", "Call")),
        *(f"{cls} {op}" for cls, ops in OPERATORS for op in ops),
        *(f"Call {name}" for name in (*INTRINSICS, *PREFIXES)),
    }


def _intrinsic(name: str) -> tuple[str, ...]:
    entry = INTRINSICS[name]
    arguments = "any" if entry.arity < 0 else str(entry.arity)
    effect = "convergent" if name in CONVERGENT else "effect" if name in EFFECTS else ""
    machine = MACHINES.get(name, "thread axes" if name in CONVERGENT else "")
    if not machine and name.startswith("vector_"):
        machine = "vectors"
    return f"`{name}`", arguments, effect, entry.note.replace("|", "\\|"), machine


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
