"""The only access to LLVM: `llvm()` returns llvmlite's binding module, loaded and initialised on first use.

Importing llvmlite takes 60 to 130 ms, and importing the plugin must be fast. Therefore no other file of this
package imports llvmlite. The targets of other machines take memory, so `target_of` initialises them only for
cross compilation.

`LOCK` is a global re-entrant lock. Every sequence of LLVM calls runs under it, because llvmlite serialises
only single calls.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from dlc_backend_llvm.triples import normal_arch
from dlc_core.diag import PluginError
from dlc_core.disk_cache import disk_cached
from dlc_core.runtime.memory.mapped import drop_code

LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    # Hold the lock during a fork, so that the child does not inherit LLVM in the middle of a call.
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)
_loaded: list[Any] = []


def llvm() -> Any:
    """The module `llvmlite.binding`, with this machine's target initialised. Raises PluginError if it cannot
    be imported.
    """
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
            module.initialize_native_target()
            module.initialize_native_asmprinter()
            module.initialize_native_asmparser()
            _loaded.append(module)
    return _loaded[0]


def target_of(triple: str) -> Any:
    """LLVM's target for a triple. The targets of other machines are initialised on their first use. Raises
    RuntimeError if LLVM has none.
    """
    with LOCK:
        if normal_arch(triple) != normal_arch(llvm().get_process_triple()):
            _initialise_all()
        return llvm().Target.from_triple(triple)


@lru_cache(maxsize=1)
def _initialise_all() -> None:
    llvm().initialize_all_targets()
    llvm().initialize_all_asmprinters()


def release() -> None:
    """Drop the pages of LLVM's code from the memory of this process; they are most of what LLVM takes between
    compiles.
    """
    if _loaded:
        with LOCK:
            drop_code(str(Path(_loaded[0].__file__).parent))


@lru_cache(maxsize=1)
def llvm_version() -> str:
    """The version of llvmlite's LLVM, such as `22.1.0`; a part of every cache key."""
    stamp = installed()
    if not stamp:
        return _loaded_version()
    return disk_cached("llvm", stamp, lambda: _loaded_version().encode()).decode()


def _loaded_version() -> str:
    return ".".join(str(part) for part in llvm().llvm_version_info)


@lru_cache(maxsize=1)
def installed() -> str:
    """A text that identifies the installed llvmlite: paths, sizes and times of its files. It does not import
    llvmlite. The text is empty if llvmlite is not installed.
    """
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parent
    words = [str(folder), platform.machine()]
    try:
        for file in (folder / "_version.py", *sorted((folder / "binding").glob("*llvmlite*"))):
            status = file.stat()
            words.append(f"{file.name} {status.st_size} {status.st_mtime_ns}")
    except OSError:
        return ""
    return "\n".join(words)


__all__ = ["LOCK", "installed", "llvm", "llvm_version", "release", "target_of"]
