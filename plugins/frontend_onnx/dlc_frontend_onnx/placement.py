"""Targets for the devices of `onnx.backend` and the providers of an inference session."""

from __future__ import annotations

from dlc_core.diag import DlcError, UsageError
from dlc_core.driver import find_target, targets
from dlc_core.target import Target
from dlc_frontend_onnx.plugin import TARGET


def target_of(name: str) -> Target:
    """The target of a name. "CPU" is the setting `onnx_target`, or the best target of this machine. Other
    names are the text of a target, such as "reference" or "llvm -mcpu=znver4", or a kind with the number of
    its first device, such as "ACME:0".

    Raises UsageError if there is no such target, or if it does not run on this machine.
    """
    text = name.strip()
    kind, _, number = text.partition(":")
    if kind.upper() == "CPU":
        return _usable(find_target(TARGET.get()), name)
    known = {own.lower(): own for own in targets()}
    if kind.lower() in known and number in ("", "0"):
        text = known[kind.lower()]
    try:
        return _usable(find_target(text), name)
    except UsageError:
        raise
    except DlcError as error:
        raise UsageError(
            f"there is no device {name!r}",
            why=error.what,
            hint=f'"CPU", or one of the targets {", ".join(sorted(known.values()))}',
        ) from error


def _usable(target: Target, name: str) -> Target:
    problem = target.kind.problem()
    if problem is not None:
        raise UsageError(f"the device {name!r} cannot be used here", why=str(problem))
    return target


__all__ = ["target_of"]
