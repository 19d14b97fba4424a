"""Decisions: named choices of the compiler, each declared with its alternatives.

    K_BLOCK = Decision("gemm.k_block", "K blocking ...", ("whole", "blocked"))

    if K_BLOCK.choose("whole") == "blocked":                     # "whole" is what the cost model prefers
        ...

All alternatives compute the same values within the tolerance of the dtype; they differ in speed.  The
compiler takes the alternative that its cost model prefers, unless the decision is forced:

    with forced("gemm.k_block=blocked"): ...          by alternative
    with forced("gemm.tile=6x2"): ...                 by value, for decisions that choose values
    with forced("*=random:7"): ...                    every decision at random; a seed gives the same choices

A compile reads the text from `config={"decisions": ...}` or from the environment variable `DLC_DECISIONS`.
Tests force decisions to run the paths of large sizes at small ones.  If the forced alternative is not legal
for a kernel, the preferred one is taken.
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
ANY = "*"
_RANDOM = "random:"

_declared: dict[str, Decision] = {}


@record(frozen=True)
class Choice:
    """One decision as it was made.

    `value` is the chosen value as text, if the alternative has one.  `instead_of` is the preferred
    alternative and value if another one was forced, else empty.
    """

    decision: str
    alternative: str
    value: str = ""
    instead_of: str = ""

    def __str__(self) -> str:
        words = f"{self.decision}={self.alternative}"
        if self.value:
            words += f" {self.value}"
        return f"{words} (forced; preferred {self.instead_of})" if self.instead_of else words

    @staticmethod
    def parse(text: str) -> Choice:
        """The choice that `str` wrote."""
        words, _, rest = text.partition(" (forced; preferred ")
        name, _, what = words.partition("=")
        alternative, _, value = what.partition(" ")
        return Choice(name, alternative, value, rest.removesuffix(")"))


@record(frozen=True)
class Forced:
    """Decisions that are forced: alternatives or values by name, and a seed for all others, or None."""

    values: MappingProxyType[str, str]
    seed: int | None = None

    def check(self) -> Forced:
        """Return self; raise `UsageError` for an unknown decision or an alternative that it does not have."""
        for name, value in self.values.items():
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
        made.extend(choice for choice in choices if choice not in made)


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

    def choose(self, preferred: str, candidates: Sequence[str] | None = None, *, where: object = "") -> str:
        """One of the candidates (None: all alternatives): the preferred one, unless another is forced.

        `where` tells choices of one kernel apart, that of each loop for example; without it the same question
        has the same answer all over a kernel.
        """
        return self.pick(preferred, lambda: candidates or self.alternatives, str, None, where=where)

    def pick(
        self,
        preferred: T,
        candidates: Callable[[], Sequence[T]],
        kind: Callable[[T], str],
        text: Callable[[T], str] | None = str,
        *,
        where: object = "",
    ) -> T:
        """One of the candidate values, which are only listed where the decision is forced.

        `kind` gives the alternative that a value is of, `text` what the value is called.
        """
        found = self._forced_one(preferred, candidates, kind, text, where)
        made = _made.get()
        if made is not None:
            instead = "" if found == preferred else self._words(preferred, kind, text)
            choice = Choice(self.name, kind(found), "" if text is None else text(found), instead)
            assert choice.alternative in self.alternatives, choice
            if choice not in made:
                made.append(choice)
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
        wanted = force.values.get(self.name)
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


def declared() -> dict[str, Decision]:
    """All decisions by name that the imported modules declare."""
    return dict(sorted(_declared.items()))


__all__ = [
    "DECISIONS", "Choice", "Decision", "Forced", "declared", "forced", "note", "parse_forced", "scope",
]  # fmt: skip
