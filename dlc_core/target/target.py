"""Targets: descriptions of machines to compile for. A kind declares typed options and a description record. A
Target is a kind with options.

    Target("npu -mcpu=big -num-threads=8")     text form, parsed against the kind's option schema
    target.describe()                           the record that schedules and legality read

Making or parsing a target does not access hardware, unless an option is left to "this machine".
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from dlc_core.diag import TargetError, similar
from dlc_core.support.record import record
from dlc_core.target.description import Description as Description
from dlc_core.target.facts import PREFIX, Facts, facts_of, text_of, with_facts

_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "bool": lambda text: {"1": True, "true": True, "0": False, "false": False, "": True}[text.lower()],
    "strs": lambda text: tuple(part for part in text.split(",") if part),
}

_EXPECTED = {"int": "a whole number", "bool": "true or false"}
"""The expected values of options, for errors."""

Stages = tuple[str, ...]

STAGES: Stages = ("graph", "lower", "tir", "main")
"""The stages of a compile for a machine; each is a pipeline of the passes that name it."""


@record(frozen=True)
class Option:
    """One option of a kind.  `kind` is str, int, bool or strs (comma-separated)."""

    name: str
    kind: str
    default: Any
    help: str

    def parse(self, text: str) -> Any:
        try:
            return _PARSERS[self.kind](text)
        except (ValueError, KeyError):
            expected = _EXPECTED[self.kind]
            raise TargetError(f"target option -{self.name}={text}: not {expected}", hint=self.help) from None


@record(frozen=True)
class _GuardedCheck:
    """A plugin's check of this machine. An exception counts as a problem of this kind only."""

    check: Callable[[], str | None]

    def __call__(self) -> str | None:
        try:
            return self.check()
        except Exception as error:  # noqa: BLE001 (other kinds go on, whatever a plugin raises)
            return f"the check failed: {type(error).__name__}: {error}"


@record(frozen=True)
class TargetKind:
    """A family of targets.

    `describe(options)` returns the description record. `codegen` and `device` name the defaults; the artefact
    format `format` connects them. `problem()` returns the reason why this machine cannot run the kind, or
    None; an exception counts as a reason. `host_rank` orders the kinds that can run on the compiling machine.
    The kind with the highest rank is the default target; a kind with rank 0 is never the default.
    """

    name: str
    doc: str
    codegen: str
    device: str
    options: tuple[Option, ...] = ()
    describe: Callable[[Mapping[str, Any]], Description] = lambda options: Description()
    problem: Callable[[], str | None] = lambda: None
    host_rank: int = 0
    stages: Stages | Callable[[Mapping[str, Any]], Stages] = STAGES
    """The stages of a compile, in order, or a function of the options that gives them."""
    identity: Callable[[Mapping[str, Any]], str] = lambda options: ""
    """The inputs of code generation besides the options: the machine that empty options mean, and tool
    versions.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.problem, _GuardedCheck):
            object.__setattr__(self, "problem", _GuardedCheck(self.problem))

    def option(self, name: str) -> Option:
        for option in self.options:
            if option.name == name:
                return option
        known = [option.name for option in self.options]
        close = similar(name, known)
        raise TargetError(
            f"target kind {self.name!r} has no option -{name}",
            hint=(f"did you mean -{close[0]}? " if close else "")
            + f"options: {', '.join('-' + k for k in known) or 'none'}",
        )


THREADS = "num-threads"
"""The option of kinds whose code is made for a number of threads."""


@record(frozen=True)
class Target:
    """A kind with its options; hashable, equal by value, printed as the text that parses back."""

    kind: TargetKind
    options: tuple[tuple[str, Any], ...] = ()
    facts: Facts = ()
    """Numbers of its description that the user has set (see `facts.py`)."""

    @staticmethod
    def parse(text: str | Mapping[str, Any], kinds: Mapping[str, TargetKind]) -> Target:
        """Parse a target from `"kind -name=value …"`, JSON text, or a mapping with the key `kind`."""
        if isinstance(text, Mapping):
            given = dict(text)
        elif text.lstrip().startswith("{"):
            given = _from_json(text)
        else:
            given = _from_words(text)
        name = given.pop("kind", None)
        if name is None:
            raise TargetError("a target needs a kind", hint=f"known kinds: {', '.join(kinds)}")
        kind = kinds[name]
        options = {}
        facts = {key.removeprefix(PREFIX): given.pop(key) for key in list(given) if key.startswith(PREFIX)}
        for key, value in given.items():
            option = kind.option(key)
            options[key] = option.parse(value) if isinstance(value, str) and option.kind != "str" else value
        return Target(
            kind,
            tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in options.items())),
            facts_of(facts),
        )

    def __getitem__(self, name: str) -> Any:
        """An option's value, or its default."""
        option = self.kind.option(name)
        return dict(self.options).get(name, option.default)

    def with_options(self, **options: Any) -> Target:
        """The target with other options. `num_threads` names `-num-threads`."""
        merged = dict(self.options)
        for name, value in options.items():
            merged[self.kind.option(name.replace("_", "-")).name] = value
        return replace(self, options=tuple(sorted(merged.items())))

    def with_facts(self, given: Mapping[str, Any]) -> Target:
        """The target with other numbers in its description, such as `{"l2_bytes": 1 << 20}`.

        Raises TargetError for unknown names, and for values of the wrong type or range.
        """
        return replace(self, facts=facts_of({**dict(self.facts), **given})) if given else self

    def for_threads(self, count: int | None) -> Target:
        """The target with code for `count` threads.

        It is unchanged if `count` is None or the default, if the kind has no option `num-threads`, or if that
        option is set.
        """
        known = any(option.name == THREADS for option in self.kind.options)
        usual = type(count) is not int or count < 1
        if not known or usual or self[THREADS] or count == self.describe().cores:
            return self
        return self.with_options(num_threads=count)

    def values(self) -> dict[str, Any]:
        """Every option of the kind, defaults included."""
        return {option.name: self[option.name] for option in self.kind.options}

    def describe(self) -> Description:
        return self._description

    @cached_property
    def _description(self) -> Description:
        # Cached: passes read it for each kernel, and querying the machine takes a millisecond.
        return with_facts(self.kind.describe(self.values()), self.facts)

    @property
    def stages(self) -> Stages:
        """The stages of a compile for this target."""
        stages = self.kind.stages
        return stages(self.values()) if callable(stages) else stages

    @property
    def codegen(self) -> str:
        """The name of the code generator: the option `codegen` if the kind has it, else the kind's own."""
        return str(self.values().get("codegen") or self.kind.codegen)

    @property
    def identity(self) -> str:
        """The inputs of code generation other than the target's text."""
        return self.kind.identity(self.values())

    def to_json(self) -> str:
        facts = {PREFIX + name: value for name, value in self.facts}
        return json.dumps({"kind": self.kind.name, **dict(self.options), **facts})

    def __str__(self) -> str:
        words = [self.kind.name]
        for name, value in self.options:
            text = (
                ",".join(map(str, value))
                if isinstance(value, tuple)
                else str(value).lower()
                if value in (True, False)
                else str(value)
            )
            words.append(shlex.quote(f"-{name}={text}"))
        words += [shlex.quote(f"-{PREFIX}{name}={text_of(value)}") for name, value in self.facts]
        return " ".join(words)


def _from_json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise TargetError("the target's JSON does not parse", why=str(error)) from None
    if not isinstance(data, dict):
        raise TargetError("the target's JSON must be an object with the key 'kind'")
    return data


def _from_words(text: str) -> dict[str, Any]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r} does not parse", why=str(error)) from None
    if not words or words[0].startswith("-"):
        raise TargetError(f"target {text!r} starts with its kind", hint='for example "kind -num-threads=2"')
    given: dict[str, Any] = {"kind": words[0]}
    for word in words[1:]:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            raise TargetError(
                f"target {text!r}: {word!r} is not an option", hint="options are written -name=value"
            )
        given[name] = value if equals else "true"
    return given
