"""All recipes, by the packages that they need."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.exported.further import pipeline_recipes, quantized_recipes
from benchmarks.exported.published import PUBLISHED, published_recipes
from benchmarks.exported.recipes import (
    RECIPES,
    classic_recipes,
    text_recipes,
    timm_recipes,
    torch_recipes,
    vision_recipes,
)
from benchmarks.exported.sizes import sized_recipes

FAMILIES = {
    torch_recipes: ("torch",),
    vision_recipes: ("vision",),
    timm_recipes: ("timm",),
    text_recipes: ("transformers",),
    classic_recipes: ("sklearn", "lightgbm", "xgboost"),
    pipeline_recipes: ("sklearn",),
    quantized_recipes: ("quantized",),
    sized_recipes: ("sized",),
    published_recipes: tuple({name.partition("/")[0] for name in PUBLISHED}),
}


def all_recipes(name: str = "") -> dict[str, Callable[[Path], None]]:
    """The recipes of all that is installed, or of the family of one name."""
    for family, names in FAMILIES.items():
        if name and name.partition("/")[0] not in names:
            continue
        try:
            family()
        except (ImportError, RuntimeError) as error:
            sys.stderr.write(f"{family.__name__}: {error}\n")
    return RECIPES
