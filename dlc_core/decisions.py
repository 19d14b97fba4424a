"""Decisions: named choices of the compiler, each declared with its alternatives.

    K_BLOCK = Decision("gemm.k_block", "K blocking ...", ("whole", "blocked"))

    if K_BLOCK.choose("whole") == "blocked":                     # "whole" is what the cost model prefers
        ...

All alternatives compute the same values within the tolerance of the dtype; they differ in speed.  The
compiler takes the alternative that its cost model prefers, unless the decision is forced:

    with forced("gemm.k_block=blocked"): ...          by alternative
    with forced("gemm.tile=6x2"): ...                 by value, for decisions that choose values
    with forced("gemm.tile@matmul_3=6x2"): ...        in the kernel or function of this name
    with forced("*=random:7"): ...                    every decision at random; a seed gives the same choices

A compile reads the text from `config={"decisions": ...}` or from the environment variable `DLC_DECISIONS`.
Tests force decisions to run the paths of large sizes at small ones.  If the forced alternative is not legal
for a kernel, the preferred one is taken.

A choice is a value, `Choice`: what was chosen, and among which candidates, each with its predicted cost or
the reason why it was refused.  A kernel keeps its choices as text in the attribute `decisions`, and so does
an artefact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import TypeVar

from dlc_core.diag import UsageError, similar
from dlc_core.support.record import record

T = TypeVar("T")

DECISIONS = "decisions"
"""The compile setting that forces decisions."""
CHOICES = "choices"
"""What an executable's `about` calls the choices of its graph, with their candidates."""
SCHEDULE_RULE = "schedule.rule"
"""The decision that names the schedule rule of a kernel."""
ANY = "*"
AT = "@"
"""Stands between a decision and the kernel or function that it is forced in."""
_RANDOM = "random:"
_BETWEEN = " | "
_REFUSED = "refused, "
MOST_CANDIDATES = 6
"""Candidates of each kind, with costs and refused ones, that a choice keeps: artefacts stay small."""

_declared: dict[str, Decision] = {}


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


@record(frozen=True)
class Choice:
    """One decision as it was made.

    `value` is the chosen value as text, if the alternative has one.  `instead_of` is the preferred
    alternative and value if another one was forced, else empty.  `candidates` are the alternatives that were
    weighed, the cheapest first, then the refused ones; the chosen one is among them.  `unit` is what their
    costs count: cycles, bytes.
    """

    decision: str
    alternative: str
    value: str = ""
    instead_of: str = ""
    candidates: tuple[Candidate, ...] = ()
    unit: str = "cycles"

    def __str__(self) -> str:
        words = f"{self.decision}={self.alternative}"
        if self.value:
            words += f" {self.value}"
        return f"{words} (forced; preferred {self.instead_of})" if self.instead_of else words

    def full(self) -> str:
        """The choice with its candidates, as `parse` reads it.

        `gemm.tile=MxN 6x2 | MxN 6x2: 412000 cycles | MxN 4x3: 441000 cycles | MxN 9x3: refused, ...`
        """
        parts = [str(self)]
        for one in self.candidates:
            if one.refused:
                parts.append(f"{one.words}: refused, {one.refused}")
            else:
                parts.append(one.words if one.cost is None else f"{one.words}: {one.cost:.6g} {self.unit}")
        return _BETWEEN.join(parts)

    @staticmethod
    def parse(text: str) -> Choice:
        """The choice that `str` or `full` wrote."""
        head, *rest = text.split(_BETWEEN)
        words, _, forced_words = head.partition(" (forced; preferred ")
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
        return Choice(name, alternative, value, forced_words.removesuffix(")"), tuple(candidates), unit)

    @property
    def forcing(self) -> str:
        """The text that forces this choice: `gemm.tile=6x2`."""
        return f"{self.decision}={self.value or self.alternative}"

    @property
    def chosen(self) -> Candidate | None:
        """The chosen one of the candidates; None where these are not known."""
        mine = self.alternative, self.value
        return next((one for one in self.candidates if (one.alternative, one.value) == mine), None)

    def why(self) -> str:
        """One line: `gemm.tile=6x2: 412k cycles predicted; next 4x3 +7%`."""
        if self.instead_of:
            return f"{self.forcing}: forced; preferred {self.instead_of}"
        mine = self.chosen
        others = [one for one in self.candidates if one is not mine]
        if mine is not None and mine.cost is not None:
            words = f"{self.forcing}: {short_number(mine.cost)} {self.unit} predicted"
            priced = [one for one in others if one.cost is not None]
            if priced:
                best = min(priced, key=lambda one: one.cost or 0.0)
                more = f" {(best.cost or 0.0) / mine.cost - 1:+.0%}" if mine.cost else ""
                words += f"; next {best.value or best.alternative}{more}"
            return words
        refused = next((one for one in others if one.refused), None)
        if refused is not None:
            return f"{self.forcing}: {refused.value or refused.alternative} refused, {refused.refused}"
        return self.forcing

    def table(self) -> str:
        """`why`, then a line for each candidate; the chosen one has a star."""
        lines = [self.why()]
        for one in self.candidates if len(self.candidates) > 1 else ():
            known = "" if one.cost is None else f"{short_number(one.cost)} {self.unit}"
            words = f"refused: {one.refused}" if one.refused else known
            lines.append(f"    {'*' if one is self.chosen else ' '} {one.words}  {words}".rstrip())
        return "\n".join(lines)


def short_number(value: float) -> str:
    """A number in at most four characters and a suffix: 950, 41.2k, 3.1M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


@record(frozen=True)
class Forced:
    """Decisions that are forced: alternatives or values by name, and a seed for all others, or None."""

    values: MappingProxyType[str, str]
    seed: int | None = None

    def check(self) -> Forced:
        """Return self; raise `UsageError` for an unknown decision or an alternative that it does not have."""
        for name, value in self.values.items():
            name = name.partition(AT)[0]
            if name not in _declared:
                close = similar(name, _declared)
                hint = f"did you mean {close[0]!r}?" if close else "`dlc rules --decisions` lists them"
                raise UsageError(f"there is no decision {name!r}", hint=hint)
            one = _declared[name]
            if not one.has_values and value not in one.alternatives:
                raise UsageError(
                    f"decision {name} cannot be {value!r}", hint="one of " + ", ".join(one.alternatives)
                )
        return self


_NOTHING = Forced(MappingProxyType({}))


@lru_cache(maxsize=256)
def parse_forced(text: str) -> Forced:
    """Parse a text such as `gemm.k_block=blocked,*=random:7`; raise `UsageError` if it is malformed."""
    values: dict[str, str] = {}
    seed = None
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not name or not value:
            raise UsageError(f"{part!r} forces no decision", hint="write name=alternative, or *=random:SEED")
        if name != ANY:
            values[name] = value
            continue
        if not value.startswith(_RANDOM) or not value.removeprefix(_RANDOM).isdigit():
            raise UsageError(f"{part!r} forces no decision", hint="write *=random:SEED with a number")
        seed = int(value.removeprefix(_RANDOM))
    return Forced(MappingProxyType(values), seed)


_forced: ContextVar[Forced] = ContextVar("dlc_forced_decisions", default=_NOTHING)
_scope: ContextVar[str] = ContextVar("dlc_decision_scope", default="")
_made: ContextVar[list[Choice] | None] = ContextVar("dlc_decisions_made", default=None)


@contextmanager
def forced(text: str) -> Iterator[None]:
    """Force decisions for the `with` block, those alone that the text says."""
    token = _forced.set(parse_forced(text) if text else _NOTHING)
    try:
        yield
    finally:
        _forced.reset(token)


@contextmanager
def scope(name: str) -> Iterator[list[Choice]]:
    """The choices that are made in the `with` block, for a kernel or function of this name.

    The name is part of what random choices depend on: kernels of a module choose independently.  A choice
    that is made several times is listed once.
    """
    made: list[Choice] = []
    tokens = _scope.set(name), _made.set(made)
    try:
        yield made
    finally:
        _scope.reset(tokens[0])
        _made.reset(tokens[1])


def note(choices: Sequence[Choice]) -> None:
    """Count choices of a scope that has ended to the one around it."""
    made = _made.get()
    if made is not None:
        known = set(map(str, made))
        made.extend(choice for choice in choices if str(choice) not in known)


@record(frozen=True)
class Decision:
    """One kind of choice; creating it declares it.

    `name` is `subject.what`, `about` says in one line what is chosen and what for, `alternatives` are all
    kinds of candidates that any choice may have.  Decisions that pick values (`pick`) have `has_values`.
    """

    name: str
    about: str
    alternatives: tuple[str, ...]
    has_values: bool = False

    def __post_init__(self) -> None:
        for word in (self.name, *self.alternatives):
            if not word or any(mark in word for mark in " ,="):
                raise ValueError(f"{word!r} of decision {self.name} has marks that texts of choices use")
        known = _declared.setdefault(self.name, self)
        if known != self:
            raise ValueError(f"decision {self.name} is declared twice")

    def choose(
        self,
        preferred: str,
        candidates: Sequence[str] | None = None,
        *,
        where: object = "",
        cost: Callable[[str], float | None] | None = None,
        refused: Callable[[str], str] | None = None,
        unit: str = "cycles",
    ) -> str:
        """One of the candidates (None: all alternatives): the preferred one, unless another is forced.

        `where` tells choices of one kernel apart, that of each loop for example; without it the same question
        has the same answer all over a kernel.  `cost`, `refused` and `unit` are those of `pick`; without
        them the other alternatives are kept by name.
        """
        return self.pick(
            preferred,
            lambda: candidates or self.alternatives,
            str,
            None,
            where=where,
            cost=cost,
            refused=refused,
            unit=unit,
        )

    def pick(
        self,
        preferred: T,
        candidates: Callable[[], Sequence[T]],
        kind: Callable[[T], str],
        text: Callable[[T], str] | None = str,
        *,
        where: object = "",
        cost: Callable[[T], float | None] | None = None,
        refused: Callable[[T], str] | None = None,
        unit: str = "cycles",
    ) -> T:
        """One of the candidate values.

        `kind` gives the alternative that a value is of, `text` what the value is called.  `cost` predicts the
        cost of a value in `unit`; `refused` says why a value was refused, empty for one that was not.  They
        explain the choice and do not make it.  Candidates are listed where the decision is forced, and where
        a scope records a choice that has `cost` or `refused`: these must be cheap.
        """
        found = self._forced_one(preferred, candidates, kind, text, where)
        made = _made.get()
        if made is None:
            return found
        value = "" if text is None else text(found)
        instead = "" if found == preferred else self._words(preferred, kind, text)
        alternative = kind(found)
        assert alternative in self.alternatives, f"{self.name}={alternative}"
        head = self.name, alternative, value, instead
        if all((one.decision, one.alternative, one.value, one.instead_of) != head for one in made):
            weighed: tuple[Candidate, ...] = ()
            if cost is not None or refused is not None or text is None:
                listed = [found, *(one for one in candidates() if one != found)]
                weighed = _best([_candidate(one, kind, text, cost, refused) for one in listed])
            made.append(Choice(*head, weighed, unit))
        return found

    def _forced_one(
        self,
        preferred: T,
        candidates: Callable[[], Sequence[T]],
        kind: Callable[[T], str],
        text: Callable[[T], str] | None,
        where: object,
    ) -> T:
        force = _forced.get()
        if force is _NOTHING:
            return preferred
        wanted = force.values.get(f"{self.name}{AT}{_scope.get()}", force.values.get(self.name))
        if wanted is None and force.seed is None:
            return preferred
        listed = list(candidates())
        if wanted is not None:
            if wanted in (kind(preferred), self._words(preferred, kind, text)):
                return preferred
            fitting = [one for one in listed if wanted in (kind(one), "" if text is None else text(one))]
            return fitting[0] if fitting else preferred
        if len(listed) < 2:
            return preferred
        # The alternative is drawn before its value, so that alternatives with few values are as likely as
        # others.
        kinds = sorted({kind(one) for one in listed})
        key = f"{force.seed}/{_scope.get()}/{self.name}/{where}"
        drawn = int.from_bytes(sha256(key.encode()).digest()[:8], "little")
        fitting = [one for one in listed if kind(one) == kinds[drawn % len(kinds)]]
        return fitting[drawn // len(kinds) % len(fitting)]

    @staticmethod
    def _words(value: T, kind: Callable[[T], str], text: Callable[[T], str] | None) -> str:
        return kind(value) if text is None else f"{kind(value)} {text(value)}".rstrip()


def _candidate(
    value: T,
    kind: Callable[[T], str],
    text: Callable[[T], str] | None,
    cost: Callable[[T], float | None] | None,
    refused: Callable[[T], str] | None,
) -> Candidate:
    why = "" if refused is None else refused(value)
    predicted = None if why or cost is None else cost(value)
    if predicted is not None:
        predicted = float(f"{predicted:.6g}")  # as the text has it
    return Candidate(kind(value), "" if text is None else text(value), predicted, one_line(why))


def one_line(reason: str) -> str:
    """A reason as texts of choices have it: one line, without their separator, legal in double quotes."""
    return " ".join(reason.split()).replace(_BETWEEN, "; ").replace('"', "'").replace("\\", "/")


def _best(listed: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The candidates that a choice keeps: the chosen one, which is the first, and the best of the others."""
    chosen = listed[0]
    fitting = [one for one in listed if not one.refused or one is chosen]
    fitting.sort(key=lambda one: float("inf") if one.cost is None else one.cost)
    kept = [one for n, one in enumerate(fitting) if n < MOST_CANDIDATES or one is chosen]
    return (*kept, *[one for one in listed if one.refused and one is not chosen][:MOST_CANDIDATES])


def declared() -> dict[str, Decision]:
    """All decisions by name that the imported modules declare."""
    return dict(sorted(_declared.items()))


__all__ = [
    "AT", "CHOICES", "DECISIONS", "MOST_CANDIDATES", "SCHEDULE_RULE", "Candidate", "Choice", "Decision",
    "Forced", "declared", "forced", "note", "one_line", "parse_forced", "scope",
]  # fmt: skip
