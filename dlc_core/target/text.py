"""The text of targets: `kind -name=value …`, or JSON.

read_target("npu -slots=2")                      -> {"kind": "npu", "slots": "2"}
read_target({"kind": "npu", "slots": 2})         -> {"kind": "npu", "slots": 2}
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from dlc_core.diag import TargetError


def read_target(text: str | Mapping[str, Any]) -> dict[str, Any]:
    """The words of a target by name, `kind` for the first one; raises TargetError if it does not parse."""
    if isinstance(text, Mapping):
        given = dict(text)
    elif isinstance(text, str):
        given = _from_json(text) if text.lstrip().startswith("{") else _from_words(text)
    else:
        raise TargetError(f"a {type(text).__name__} is no target", hint="give text or a mapping")
    odd = [name for name in given if not isinstance(name, str)]
    if odd:
        raise TargetError(f"{odd[0]!r} is no name of an option")
    for name in ("kind", "tag"):
        if not isinstance(given.get(name, ""), str):
            raise TargetError(f"the {name} of a target is text, not {given[name]!r}")
    return given


def _from_json(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
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
        if name == "kind":
            raise TargetError(f"target {text!r} names two kinds", hint="the kind is the first word")
        given[name] = value if equals else "true"
    return given


__all__ = ["read_target"]
