"""The categories of declarations, and what a declaration of each must have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc_core.diag import PluginError
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core.script import keywords
else:
    keywords = lazy("dlc_core.script.keywords")

CATEGORIES: Mapping[str, str] = MappingProxyType(
    {
        "ops": "op",
        "rules": "rule",
        "passes": "pass",
        "plans": "plan",
        "dtypes": "dtype",
        "quant_formats": "quantisation format",
        "frontends": "frontend",
        "importers": "importer",
        "targets": "target",
        "target_tags": "target tag",
        "codegens": "codegen",
        "devices": "device",
        "schedule_rules": "schedule rule",
        "tuners": "tuner",
        "search_spaces": "search space",
        "search_strategies": "search strategy",
        "measures": "measure",
        "records": "file of records",
        "tensor_intrins": "tensor intrinsic",
        "foreign_functions": "foreign function",
        "partitioners": "partitioner",
        "watchers": "watcher",
        "commands": "command",
        "knobs": "knob",
        "expectations": "expectation",
        "models": "group of models",
        "namespaces": "namespace",
        "trusted_keys": "trusted key",
    }
)
"""The categories, each with the word for one of its members; `dlc_<category>` is the hook."""


REQUIRED_ATTRIBUTES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ops": ("infer", "reference"),
        "rules": ("pattern", "replacement"),
        "passes": ("run",),
        "plans": ("described", "lower"),
        "dtypes": ("bits", "kind", "decode", "encode"),
        "quant_formats": ("element", "group", "scale", "quantize", "dequantize"),
        "frontends": ("suffixes", "load"),
        "targets": ("options", "describe", "problem", "host_rank"),
        "target_tags": ("target", "doc"),
        "codegens": ("format", "emit"),
        "devices": ("formats", "load"),
        "schedule_rules": ("priority", "matches", "apply"),
        "tuners": ("tune",),
        "search_spaces": ("fits", "generate"),
        "search_strategies": ("start",),
        "measures": ("measure",),
        "records": ("path",),
        "tensor_intrins": ("desc", "impl"),
        "foreign_functions": ("signature", "implementations"),
        "partitioners": ("target", "patterns"),
        "commands": ("entry", "help", "load"),
        "knobs": ("variable", "get"),
        "expectations": ("reason", "covers"),
        "models": ("cases",),
        "namespaces": ("load",),
        "trusted_keys": ("key",),
    }
)
"""The attributes that declarations must have besides a name; a plugin without them has a problem."""


def check_declaration(category: str, declaration: Any) -> None:
    """Raise PluginError unless a value is a declaration of this category."""
    if not isinstance(getattr(declaration, "name", None), str):
        raise PluginError(f"{declaration!r} is not a declaration", why="it has no name")
    missing = [name for name in REQUIRED_ATTRIBUTES.get(category, ()) if not hasattr(declaration, name)]
    if missing:
        raise PluginError(
            f"{declaration!r} is no {CATEGORIES[category]}", why=f"it has no {' and no '.join(missing)}"
        )
    if category == "dtypes" and declaration.name in keywords.ALL_WORDS:
        raise PluginError(f"dtype {declaration.name!r}", why=f"T.{declaration.name} is a word of the script")


__all__ = ["CATEGORIES", "REQUIRED_ATTRIBUTES", "check_declaration"]
