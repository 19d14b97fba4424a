"""Sources of models with regions on devices: the host program calls native segments by their entry points."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dlc_core.backend.deploy import HostProgram
from dlc_core.backend.emission import PACKED
from dlc_core.backend.packed import ENTRY_SUFFIX
from dlc_core.target.source.tokens import folded

_ENTRY = re.compile(rf"^int32_t (\w+){ENTRY_SUFFIX}\([^;{{]*\)\n\{{\n.*?^\}}$", re.MULTILINE | re.DOTALL)


def static_entries(code: str, segments: Iterable[str]) -> str:
    """The code of a model with the entry points of its segments, which only this file calls."""
    native, _, packed = code.partition(PACKED)
    wanted = set(segments)
    entries = [f"static {found[0]}" for found in _ENTRY.finditer(packed) if found[1] in wanted]
    return "\n\n".join([native.rstrip(), *entries])


def run_lines(host: HostProgram, macro: str, pointers: Sequence[str], threads: int) -> list[str]:
    """The statements of `<name>_run` that call the host program. `pointers` are those of inputs, outputs,
    weights and workspace.
    """
    given = ", ".join(f"(void *)({p})" for p in pointers)
    return [
        "    {",
        *folded(f"        void *const buffers[] = {{{given}}};"),
        "        const int64_t scalars[] = {0};",
        f"        const int32_t status = {host.entry}{ENTRY_SUFFIX}(buffers, scalars, {threads});",
        "        if (status == DLC_HOST_DEVICE_FAILED)",
        f"            return {macro}_ERROR_DEVICE;",
        "        if (status == DLC_HOST_CHECK_FAILED)",
        f"            return {macro}_ERROR_CHECK;",
        "    }",
    ]


__all__ = ["run_lines", "static_entries"]
