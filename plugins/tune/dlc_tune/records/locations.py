"""Where records are: the settings of the user, and their database.

This module is imported in every compile, so it imports nothing that takes long.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dlc_core.config import Knob
from dlc_core.diag import UsageError

OFF, EXACT, NEAREST = "off", "exact", "nearest"
"""Values of the setting `records`."""
SQLITE = "sqlite:///"
"""The begin of the URL of a SQLite file; its path follows."""


def data_home() -> Path:
    """The folder of data that the user keeps. Unlike a cache, nothing in it can be made again."""
    base = os.environ.get("XDG_DATA_HOME")
    if base:
        return Path(base) / "dlc"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dlc" / "data"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "dlc"
    return Path.home() / ".local" / "share" / "dlc"


def _default_url() -> str:
    return f"{SQLITE}{data_home() / 'records.db'}"


RECORDS = Knob(
    "records",
    str,
    NEAREST,
    "Use of tuning records in compiles: off, exact (the same kernel and machine), or nearest (others too, "
    "if predicted better).",
    choices=(OFF, EXACT, NEAREST),
)
RECORDS_URL = Knob(
    "records_url", str, _default_url, "The database of tuning records: a SQLAlchemy URL or a path."
)


def url_of(given: str | Path | None = None) -> str:
    """The URL of a database, of a URL or a path; without either, that of the setting `records_url`."""
    text = str(RECORDS_URL.get() if given is None else given)
    if not text.strip():
        raise UsageError("the database of records has no name", hint="give a path or a SQLAlchemy URL")
    return text if "://" in text else f"{SQLITE}{Path(text).expanduser().absolute()}"


def file_of(url: str) -> Path | None:
    """The file of a SQLite URL; None for other databases, and for SQLite in memory."""
    path, _, options = url.removeprefix(SQLITE).partition("?")
    if not url.startswith(SQLITE) or not path or path == ":memory:" or "uri=true" in options:
        return None
    return Path(path)


__all__ = [
    "EXACT",
    "NEAREST",
    "OFF",
    "RECORDS",
    "RECORDS_URL",
    "SQLITE",
    "data_home",
    "file_of",
    "url_of",
]
