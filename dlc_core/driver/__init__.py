"""The driver: from a model to an executable, by the stages of one compile and the cache of their results."""

from __future__ import annotations

from dlc_core.driver.api import (
    build,
    compile,  # noqa: A004  (the public name)
    compile_request,
    context_for,
    explain_cache,
    lower,
    ops,
    pipelines,
    plugins,
    share,
    targets,
)
from dlc_core.driver.files import (
    open,  # noqa: A004  (the public name)
    save_portable,
)
from dlc_core.driver.loading import load
from dlc_core.driver.opening import load_library
from dlc_core.driver.request import PRECISIONS, CompileRequest
from dlc_core.driver.target_list import find_target, find_targets
from dlc_core.target import Target

__all__ = [
    "PRECISIONS",
    "CompileRequest",
    "Target",
    "build",
    "compile",
    "compile_request",
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
    "save_portable",
    "share",
    "targets",
]
