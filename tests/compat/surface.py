"""The public names of modules with their signatures, as text."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def surface(module: ModuleType, names: list[str]) -> str:
    """One line for each name of a module, and below it for each public member of a class."""
    return "".join(f"{line}\n" for name in sorted(names) for line in _lines(name, getattr(module, name)))


def _lines(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {name}{_bases(value)}"
        for member in sorted(_members(value)):
            yield f"    {_member(value, member)}"
    elif callable(value):
        yield f"def {name}{_signature(value)}"
    elif isinstance(value, str | int | tuple):
        yield f"{name} = {value!r}"
    else:
        yield f"{name}: {type(value).__name__}"


def _bases(value: type) -> str:
    names = [base.__name__ for base in value.__bases__ if base is not object]
    return f"({', '.join(names)})" if names else ""


def _members(value: type) -> set[str]:
    """The members of dlc's classes among the bases, and the arguments of the constructor."""
    found = set()
    for owner in value.__mro__:
        if owner.__module__.startswith("dlc_core"):
            found |= {*vars(owner), *getattr(owner, "__annotations__", {})}
    # The constructor of a dataclass takes its fields.
    called = {"__call__"} if dataclasses.is_dataclass(value) else {"__call__", "__init__"}
    return {name for name in found if not name.startswith("_")} | (found & called)


def _member(value: type, name: str) -> str:
    fields = {f.name: f for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else {}
    if name in fields:
        return f"{name}: {_word(fields[name].type)}{_default(fields[name])}"
    found = inspect.getattr_static(value, name, None)
    if isinstance(found, staticmethod | classmethod):
        return f"{type(found).__name__} {name}{_signature(found.__func__)}"
    if isinstance(found, property):
        return f"property {name}"
    if inspect.isfunction(found):
        return f"def {name}{_signature(found)}"
    return name


def _word(type_: Any) -> str:
    return type_ if isinstance(type_, str) else getattr(type_, "__name__", str(type_))


def _default(field: dataclasses.Field[Any]) -> str:
    """The default of a field as text; empty if the field is required."""
    if field.default is not dataclasses.MISSING:
        shown = "..." if callable(field.default) else repr(field.default)
        return f" = {shown}"
    return "" if field.default_factory is dataclasses.MISSING else " = ..."


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
    return re.sub(r" at 0x[0-9a-f]+", "", text).replace("'", "")


def names_of(text: str) -> set[str]:
    """The names in a surface: those of the module, and `Class.member`."""
    found, owner = set(), ""
    for line in text.splitlines():
        word = re.search(r"(?:class |def |property |staticmethod |classmethod )?(\w+)", line)
        assert word is not None, line
        if line.startswith(" "):
            found.add(f"{owner}.{word[1]}")
        else:
            owner = word[1]
            found.add(owner)
    return found


def c_surface(header: str) -> str:
    """The declarations of a C header, one in a line: without comments and bodies of functions."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL).replace("\\\n", " ")
    lines = [line.rstrip() for line in text.split("\n")]
    macros = [" ".join(line.split()) for line in lines if line.startswith("#define ")]
    code = "\n".join(line for line in lines if not line.startswith("#"))
    code = re.sub(r'extern "C" \{', "", code)
    code = re.sub(r"\)\s*\{.*?\n\}", ");", code, flags=re.DOTALL)
    found = [" ".join(part.split()) for part in re.findall(r"[^;{]+(?:\{[^}]*\}[^;]*)?;", code)]
    kept = (line for line in (*macros, *found) if line.strip("} ;") and "__" not in line.partition("(")[0])
    return "".join(f"{line}\n" for line in kept)


def c_names(text: str) -> list[str]:
    """The names in a surface of a C header, without its guard."""
    found = []
    for line in text.splitlines():
        if line.startswith("#define "):
            found += re.findall(r"^#define (\w+)(?<!_H)\b", line)
            continue
        outer = re.sub(r"\{.*\}", " ", line)
        name = (
            re.search(r"\(\*(\w+)\)", outer) or re.search(r"(\w+)\(", outer) or re.search(r"(\w+);$", outer)
        )
        if name is not None and not line.startswith("enum"):
            found.append(name[1])
    return list(dict.fromkeys(found))
