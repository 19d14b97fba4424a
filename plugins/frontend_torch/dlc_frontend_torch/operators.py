"""The page `docs/torch-operators.md`: `python -m dlc_frontend_torch.operators` prints it.

Operators and refused cases are those of the registry, dtypes and shares those of the recorded score.
"""

from __future__ import annotations

import sys
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from dlc_frontend_torch import aten as _converters  # registers them
from dlc_frontend_torch.decompositions import for_autograd
from dlc_frontend_torch.random_ops import DRAWN
from dlc_frontend_torch.refusals import refusals
from dlc_frontend_torch.registry import COMPLEX, CONVERTERS
from dlc_frontend_torch.score.recorded import recorded
from dlc_frontend_torch.score.samples import DTYPES
from dlc_frontend_torch.score.table import core_operators

assert _converters

HEAD = """# Operators of PyTorch

These operators are compiled. `python -m dlc_frontend_torch.operators` makes this page of the table of
converters and of a recorded [score](#score). Composite operators that are not listed are taken apart into
listed ones by torch.

- *real*: tensors of real numbers, integers and truth values, as far as torch has the operator for the dtype.
- *complex*: complex numbers too. Without it, a complex operand is refused by name.
- *checked*: the dtypes of samples of torch that went through the operator and gave eager's results. *all* are
  float32, float64, float16, bfloat16, int64 and bool, *floats* the first four. Operators of gradients, of
  sizes and of programs have no such samples; tests of their own check them.
- **Core ATen** operators are bold.

An operator that is not listed, or a case that a converter does not know, is an `UnsupportedError` with the
operator, the reason and the line. torch.compile runs it in torch, and reports it.
"""
DRAWS = "Random numbers are drawn by torch from its generator, in the order of eager:"
OTHERS = "Operators of Core ATen without a converter, which torch takes apart into others, or replaces:"
WRITING = {"aten._native_batch_norm_legit.default", "aten.atan2.out"}
"""Operators that write to an operand. Functional graphs have others instead."""
REFUSED = "Operators of Core ATen that are refused:"
CASES = """
## Refused cases

Converters refuse these cases of operators that are listed above. "…" stands for a value of the program.
"""
SCORE = """
## Score

`python -m dlc_frontend_torch.score` runs the samples of OpInfo, PyTorch's own operator tests, in these six
dtypes. With torch {torch}:

{totals}

<!-- not run: it takes half an hour -->

```bash
python -m dlc_frontend_torch.score --limit 1 --json score.jsonl \\
    --summary plugins/frontend_torch/dlc_frontend_torch/score/recorded.json
```

`--gradients` runs the samples through torch.compile with backward, and compares gradients too. Results are
compared with eager's by torch's own tolerances. Where these do not hold, the references are better ones:

- Sorts of eager are stable. torch leaves the order of equal elements open; it decides which of them gets a
  gradient. dlc's sorts are stable.
- A result may be as far from the result in float64 as eager's is. The float64 run draws the random numbers of
  the sample's dtype.
- The errors of operators that sum products may be in proportion to the largest error of eager.
- Terms of a gradient may cancel. An element of a gradient may be as far from the float64 one as it is in some
  of 32 runs of eager, in each of which all operators round to the dtype of the sample up or down at random.

These samples were refused, with the number of samples and the OpInfos:
"""
NONE = "has no converter"
LONGEST = 30
"""More operators are not named; they share one case by a function that all of them call."""


def page() -> str:
    """The text of the page."""
    core, score = set(core_operators()), recorded()
    names: dict[str, list[str]] = defaultdict(list)
    for full in sorted({*CONVERTERS, *COMPLEX} - DRAWN):
        whole = full.startswith("higher_order.")
        names[full if whole else full.rsplit(".", 1)[0]].append(full)
    lines = [HEAD, "| operator | real | complex | checked |", "|---|---|---|---|"]
    for name, overloads in names.items():
        shown = f"**{name}**" if core.intersection(overloads) else name
        cells = [_known(overloads, table) for table in (CONVERTERS, COMPLEX)]
        lines.append(f"| {shown} | {' | '.join(cells)} | {_checked(overloads, score['dtypes'])} |")
    left = core - {*CONVERTERS, *COMPLEX} - DRAWN
    apart = left & {f"{each}" for each in for_autograd()}
    sections = [(DRAWS, DRAWN), (OTHERS, apart | WRITING), (REFUSED, left - apart - WRITING)]
    for title, members in sections:
        if members:
            lines += ["", title, "", *(f"- {each.removesuffix('.default')}" for each in sorted(members))]
    lines += [CASES, *_cases(names)]
    shares = "\n".join(_wrapped(each) for each in score["totals"])
    lines += [SCORE.format(torch=score["torch"], totals=shares), *_refused(score["others"])]
    return "\n".join(lines) + "\n"


def _known(overloads: Sequence[str], table: Mapping[str, Any]) -> str:
    known = [each.rsplit(".", 1)[1] for each in overloads if each in table]
    if len(known) == len(overloads):
        return "yes"
    return ", ".join(known) or "no"


def _checked(overloads: Sequence[str], dtypes: Mapping[str, Sequence[str]]) -> str:
    found = {each for name in overloads for each in dtypes.get(name, ())}
    if len(found) == len(DTYPES):
        return "all"
    own = [each for each in DTYPES if each in found]
    return ", ".join(["floats", *own[4:]] if own[:4] == list(DTYPES[:4]) else own)


def _cases(names: Mapping[str, Sequence[str]]) -> list[str]:
    """The refused cases, each with its operators."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, overloads in names.items():
        for text in {
            text
            for each in overloads
            for table in (CONVERTERS, COMPLEX)
            for text in refusals(table.get(each))
        }:
            found[text].append(name)
    return [_item(text, found[text]) for text in sorted(found)]


def _refused(others: Mapping[str, Sequence[Any]]) -> list[str]:
    """The reasons of refused samples; operators without a converter in one table."""
    lines = [
        _item(f"{why} ({given[0]})", given[1:]) for why, given in others.items() if not why.endswith(NONE)
    ]
    lines += ["", "| operator without a converter | samples | OpInfos |", "|---|---|---|"]
    for why, given in others.items():
        if why.endswith(NONE):
            name = why.removesuffix(NONE).strip().removesuffix(".default")
            lines.append(f"| {name} | {given[0]} | {', '.join(given[1:])} |")
    return lines


def _item(text: str, members: Sequence[str]) -> str:
    shown = ", ".join(members) if len(members) <= LONGEST else f"{len(members)} operators"
    return _wrapped(f"{text.rstrip(',')}: {shown}")


def _wrapped(text: str) -> str:
    return textwrap.fill(f"- {text}", 110, subsequent_indent="  ", break_long_words=False)


if __name__ == "__main__":
    sys.stdout.write(page())
