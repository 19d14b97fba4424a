"""The list of all recipes."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from benchmarks.corpus import families, small
from benchmarks.corpus.recipe import REGISTERED, Recipe


@cache
def recipes() -> Mapping[str, Recipe]:
    """All recipes by their names; the modules of `families` and `small` register theirs."""
    for package in (families, small):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    return REGISTERED


def chosen(only: str = "", *, small: bool | None = None) -> list[Recipe]:
    """The recipes whose names contain one of the texts of `only`, which are separated by commas."""
    parts = only.split(",")
    return [
        each
        for each in recipes().values()
        if any(part in each.name for part in parts) and small in (None, each.small)
    ]


def recipe_of(stem: str) -> Recipe | None:
    """The recipe that writes files of this name."""
    return next((each for each in recipes().values() if each.stem == stem), None)


def first_of_families() -> list[Recipe]:
    """The first recipe of each family of published sizes."""
    found: dict[str, Recipe] = {}
    for each in chosen(small=False):
        found.setdefault(each.family, each)
    return list(found.values())
