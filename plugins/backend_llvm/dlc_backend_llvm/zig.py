"""The linkers of Zig, which the pip package `ziglang` installs for every machine that it targets."""

from __future__ import annotations

import importlib.util
import shutil
import sys


def zig_command() -> list[str]:
    """The command of Zig: that of the package `ziglang`, else the one on the PATH; empty if there is none."""
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang"]
    found = shutil.which("zig")
    return [found] if found else []


__all__ = ["zig_command"]
