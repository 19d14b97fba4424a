"""Folders for temporary files of the tuner, which are removed even if its process is killed.

    folder = locked_folder("dlc-tune-")      removed by its user at the end
    shared = sockets_folder()                the one of `multiprocessing`, which removes it at the end

A process locks a file in each of its folders as long as it lives. If it is killed, its worker processes
remove the folder as they end (`remove_left`). If they were killed too, the next measurer does
(`remove_all_left`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from multiprocessing import util
from pathlib import Path

LOCK = "dlc-tune.lock"
"""The file of a folder that the process locks that uses the folder."""
TRIES, PAUSE = 20, 0.05
"""How often workers try the lock, and the seconds in between: a process that ends closes its files one by
one."""
PREFIXES = ("dlc-tune-", "dlc-bench-", "pymp-")
"""The begins of the names of folders that may be left."""

_held: dict[Path, int] = {}
"""The locks of folders that this process uses until its end."""


def locked_folder(prefix: str) -> Path:
    """Make a folder that only this user can read, and lock it until the end of this process."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        if _lock(folder):
            return folder


def sockets_folder() -> Path:
    """The folder for sockets of `multiprocessing` in this process, locked until the end of this process."""
    folder = Path(util.get_temp_dir())
    if folder not in _held:
        _lock(folder)
    return folder


def _lock(folder: Path) -> bool:
    """Lock a folder. Returns False if another process considered it left and removed it meanwhile."""
    try:
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return False
    fcntl.flock(file, fcntl.LOCK_SH)
    if os.fstat(file).st_nlink == 0:
        os.close(file)
        return False
    _held[folder] = file
    return True


def remove_folder(folder: Path) -> None:
    """Remove a folder of this process."""
    shutil.rmtree(folder, ignore_errors=True)
    file = _held.pop(folder, None)
    if file is not None:
        os.close(file)


def remove_left(folder: Path, tries: int = TRIES) -> None:
    """Remove a folder if the process that uses it has ended: if nobody locks it."""
    with suppress(OSError), (folder / LOCK).open() as file:
        for number in range(tries):
            if number:
                time.sleep(PAUSE)
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                return


def remove_all_left() -> None:
    """Remove the folders of this user's processes that were killed together with their workers."""
    root, user = Path(tempfile.gettempdir()), os.getuid()
    for folder in {each for prefix in PREFIXES for each in root.glob(f"{prefix}*")}:
        with suppress(OSError):
            if folder.lstat().st_uid == user and not folder.is_symlink():
                remove_left(folder, tries=1)


__all__ = [
    "LOCK",
    "locked_folder",
    "remove_all_left",
    "remove_folder",
    "remove_left",
    "sockets_folder",
]
