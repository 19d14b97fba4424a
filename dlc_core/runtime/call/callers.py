"""The choice of a call path for an entry point of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlc_core.config import config
from dlc_core.diag import UnsupportedError
from dlc_core.runtime.call.calling import Evaluating, InPlace
from dlc_core.runtime.call.checked import Caller, Host
from dlc_core.runtime.call.copying import Copying
from dlc_core.runtime.device import Device, shares_memory
from dlc_core.runtime.guard.mode import mode_of
from dlc_core.runtime.interface.signature import Signature
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core.runtime.call import donating, guarded, updating
else:
    donating = lazy("dlc_core.runtime.call.donating")
    guarded = lazy("dlc_core.runtime.call.guarded")
    updating = lazy("dlc_core.runtime.call.updating")


def caller_for(signature: Signature, device: Device, entry: Any, weights: Host) -> Caller:
    """The call path for an entry point of a device."""
    if (signature.donated or signature.updates) and (hasattr(entry, "evaluate") or not shares_memory(device)):
        raise UnsupportedError(
            f"device {device.name!r} does not support donated inputs",
            why="it does not work in the caller's memory",
            hint="compile without `donate`",
        )
    if hasattr(entry, "evaluate"):
        return Evaluating(signature, device, entry, weights)
    mode = mode_of(config.guard) if signature.guard is None else signature.guard.mode
    if mode is not None:
        if shares_memory(device):
            caller = guarded.GuardedDonating if signature.donated else guarded.GuardedInPlace
            return caller(signature, device, entry, weights, mode)
        if hasattr(device, "alloc_guarded"):
            return guarded.GuardedCopying(signature, device, entry, weights, mode)
    if not shares_memory(device):
        return Copying(signature, device, entry, weights)
    if signature.donated:
        return donating.Donating(signature, device, entry, weights)
    return (updating.Updating if signature.updates else InPlace)(signature, device, entry, weights)


__all__ = ["caller_for"]
