"""The models of a folder as cases to be measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.corpus.catalog import recipe_of
from benchmarks.models import Case, folder_cases


def named(only: str) -> Callable[[str], bool]:
    """Whether a file's name contains one of the texts of `only`, which has commas between."""
    parts = [part.replace("/", "-") for part in only.split(",")]
    return lambda stem: any(part in stem for part in parts)


def cases_of(folder: Path, wanted: Callable[[str], bool]) -> list[Case]:
    """The models of a folder that are wanted, with what their recipes say; others have no family."""
    return [_of_recipe(case) for case in folder_cases(folder) if wanted(case.name)]


def _of_recipe(case: Case) -> Case:
    recipe = recipe_of(case.name)
    if recipe is None:
        return case
    precision = "float32" if recipe.dtype == "int8" else recipe.dtype
    return replace(case, family=recipe.family, precision=precision, of_largest=recipe.of_largest)
