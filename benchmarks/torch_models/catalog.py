"""The list of all models."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module

from benchmarks.torch_models import families
from benchmarks.torch_models.recipe import REGISTERED, Model


@cache
def models() -> Mapping[str, Model]:
    """All models by their names; the modules of `families` register theirs."""
    found: dict[str, Model] = {}
    for module in pkgutil.iter_modules(families.__path__):
        import_module(f"{families.__name__}.{module.name}")
        added = [name for name in REGISTERED if name not in found]
        found |= {name: replace(REGISTERED[name], kind=module.name) for name in added}
    return found


def chosen(names: Sequence[str]) -> list[Model]:
    """The models of these names, families or kinds; for none all of them. Raises KeyError for unknown."""
    known = models()
    wanted: dict[str, Model] = {}
    for name in names or known:
        found = {key: each for key, each in known.items() if name in (key, each.family, each.kind)}
        if not found:
            raise KeyError(name)
        wanted |= found
    return list(wanted.values())
