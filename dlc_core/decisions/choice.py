"""Choices as values: what a decision chose, and among which candidates.

Choice.parse("gemm.tile=MxN 6x2 | MxN 6x2: 412000 cycles | MxN 9x3: refused, ...")
choice.why()        gemm.tile=6x2: 412k cycles predicted; next 4x3 +7%
"""

from __future__ import annotations

from dlc_core.support.record import record

BETWEEN = " | "
_REFUSED = "refused, "
_FORCED = " (forced; preferred "
_MISSING = " (no candidate: "
MOST_CANDIDATES = 6
"""Candidates of each kind, with costs and refused ones, that a choice keeps: artefacts stay small."""
_MANY_TIMES = 10
"""Times from which a difference is not told in percent."""
_MOST_DIGITS = 4
"""Decimals of a difference in percent: costs are kept with six digits."""


@record(frozen=True)
class Candidate:
    """An alternative of a choice: its value as text, its predicted cost, or the reason why it was refused."""

    alternative: str
    value: str = ""
    cost: float | None = None
    """In `Choice.unit`; None where it is refused or nothing predicts it."""
    refused: str = ""

    @property
    def words(self) -> str:
        return f"{self.alternative} {self.value}".rstrip()

    def is_called(self, text: str) -> bool:
        """Whether a text that forces a decision means this candidate."""
        return text in (self.alternative, self.value, self.words)


@record(frozen=True)
class Choice:
    """One decision as it was made.

    `value` is the chosen value as text, if the alternative has one.  `instead_of` is the preferred
    alternative and value if another one was forced, else empty.  `candidates` are the alternatives that were
    weighed, the cheapest first, then the refused ones; the chosen one is among them.  `unit` is what their
    costs count: cycles of the whole kernel, bytes.
    """

    decision: str
    alternative: str
    value: str = ""
    instead_of: str = ""
    candidates: tuple[Candidate, ...] = ()
    unit: str = "cycles"
    missing: str = ""
    """The forced text that means no candidate of this choice, else empty; the preferred one was taken."""
    nodes: tuple[str, ...] = ()
    """The model nodes that a choice of a graph pass is about.  Its text does not have them."""

    def __str__(self) -> str:
        words = f"{self.decision}={self.alternative}"
        if self.value:
            words += f" {self.value}"
        if self.missing:
            return f"{words}{_MISSING}{self.missing})"
        return f"{words}{_FORCED}{self.instead_of})" if self.instead_of else words

    def full(self) -> str:
        """The choice with its candidates, as `parse` reads it.

        `gemm.tile=MxN 6x2 | MxN 6x2: 412000 cycles | MxN 4x3: 441000 cycles | MxN 9x3: refused, ...`
        """
        parts = [str(self)]
        for one in self.candidates:
            if one.refused:
                parts.append(f"{one.words}: {_REFUSED}{one.refused}")
            else:
                parts.append(one.words if one.cost is None else f"{one.words}: {one.cost:.6g} {self.unit}")
        return BETWEEN.join(parts)

    @staticmethod
    def parse(text: str) -> Choice:
        """The choice that `str` or `full` wrote."""
        head, *rest = text.split(BETWEEN)
        words, _, missing = head.partition(_MISSING)
        words, _, preferred = words.partition(_FORCED)
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
        return Choice(name, alternative, value, ends[0], tuple(candidates), unit, ends[1])

    @property
    def forcing(self) -> str:
        """The text that forces this choice: `gemm.tile=6x2`."""
        return f"{self.decision}={self._called(Candidate(self.alternative, self.value))}"

    def _called(self, one: Candidate) -> str:
        """The text that tells a candidate from the others: its value, unless one of another alternative has
        the same."""
        same = any(
            other.value == one.value and other.alternative != one.alternative for other in self.candidates
        )
        return one.words if same or not one.value else one.value

    def is_called(self, text: str) -> bool:
        """Whether a text that forces a decision means what was chosen."""
        return Candidate(self.alternative, self.value).is_called(text)

    @property
    def chosen(self) -> Candidate | None:
        """The chosen one of the candidates; None where these are not known."""
        mine = self.alternative, self.value
        return next((one for one in self.candidates if (one.alternative, one.value) == mine), None)

    def why(self) -> str:
        """One line: `gemm.tile=6x2: 412k cycles predicted; next 4x3 +7%`."""
        if self.missing:
            known = next(
                (one for one in self.candidates if one.is_called(self.missing) and one.refused), None
            )
            because = f", {known.refused}" if known is not None else ""
            return f"{self.forcing}: {self.missing} was forced and is no candidate here{because}"
        if self.instead_of:
            return f"{self.forcing}: forced; preferred {self.instead_of}"
        mine = self.chosen
        others = [one for one in self.candidates if one is not mine]
        if mine is not None and mine.cost is not None:
            words = f"{self.forcing}: {short_number(mine.cost)} {self.unit} predicted"
            priced = [one for one in others if one.cost is not None]
            if priced:
                best = min(priced, key=lambda one: one.cost or 0.0)
                words += f"; next {self._called(best)} {_difference(best.cost or 0.0, mine.cost)}"
                return words.rstrip()
            refused = next((one for one in others if one.refused), None)
            if refused is not None:
                words += f"; {self._called(refused)} refused, {refused.refused}"
            return words
        refused = next((one for one in others if one.refused), None)
        if refused is not None:
            return f"{self.forcing}: {self._called(refused)} refused, {refused.refused}"
        return self.forcing

    def table(self) -> str:
        """`why`, then a line for each candidate; the chosen one has a star."""
        lines = [self.why()]
        for one in self.candidates if len(self.candidates) > 1 else ():
            known = "" if one.cost is None else f"{short_number(one.cost)} {self.unit}"
            words = f"refused: {one.refused}" if one.refused else known
            lines.append(f"    {'*' if one is self.chosen else ' '} {one.words}  {words}".rstrip())
        return "\n".join(lines)


def _difference(cost: float, base: float) -> str:
    """How much a cost is above another one, with as many digits as tell them apart: +7%, +0.03%, same."""
    if cost == base:
        return "same"
    if not base:
        return ""
    if cost >= _MANY_TIMES * base:
        return f"{cost / base:.3g} times as much"
    for digits in range(_MOST_DIGITS):
        text = f"{cost / base - 1:+.{digits}%}"
        if float(text.removesuffix("%")):
            return text
    return f"{cost / base - 1:+.{_MOST_DIGITS}%}"


def short_number(value: float) -> str:
    """A number in at most four characters and a suffix: 950, 41.2k, 3.1M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def one_line(reason: str) -> str:
    """A reason as texts of choices have it: one line, without their separator, legal in double quotes."""
    return " ".join(reason.split()).replace(BETWEEN, "; ").replace('"', "'").replace("\\", "/")


def kept(listed: list[Candidate]) -> tuple[Candidate, ...]:
    """The candidates that a choice keeps: the chosen one, which is the first, and the best of the others."""
    chosen = listed[0]
    fitting = [one for one in listed if not one.refused or one is chosen]
    fitting.sort(key=lambda one: float("inf") if one.cost is None else one.cost)
    best = [one for n, one in enumerate(fitting) if n < MOST_CANDIDATES or one is chosen]
    return (*best, *[one for one in listed if one.refused and one is not chosen][:MOST_CANDIDATES])


__all__ = ["MOST_CANDIDATES", "Candidate", "Choice", "kept", "one_line", "short_number"]
