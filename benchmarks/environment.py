"""The environment of the processes whose starts are measured."""

from __future__ import annotations

import os

UNWANTED = ("PYTHONDONTWRITEBYTECODE",)
"""Variables that users of an installed package do not set: without bytecode each process compiles hundreds of
source files, for a second."""


def environment(**variables: str) -> dict[str, str]:
    """This process's variables without `UNWANTED`, and the given ones."""
    return {name: value for name, value in os.environ.items() if name not in UNWANTED} | variables


__all__ = ["environment"]
