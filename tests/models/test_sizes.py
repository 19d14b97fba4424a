"""A model of each family of the corpus, exported here, in every phase: see `benchmarks.corpus.phases`.

`pip install -e '.[corpus]'` installs the exporters. If DLC_EXPORTED_MODELS names a folder, models are stored
there and used again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

phases = pytest.importorskip("benchmarks.corpus.phases", reason="only the repository has the benchmarks")
catalog = pytest.importorskip("benchmarks.corpus.catalog", reason="only the repository has the benchmarks")
pytest.importorskip("dlc_backend_llvm", reason="the backend for this machine is not installed")

MISSING = [p for p in ("torch", "torchvision", "timm", "transformers", "onnxscript") if find_spec(p) is None]
KEPT = "DLC_EXPORTED_MODELS"
LIMIT = 900.0
"""The time limit of the export of a model, in seconds."""


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"pip install -e '.[corpus]': no {', '.join(MISSING)} here")
@pytest.mark.parametrize("recipe", catalog.first_of_families(), ids=lambda recipe: recipe.name)
def test_every_phase(recipe, tmp_path, record_property):
    folder = Path(os.environ.get(KEPT) or tmp_path)
    path = folder / f"{recipe.stem}.onnx"
    if not path.with_suffix(".npz").exists():
        words = ["-W", "ignore", "-m", "benchmarks.corpus", "one", str(folder), "--only", recipe.name]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr[-2000:]
    try:
        found = phases.outcomes(path)
    finally:
        if KEPT not in os.environ:
            path.unlink()
    record_property("sized", phases.rows({recipe.name: found}).splitlines()[2])
    wrong = {phase: record["outcome"] for phase, record in found.items() if record["outcome"] != "right"}
    assert wrong == {}
