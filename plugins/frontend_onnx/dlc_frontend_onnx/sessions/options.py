"""Session options of onnxruntime's interface, and their mapping to options of dlc."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from enum import Enum
from typing import Any

from dlc_core.cancel import CancelToken
from dlc_core.diag import UsageError, similar


class IgnoredOptionWarning(UserWarning):
    """A session option without effect was set."""


class GraphOptimizationLevel(Enum):
    """The optimization level of a session; each corresponds to an `opt_level` of `dlc.compile`."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


_OPT_LEVELS = {
    "ORT_DISABLE_ALL": 0,
    "ORT_ENABLE_BASIC": 1,
    "ORT_ENABLE_EXTENDED": 2,
    "ORT_ENABLE_LAYOUT": 3,
    "ORT_ENABLE_ALL": 3,
}
_IGNORED: Mapping[str, Any] = {
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "enable_profiling": False,
    "execution_mode": None,
    "execution_order": None,
    "inter_op_num_threads": 0,
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "optimized_model_filepath": "",
    "profile_file_prefix": "onnxruntime_profile_",
    "use_deterministic_compute": False,
    "use_per_session_threads": True,
}


class SessionOptions:
    """Options of a session, with their onnxruntime names.

    `intra_op_num_threads` is the number of threads of a call (0: the cores that this process may use),
    `graph_optimization_level` a `GraphOptimizationLevel`. The other options have no effect. If one is set,
    the session warns with an `IgnoredOptionWarning`.
    """

    intra_op_num_threads: int
    graph_optimization_level: Any

    def __init__(self) -> None:
        self.__dict__.update(_IGNORED)
        self.__dict__.update(
            intra_op_num_threads=0, graph_optimization_level=GraphOptimizationLevel.ORT_ENABLE_ALL
        )
        self.__dict__["_dims"], self.__dict__["_entries"] = {}, {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__ or name.startswith("_"):
            known = sorted(name for name in self.__dict__ if not name.startswith("_"))
            close = similar(name, known)
            hint = f"did you mean {close[0]!r}?" if close else "options: " + ", ".join(known)
            raise UsageError(f"a session has no option {name!r}", hint=hint)
        self.__dict__[name] = value

    def add_free_dimension_override_by_name(
        self, name: str, size: int | tuple[int | None, int | None]
    ) -> None:
        """Pin the dim of a name for faster code, or bound it by a pair."""
        self._dims[name] = size

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store an entry, which has no effect."""
        self._entries[key] = value

    def register_custom_ops_library(self, path: str) -> None:
        """Refused, because kernels compiled for onnxruntime cannot be called."""
        raise UsageError(
            f"{path} cannot be loaded",
            why="sessions run no kernels that were compiled for onnxruntime",
            hint="pass importers=[...] to the session (see dlc_frontend_onnx.custom)",
        )

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry that was added."""
        if key not in self._entries:
            raise UsageError(f"there is no entry {key!r}")
        return str(self._entries[key])

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a session has no option {name!r}")


class ExecutionMode(Enum):
    """The execution order of nodes; it has no effect."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class RunOptions:
    """Options of one call. `terminate = True`, set by any thread, stops the calls that have these options;
    they raise CancelledError. The other options have no effect.
    """

    def __init__(self) -> None:
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.token = CancelToken()
        """The token of the calls with these options; False as `terminate` makes a new one."""
        self._entries: dict[str, str] = {}

    @property
    def terminate(self) -> bool:
        """Whether calls with these options are stopped."""
        return self.token.cancelled

    @terminate.setter
    def terminate(self, value: bool) -> None:
        if value:
            self.token.cancel()
        elif self.token.cancelled:
            self.token = CancelToken()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Store an entry, which has no effect."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """The value of an entry that was added."""
        if key not in self._entries:
            raise UsageError(f"there is no entry {key!r}")
        return self._entries[key]


def compile_options(given: Any) -> dict[str, Any]:
    """Translate session options (of dlc or onnxruntime) to arguments of `dlc.compile`.

    Raises UsageError for invalid values. Warns once about options that are ignored.
    """
    if given is None:
        return {}
    threads = getattr(given, "intra_op_num_threads", 0)
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 0:
        raise UsageError(f"intra_op_num_threads is {threads!r}", hint="an integer; 0 is all cores")
    level = getattr(given, "graph_optimization_level", GraphOptimizationLevel.ORT_ENABLE_ALL)
    name = getattr(level, "name", level)
    if name not in _OPT_LEVELS:
        raise UsageError(f"graph_optimization_level is {level!r}", hint=", ".join(_OPT_LEVELS))
    ignored = [option for option, default in _IGNORED.items() if _is_set(given, option, default)]
    ignored += getattr(given, "_entries", ())
    if ignored:
        warnings.warn(
            f"ignored options of the session: {', '.join(ignored)}", IgnoredOptionWarning, stacklevel=4
        )
    return {
        "num_threads": threads or None,
        "opt_level": _OPT_LEVELS[name],
        "shapes": dict(getattr(given, "_dims", {})),
    }


def _is_set(given: Any, option: str, default: Any) -> bool:
    value = getattr(given, option, default)
    if default is None:  # an enumeration, whose default is its first value
        return value is not None and getattr(value, "value", value) != 0
    return bool(value != default)


__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IgnoredOptionWarning",
    "RunOptions",
    "SessionOptions",
    "compile_options",
]
