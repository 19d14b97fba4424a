"""Facts about an assembly listing: its functions, its innermost loops, and what these loops spend.

They are for tests and measurements of generated code. The code generator does not read listings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dlc_core.support.record import record

LABEL = r"(\.?L\w+):"
JUMP = r"^\t(?:j\w+|b[\w.]*|cb\w+|tb\w+)\s.*?(\.?LBB\w+)$"
INSTRUCTION = r"\t[a-z]"
FUNCTION = r"^_?([A-Za-z][\w.]*):"


@record(frozen=True)
class Syntax:
    """How an architecture writes instructions, as regular expressions.

    `products` are vector multiply-adds, or multiplications where those are two instructions. `stack` is an
    access to the stack, `spill` a store there, `scalar` is arithmetic of one float, `move` copies a vector
    register.
    """

    products: str
    scalar: str
    stack: str
    spill: str
    move: str


X86 = Syntax(
    products=r"\tv?(?:fn?madd\w+p[sd]|mulp[sd]|dpbf16ps|pdpbusds?)\b",
    scalar=r"\tv?(?:add|mul|div|sub|fmadd\w*)s[sd]\b",
    stack=r"\(%[re]sp[,)]",
    spill=r",\s*-?\d*\(%[re]sp(?:,[^)]*)?\)$",
    move=r"\tv?mov[au]p[sd]\s+%\w+, %\w+$",
)
ARM = Syntax(
    products=r"\t(?:fmla|bfdot|bfmmla|[us]dot|vmla|vfma)[\w.]*\b",
    scalar=r"\tf(?:add|mul|div|sub|madd)\s+s\d",
    stack=r"\[sp\b",
    spill=r"\tv?st[\w.]*\s.*\[sp\b",
    move=r"\tmov\s+v",
)
RISCV = Syntax(
    products=r"\t(?:vfmacc|vfmadd|fmadd\.s)[\w.]*\b",
    scalar=r"\tf(?:add|mul|div|sub|madd)\.s\b",
    stack=r"\(sp\)",
    spill=r"\t(?:f?s[wd]|vs[\w.]*)\s.*\(sp\)",
    move=r"\t(?:fmv\.s|vmv1r\.v)\s+[vf]",
)
SYNTAX = {"x86_64": X86, "aarch64": ARM, "arm": ARM, "riscv64": RISCV, "riscv32": RISCV}
"""The syntax of each architecture."""


def functions(text: str) -> dict[str, str]:
    """The listing of each function by its name, without the underscore that some systems put before it."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        start = re.match(FUNCTION, line)
        if start and not re.match(LABEL, line):
            lines = found.setdefault(start[1], [])
        lines.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def innermost(text: str) -> list[list[str]]:
    """The instructions of all innermost loops of a listing."""
    lines = text.splitlines()
    labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(LABEL, line))}
    found = []
    for end, line in enumerate(lines):
        jump = re.search(JUMP, line)
        if jump and labels.get(jump[1], end) < end:
            found.append((labels[jump[1]], end))
    return [
        [line for line in lines[a : b + 1] if re.match(INSTRUCTION, line)]
        for a, b in found
        if not any(a < c and d < b for c, d in found)
    ]


def count(loop: Sequence[str], pattern: str) -> int:
    """The number of instructions that a pattern of a `Syntax` matches."""
    return sum(bool(re.search(pattern, line)) for line in loop)


def hottest(loops: Sequence[Sequence[str]], syntax: Syntax) -> Sequence[str]:
    """The loop with the most products; empty if there is none."""
    return max(loops, key=lambda loop: count(loop, syntax.products), default=())


__all__ = ["ARM", "RISCV", "SYNTAX", "X86", "Syntax", "count", "functions", "hottest", "innermost"]
