"""Modules imported at the start: few by the package, and for cached models no compiler, importer or LLVM."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlc_core.support.lazy import lazy

IMPORT = """
import sys
before = set(sys.modules)
import dlc_core
watched = ("dlc_core", "numpy", "pluggy")
print(sorted(name for name in set(sys.modules) - before if name.split(".")[0] in watched))
"""

COMPILE = """
import sys
import numpy as np
import dlc_core as dlc
exe = dlc.compile("model.onnx")
exe(np.zeros((1, 4), np.float32))
print(exe.report["cache"])
heavy = ("dlc_core.passes", "dlc_core.schedule", "dlc_core.op.std", "dlc_core.script", "dlc_core.arith")
print([name for name in sys.modules if name in heavy or name.split(".")[0] in ("llvmlite", "onnx")])
"""

OPEN = """
import sys
import numpy as np
import dlc_core as dlc
dlc.open("model.dlc")(np.zeros((1, 4), np.float32))
late = (
    "dlc_core.passes", "dlc_core.schedule", "dlc_core.op.std", "dlc_core.algorithms", "dlc_core.tir.stmt",
    "dlc_core.target.source", "dlc_core.target.reference", "dlc_core.graph.node",
    "dlc_core.runtime.measure.explain", "dlc_core.runtime.memory.dlpack", "dlc_core.runtime.call.donating",
    "difflib", "ml_dtypes", "tempfile", "traceback",
)
kinds = {"dlc_backend_llvm.kind"} & sys.modules.keys()
others = {name for name in sys.modules if name.startswith("dlc_backend") and name.count(".") == 1} - {
    f"dlc_backend_{name}.plugin" for name in ("c", "cuda", "llvm", "opencl")
}
print(sorted(kinds), sorted(name for name in others if not name.startswith("dlc_backend_llvm.")))
print([name for name in sys.modules if name in late or name.split(".")[0] in ("llvmlite", "onnx")])
"""

DATACLASSES = """
import dataclasses
compiled = []
plain = dataclasses.dataclass
def watched(cls=None, /, **words):
    if words.get("init", True):
        compiled.append(words)
    return plain(cls, **words)
dataclasses.dataclass = watched
import numpy as np
import dlc_core as dlc
dlc.open("model.dlc")(np.zeros((1, 4), np.float32))
print(len(compiled))
"""

MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
small (float[1, 4] x) => (float[1, 4] y)
<float[4] b = {0.5, -1, 0.25, 2}>
{
    y = Add(x, b)
}
"""


def run(code: str, folder: Path) -> list[str]:
    """The lines that a process prints."""
    variables = {**os.environ, "DLC_CACHE": "1", "DLC_CACHE_DIR": str(folder / "cache")}
    variables.pop("DLC_PLUGINS", None)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_the_package_imports_few_modules(tmp_path):
    assert run(IMPORT, tmp_path) == [
        "['dlc_core', 'dlc_core.support', 'dlc_core.support.garbage', 'dlc_core.version']"
    ]


@pytest.fixture
def folder(tmp_path):
    """A folder with a small model, `model.onnx`."""
    pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")
    onnx = pytest.importorskip("onnx")
    parser = pytest.importorskip("onnx.parser")
    onnx.save(parser.parse_model(MODEL), tmp_path / "model.onnx")
    return tmp_path


def test_the_cache_is_read_without_the_compiler(folder):
    assert run(COMPILE, folder)[0] == "stored"
    assert run(COMPILE, folder) == ["hit", "[]"]


def test_opening_a_saved_model_imports_no_other_backend(folder):
    run('import dlc_core as dlc; dlc.compile("model.onnx").save("model.dlc")', folder)
    run(OPEN, folder)  # the cached description of this machine may have to be made first
    assert run(OPEN, folder) == ["['dlc_backend_llvm.kind'] []", "[]"]


def test_importing_compiles_few_dataclasses(folder):
    run('import dlc_core as dlc; dlc.compile("model.onnx").save("model.dlc")', folder)
    assert int(run(DATACLASSES, folder)[0]) <= 4  # those of the hooks, which import nothing of the core


def test_proxies_of_absent_modules_can_be_inspected():
    """doctest does so with all values of a module."""
    absent = lazy("a_package_that_does_not_exist")
    assert inspect.unwrap(absent) is absent
    with pytest.raises(ModuleNotFoundError):
        _ = absent.compile
