"""The driver: from a model to an executable, by the stages of one compile and the cache of their results."""

from __future__ import annotations

from dlc_core.driver.api import (
    PRECISIONS,
    build,
    compile,  # noqa: A004  (the public name)
    context_for,
    explain_cache,
    find_target,
    find_targets,
    load,
    load_library,
    lower,
    open,  # noqa: A004  (the public name)
    ops,
    pipelines,
    plugins,
    targets,
)

__all__ = [
    "PRECISIONS",
    "build",
    "compile",
    "context_for",
    "explain_cache",
    "find_target",
    "find_targets",
    "load",
    "load_library",
    "lower",
    "open",
    "ops",
    "pipelines",
    "plugins",
    "targets",
]
