"""Examples in the docstrings of passes over PrimFuncs: a program before and after, as script.

    Before:

        @T.prim_func
        def f(…): …

    After narrow_indices{bits=16}:

        @T.prim_func
        def f(…): …

The pass after `After` may be omitted. The examples are tests, and parts of the reference of passes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from dlc_core.passes.base import Pass, PassContext, format_value
from dlc_core.passes.default_pipelines import positions_of
from dlc_core.passes.pipeline import Pipeline
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.script import parse, script
from dlc_core.tir.stmt import PrimFunc

_EXAMPLE = re.compile(
    r"^Before:\n\n(?P<before>.*)^After(?: (?P<text>\S.*))?:\n\n(?P<after>.*)\Z", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Example:
    """The pass with its options, and the texts of the program before and after."""

    changed_by: PrimFuncPass
    before: str
    after: str

    def result(self) -> str:
        """The program after the pass, as script."""
        before = parse(self.before)
        assert isinstance(before, PrimFunc)
        return script(self.changed_by(before, PassContext()))

    def expected(self) -> str:
        """The program after, as the printer writes it."""
        return script(parse(self.after))


def example_of(cls: type[Pass]) -> Example | None:
    """The example in a pass class's docstring, if there is one."""
    found = _EXAMPLE.search(inspect.getdoc(cls) or "")
    if found is None or not issubclass(cls, PrimFuncPass):
        return None
    text = found["text"] or cls.name
    (parsed,) = Pipeline.parse(text, [cls]).passes
    assert isinstance(parsed, PrimFuncPass)
    return Example(parsed, inspect.cleandoc(found["before"]), inspect.cleandoc(found["after"]))


def reference(classes: Iterable[type[Pass]]) -> str:
    """The reference of passes over PrimFuncs in Markdown, from their docstrings and options."""
    parts = []
    for cls in classes:
        example = example_of(cls)
        about = _EXAMPLE.sub("", inspect.getdoc(cls) or "").strip()
        positions = ["first" if text.startswith("begin ") else text for text in positions_of(cls)]
        where = " and ".join(positions) or "on request"
        options = ", ".join(f"`{f.name}={format_value(f.default)}`" for f in fields(cls))
        facts = f"Runs {where}." + (f" Options: {options}." if options else "")
        parts.append(f"#### `{cls.name}`\n\n{about}\n\n{facts}\n")
        if example is not None:
            by = "" if str(example.changed_by) == cls.name else f" by `{example.changed_by}`"
            parts += [f"```text\n{example.before}\n```\n\nbecomes{by}\n", f"```text\n{example.after}\n```\n"]
    return "\n".join(parts)


__all__ = ["Example", "example_of", "reference"]
