"""The artefact format, which the code generator and the device share."""

FORMAT = "object"
"""The format of relocatable object files whose entry points have the signature of `emit.module.packed_entry`.
"""

ENTRY_SUFFIX = "__entry"
STOPPED = 5
"""The status of an entry point whose call was cancelled."""

__all__ = ["ENTRY_SUFFIX", "FORMAT", "STOPPED"]
