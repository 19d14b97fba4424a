"""Choices: frozen values that record what a decision chose, and among which candidates.

Choice.parse("gemm.tile=MxN 6x2 | MxN 6x2: 412000 cycles | MxN 9x3: refused, ...")
choice.why()        gemm.tile=6x2: 412k cycles predicted; next 4x3 +7%
"""

from __future__ import annotations

from dlc_core.support.record import record

SEPARATOR = " | "
_REFUSED = "refused, "
_FORCED = " (forced; preferred "
_TUNED = " (tuned; preferred "
_MISSING = " (no candidate: "
MAX_CANDIDATES = 6
"""The maximum candidates of each kind, legal and refused, that a choice records. It keeps artefacts small."""
_MAX_PERCENT_RATIO = 10
"""From this ratio on, a difference is shown as a ratio instead of a percentage."""
_MAX_DECIMALS = 4
"""Decimals of a percentage. Costs are kept with six digits."""


@record(frozen=True)
class Candidate:
    """An alternative of a choice, with its value as text and its predicted cost, or the reason for its
    refusal."""

    alternative: str
    value: str = ""
    cost: float | None = None
    """In `Choice.unit`; None if it is refused or has no cost model."""
    refused: str = ""

    @property
    def label(self) -> str:
        """The alternative and the value."""
        return f"{self.alternative} {self.value}".rstrip()

    def matches(self, text: str) -> bool:
        """Whether a text that forces a decision selects this candidate."""
        return text in (self.alternative, self.value, self.label)


@record(frozen=True)
class Choice:
    """One decision as it was made.

    `value` is the chosen value as text, if the alternative has one. `preferred` is the label of the preferred
    candidate if another one was forced, else empty. `candidates` are the alternatives that were compared, the
    cheapest first, then the refused ones; the chosen one is among them. `unit` is the unit of their costs,
    such as cycles of the whole kernel or bytes.
    """

    decision: str
    alternative: str
    value: str = ""
    preferred: str = ""
    candidates: tuple[Candidate, ...] = ()
    unit: str = "cycles"
    is_tuned: bool = False
    """Whether another than the preferred candidate was taken because a tuner chose it, not because it was
    forced."""
    missing: str = ""
    """The forced text if it selects no candidate, so that the preferred one was taken; else empty."""
    nodes: tuple[str, ...] = ()
    """The model nodes that a choice of a graph pass concerns. They are not part of its text."""

    def __str__(self) -> str:
        words = f"{self.decision}={self.alternative}"
        if self.value:
            words += f" {self.value}"
        if self.missing:
            return f"{words}{_MISSING}{self.missing})"
        if not self.preferred:
            return words
        return f"{words}{_TUNED if self.is_tuned else _FORCED}{self.preferred})"

    def full(self) -> str:
        """The choice with its candidates, as `parse` reads it.

        `gemm.tile=MxN 6x2 | MxN 6x2: 412000 cycles | MxN 4x3: 441000 cycles | MxN 9x3: refused, ...`
        """
        parts = [str(self)]
        for one in self.candidates:
            if one.refused:
                parts.append(f"{one.label}: {_REFUSED}{one.refused}")
            else:
                parts.append(one.label if one.cost is None else f"{one.label}: {one.cost:.6g} {self.unit}")
        return SEPARATOR.join(parts)

    @staticmethod
    def parse(text: str) -> Choice:
        """The choice that `str` or `full` wrote."""
        head, *rest = text.split(SEPARATOR)
        words, _, missing = head.partition(_MISSING)
        is_tuned = _TUNED in words
        words, _, preferred = words.partition(_TUNED if is_tuned else _FORCED)
        name, _, what = words.partition("=")
        alternative, _, value = what.partition(" ")
        candidates, unit = [], "cycles"
        for part in rest:
            called, _, measure = part.partition(": ")
            kind, _, its_value = called.partition(" ")
            cost, refused = None, ""
            if measure.startswith(_REFUSED):
                refused = measure.removeprefix(_REFUSED)
            elif measure:
                number, _, unit = measure.partition(" ")
                cost = float(number)
            candidates.append(Candidate(kind, its_value, cost, refused))
        ends = preferred.removesuffix(")"), missing.removesuffix(")")
        return Choice(name, alternative, value, ends[0], tuple(candidates), unit, is_tuned, ends[1])

    @property
    def forcing(self) -> str:
        """The text that forces this choice: `gemm.tile=6x2`."""
        return f"{self.decision}={self._identifier(Candidate(self.alternative, self.value))}"

    def _identifier(self, one: Candidate) -> str:
        """The shortest text that identifies a candidate: its value, unless another alternative has the same
        value."""
        same = any(
            other.value == one.value and other.alternative != one.alternative for other in self.candidates
        )
        return one.label if same or not one.value else one.value

    def matches(self, text: str) -> bool:
        """Whether a text that forces a decision selects the chosen candidate."""
        return Candidate(self.alternative, self.value).matches(text)

    @property
    def chosen(self) -> Candidate | None:
        """The chosen candidate; None if no candidates are recorded."""
        mine = self.alternative, self.value
        return next((one for one in self.candidates if (one.alternative, one.value) == mine), None)

    def why(self) -> str:
        """One line: `gemm.tile=6x2: 412k cycles predicted; next 4x3 +7%`."""
        if self.missing:
            known = next((one for one in self.candidates if one.matches(self.missing) and one.refused), None)
            because = f", {known.refused}" if known is not None else ""
            return f"{self.forcing}: {self.missing} was forced and is no candidate here{because}"
        if self.preferred:
            return f"{self.forcing}: {'tuned' if self.is_tuned else 'forced'}; preferred {self.preferred}"
        mine = self.chosen
        others = [one for one in self.candidates if one is not mine]
        if mine is not None and mine.cost is not None:
            words = f"{self.forcing}: {short_number(mine.cost)} {self.unit} predicted"
            priced = [one for one in others if one.cost is not None]
            if priced:
                best = min(priced, key=lambda one: one.cost or 0.0)
                words += f"; next {self._identifier(best)} {_difference(best.cost or 0.0, mine.cost)}"
                return words.rstrip()
            refused = next((one for one in others if one.refused), None)
            if refused is not None:
                words += f"; {self._identifier(refused)} refused, {refused.refused}"
            return words
        refused = next((one for one in others if one.refused), None)
        if refused is not None:
            return f"{self.forcing}: {self._identifier(refused)} refused, {refused.refused}"
        return self.forcing

    def table(self) -> str:
        """`why`, then a line for each candidate. A star marks the chosen one."""
        lines = [self.why()]
        for one in self.candidates if len(self.candidates) > 1 else ():
            known = "" if one.cost is None else f"{short_number(one.cost)} {self.unit}"
            words = f"refused: {one.refused}" if one.refused else known
            lines.append(f"    {'*' if one is self.chosen else ' '} {one.label}  {words}".rstrip())
        return "\n".join(lines)


def _difference(cost: float, base: float) -> str:
    """The relative difference of two costs, with enough digits to be nonzero: +7%, +0.03%, same."""
    if cost == base:
        return "same"
    if not base:
        return ""
    if cost >= _MAX_PERCENT_RATIO * base:
        return f"{cost / base:.3g} times as much"
    for digits in range(_MAX_DECIMALS):
        text = f"{cost / base - 1:+.{digits}%}"
        if float(text.removesuffix("%")):
            return text
    return f"{cost / base - 1:+.{_MAX_DECIMALS}%}"


def short_number(value: float) -> str:
    """A number in at most four characters and a suffix: 950, 41.2k, 3.1M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def one_line(reason: str) -> str:
    """A reason as one line that can be part of a choice's text: without the separator, and without double
    quotes."""
    return " ".join(reason.split()).replace(SEPARATOR, "; ").replace('"', "'").replace("\\", "/")


def recorded(listed: list[Candidate]) -> tuple[Candidate, ...]:
    """The candidates that a choice records: the chosen one, which comes first in `listed`, and the cheapest
    others."""
    chosen = listed[0]
    fitting = [one for one in listed if not one.refused or one is chosen]
    fitting.sort(key=lambda one: float("inf") if one.cost is None else one.cost)
    best = [one for n, one in enumerate(fitting) if n < MAX_CANDIDATES or one is chosen]
    return (*best, *[one for one in listed if one.refused and one is not chosen][:MAX_CANDIDATES])


__all__ = ["MAX_CANDIDATES", "Candidate", "Choice", "one_line", "recorded", "short_number"]
