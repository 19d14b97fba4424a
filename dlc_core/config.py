"""Settings of dlc. Each knob has a name, a type, a default, and one line of help.

Its value is that of the innermost `with config.override(...)` that sets it, else that of the environment
variable `DLC_<NAME>`, else the default:

>>> with config.override(debug=2, num_threads=4):
...     config.debug, config.num_threads
(2, 4)

The environment is read at every access, so a change takes effect immediately.  An override belongs to the
current context (thread or task) and ends with its `with` block.  A plugin declares its own knobs as values,
reads them with `KNOB.get()`, and overrides them with `config.override({KNOB: value})`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast, overload

from dlc_core.diag import UsageError, similar
from dlc_core.support.record import record

T = TypeVar("T")

_TRUE = ("1", "on", "true", "yes")
_FALSE = ("0", "false", "no", "off")
_overrides: ContextVar[Mapping[str, object]] = ContextVar("dlc_overrides", default=MappingProxyType({}))


@record(frozen=True)
class Knob(Generic[T]):
    """One setting: `Knob("num_threads", int, None, "Threads of one call.", minimum=1)`.

    `type` is bool, int, float, str, `pathlib.Path`, or tuple (names separated by commas; `none` is the empty
    tuple). `default` is a value, or a function without arguments if it depends on other settings.
    `choices` are the only legal values; `minimum` and `maximum` are inclusive.  An empty environment
    variable counts as unset.
    """

    name: str
    type: type[T]
    default: T | Callable[[], T]
    help: str
    choices: tuple[T, ...] = field(default=(), kw_only=True)
    minimum: float | None = field(default=None, kw_only=True)
    maximum: float | None = field(default=None, kw_only=True)

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "DLC_" + self.name.upper().replace("-", "_")

    @property
    def legal(self) -> str:
        """The legal values in words."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        kind: object = self.type
        if kind is bool:
            return "a truth value: " + ", ".join(_TRUE) + " or " + ", ".join(_FALSE)
        if kind is tuple:
            return "names separated by commas, or none"
        words = {int: "an integer", float: "a number", str: "text", Path: "a path"}[cast(Any, kind)]
        if self.minimum is not None and self.maximum is not None:
            return f"{words} from {self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"{words}, at least {self.minimum}"
        if self.maximum is not None:
            return f"{words}, at most {self.maximum}"
        return words

    def get(self) -> T:
        """The current value; raises `UsageError` if the environment variable does not parse."""
        return self.look_up()[0]

    def look_up(self) -> tuple[T, str]:
        """The current value and its origin: `default`, `env` or `override`."""
        overrides = _overrides.get()
        if self.name in overrides:
            return cast(T, overrides[self.name]), "override"
        text = os.environ.get(self.variable, "")
        if text:
            return self.parse(text, self.variable), "env"
        return (self.default() if callable(self.default) else self.default), "default"

    def parse(self, text: str, origin: str) -> T:
        """Parse `text`; `origin` names its source in the `UsageError` for illegal text."""
        kind: Any = self.type
        value: Any
        try:
            if kind is bool:
                value = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}[text.strip().lower()]
            elif kind is tuple:
                names = [name.strip() for name in text.split(",")]
                value = () if names == ["none"] else tuple(name for name in names if name)
            elif kind is Path:
                value = Path(text).expanduser()
            else:
                value = kind(text)
        except (KeyError, ValueError):
            raise self._illegal(text, origin) from None
        return self.check(value, origin)

    def check(self, value: object, origin: str) -> T:
        """Return the value if it is legal, else raise `UsageError`; the default is always legal."""
        kind: Any = self.type
        if value is None and self.default is None:
            return cast(T, value)
        if kind is Path and isinstance(value, str):
            value = Path(value)
        elif kind is float and type(value) is int:
            value = float(value)
        elif kind is tuple and isinstance(value, (list, set, frozenset)):
            value = tuple(value)
        fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if fits and self.choices:
            fits = value in self.choices
        if fits and self.minimum is not None:
            fits = cast(float, value) >= self.minimum
        if fits and self.maximum is not None:
            fits = cast(float, value) <= self.maximum
        if not fits:
            raise self._illegal(value, origin)
        return cast(T, value)

    def _illegal(self, value: object, origin: str) -> UsageError:
        return UsageError(f"{origin} is {value!r}", why=f"{self.name} must be {self.legal}", hint=self.help)

    @overload
    def __get__(self, obj: None, owner: object) -> Knob[T]: ...
    @overload
    def __get__(self, obj: object, owner: object) -> T: ...
    def __get__(self, obj: object | None, owner: object) -> T | Knob[T]:
        return self if obj is None else self.get()

    def __set__(self, obj: object, value: object) -> None:
        raise UsageError(
            f"config.{self.name} cannot be assigned",
            why="a setting that outlives its scope would leak into other code",
            hint=f"write `with config.override({self.name}=...):`, or set {self.variable}",
        )


@record(frozen=True)
class Setting:
    """A knob with its current value; `origin` is `default`, `env` or `override`."""

    knob: Knob[Any]
    value: object
    origin: str


def _cache_home() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "dlc"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dlc" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dlc"
    return Path.home() / ".cache" / "dlc"


def _keys_home() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    if base:
        return Path(base) / "dlc" / "keys"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dlc" / "keys"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "dlc" / "keys"
    return Path.home() / ".config" / "dlc" / "keys"


def _reproducer_home() -> Path:
    return config.cache_dir / "reproducers"


class Config:
    """The core's knobs, read as attributes of `config`."""

    cache_dir = Knob[Path]("cache_dir", Path, _cache_home, "Folder of compiled artefacts.")
    keys_dir = Knob[Path](
        "keys_dir", Path, _keys_home, "Folder of this user's keys: of marks and of signatures."
    )
    trusted_keys = Knob[tuple[str, ...]](
        "trusted_keys", tuple, (), "Keys whose signatures are accepted: files of keys, or ed25519:... texts."
    )
    cache = Knob("cache", bool, True, "Keep compiled models in `cache_dir` and reuse them.")
    cache_size = Knob(
        "cache_size",
        int,
        8192,
        "Limit of the kept compiled models in MiB; at most half of the free disk is used.",
        minimum=0,
    )
    shared_cache = Knob[Path | None](
        "shared_cache",
        Path,
        None,
        "Folder of signed compiled models that a team shares. It is only read; entries need a trusted key.",
    )
    plugins = Knob[tuple[str, ...] | None](
        "plugins", tuple, None, "The only plugins to load, by name; unset loads every installed one."
    )
    debug = Knob("debug", int, 0, "How much to print while compiling.", minimum=0, maximum=7)
    dump_dir = Knob[Path | None](
        "dump_dir", Path, None, "Folder that gets the module's text after every pass."
    )
    num_threads = Knob[int | None](
        "num_threads", int, None, "Threads of one call; unset is the cores this process may use.", minimum=1
    )
    compile_processes = Knob[int | None](
        "compile_processes",
        int,
        None,
        "Processes of one compile; 0 or 1 is a single one, unset chooses by cores and work.",
        minimum=0,
    )
    verify = Knob(
        "verify",
        str,
        "off",
        "Check the module after every pass: its structure, or also its results (each).",
        choices=("off", "structure", "each"),
    )
    check_bounds = Knob(
        "check_bounds", bool, False, "Check at run time every access that is not proved to be in bounds."
    )
    max_call_depth = Knob(
        "max_call_depth",
        int,
        200,
        "The most nested calls of recursive graph functions.",
        minimum=1,
        maximum=2000,
    )
    max_nodes = Knob(
        "max_nodes", int, 1_000_000, "The most nodes of a model, those of its functions included.", minimum=1
    )
    max_bytes = Knob(
        "max_bytes",
        int,
        1 << 40,
        "The most bytes of one tensor, of all constants, and of the scratch memory of a model.",
        minimum=1,
        maximum=1 << 50,
    )
    max_seconds = Knob[float | None](
        "max_seconds", float, None, "The most seconds of a compile; unset is no limit.", minimum=0.001
    )
    guard = Knob(
        "guard",
        str,
        "off",
        "Put each value next to a protected page, after its end or before its begin.",
        choices=("off", "end", "begin", "0", "1"),
    )
    decisions = Knob(
        "decisions",
        str,
        "",
        "Compiler decisions to force, such as gemm.k_block=blocked, or *=random:7 for all.",
    )
    heuristics = Knob(
        "heuristics",
        str,
        "",
        "Numbers of heuristics, such as fusion.max_ops=12,gpu.tiles.depths=(8, 16).",
    )
    disabled = Knob[tuple[str, ...]](
        "disabled", tuple, (), "Passes, rewrite rules and schedule rules to leave out, by name."
    )
    reproducer_dir = Knob[Path](
        "reproducer_dir", Path, _reproducer_home, "Folder of files that reproduce a failure."
    )

    @classmethod
    def knobs(cls) -> tuple[Knob[Any], ...]:
        """The core's knobs in the order of their declaration."""
        return tuple(value for value in vars(cls).values() if isinstance(value, Knob))

    def settings(self, more: tuple[Knob[Any], ...] = ()) -> tuple[Setting, ...]:
        """The core's knobs and `more` of plugins, each with its value and origin."""
        return tuple(Setting(knob, *knob.look_up()) for knob in (*self.knobs(), *more))

    @contextmanager
    def override(
        self, values: Mapping[Knob[Any], object] | None = None, /, **named: object
    ) -> Iterator[None]:
        """Set knobs for the `with` block: the core's by name, a plugin's in `values`.

        Raises `UsageError` for a name that no core knob has and for an illegal value.
        """
        known = {knob.name: knob for knob in self.knobs()}
        chosen: dict[str, object] = {}
        for knob, value in (values or {}).items():
            chosen[knob.name] = knob.check(value, f"the override of {knob.name}")
        for name, value in named.items():
            if name not in known:
                close = similar(name, known)
                hint = f"did you mean {close[0]!r}?" if close else "the knobs are " + ", ".join(known)
                raise UsageError(f"dlc has no knob {name!r}", hint=hint)
            chosen[name] = known[name].check(value, f"the override of {name}")
        token = _overrides.set({**_overrides.get(), **chosen})
        try:
            yield
        finally:
            _overrides.reset(token)


config = Config()
"""The current settings: `config.debug`, `config.override(...)`, `config.settings()`."""

__all__ = ["Config", "Knob", "Setting", "config"]
