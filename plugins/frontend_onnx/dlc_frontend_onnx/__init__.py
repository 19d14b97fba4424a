"""Reads ONNX models for the dlc compiler, and runs them with an interface similar to onnxruntime's.

The public names are resolved at their first use, so that plugin discovery imports only this file.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlc_frontend_onnx.custom import Result as Result
    from dlc_frontend_onnx.custom import host_function as host_function
    from dlc_frontend_onnx.custom import operator as operator
    from dlc_frontend_onnx.sessions.binding import IOBinding as IOBinding
    from dlc_frontend_onnx.sessions.binding import OrtValue as OrtValue
    from dlc_frontend_onnx.sessions.naming import NodeArg as NodeArg
    from dlc_frontend_onnx.sessions.options import ExecutionMode as ExecutionMode
    from dlc_frontend_onnx.sessions.options import GraphOptimizationLevel as GraphOptimizationLevel
    from dlc_frontend_onnx.sessions.options import RunOptions as RunOptions
    from dlc_frontend_onnx.sessions.options import SessionOptions as SessionOptions
    from dlc_frontend_onnx.sessions.session import InferenceSession as InferenceSession
    from dlc_frontend_onnx.sessions.session import ModelMetadata as ModelMetadata
    from dlc_frontend_onnx.sessions.session import get_available_providers as get_available_providers
    from dlc_frontend_onnx.sessions.session import get_device as get_device

_LAZY = {
    "ExecutionMode": "sessions.options",
    "GraphOptimizationLevel": "sessions.options",
    "IOBinding": "sessions.binding",
    "InferenceSession": "sessions.session",
    "ModelMetadata": "sessions.session",
    "NodeArg": "sessions.naming",
    "OrtValue": "sessions.binding",
    "Result": "custom",
    "RunOptions": "sessions.options",
    "SessionOptions": "sessions.options",
    "get_available_providers": "sessions.session",
    "get_device": "sessions.session",
    "host_function": "custom",
    "operator": "custom",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: Any = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
