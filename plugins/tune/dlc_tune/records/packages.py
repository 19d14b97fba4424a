"""Records that packages ship. A package declares its file of JSON lines by the hook `dlc_records`."""

from __future__ import annotations

from pathlib import Path

from dlc_core.support.record import record


@record(frozen=True)
class RecordFile:
    """A file of JSON lines with the records of a package.

    `name` is that of the package, which `dlc explain` shows; `version` changes with its records.

    >>> RecordFile("npu-zoo", Path("records.jsonl"), "1.0").name
    'npu-zoo'
    """

    name: str
    path: Path
    version: str = ""

    @property
    def state(self) -> str:
        """A text that changes whenever the file does."""
        try:
            found = self.path.stat()
        except OSError as error:
            return f"{self.name} {self.version} {error.strerror}"
        return f"{self.name} {self.version} {found.st_size} {found.st_mtime_ns}"


__all__ = ["RecordFile"]
