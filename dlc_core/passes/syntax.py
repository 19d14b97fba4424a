"""The text of pipelines: `simplify | fuse{max_ops=64, keep=("softmax",)} | plan_memory`.

pipeline = [ pass { "|" pass } ]
pass     = name [ "{" [ option { "," option } ] "}" ]
option   = name "=" value
value    = int | float | "True" | "False" | "None" | string | "(" [ value { "," value } [ "," ] ] ")"
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from dlc_core.diag import PassError, similar
from dlc_core.passes.base import Pass

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_][\w.\-]*)
    |(?P<number>[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?|[+-]inf)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[|{}(),=])
    |(?P<end>\Z)|(?P<bad>.))""",
    re.VERBOSE,
)
_WORDS = {"True": True, "False": False, "true": True, "false": False, "None": None}
_SPECIAL = {"inf": float("inf"), "nan": float("nan")}


class _Reader:
    def __init__(self, text: str, known: Mapping[str, type[Pass]]) -> None:
        self.text = text
        self.known = known
        self.kind, self.token, self.start, self._end = "", "", 0, 0
        self.advance()

    def advance(self) -> str:
        token = self.token
        found = _TOKEN.match(self.text, self._end)
        assert found is not None
        assert found.lastgroup is not None
        self.kind, self.token = found.lastgroup, found.group(found.lastgroup)
        self.start, self._end = found.start(found.lastgroup), found.end()
        return token

    def error(self, what: str, start: int | None = None, hint: str = "") -> PassError:
        start = self.start if start is None else start
        line = self.text.count("\n", 0, start)
        column = start - (self.text.rfind("\n", 0, start) + 1)
        shown = self.text.split("\n")[line]
        where = f"column {column + 1}" if "\n" not in self.text else f"line {line + 1}, column {column + 1}"
        return PassError(f"pipeline text, {where}: {what}", details=[shown, " " * column + "^"], hint=hint)

    def expect(self, sign: str, why: str) -> None:
        if self.token != sign or self.kind != "sign":
            raise self.error(f"{sign!r} expected {why}, not {self.token or 'the end'!r}")
        self.advance()

    def pipeline(self) -> list[Pass]:
        passes: list[Pass] = []
        if self.kind == "end":
            return passes
        passes.append(self.one_pass())
        while self.kind != "end":
            self.expect("|", "between passes")
            passes.append(self.one_pass())
        return passes

    def one_pass(self) -> Pass:
        start = self.start
        if self.kind != "name":
            raise self.error(f"the name of a pass expected, not {self.token or 'the end'!r}")
        name = self.advance()
        cls = self.known.get(name)
        if cls is None:
            raise self.error(f"there is no pass {name!r}", start, _close(name, self.known, "passes"))
        options: dict[str, Any] = {}
        if self.token == "{":
            self.advance()
            while self.token != "}":
                self.option(cls, options)
                if self.token != "}":
                    self.expect(",", "between options")
            self.advance()
        try:
            return cls(**options)
        except (TypeError, ValueError) as error:
            raise self.error(f"the options of {name!r} are not valid: {error}", start) from error

    def option(self, cls: type[Pass], options: dict[str, Any]) -> None:
        start = self.start
        if self.kind != "name":
            raise self.error(f"the name of an option expected, not {self.token or 'the end'!r}")
        name = self.advance()
        types = option_types(cls)
        if name not in types:
            hint = _close(name, types, "options") if types else f"{cls.name!r} has no options"
            raise self.error(f"{cls.name!r} has no option {name!r}", start, hint)
        if name in options:
            raise self.error(f"option {name!r} is given twice", start)
        self.expect("=", "after the name of an option")
        start = self.start
        value = self.value()
        try:
            options[name] = _coerce(value, types[name])
        except TypeError:
            expected = getattr(types[name], "__name__", None) if get_origin(types[name]) is None else None
            raise self.error(
                f"option {name!r} of {cls.name!r} is {value!r}",
                start,
                f"it must be {expected or types[name]}",
            ) from None

    def value(self) -> Any:
        if self.kind == "name" and self.token in _WORDS:
            return _WORDS[self.advance()]
        if self.kind == "name" and self.token in _SPECIAL:
            return _SPECIAL[self.advance()]
        if self.kind == "number":
            text = self.advance()
            return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        if self.kind == "string":
            return ast.literal_eval(self.advance())
        if self.token == "(":
            self.advance()
            items = []
            while self.token != ")":
                items.append(self.value())
                if self.token != ")":
                    self.expect(",", "between values")
            self.advance()
            return tuple(items)
        raise self.error(
            f"a value expected, not {self.token or 'the end'!r}", hint="put text values in double quotes"
        )


def _close(name: str, known: Mapping[str, Any], what: str) -> str:
    close = similar(name, known, 3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"known {what}: {', '.join(sorted(known)) or 'none'}"


def option_types(cls: type[Pass]) -> dict[str, Any]:
    """Return the options of a pass class with their types."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls) if f.init}


def _coerce(value: Any, to: Any) -> Any:
    """Convert a value to the declared type. Raises TypeError if it has another type."""
    origin = get_origin(to)
    if to is Any:
        return value
    if origin in (Union, UnionType):
        for choice in get_args(to):
            try:
                return _coerce(value, choice)
            except TypeError:
                continue
        raise TypeError
    if origin is tuple or to is tuple:
        if not isinstance(value, tuple):
            raise TypeError
        kinds = get_args(to)
        if not kinds:
            return value
        if len(kinds) == 2 and kinds[1] is Ellipsis:
            return tuple(_coerce(item, kinds[0]) for item in value)
        if len(kinds) != len(value):
            raise TypeError
        return tuple(_coerce(item, kind) for item, kind in zip(value, kinds, strict=True))
    if to in (None, NoneType):
        if value is not None:
            raise TypeError
        return None
    if to is float and type(value) is int:
        return float(value)
    if type(value) is not to:
        raise TypeError
    return value


def parse_passes(text: str, known: Mapping[str, type[Pass]]) -> tuple[Pass, ...]:
    """Return the passes that `text` names, with their options.

    Raises PassError with the position, and the nearest names, for an unknown pass or option, a value of the
    wrong type and broken syntax.
    """
    return tuple(_Reader(text, known).pipeline())
