"""Exemptions from the conformance kit, each with its reason.

A plugin returns them from the hook `dlc_expectations`:

    @hookimpl
    def dlc_expectations():
        return [
            Unsupported("npu: float64", reason="the device has no double precision"),
            ExpectedFailure("npu: ops/softmax/3/*", reason="-inf - -inf is not NaN in revision A"),
        ]

The name consists of the target kind and a pattern of cases. The names of cases have parts, such as
`ops/relu/3/float16` (sample 3 of the op, in that dtype), `ops/relu/3/symbolic`, `graphs/17`,
`device/memory_is_aligned`. A pattern with a slash is matched with the whole name, where `*` matches any text.
A pattern without a slash is matched with each part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from dlc_core.diag import UsageError


@dataclass(frozen=True)
class Expectation:
    """An exemption of cases. `name` is `"<target kind>: <pattern>"`."""

    name: str
    reason: str

    def __post_init__(self) -> None:
        target, colon, pattern = self.name.partition(": ")
        if not colon or not target or not pattern.strip():
            raise UsageError(
                f"the expectation {self.name!r} has no pattern of cases",
                hint='write "<target kind>: <pattern>"',
            )
        if not self.reason.strip():
            raise UsageError(f"the expectation {self.name!r} gives no reason")

    @property
    def kind(self) -> str:
        """The kind of exemption, as text."""
        raise NotImplementedError

    @property
    def target(self) -> str:
        return self.name.partition(": ")[0]

    @property
    def pattern(self) -> str:
        return self.name.partition(": ")[2].strip()

    def covers(self, case: str) -> bool:
        """Whether the pattern matches a case."""
        if "/" in self.pattern:
            return fnmatchcase(case, self.pattern)
        return any(fnmatchcase(part, self.pattern) for part in case.split("/"))


@dataclass(frozen=True)
class Unsupported(Expectation):
    """A permanent limitation of the target: the cases are not run.

    >>> Unsupported("npu: float64", "no double precision").covers("ops/relu/0/float64")
    True
    """

    @property
    def kind(self) -> str:
        return "unsupported"


@dataclass(frozen=True)
class ExpectedFailure(Expectation):
    """A known failure. The cases are run. If one passes, the test fails, so that the entry is removed."""

    @property
    def kind(self) -> str:
        return "expected failure"


class Expectations:
    """The exemptions of one target kind. Raises UsageError for a value of neither class."""

    def __init__(self, given: Iterable[Any], target: str) -> None:
        entries = list(given)
        for entry in entries:
            if not isinstance(entry, Unsupported | ExpectedFailure):
                raise UsageError(
                    f"{entry!r} is not an exemption",
                    hint="there are two kinds: Unsupported and ExpectedFailure",
                )
        self.entries: Sequence[Expectation] = tuple(e for e in entries if e.target == target)

    def of(self, case: str) -> Expectation | None:
        """The first exemption that matches a case. `Unsupported` has precedence."""
        covering = [e for e in self.entries if e.covers(case)]
        unsupported = [e for e in covering if isinstance(e, Unsupported)]
        return (unsupported or covering or [None])[0]

    def unused(self, cases: Iterable[str]) -> list[Expectation]:
        """The exemptions that match none of these cases."""
        names = list(cases)
        return [e for e in self.entries if not any(e.covers(case) for case in names)]


__all__ = ["Expectation", "Expectations", "ExpectedFailure", "Unsupported"]
