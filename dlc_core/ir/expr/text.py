"""Short text of expressions for messages. The script printer writes the exact form, which parses back."""

from __future__ import annotations

from dlc_core.ir.dtype import BOOL, INDEX
from dlc_core.ir.expr.grammar import Binary, Broadcast, Cast, Const, Expr, Load, Ramp, Var
from dlc_core.ir.expr.walk import post_order

_INFIX = {
    "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6), "floordiv": ("//", 6),
    "floormod": ("%", 6),
    "lt": ("<", 3), "le": ("<=", 3), "gt": (">", 3), "ge": (">=", 3), "eq": ("==", 3), "ne": ("!=", 3),
    "and": ("and", 1), "or": ("or", 0), "bitand": ("&", 4), "bitor": ("|", 4), "bitxor": ("^", 4),
    "shl": ("<<", 4), "shr": (">>", 4),
}  # fmt: skip


def format_expr(expr: Expr) -> str:
    """An expression as text."""
    text: dict[Expr, tuple[str, int]] = {}

    def wrapped(child: Expr, level: int) -> str:
        inner, own = text[child]
        return inner if own >= level else f"({inner})"

    for e in post_order(expr):
        if isinstance(e, Var):
            text[e] = (e.name, 9)
        elif isinstance(e, Const):
            text[e] = (str(e.value) if e.dtype in (INDEX, BOOL) else f"{e.dtype}({e.value})", 9)
        elif isinstance(e, Binary) and e.op in _INFIX:
            sign, level = _INFIX[e.op]
            text[e] = (f"{wrapped(e.a, level)} {sign} {wrapped(e.b, level + 1)}", level)
        elif isinstance(e, Load):
            text[e] = (f"{e.buffer.name}[{', '.join(text[i][0] for i in e.indices)}]", 9)
        else:
            name = getattr(e, "name", None) or getattr(e, "op", None) or type(e).__name__.lower()
            extra = f"{e.dtype}, " if isinstance(e, Cast) else ""
            tail = f", {e.dtype.lanes}" if isinstance(e, Ramp | Broadcast) else ""
            text[e] = (f"{name}({extra}{', '.join(text[c][0] for c in e.children)}{tail})", 9)
    return text[expr][0]


Expr.__repr__ = format_expr  # type: ignore[assignment]

__all__ = ["format_expr"]
