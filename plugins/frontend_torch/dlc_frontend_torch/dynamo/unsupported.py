"""`Unsupported`: a graph has nodes that dlc cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc_core.diag import DlcError


class Unsupported(Exception):
    """Nodes that dlc cannot run: `problems` has each with its error, `combined` is one error for all."""

    def __init__(self, problems: Sequence[tuple[Any, DlcError]], combined: DlcError) -> None:
        super().__init__(str(combined))
        self.problems, self.combined = problems, combined


__all__ = ["Unsupported"]
