"""The one door to LLVM: `llvm()` gives llvmlite's binding module, loaded and initialised on first use.

Importing the plugin must stay cheap (importing llvmlite takes 60-130 ms), so no other file of this package
imports llvmlite.  All targets that llvmlite was built with are initialised at once: cross compilation needs
nothing else.

`LOCK` is the global re-entrant lock under which every sequence of LLVM calls runs: llvmlite serialises
single calls only.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

from dlc_core.diag import PluginError

LOCK = threading.RLock()
_loaded: list[Any] = []


def llvm() -> Any:
    """llvmlite's `llvmlite.binding`, every target initialised; PluginError where it cannot be imported."""
    if _loaded:
        return _loaded[0]
    with LOCK:
        if not _loaded:
            try:
                module = importlib.import_module("llvmlite.binding")
            except Exception as error:
                raise PluginError(
                    "the llvm backend cannot load llvmlite",
                    why=f"{type(error).__name__}: {error}",
                    hint="install it with: pip install 'llvmlite>=0.46'",
                ) from error
            module.initialize_all_targets()
            module.initialize_all_asmprinters()
            module.initialize_native_asmparser()
            _loaded.append(module)
    return _loaded[0]


def llvm_version() -> str:
    """The LLVM version behind llvmlite, as `22.1.0`; part of every cache key."""
    return ".".join(str(part) for part in llvm().llvm_version_info)


__all__ = ["LOCK", "llvm", "llvm_version"]
