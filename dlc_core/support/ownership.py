"""Which users may have written a file: the rules for owner and mode of its status.

The private group of a user, which has the user's name and no other member, counts as the user. Systems
without POSIX owners have no such rules.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

POSIX = os.name == "posix" and {os.open, os.mkdir, os.stat, os.unlink, os.rename} <= os.supports_dir_fd
"""Whether owners and modes are checked."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def objection(
    status: os.stat_result,
    *,
    superuser: bool = False,
    sticky: bool = False,
    descriptor: int | None = None,
) -> str:
    """Return why a user other than this one may have written a file or folder; "" if none can.

    With `superuser`, files of the superuser count as this user's. `sticky` is for folders: others may add
    files to one with the sticky bit, but not rename or remove those of this user. With the descriptor, a
    group that has no other member is no objection.
    """
    if not POSIX:
        return ""
    owner, mode = status.st_uid, stat.S_IMODE(status.st_mode)
    if owner != os.geteuid() and not (superuser and is_superuser(owner)):
        return f"it belongs to the user {owner}, and this process to the user {os.geteuid()}"
    loose = mode & _OTHERS_WRITE
    if loose == stat.S_IWGRP and _only_own_group(status.st_gid, os.geteuid()) and not _has_acl(descriptor):
        loose = 0
    if not loose or (sticky and mode & stat.S_ISVTX):
        return ""
    return f"other users can write to it (mode {mode:o})"


def is_superuser(owner: int) -> bool:
    """Whether a user is the superuser: of this machine, or of the host outside of a user namespace."""
    return owner == 0 or owner == _unmapped_user()


@lru_cache(maxsize=1)
def _unmapped_user() -> int:
    """The owner that files of users outside a user namespace seem to have, such as the host's superuser.

    Without a user namespace nobody is meant: -1.
    """
    with suppress(OSError, ValueError):
        if Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]:
            return int(Path("/proc/sys/kernel/overflowuid").read_text())
    return -1


@lru_cache(maxsize=64)
def _only_own_group(group: int, owner: int) -> bool:
    """Whether a group is the private one of a user: it has the user's name and no other member."""
    try:
        import grp
        import pwd

        user, found = pwd.getpwuid(owner), grp.getgrgid(group)
    except (ImportError, KeyError):
        return False
    return user.pw_gid == group and found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


def _has_acl(descriptor: int | None) -> bool:
    """Whether an access-control list may name users besides owner and group."""
    if descriptor is None or not hasattr(os, "getxattr"):
        return True
    try:
        os.getxattr(f"/proc/self/fd/{descriptor}", "system.posix_acl_access")
    except FileNotFoundError:
        return True
    except OSError:  # it has none
        return False
    return True


__all__ = ["POSIX", "is_superuser", "objection"]
