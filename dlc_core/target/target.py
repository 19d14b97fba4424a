"""Targets: descriptions of machines to compile for. A kind declares typed options and a description record. A
Target is a kind with options.

    Target("npu -mcpu=big -num-threads=8")      text form, parsed against the kind's option schema
    Target("boards/one")                        a tag: the name of a target that a plugin declares
    Target("npu", host="cpu -mcpu=small")       nodes that the target does not support go to its host
    target.describe()                           the record that schedules and legality read

Making or parsing a target does not access hardware, unless an option is left to "this machine".
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType
from typing import Any

from dlc_core.diag import DlcError, TargetError, similar
from dlc_core.support.package import make
from dlc_core.support.record import record
from dlc_core.target.description import Description as Description
from dlc_core.target.device_runtime import DeviceRuntime
from dlc_core.target.facts import PREFIX, Facts, facts_of, text_of, with_facts
from dlc_core.target.lookup import known_kinds, known_tags
from dlc_core.target.text import read_target

_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "bool": lambda text: {"1": True, "true": True, "0": False, "false": False, "": True}[text.lower()],
    "strs": lambda text: tuple(part for part in text.split(",") if part),
}

_EXPECTED = {"int": "a whole number", "bool": "true or false"}
"""The expected values of options, for errors."""

ATTRIBUTES = ("keys", "model", "tag", "host")
"""Options that every target has, so that no kind declares them."""

CPU = 1
"""The DLPack type of the processor that Python runs on."""

_MEANINGS = {
    "describe": "describe its machine",
    "stages": "list its stages",
    "identity": "name what its code depends on",
}
"""The functions of a kind, each with its purpose, for errors."""

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
    keys: tuple[str, ...] = ()
    """Words for the family of machines, such as "cpu", the most special first. Schedule rules may require
    some (`ScheduleRule.keys`)."""
    device_type: int = CPU
    """The DLPack type of the device that runs the code."""
    foreign: tuple[str, ...] | None = None
    """The languages of texts of foreign functions that its code may contain, if it cannot call functions of
    the host; None if it can."""
    rules: tuple[str, ...] | None = None
    """The schedule rules that may schedule its kernels: names, in which `*` matches any text. A kernel that
    none of them schedules is refused, and its nodes go to the next target. None allows all rules."""
    disabled_passes: tuple[str, ...] = ()
    """Passes, algorithms and rules that compiles for the kind leave out: names, in which `*` matches any
    text."""
    runtime: DeviceRuntime | None = None
    """The C runtime of the device, for exported models that have regions of this kind."""

    def __post_init__(self) -> None:
        if not isinstance(self.problem, _GuardedCheck):
            object.__setattr__(self, "problem", _GuardedCheck(self.problem))
        self._check_names()
        taken = [option.name for option in self.options if option.name in ATTRIBUTES]
        if taken:
            raise TargetError(
                f"target kind {self.name!r} declares the option -{taken[0]}", hint="every target has it"
            )

    def _check_names(self) -> None:
        for name in ("rules", "disabled_passes"):
            value = getattr(self, name)
            if isinstance(value, str):
                hint = f"write {name}=({value!r},)"
                raise TargetError(f"`{name}` of target kind {self.name!r} is text", hint=hint)
            if value is not None:
                object.__setattr__(self, name, tuple(value))
        if self.rules is not None and self.host_rank > 0:
            raise TargetError(
                f"target kind {self.name!r} lists its schedule rules and can be the default target",
                why="the default target takes all operations",
                hint="set host_rank to 0",
            )
        if self.rules == ():
            raise TargetError(
                f"target kind {self.name!r} allows no schedule rule, so it can run no kernel",
                hint='for programs without schedules, write disabled_passes=("schedule_kernels",)',
            )

    def allows_rule(self, name: str) -> bool:
        """Whether the schedule rule with this name may schedule its kernels."""
        return self.rules is None or any(fnmatchcase(name, each) for each in self.rules)

    def disables(self, name: str) -> bool:
        """Whether compiles for the kind leave out the pass or rule with this name."""
        return any(fnmatchcase(name, each) for each in self.disabled_passes)

    def option(self, name: str) -> Option:
        for option in self.options:
            if option.name == name:
                return option
        known = [option.name for option in self.options]
        close = similar(name, known)
        raise TargetError(
            f"target kind {self.name!r} has no option -{name}",
            hint=(f"did you mean -{close[0]}? " if close else "")
            + f"options: {', '.join('-' + k for k in (*known, *ATTRIBUTES))}",
        )


@record(frozen=True)
class TargetTag:
    """A name for a target, such as that of a board: `target` is its text without a tag.

    Tags come from the hook `dlc_target_tags`. `doc` says what is named. Numbers of `target` should be those
    of data sheets.
    """

    name: str
    target: str
    doc: str


def _asked(kind: TargetKind, name: str, options: Mapping[str, Any]) -> Any:
    """The result of a kind's function of the options. Raises TargetError if the function raises."""
    try:
        return getattr(kind, name)(options)
    except DlcError:
        raise
    except Exception as error:
        raise TargetError(
            f"the target kind {kind.name!r} cannot {_MEANINGS[name]}",
            why=f"`{name}` raised {type(error).__name__}: {error}",
            hint="this is a defect of the plugin that declares the kind",
        ) from error


THREADS = "num-threads"
"""The option of kinds whose code is made for a number of threads."""


@record(frozen=True)
class Target:
    """A kind with its options; hashable, equal by value, printed as the text that parses back."""

    kind: TargetKind
    options: tuple[tuple[str, Any], ...]
    facts: Facts
    """Numbers of its description that the user has set (see `facts.py`)."""
    own_keys: tuple[str, ...]
    """Keys in addition to those of the kind."""
    model: str
    """The name of the machine's model, for tuners; it selects no code by itself."""
    tag: str
    """The tag that the target was made of; code does not depend on it."""
    host: Target | None
    """The target of nodes that this one does not support."""

    def __init__(
        self,
        kind: TargetKind | Target | str | Mapping[str, Any],
        options: tuple[tuple[str, Any], ...] = (),
        facts: Facts = (),
        own_keys: tuple[str, ...] = (),
        model: str = "",
        tag: str = "",
        host: Target | str | Mapping[str, Any] | None = None,
    ) -> None:
        """Make a target of its kind and parts, or of text, JSON or a target, to which only `host` is added.

        Raises TargetError for a text that does not parse, and for a host that has a host.
        """
        if host is not None and not isinstance(host, Target):
            host = Target(host)
        if not isinstance(kind, TargetKind):
            if options or facts or own_keys or model or tag:
                raise TargetError(
                    "a target of text takes no further parts", hint="write -name=value into the text"
                )
            made = kind if isinstance(kind, Target) else Target.parse(kind, known_kinds(), known_tags())
            kind, options, facts, own_keys = made.kind, made.options, made.facts, made.own_keys
            model, tag, host = made.model, made.tag, host or made.host
        if host is not None and host.host is not None:
            raise TargetError(f"the host of a target, {str(host)!r}, has a host of its own")
        values = (kind, options, facts, own_keys, model, tag, host)
        for name, value in zip(_FIELDS, values, strict=True):
            object.__setattr__(self, name, value)

    @staticmethod
    def parse(
        text: str | Mapping[str, Any],
        kinds: Mapping[str, TargetKind],
        tags: Mapping[str, TargetTag] = MappingProxyType({}),
    ) -> Target:
        """Parse a target from `"kind -name=value …"`, `"tag -name=value …"`, JSON text, or a mapping with the
        key `kind` or `tag`.  Options that follow a tag replace those of its target.
        """
        given = read_target(text)
        name, tag = given.pop("kind", ""), given.pop("tag", "")
        if not name and not tag:
            raise TargetError("a target needs a kind", hint=f"known kinds: {', '.join(kinds)}")
        if name and name not in kinds and ("/" in name or name in tags):
            name, tag = "", name
        base = Target(kinds[name], tag=tag) if name else _of_tag(tag, kinds, tags)
        facts = {key.removeprefix(PREFIX): given.pop(key) for key in list(given) if key.startswith(PREFIX)}
        keys, host = given.pop("keys", ()), given.pop("host", None)
        model = str(given.pop("model", base.model))
        options = dict(base.options)
        for key, value in given.items():
            option = base.kind.option(key)
            made = option.parse(value) if isinstance(value, str) and option.kind != "str" else value
            options[key] = tuple(made) if isinstance(made, list) else made
        if host is not None and not isinstance(host, Target):
            host = Target.parse(host, kinds, tags)
        return Target(
            base.kind,
            tuple(sorted(options.items())),
            facts_of({**dict(base.facts), **facts}),
            tuple(dict.fromkeys((*_words(keys), *base.own_keys))),
            model,
            tag,
            host or base.host,
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
        option is set. Raises TargetError if the machine cannot have so many.
        """
        known = any(option.name == THREADS for option in self.kind.options)
        usual = type(count) is not int or count < 1
        if not known or usual or self[THREADS] or count == self.describe().cores:
            return self
        made = self.with_options(num_threads=count)
        made.describe()
        return made

    def for_code(self) -> Target:
        """The target without what its code does not depend on: the tag, and the host.  Cache keys have the
        text of it."""
        return replace(self, tag="", host=None) if self.tag or self.host else self

    @property
    def keys(self) -> tuple[str, ...]:
        """Words for the family of machines: those that were given, then those of the kind."""
        return tuple(dict.fromkeys((*self.own_keys, *self.kind.keys)))

    @property
    def device(self) -> str:
        """The name of the device that runs the code."""
        return self.kind.device

    @property
    def device_type(self) -> int:
        """The DLPack type of this device."""
        return self.kind.device_type

    def values(self) -> dict[str, Any]:
        """Every option of the kind, defaults included."""
        return {option.name: self[option.name] for option in self.kind.options}

    def describe(self) -> Description:
        return self._description

    @cached_property
    def _description(self) -> Description:
        # Cached: passes read it for each kernel, and querying the machine takes a millisecond.
        found = _asked(self.kind, "describe", self.values())
        if not isinstance(found, Description):
            raise TargetError(
                f"the target kind {self.kind.name!r} cannot describe its machine",
                why=f"`describe` returned a {type(found).__name__}",
                hint="it must return a Description for all values of the options",
            )
        return with_facts(found, self.facts)

    @property
    def stages(self) -> Stages:
        """The stages of a compile for this target."""
        given = self.kind.stages
        found = _asked(self.kind, "stages", self.values()) if callable(given) else given
        return tuple(found)

    @property
    def codegen(self) -> str:
        """The name of the code generator: the option `codegen` if the kind has it, else the kind's own."""
        return str(self.values().get("codegen") or self.kind.codegen)

    @property
    def identity(self) -> str:
        """The inputs of code generation other than the target's text."""
        return str(_asked(self.kind, "identity", self.values()))

    def to_json(self) -> str:
        return json.dumps(self._data())

    def __reduce__(self) -> tuple[Any, ...]:
        return make, ("Target", self.to_json())

    def __deepcopy__(self, memo: Any) -> Target:
        return self

    def _data(self) -> dict[str, Any]:
        facts = {PREFIX + name: value for name, value in self.facts}
        named = {name: value for name, value in self._attributes().items() if value}
        if self.host is not None:
            named["host"] = self.host._data()
        return {"kind": self.kind.name, **dict(self.options), **facts, **named}

    def _attributes(self) -> dict[str, Any]:
        """The attributes of every target besides the host, by name."""
        return {"keys": self.own_keys, "model": self.model, "tag": self.tag}

    def __str__(self) -> str:
        words = [self.kind.name, *(_option_word(name, value) for name, value in self.options)]
        words += [shlex.quote(f"-{PREFIX}{name}={text_of(value)}") for name, value in self.facts]
        words += [_option_word(name, value) for name, value in self._attributes().items() if value]
        if self.host is not None:
            words.append(_option_word("host", str(self.host)))
        return " ".join(words)


_FIELDS = ("kind", "options", "facts", "own_keys", "model", "tag", "host")


def _of_tag(name: str, kinds: Mapping[str, TargetKind], tags: Mapping[str, TargetTag]) -> Target:
    if not tags:
        raise TargetError(f"there is no target kind {name!r}", hint=f"known kinds: {', '.join(kinds)}")
    return replace(Target.parse(tags[name].target, kinds), tag=name)


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    """Keys as a list, or as text with commas."""
    return tuple(filter(None, given.split(","))) if isinstance(given, str) else tuple(given)


def _option_word(name: str, value: Any) -> str:
    """An option in the text of a target."""
    if isinstance(value, tuple):
        text = ",".join(map(str, value))
    elif value in (True, False):
        text = str(value).lower()
    else:
        text = str(value)
    return shlex.quote(f"-{name}={text}")
