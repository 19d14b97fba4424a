"""The tests of a session, and what they show of each level: outcomes, the share on the target, the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlc_core.testing.catalogue import SYMBOLIC, case_names
from dlc_core.testing.levels import LEVELS
from dlc_core.testing.limits import LEVEL_SECONDS
from dlc_core.testing.runner import FAILED, NOT_RUN, STATUSES, Outcome
from dlc_core.testing.where import PLACES, Tally, Where


@dataclass
class Test:
    """A test: its target, its level, its case, and its outcome."""

    target: str
    level: str
    case: str
    status: str = NOT_RUN
    why: str = ""
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    limit_factor: float = 1.0

    __test__ = False

    @property
    def where(self) -> Where | None:
        """Where a test that is a case ran."""
        tally = self.tally
        return (
            Where(tally.on, tally.nodes, "", True, tally.work_on, tally.work)
            if tally.places.total() == 1
            else None
        )

    def cases(self) -> list[Outcome]:
        """The outcomes of its cases, and its own if it has no cases or failed for another reason."""
        own = Outcome(self.case, self.status, self.why, self.where)
        if not self.outcomes:
            return [own]
        other_failure = self.status == FAILED and not any(o.status == FAILED for o in self.outcomes)
        return [*self.outcomes, own] if other_failure else self.outcomes


def tally_of(tests: Iterable[Test]) -> Tally:
    """Where the cases of tests ran."""
    whole = Tally()
    for test in tests:
        whole.merge(test.tally)
    return whole


def shares_of(found: Tally | Where) -> dict[str, float | None]:
    """The fractions of nodes and of multiply-adds that the target computes, as JSON data."""
    shares = {"share": found.share, "multiply_adds": found.work_share}
    return {name: None if share is None else round(share, 4) for name, share in shares.items()}


def levels_of(cases: Sequence[Outcome], tests: Sequence[Test]) -> list[dict[str, Any]]:
    """Each level: the number of cases by outcome and by place, the share of nodes on the target, the time.
    Cases without a test are `not run`; `missing` is their number.
    """
    made = []
    known = [name for name in case_names() if not name.endswith(f"/{SYMBOLIC}")]
    for number, level in enumerate(LEVELS):
        counts = Counter(o.status for o in cases if o.case.startswith(f"{level}/"))
        missing = _missing(level, known, {o.case for o in cases})
        counts[NOT_RUN] += missing
        of_level = [test for test in tests if test.level == level]
        tally = tally_of(of_level)
        seconds = sum(test.seconds for test in of_level)
        limit = LEVEL_SECONDS[level] * max((test.limit_factor for test in of_level), default=1.0)
        made.append(
            {
                "level": number,
                "name": level,
                "counts": {status: counts[status] for status in STATUSES},
                "missing": missing,
                "where": {place: tally.places[place] for place in PLACES},
                **shares_of(tally),
                "problem": tally.problem,
                "seconds": round(seconds, 3),
                "limit": limit,
                "over": seconds > limit,
            }
        )
    return made


def _missing(level: str, known: Sequence[str], found: set[str]) -> int:
    """The number of cases of a level that have no test in this session."""
    if level == "graphs":  # the number of random graphs is a setting
        return 0
    own = [name for name in known if name.startswith(f"{level}/")]
    if level != "models":
        return len(set(own) - found)
    # A group counts as run with any of its cases, or as a skipped test, which is named after the group.
    groups = {f"{level}/{name}" for name in own} & found
    heads = {"/".join(case.split("/")[:end]) for case in found for end in range(2, case.count("/") + 2)}
    return sum(name not in heads and f"{level}/{name}" not in groups for name in own)


def level_lines(target: Mapping[str, Any]) -> list[str]:
    """A line for each level that was run: outcomes, the share on the target, and its time."""
    lines = []
    for each in target["levels"]:
        if not each["seconds"]:
            continue
        counts = ", ".join(f"{count} {status}" for status, count in each["counts"].items() if count)
        where = ", ".join(f"{count} {place}" for place, count in each["where"].items() if count)
        work = each["multiply_adds"]
        works = "" if work is None else f" and {percent(work)} of multiply-adds"
        share = f"; {percent(each['share'])} of nodes{works} on the target ({where})" if where else ""
        time = f"; {each['seconds']:.0f} of {each['limit']:g} s{': over its limit' if each['over'] else ''}"
        lines.append(f"level {each['level']} {each['name'].ljust(8)}{counts}{share}{time}")
        if each["problem"]:
            lines.append(f"  FAILED: nothing ran on {target['target']}. {each['problem']}")
    return lines


def percent(share: float | None) -> str:
    """A share as text; empty for None. A share below 1% that is not 0 is not shown as 0%."""
    if share is None:
        return ""
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}" if share in (0, 1) else f"{min(share, 0.99):.0%}"


__all__ = ["Test", "level_lines", "levels_of", "percent", "shares_of", "tally_of"]
