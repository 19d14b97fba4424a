"""Numbers of a description that a user may set: those that only affect the choice of schedules.

    facts_of({"l2_bytes": "1048576", "fma_latency": 5})   -> (("fma_latency", 5.0), ("l2_bytes", 1048576))
    with_facts(description, facts)                        -> the description with these numbers

A number is called by its field, or `l1_bytes`, `l2_bytes`, ... for one cache.  Numbers that code relies on,
such as alignments, cannot be set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dlc_core.diag import TargetError, similar
from dlc_core.target.description import Description

Facts = tuple[tuple[str, Any], ...]
PREFIX = "target."
"""The prefix of the name of such a number among options of a target, and in `--set`."""
BY_USER = "set by the user"
"""The origin of such numbers."""
NUMBERS = (
    "cache_bandwidths", "cache_line", "cache_ways", "caches", "call_seconds", "copy_bytes", "fma_latency",
    "fma_per_cycle", "fork_cycles", "frequency", "launch_seconds", "loads_per_cycle", "memory_bandwidth",
    "memory_scaling", "sector_bytes", "vector_registers", "vector_units",
)  # fmt: skip
"""The fields that can be set."""
_CACHE = re.compile(r"l([1-9])_bytes")
_INTEGERS = (
    "cache_line", "cache_ways", "caches", "copy_bytes", "fork_cycles", "sector_bytes", "vector_registers",
    "vector_units",
)  # fmt: skip
_LISTS = ("cache_bandwidths", "caches")
_LARGEST = {
    "cache_line": 1 << 16,
    "cache_ways": 1 << 16,
    "vector_registers": 1 << 16,
    "vector_units": 1 << 16,
}
"""The largest values of some numbers."""
_LIMIT = 1 << 50
"""The largest value of all other numbers."""


def facts_of(given: Mapping[str, Any]) -> Facts:
    """The numbers by name, sorted. Raises TargetError for unknown names and wrong values."""
    return tuple(sorted((name, _value(name, value)) for name, value in given.items()))


def with_facts(description: Description, facts: Facts) -> Description:
    """The description with these numbers. Their origin is the user."""
    if not facts:
        return description
    changed: dict[str, Any] = {}
    for name, value in facts:
        level = _CACHE.fullmatch(name)
        if level is None:
            changed[name] = value
            continue
        caches = list(changed.get("caches", description.caches))
        number = int(level[1])
        if number > len(caches):
            raise TargetError(f"there is no {name}", why=f"the target has {len(caches)} caches")
        caches[number - 1] = value
        changed["caches"] = tuple(caches)
    origins = {**description.origins, **dict.fromkeys(changed, BY_USER)}
    return replace(description, **changed, origins=MappingProxyType(origins))


def text_of(value: Any) -> str:
    """The text of a value, which `facts_of` reads."""
    return ",".join(map(repr, value)) if isinstance(value, tuple) else repr(value)


def _value(name: str, given: Any) -> Any:
    if name not in NUMBERS and not _CACHE.fullmatch(name):
        close = similar(name, [*NUMBERS, "l1_bytes", "l2_bytes", "l3_bytes"])
        hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(NUMBERS)}, l1_bytes, ..."
        raise TargetError(f"{PREFIX}{name} cannot be set", hint=hint)
    is_integer = name in _INTEGERS or name not in NUMBERS
    if isinstance(given, str):
        parts: list[Any] = given.split(",")
    else:
        parts = list(given) if isinstance(given, (list, tuple)) else [given]
    values: tuple[Any, ...]
    try:
        values = tuple((int if is_integer else float)(part) for part in parts)
    except (OverflowError, TypeError, ValueError):
        values = ()
    several = name in _LISTS
    if not values or (len(values) > 1 and not several) or not all(value > 0 for value in values):
        expected = ("positive whole number" if is_integer else "positive number") + "s" * several
        raise TargetError(f"{PREFIX}{name}={given} is not {'' if several else 'a '}{expected}")
    largest = _LARGEST.get(name, _LIMIT)
    if not all(value <= largest for value in values):
        raise TargetError(f"{PREFIX}{name}={given} is above {largest}")
    if name == "cache_line" and values[0] & (values[0] - 1):
        raise TargetError(f"{PREFIX}{name}={given} is not a power of two")
    return values if several else values[0]


__all__ = ["BY_USER", "NUMBERS", "PREFIX", "Facts", "facts_of", "text_of", "with_facts"]
