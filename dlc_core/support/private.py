"""Files and folders that no other user can have written.

    with private_folder(path) as folder:       a descriptor of the folder
    open_private(path) -> int                  a descriptor of a file
    write_private(path, [data])                atomic: a new file that is renamed
    open_settings(path) -> int                 the same for files that the superuser may have written, too

A process that runs the code of a cached file trusts everybody who can write that file. So the path is walked
from the root of the file system, each folder is opened relative to the descriptor of the one above, and
owner and mode are those of opened descriptors: nothing changes between check and use.

- A file, and the folder that contains it, belong to this user, and no other user can write to them. The file
  is a regular file and no symbolic link.
- The folders above belong to this user or to the superuser. No other user can write to them, except into
  a folder with the sticky bit, such as the one for temporary files, where others cannot rename files of this
  user. Symbolic links between them belong to this user or to the superuser.

The rules for owner and mode are those of `ownership`. Systems without POSIX owners have no such check: there,
only symbolic links and special files are refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlc_core.support.ownership import POSIX, is_superuser, objection

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_MAX_LINKS = 40
_CLOSED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_WALK = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _CLOSED
_LIST = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOSED
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _CLOSED  # opening a pipe must not wait
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSED


class NotPrivateError(OSError):
    """Another user may have written a file or a folder: which, and why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is not private: {why}")
        self.path = path
        self.why = why

    @property
    def hint(self) -> str:
        """The remedy, as text."""
        return f"remove {self.path}, or give it to this user alone (chown, chmod go-w)"


@contextmanager
def private_folder(path: Path, *, create: bool = False, repair: bool = True) -> Iterator[int | None]:
    """Open a folder that only this user can have written, and yield its descriptor.

    Without POSIX owners the value is None, and paths are used instead. With `repair`, others lose the right
    to read the folder. `create` makes the folder and those above, for this user alone.

    Raises NotPrivateError, and other OSErrors if the folder is missing or cannot be opened.
    """
    if not POSIX:
        if create:
            path.mkdir(parents=True, exist_ok=True)
        elif not path.is_dir():
            raise FileNotFoundError(2, os.strerror(2), str(path))
        yield None
        return
    above = _walk(path.absolute().parent, create)
    try:
        descriptor = _enter(above, path, create)
    finally:
        os.close(above)
    try:
        status = os.fstat(descriptor)
        why = objection(status, descriptor=descriptor)
        if why:
            raise NotPrivateError(path, why)
        if repair and stat.S_IMODE(status.st_mode) & 0o077:
            with suppress(OSError):  # a file system that is mounted read-only
                os.fchmod(descriptor, FOLDER_MODE)
        yield descriptor
    finally:
        os.close(descriptor)


def open_private(path: Path, folder: int | None = None) -> int:
    """Open a file for reading and return its descriptor. `folder` is that of its `private_folder`.

    Raises NotPrivateError if another user may have written it, and other OSErrors if it is missing.
    """
    if folder is None and POSIX:
        with private_folder(path.parent) as opened:
            return open_private(path, opened)
    try:
        if folder is None and path.is_symlink():
            raise NotPrivateError(path, "it is a symbolic link")
        descriptor = os.open(path if folder is None else path.name, _READ, dir_fd=folder)
    except OSError as error:
        if folder is not None and _is_link(path.name, folder):
            raise NotPrivateError(path, "it is a symbolic link") from None
        raise error
    try:
        status = os.fstat(descriptor)
        why = objection(status, descriptor=descriptor)
        if not stat.S_ISREG(status.st_mode):
            why = "it is not a regular file"
        if why:
            raise NotPrivateError(path, why)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_settings(path: Path) -> int:
    """Open a file that this user or the superuser has written, and return its descriptor for reading.

    Its folder belongs to one of them, and no other user can write to it. The file may be a symbolic link of
    one of them. Raises NotPrivateError, and other OSErrors if it is missing.
    """
    if not POSIX:
        return os.open(path, _READ)
    at, links = path.absolute(), 0
    while True:
        above = _walk(at.parent, create=False)
        try:
            _check(above, at.parent, sticky=False)
            if not _is_link(at.name, above):
                descriptor = os.open(at.name, _READ, dir_fd=above)
                break
            links += 1
            at = at.parent / _link_target(at, above, links)
        finally:
            os.close(above)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotPrivateError(at, "it is not a regular file")
        _check(descriptor, at, sticky=False)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: Path, folder: int | None = None) -> bytes:
    """Return the content of a file. Raises what `open_private` raises."""
    with open(open_private(path, folder), "rb") as file:
        return file.read()


def new_file(path: Path, folder: int | None = None, *, private: bool = True) -> int:
    """Create a file that did not exist, and return its descriptor for writing. A `private` one is for this
    user alone; the mode of another follows the umask.
    """
    mode = FILE_MODE if private else 0o666
    descriptor = os.open(path if folder is None else path.name, _NEW, mode, dir_fd=folder)
    if private and POSIX:
        os.fchmod(descriptor, mode)  # whatever the umask
    return descriptor


def write_private(path: Path, parts: Iterable[bytes | memoryview], folder: int | None = None) -> None:
    """Write a file atomically, for this user alone. `folder` is that of its `private_folder`.

    A symbolic link at the path is replaced and not followed. Raises OSError.
    """
    if folder is None and POSIX:
        with private_folder(path.parent, create=True) as opened:
            write_private(path, parts, opened)
        return
    temporary = temporary_of(path)
    try:
        with open(new_file(temporary, folder), "wb") as file:
            file.writelines(parts)
        replace_in(folder, temporary, path)
    except BaseException:
        with suppress(OSError):
            remove_from(folder, temporary)
        raise


def temporary_of(path: Path) -> Path:
    """The path of an unfinished file, in the folder of the final one."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")


def replace_in(folder: int | None, source: Path, target: Path) -> None:
    """Rename a file within a folder."""
    if folder is None:
        source.replace(target)
    else:
        os.replace(source.name, target.name, src_dir_fd=folder, dst_dir_fd=folder)


def remove_from(folder: int | None, path: Path) -> None:
    """Remove a file of a folder, not the target of a link."""
    os.unlink(path if folder is None else path.name, dir_fd=folder)


def touch_in(folder: int | None, path: Path) -> None:
    """Set the times of a file of a folder to now."""
    if folder is None:
        os.utime(path)
    else:
        os.utime(path.name, dir_fd=folder, follow_symlinks=False)


def _walk(path: Path, create: bool) -> int:
    """A descriptor of a folder above; each on the way is checked."""
    waiting = [*reversed(path.parts[1:])]
    links = 0
    at = Path(path.anchor)
    current = os.open(at, _WALK)
    try:
        _check(current, at, sticky=True)
        while waiting:
            name = waiting.pop()
            if _is_link(name, current):
                links += 1
                target = _link_target(at / name, current, links)
                waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
                if target.is_absolute():
                    at = Path(target.anchor)
                    _replace(current, os.open(at, _WALK))
                continue
            inner = _enter(current, at / name, create, _WALK)
            at /= name
            _replace(current, inner)
            _check(current, at, sticky=True)
    except BaseException:
        os.close(current)
        raise
    return current


def _replace(old: int, new: int) -> None:
    """Let the number of a descriptor mean what a new one does."""
    os.dup2(new, old, inheritable=False)
    os.close(new)


def _enter(above: int, path: Path, create: bool, flags: int = _LIST) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(path.name, FOLDER_MODE, dir_fd=above)
            os.chmod(path.name, FOLDER_MODE, dir_fd=above)  # whatever the umask
    try:
        return os.open(path.name, flags, dir_fd=above)
    except OSError:
        if _is_link(path.name, above):
            raise NotPrivateError(path, "it is a symbolic link") from None
        raise


def _check(descriptor: int, path: Path, *, sticky: bool) -> None:
    """Raise NotPrivateError for what others than this user and the superuser may have written."""
    why = objection(os.fstat(descriptor), superuser=True, sticky=sticky, descriptor=descriptor)
    if why:
        raise NotPrivateError(path, why)


def _is_link(name: str, folder: int) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def _link_target(path: Path, folder: int, links: int) -> Path:
    owner = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_uid
    if owner != os.geteuid() and not is_superuser(owner):
        raise NotPrivateError(path, f"it is a symbolic link of the user {owner}")
    if links > _MAX_LINKS:
        raise NotPrivateError(path, "too many symbolic links")
    return Path(os.readlink(path.name, dir_fd=folder))


__all__ = [
    "FILE_MODE",
    "FOLDER_MODE",
    "NotPrivateError",
    "new_file",
    "open_private",
    "open_settings",
    "private_folder",
    "read_private",
    "remove_from",
    "replace_in",
    "temporary_of",
    "touch_in",
    "write_private",
]
