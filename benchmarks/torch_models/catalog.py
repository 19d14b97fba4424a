"""The list of all models."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module

from benchmarks.torch_models import families
from benchmarks.torch_models.recipe import REGISTERED, Model


@cache
def models() -> Mapping[str, Model]:
    """All models by their names; the modules of `families` register theirs."""
    for module in pkgutil.iter_modules(families.__path__, f"{families.__name__}."):
        import_module(module.name)
    return REGISTERED


def chosen(names: Sequence[str]) -> list[Model]:
    """The models of these names or families; all of them for none. Raises KeyError for an unknown one."""
    known = models()
    wanted: dict[str, Model] = {}
    for name in names or known:
        found = {key: each for key, each in known.items() if name in (key, each.family)}
        if not found:
            raise KeyError(name)
        wanted |= found
    return list(wanted.values())
