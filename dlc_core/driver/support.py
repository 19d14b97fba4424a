"""The nodes that the code generator of a target takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from dlc_core.diag import DlcError, TargetError
from dlc_core.graph.node import STRUCTURAL, Node, nodes_of
from dlc_core.graph.node import functions_of as bodies_of
from dlc_core.passes.graph.regions import NO_REASON
from dlc_core.plugin.registry import registry
from dlc_core.plugin.used import provider_text
from dlc_core.target import Target
from dlc_core.target.partitioner import Verdict


def supported(root: Node, target: Target) -> Verdict:
    """Whether the code generator of a target supports a node and the nodes in its functions, or why not.

    Raises TargetError if `supports` raises, or returns neither a truth value nor text.
    """
    codegen = registry().codegens[target.codegen]
    supports = getattr(codegen, "supports", None)
    if supports is None:
        return True
    for n in (root, *nodes_of(*bodies_of(root))):
        if n.op.name not in STRUCTURAL:
            verdict = _asked(codegen, supports, n, target)
            if verdict is not True:
                return verdict if n is root else f"{n.op.name} in its body: {verdict}"
    return True


def _asked(codegen: Any, supports: Callable[..., object], n: Node, target: Target) -> Verdict:
    what = f"`supports` of code generator {codegen.name!r} failed on {n.op.name}, for {target}"
    details = list(filter(None, [provider_text("codegens", codegen.name)]))
    try:
        found = supports(n, target) if _takes_target(supports) else supports(n)
    except DlcError as error:
        error.details += (what, *details)
        raise error.at(n.spans) from error.__cause__
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise TargetError(what, why=why, spans=n.spans, details=details) from error
    if not isinstance(found, (bool, np.bool_, str)):
        hint = "return True, or text that says why it does not support the node"
        raise TargetError(what, why=f"it returned {found!r:.80}", hint=hint, spans=n.spans, details=details)
    if isinstance(found, str):
        return found or NO_REASON
    return True if found else f"code generator {codegen.name!r} does not support it"


def _takes_target(supports: Callable[..., object]) -> bool:
    """Whether `supports` takes the target as a second argument."""
    try:
        inspect.signature(supports).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


__all__ = ["supported"]
