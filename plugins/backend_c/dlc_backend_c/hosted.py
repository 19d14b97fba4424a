"""Sources of models with regions on devices: the host program calls native segments by their entry points."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dlc_core.backend.deploy import HostProgram
from dlc_core.backend.emission import PACKED
from dlc_core.backend.packed import ENTRY_SUFFIX
from dlc_core.target.source.tokens import folded

_ENTRY = re.compile(rf"^int32_t (?=\w+{ENTRY_SUFFIX}\()", re.MULTILINE)


def static_entries(code: str) -> str:
    """The code of a model whose entry points only this file calls."""
    native, _, packed = code.partition(PACKED)
    return f"{native.rstrip()}\n\n{_ENTRY.sub('static int32_t ', packed.strip())}"


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
