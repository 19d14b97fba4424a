"""Records that could not be written to their database, in a file of JSON lines until they can.

The file is beside a database file, else in the folder of data. A process locks its file as long as it lives;
the next process that opens the database takes over the files of those that ended.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from dlc_tune.records.lines import to_line
from dlc_tune.records.locations import data_home, file_of
from dlc_tune.records.record import Record

fcntl: Any
try:
    import fcntl
except ImportError:  # a system without such locks: files of other processes are not taken over
    fcntl = None

SUFFIX = ".jsonl"


class Unwritten:
    """The unwritten records of this process, in memory and in a file."""

    def __init__(self, url: str) -> None:
        self.records: list[Record] = []
        self.path: Path | None = None
        """The file that has all of the records; None if no file could be written."""
        self._url = url
        self._file: int | None = None

    def keep(self, records: Sequence[Record]) -> None:
        """Keep more records."""
        self.records += records
        if self._file is not None and self._append(self._file, records):
            return
        self.release()
        folder, prefix = _place_of(self._url)
        for place in (folder, Path(tempfile.gettempdir())):
            with suppress(OSError):
                self._begin(place, prefix)
                return

    def _begin(self, folder: Path, prefix: str) -> None:
        """Write a new file in a folder. Raises OSError if that fails."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, name = tempfile.mkstemp(SUFFIX, f"{prefix}{os.getpid()}-", folder)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._append(file, self.records):
                raise OSError(f"{name} cannot be written")
        except OSError:
            os.close(file)
            Path(name).unlink()
            raise
        self.path, self._file = Path(name), file

    @staticmethod
    def _append(file: int, records: Sequence[Record]) -> bool:
        size = os.fstat(file).st_size
        data = "".join(to_line(one) + "\n" for one in records).encode()
        try:
            if os.pwrite(file, data, size) == len(data):
                os.fsync(file)
                return True
        except OSError:
            pass
        with suppress(OSError):
            os.ftruncate(file, size)
        return False

    def clear(self) -> None:
        """Forget the records, which are in the database now."""
        self.records = []
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink()
        self.release()

    def release(self) -> None:
        """Leave the file to the next process that opens the database."""
        if self._file is not None:
            os.close(self._file)
        self.path = self._file = None


def abandoned(url: str) -> Iterator[tuple[Path, int]]:
    """The files of processes that ended, each open and locked until the next one is asked for."""
    if fcntl is None:
        return
    folder, prefix = _place_of(url)
    for path in sorted(folder.glob(f"{prefix}*{SUFFIX}")):
        try:
            file = os.open(path, os.O_RDWR)
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield path, file
        except OSError:  # its process lives
            continue
        finally:
            os.close(file)


def _place_of(url: str) -> tuple[Path, str]:
    """The folder of the files of a database, and the begin of their names."""
    path = file_of(url)
    if path is not None:
        return path.parent, f"{path.name}.unwritten-"
    return data_home(), f"unwritten-{sha256(url.encode()).hexdigest()[:16]}-"


__all__ = ["Unwritten", "abandoned"]
