"""Errors of records and of their databases."""

from __future__ import annotations

from dlc_core.diag import DlcError


class RecordError(DlcError):
    """A record that is malformed, or that a database or a compile refuses."""


class DatabaseError(DlcError):
    """A database of records that cannot be opened, read or written."""


class RecordsWarning(UserWarning):
    """Records that could not be read, or that were not yet written to their database."""


__all__ = ["DatabaseError", "RecordError", "RecordsWarning"]
