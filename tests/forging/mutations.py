"""Structured changes of JSON data."""

from __future__ import annotations

import copy
import random
from typing import Any

VALUES: tuple[Any, ...] = (
    0, 1, -1, 2, 63, 64, 65, 4096, 1 << 20, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, 1 << 63, 1e99,
    "", "main", "float64", "int8", "float32", "../x", "/etc/hostname", None, True, [], {}, [0], {"expr": 0},
)  # fmt: skip


def places(root: Any) -> list[tuple[Any, Any]]:
    """All containers of a tree of JSON data with their keys."""
    found: list[tuple[Any, Any]] = []
    work = [root]
    while work:
        node = work.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            found.append((node, key))
            work.append(value)
    return found


def mutate(rng: random.Random, data: Any) -> None:
    """Change some fields in place."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = places(data)
        if not found:
            return
        node, key = rng.choice(found)
        kind, value = rng.randrange(7), node[key]
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(value, int):
            node[key] = value + rng.choice((-64, -1, 1, 64, value, 1 << 20))
        elif kind == 2:
            node[key] = copy.deepcopy(_value(rng.choice(found)))
        elif kind == 3 and isinstance(node, list):
            node.insert(rng.randrange(len(node) + 1), copy.deepcopy(value))
        elif kind == 4 and isinstance(node, list):
            rng.shuffle(node)
        elif kind == 5:
            alike = [place for place in found if place[1] == key and type(_value(place)) is type(value)]
            node[key] = copy.deepcopy(_value(rng.choice(alike)))
        else:
            node[key] = copy.deepcopy(rng.choice(VALUES))


def _value(place: tuple[Any, Any]) -> Any:
    node, key = place
    return node[key]


__all__ = ["VALUES", "mutate", "places"]
