"""The models of a folder as cases for measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.corpus.catalog import recipe_of
from benchmarks.models import Case, folder_cases


def named(only: str) -> Callable[[str], bool]:
    """Whether a file's name contains one of the texts of `only`, which are separated by commas."""
    parts = [part.replace("/", "-") for part in only.split(",")]
    return lambda stem: any(part in stem for part in parts)


def cases_of(folder: Path, wanted: Callable[[str], bool]) -> list[Case]:
    """The selected models of a folder, with the data of their recipes. Models without a recipe have no
    family.
    """
    return [_of_recipe(case) for case in folder_cases(folder) if wanted(case.name)]


def _of_recipe(case: Case) -> Case:
    recipe = recipe_of(case.name)
    if recipe is None:
        return case
    precision = "float32" if recipe.dtype == "int8" else recipe.dtype
    return replace(case, family=recipe.family, precision=precision, of_largest=recipe.of_largest)
