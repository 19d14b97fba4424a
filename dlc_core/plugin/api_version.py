"""The versions of the interface that a plugin is written for: its `DLC_API`.

    DLC_API = "0.2"             runs with interface 0.2 and with 0.3
    DLC_API = ">=0.2,<0.5"      runs with the versions that its author names

In 0.3 the names of 0.2 still work; some may be deprecated. From version 1.0 on, "1.2" means 1.2 and all later
versions of 1.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from dlc_core.diag import PluginError
from dlc_core.support.record import record
from dlc_core.version import __version__

Version = tuple[int, int]

_RELATIONS: dict[str, Callable[[Version, Version], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_PART = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\d+)\.(\d+)\s*")
_ONE = re.compile(r"\s*(\d+)\.(\d+)\s*")
_FORMS = 'it must be "<major>.<minor>", or a range such as ">=0.1,<0.3"'


@record(frozen=True)
class Range:
    """A set of versions: all relations hold."""

    relations: tuple[tuple[str, Version], ...]

    def admits(self, version: Version) -> bool:
        """Whether a version is in the range."""
        return all(_RELATIONS[sign](version, bound) for sign, bound in self.relations)

    def is_newer(self, version: Version) -> bool:
        """Whether the range begins after a version."""
        return any(
            bound > version or (sign == ">" and bound == version)
            for sign, bound in self.relations
            if sign in (">=", ">", "==")
        )


def read_range(text: object) -> Range:
    """The versions that a plugin's `DLC_API` means. Raises PluginError if it is malformed."""
    if isinstance(text, str):
        one = _ONE.fullmatch(text)
        if one is not None:
            return _compatible((int(one[1]), int(one[2])))
        parts = [_PART.fullmatch(part) for part in text.split(",")]
        found = tuple((part[1], (int(part[2]), int(part[3]))) for part in parts if part is not None)
        if len(found) == len(parts):
            return Range(found)
    raise PluginError(f"DLC_API is {text!r}", why=_FORMS)


def _compatible(version: Version) -> Range:
    """The versions that run what is written for one version."""
    major, minor = version
    end = (major + 1, 0) if major else (0, minor + 2)
    return Range(((">=", version), ("<", end)))


def check_version(text: object, ours: Version, distribution: str) -> None:
    """Check a plugin's `DLC_API` against the core's version. `distribution` is the plugin's package, or
    empty.

    Raises PluginError that states both sides, and which of them to upgrade.
    """
    wanted = read_range(text)
    if wanted.admits(ours):
        return
    package = distribution or "the plugin"
    upgrade, other = ("dlc-core", package) if wanted.is_newer(ours) else (package, "dlc-core")
    command = f"pip install -U {upgrade}" if " " not in upgrade else f"upgrade {upgrade}"
    raise PluginError(
        f"the plugin is written for interface {text}, this dlc-core has {ours[0]}.{ours[1]}"
        f" (dlc-core {__version__})",
        why=f"{upgrade} is older than {other} needs",
        hint=f"install versions of the plugin and of dlc-core that fit each other: {command}",
    )


__all__ = ["Range", "Version", "check_version", "read_range"]
