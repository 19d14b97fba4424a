"""Models at their published sizes, exported here, in every phase: see `benchmarks.exported.phases`.

`pip install -e '.[exported]'` has what writes them.  With DLC_EXPORTED_MODELS naming a folder, they are kept
there, and taken from there the next time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

phases = pytest.importorskip("benchmarks.exported.phases", reason="only the repository has the benchmarks")
sizes = pytest.importorskip("benchmarks.exported.sizes", reason="only the repository has the benchmarks")
pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")

MISSING = [p for p in ("torch", "torchvision", "timm", "transformers", "onnxscript") if find_spec(p) is None]
KEPT = "DLC_EXPORTED_MODELS"
LIMIT = 900.0
"""Seconds that exporting a model may take."""


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"pip install -e '.[exported]': no {', '.join(MISSING)} here")
@pytest.mark.parametrize("name", sizes.MAKERS)
def test_every_phase(name, tmp_path, record_property):
    folder = Path(os.environ.get(KEPT) or tmp_path)
    path = folder / f"sized-{name}.onnx"
    if not path.with_suffix(".npz").exists():
        words = ["-W", "ignore", "-m", "benchmarks.exported", "one", str(folder), "--only", f"sized/{name}"]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr[-2000:]
    try:
        found = phases.outcomes(path)
    finally:
        if KEPT not in os.environ:
            path.unlink()
    record_property("sized", phases.rows({name: found}).splitlines()[2])
    wrong = {phase: record["outcome"] for phase, record in found.items() if record["outcome"] != "right"}
    assert wrong == {}
