"""The cases that a converter refuses, read from its source: `refusals`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any


def refusals(converter: Any) -> list[str]:
    """The texts that a converter, and functions of its module that it calls, give to `Call.unsupported`. A
    value in a text is shown as "…".
    """
    calls = (
        call
        for function in _reached(converter, {})
        if function.__name__ != "<lambda>"  # lambdas raise nothing
        for call in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
    )
    texts = {
        _text(call.args[0])
        for call in calls
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "unsupported"
    }
    return sorted(text for text in texts if text.strip("… "))


def _reached(function: Any, seen: dict[Any, None]) -> Iterator[FunctionType]:
    """The function, and all of its module that it names, in each other too."""
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen[function] = None
    yield function
    closed = (cell.cell_contents for cell in function.__closure__ or ())
    named = (function.__globals__.get(name) for name in _names(function.__code__))
    for each in (*closed, *named):
        if isinstance(each, FunctionType) and each.__module__ == function.__module__:
            yield from _reached(each, seen)


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if hasattr(each, "co_names"):
            yield from _names(each)


def _text(e: ast.expr) -> str:
    if isinstance(e, ast.Constant):
        return str(e.value)
    if isinstance(e, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in e.values)
    return "…"


__all__ = ["refusals"]
