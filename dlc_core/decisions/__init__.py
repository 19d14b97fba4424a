"""Decisions: named choices of the compiler, each declared with its alternatives.

    K_BLOCK = Decision("gemm.k_block", "K blocking ...", ("whole", "blocked"))

    if K_BLOCK.choose("whole") == "blocked":                     # "whole" is what the cost model prefers
        ...

All alternatives compute the same values within the tolerance of the dtype; they differ in speed.  The
compiler takes the alternative that its cost model prefers, unless the decision is forced:

    with forced("gemm.k_block=blocked"): ...          by alternative
    with forced("gemm.tile=6x2"): ...                 by value, for decisions that choose values
    with forced("gemm.tile@matmul_3=6x2"): ...        in the kernel or function of this name
    with forced("winograd.tile@conv1=4x4"): ...       for the model node of this name, in a graph pass
    with forced("*=random:7"): ...                    every decision at random; a seed gives the same choices

A compile reads the text from `config={"decisions": ...}` or from the environment variable `DLC_DECISIONS`.
Tests force decisions to run the paths of large sizes at small ones.  If the forced alternative is not legal
for a kernel, the preferred one is taken, and the choice says so.

A choice is a value, `Choice` (see `choice.py`): what was chosen, and among which candidates, each with its
predicted cost or the reason why it was refused.  A kernel keeps its choices as text in the attribute
`decisions`, and so does an artefact.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from dlc_core.decisions.choice import MAX_CANDIDATES, Candidate, Choice, one_line, recorded, short_number
from dlc_core.diag import Span, UsageError, similar
from dlc_core.support.record import record

T = TypeVar("T")

DECISIONS = "decisions"
"""The compile setting that forces decisions."""
CHOICES = "choices"
"""The key of an executable's `about` with the choices of its graph passes, and the key of a kernel call with
those that concern its model nodes."""
SCHEDULE_RULE = "schedule.rule"
"""The decision that names the schedule rule of a kernel."""
ANY = "*"
AT = "@"
"""Separates a decision from the kernel, function or model node for which it is forced."""
_RANDOM = "random:"

Asked = Callable[[str, Sequence[str], int], int]
"""Makes a choice: name, labels of the candidates, index of the preferred one; returns an index."""


class _Asking(NamedTuple):
    """The one that makes choices, and the names of those choices; None: all."""

    answer: Asked
    names: Container[str] | None


_declared: dict[str, Decision] = {}


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
_asked: ContextVar[_Asking | None] = ContextVar("dlc_decisions_asked", default=None)
_scope: ContextVar[str] = ContextVar("dlc_decision_scope", default="")
_made: ContextVar[_Made | None] = ContextVar("dlc_decisions_made", default=None)


class _Made(list[Choice]):
    """The distinct choices of a scope."""

    def __init__(self) -> None:
        super().__init__()
        self._heads: set[tuple[str, tuple[str, ...]]] = set()

    def is_new(self, choice: Choice) -> bool:
        """Whether no equal choice was recorded before. Candidates are not compared."""
        return (str(choice), choice.nodes) not in self._heads

    def add(self, choice: Choice) -> None:
        if self.is_new(choice):
            self._heads.add((str(choice), choice.nodes))
            self.append(choice)


@contextmanager
def forced(text: str) -> Iterator[None]:
    """Force the decisions of the text, and no others, in the `with` block."""
    token = _forced.set(parse_forced(text) if text else _NOTHING)
    try:
        yield
    finally:
        _forced.reset(token)


@contextmanager
def scope(name: str) -> Iterator[list[Choice]]:
    """Record the choices that are made in the `with` block, for a kernel or function of this name.

    Random choices depend on the name, so that the kernels of a module choose independently. Equal choices are
    listed once.
    """
    made = _Made()
    tokens = _scope.set(name), _made.set(made)
    try:
        yield made
    finally:
        _scope.reset(tokens[0])
        _made.reset(tokens[1])


@contextmanager
def unrecorded() -> Iterator[None]:
    """Record no choices in the `with` block, because its result is only tried."""
    token = _made.set(None)
    try:
        yield
    finally:
        _made.reset(token)


@contextmanager
def asking(answer: Asked, names: Container[str] | None = None) -> Iterator[None]:
    """Let `answer` make the choices in the `with` block that are not forced, those with these names or all.

    It is called with the decision's name, followed by "/" and where in the kernel the choice is made if that
    is known, the labels of the candidates, and the index of the preferred one. It returns an index.
    """
    token = _asked.set(_Asking(answer, names))
    try:
        yield
    finally:
        _asked.reset(token)


def is_forcing() -> bool:
    """Whether any decision is forced, or another than the compiler makes choices."""
    return _forced.get() is not _NOTHING or _asked.get() is not None


def record_choices(choices: Sequence[Choice]) -> None:
    """Add choices of an ended scope to the current scope."""
    made = _made.get()
    if made is not None:
        for choice in choices:
            made.add(choice)


@record(frozen=True)
class Decision:
    """One kind of choice; creating it declares it.

    `name` is `subject.what`; `about` is one line that says what is chosen and for what purpose;
    `alternatives` are all kinds of candidates. `has_values` is set for decisions that pick values (`pick`).
    """

    name: str
    about: str
    alternatives: tuple[str, ...]
    has_values: bool = False
    recordable: bool = False
    """Whether `where` has all that the choice depends on besides the machine, so that a tuner may try other
    options in one model and record the best for all."""

    def __post_init__(self) -> None:
        for word in (self.name, *self.alternatives):
            if not word or any(mark in word for mark in " ,="):
                raise ValueError(
                    f"{word!r} of decision {self.name} contains characters that texts of choices use"
                )
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
        spans: Iterable[Span] = (),
    ) -> str:
        """Choose one of the candidates (None: of all alternatives): the preferred one, unless another is
        forced.

        `where` distinguishes choices within a kernel, such as those of different loops. Without it, a random
        choice is the same everywhere in a kernel. `cost`, `refused`, `unit` and `spans` are those of `pick`;
        without them, the other alternatives are recorded by name only.
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
            compared=None if refused is None else lambda: self.alternatives,
            spans=spans,
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
        compared: Callable[[], Sequence[T]] | None = None,
        spans: Iterable[Span] = (),
    ) -> T:
        """Choose one of the candidate values: the preferred one, unless another is forced.

        `kind` returns the alternative of a value, `text` its text. `cost` predicts the cost of a value in
        `unit`. `refused` returns why a value that was not chosen was refused; empty if it was not. Both
        explain the choice and do not make it. They must be cheap, because they are called for all candidates
        if a scope records the choice. `compared` returns the values to record if these differ from the
        candidates: some of many, or values that are refused because they are illegal. `spans` are those of
        the model nodes that a choice of a graph pass concerns.
        """
        nodes = tuple(dict.fromkeys(span.name or str(span) for span in spans))
        found, missing = self._select(preferred, candidates, kind, text, where, nodes)
        made = _made.get()
        if made is None:
            return found
        value = "" if text is None else text(found)
        instead = "" if found == preferred else self._label(preferred, kind, text)
        alternative = kind(found)
        assert alternative in self.alternatives, f"{self.name}={alternative}"
        is_tuned = bool(instead) and _forced.get().seed is None and self._forced_text(nodes) is None
        head = Choice(
            self.name, alternative, value, instead, unit=unit, is_tuned=is_tuned, missing=missing, nodes=nodes
        )
        if made.is_new(head):
            listed: tuple[Candidate, ...] = ()
            if cost is not None or refused is not None or text is None:
                others = (one for one in (compared or candidates)() if one != found)
                mine = _candidate(found, kind, text, cost, None)
                listed = recorded([mine, *(_candidate(one, kind, text, cost, refused) for one in others)])
            made.add(replace(head, candidates=listed))
        return found

    def _select(
        self,
        preferred: T,
        candidates: Callable[[], Sequence[T]],
        kind: Callable[[T], str],
        text: Callable[[T], str] | None,
        where: object,
        nodes: Sequence[str],
    ) -> tuple[T, str]:
        """The chosen value, and the forced text if it matches none of the candidates."""
        force, asked = _forced.get(), _asked.get()
        if force is _NOTHING and asked is None:
            return preferred, ""
        forced_text = self._forced_text(nodes)
        if forced_text is None and force.seed is None:
            return (
                preferred if asked is None else self._ask(asked, preferred, candidates, kind, text, where)
            ), ""
        listed = list(candidates())
        if forced_text is not None:
            matching = (
                one for one in (preferred, *listed) if _candidate(one, kind, text).matches(forced_text)
            )
            return next(((one, "") for one in matching), (preferred, forced_text))
        if len(listed) < 2:
            return preferred, ""
        # The alternative is drawn before its value, so that all alternatives are equally likely.
        kinds = sorted({kind(one) for one in listed})
        key = f"{force.seed}/{_scope.get()}/{self.name}/{where}"
        drawn = int.from_bytes(sha256(key.encode()).digest()[:8], "little")
        fitting = [one for one in listed if kind(one) == kinds[drawn % len(kinds)]]
        return fitting[drawn // len(kinds) % len(fitting)], ""

    def _forced_text(self, nodes: Sequence[str]) -> str | None:
        """The text that forces the decision in the current scope or for these nodes; None without one."""
        values = _forced.get().values
        names = (*(f"{self.name}{AT}{subject}" for subject in (_scope.get(), *nodes)), self.name)
        return next((values[name] for name in names if name in values), None)

    def _ask(
        self,
        asking: _Asking,
        preferred: T,
        candidates: Callable[[], Sequence[T]],
        kind: Callable[[T], str],
        text: Callable[[T], str] | None,
        where: object,
    ) -> T:
        """The candidate that another than the compiler chooses. Of those with equal labels only the first can
        be chosen.
        """
        name = f"{self.name}/{where}" if where != "" else self.name
        if asking.names is not None and name not in asking.names:
            return preferred
        labelled = {self._label(preferred, kind, text): preferred}
        for one in candidates():
            labelled.setdefault(self._label(one, kind, text), one)
        if len(labelled) < 2:
            return preferred
        return list(labelled.values())[asking.answer(name, list(labelled), 0)]

    @staticmethod
    def _label(value: T, kind: Callable[[T], str], text: Callable[[T], str] | None) -> str:
        return kind(value) if text is None else f"{kind(value)} {text(value)}".rstrip()


def _candidate(
    value: T,
    kind: Callable[[T], str],
    text: Callable[[T], str] | None,
    cost: Callable[[T], float | None] | None = None,
    refused: Callable[[T], str] | None = None,
) -> Candidate:
    why = "" if refused is None else refused(value)
    predicted = None if why or cost is None else cost(value)
    if predicted is not None:
        predicted = float(f"{predicted:.6g}")  # the precision of the text
    return Candidate(kind(value), "" if text is None else text(value), predicted, one_line(why))


def declared() -> dict[str, Decision]:
    """All decisions by name that the imported modules declare."""
    return dict(sorted(_declared.items()))


__all__ = [
    "AT", "CHOICES", "DECISIONS", "MAX_CANDIDATES", "SCHEDULE_RULE", "Candidate", "Choice", "Decision",
    "Forced", "asking", "declared", "forced", "is_forcing", "one_line", "parse_forced", "record_choices",
    "scope", "short_number", "unrecorded",
]  # fmt: skip
