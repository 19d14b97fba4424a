"""Where a node of an FX graph comes from: the user's Python line."""

from __future__ import annotations

import re
from typing import Any

from dlc_core.diag import Span

_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_LIBRARY = ("/torch/", "<frozen", "<eval_with_key>")
"""Parts of the paths of files that are not the user's; torch runs graphs as "<eval_with_key>"."""


def span_of(node: Any) -> Span:
    """The position of the last line of the user's files in the node's stack trace."""
    op = op_name(node)
    found = list(_LINE.finditer(node.meta.get("stack_trace") or ""))
    own = [each for each in found if not any(part in each["file"] for part in _LIBRARY)] or found
    if not own:
        return Span("the program", node.name, op)
    return Span(own[-1]["file"], own[-1]["function"], op, int(own[-1]["line"]))


def op_name(node: Any) -> str:
    """The name of the operator: "aten.add.Tensor", or that of a function of Python."""
    target = node.target
    if isinstance(target, str):
        return f"{node.op} {target}"
    namespace = getattr(target, "namespace", None)
    name = str(target)
    if namespace is not None and not name.startswith(f"{namespace}."):
        return f"{namespace}.{name}"
    return name if namespace is not None else getattr(target, "__name__", name)


__all__ = ["op_name", "span_of"]
