"""The page `docs/torch-operators.md`: `python -m dlc_frontend_torch.operators` prints it."""

from __future__ import annotations

import sys
from collections import defaultdict

from dlc_frontend_torch import aten as _converters  # registers them
from dlc_frontend_torch.decompositions import for_autograd
from dlc_frontend_torch.random_ops import DRAWN
from dlc_frontend_torch.registry import COMPLEX, CONVERTERS
from dlc_frontend_torch.score.table import core_operators

assert _converters

HEAD = """# Operators of PyTorch

These operators are compiled. `python -m dlc_frontend_torch.operators` makes this page of the table of
converters. Composite operators that are not listed are taken apart into listed ones by torch.

- *real*: tensors of real numbers, integers and truth values, as far as torch has the operator for the dtype.
- *complex*: complex numbers too. Without it, a complex operand is refused by name.
- **Core ATen** operators are bold.

An operator that is not listed, or a case that a converter does not know, is an `UnsupportedError` with the
operator, the reason and the line. torch.compile runs it in torch, and reports it.
"""
DRAWS = "Random numbers are drawn by torch from its generator, in the order of eager:"
OTHERS = "Operators of Core ATen without a converter, which torch takes apart into others, or replaces:"
WRITING = {"aten._native_batch_norm_legit.default", "aten.atan2.out"}
"""Operators that write to an operand. Functional graphs have others instead."""
REFUSED = "Operators of Core ATen that are refused:"


def page() -> str:
    """The text of the page."""
    core = set(core_operators())
    names: dict[str, list[str]] = defaultdict(list)
    for full in sorted({*CONVERTERS, *COMPLEX} - DRAWN):
        whole = full.startswith("higher_order.")
        names[full if whole else full.rsplit(".", 1)[0]].append(full)
    lines = [HEAD, "| operator | real | complex |", "|---|---|---|"]
    for name, overloads in names.items():
        shown = f"**{name}**" if core.intersection(overloads) else name
        cells = (_known(overloads, table) for table in (CONVERTERS, COMPLEX))
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    left = core - {*CONVERTERS, *COMPLEX} - DRAWN
    apart = left & {f"{each}" for each in for_autograd()}
    sections = [(DRAWS, DRAWN), (OTHERS, apart | WRITING), (REFUSED, left - apart - WRITING)]
    for title, members in sections:
        if members:
            lines += ["", title, "", *(f"- {each.removesuffix('.default')}" for each in sorted(members))]
    return "\n".join(lines) + "\n"


def _known(overloads: list[str], table: object) -> str:
    known = [each.rsplit(".", 1)[1] for each in overloads if each in table]  # type: ignore[operator]
    if len(known) == len(overloads):
        return "yes"
    return ", ".join(known) or "no"


if __name__ == "__main__":
    sys.stdout.write(page())
