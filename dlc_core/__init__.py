"""dlc compiles deep-learning models to native code. Every device is a pip package.

Public names are resolved on first use, so `import dlc_core` takes a few milliseconds and imports no plugin.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from dlc_core.support.garbage import fewer_collections
from dlc_core.version import __version__ as __version__

if TYPE_CHECKING:
    from dlc_core import foreign as foreign
    from dlc_core import graph as graph
    from dlc_core import nn as nn
    from dlc_core import te as te
    from dlc_core import tir as tir
    from dlc_core import topi as topi
    from dlc_core.cancel import CancelToken as CancelToken
    from dlc_core.diag import CancelledError as CancelledError
    from dlc_core.diag import DlcError as DlcError
    from dlc_core.diag import LimitError as LimitError
    from dlc_core.passes import PassContext as PassContext
    from dlc_core.passes.tir.base import prim_func_pass as prim_func_pass
    from dlc_core.target import Target as Target

# public name -> (module that defines it, attribute; "" means the module itself)
_LAZY = {
    "CancelToken": ("dlc_core.cancel", "CancelToken"),
    "CancelledError": ("dlc_core.diag", "CancelledError"),
    "DlcError": ("dlc_core.diag", "DlcError"),
    "LimitError": ("dlc_core.diag", "LimitError"),
    "PassContext": ("dlc_core.passes", "PassContext"),
    "Target": ("dlc_core.driver", "Target"),
    "build": ("dlc_core.driver", "build"),
    "compile": ("dlc_core.driver", "compile"),
    "create_schedule": ("dlc_core.schedule", "create_schedule"),
    "foreign": ("dlc_core.foreign", ""),
    "graph": ("dlc_core.graph", ""),
    "load": ("dlc_core.driver", "load"),
    "load_library": ("dlc_core.driver", "load_library"),
    "lower": ("dlc_core.driver", "lower"),
    "nn": ("dlc_core.nn", ""),
    "open": ("dlc_core.driver", "open"),
    "ops": ("dlc_core.driver", "ops"),
    "plugins": ("dlc_core.driver", "plugins"),
    "register_foreign": ("dlc_core.foreign", "register_foreign"),
    "prim_func_pass": ("dlc_core.passes.tir.base", "prim_func_pass"),
    "quantize": ("dlc_core.quantization", "quantize"),
    "quantize_weights": ("dlc_core.quantization", "quantize_weights"),
    "save_portable": ("dlc_core.driver", "save_portable"),
    "script": ("dlc_core.script", ""),
    "sign": ("dlc_core.driver.signing", "sign"),
    "targets": ("dlc_core.driver", "targets"),
    "te": ("dlc_core.te", ""),
    "tir": ("dlc_core.tir", ""),
    "topi": ("dlc_core.topi", ""),
    "tune": ("dlc_core.driver.tuning", "tune"),
    "verify": ("dlc_core.driver.signing", "verify"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        return _of_plugin(name)
    module, attribute = _LAZY[name]
    with fewer_collections():
        value: Any = importlib.import_module(module)
        if attribute:
            value = getattr(value, attribute)
    globals()[name] = value
    return value


def _of_plugin(name: str) -> Any:
    """The object that a plugin declares for this name; see the hook `dlc_namespaces`."""
    # `from dlc_core import part` asks here first. Plugins do so while they are imported, so only a name that
    # is no part of the core asks for the plugins.
    if not name.startswith("_") and importlib.util.find_spec(f"dlc_core.{name}") is None:
        known = importlib.import_module("dlc_core.plugin.registry").registry().namespaces
        if name in known:
            return known[name].load()
    raise AttributeError(f"module 'dlc_core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
