"""The names of properties of tests, through which the kit's tests pass data to the main process."""

from __future__ import annotations

TEST = "dlc-test"
"""The target, level and case of a test."""
OUTCOMES = "dlc-outcomes"
"""The outcomes of its cases, if a report is written."""
TALLY = "dlc-tally"
"""The sums of where its cases ran."""
FIGURES = "dlc-figures"
"""Measured numbers by name."""

__all__ = ["FIGURES", "OUTCOMES", "TALLY", "TEST"]
