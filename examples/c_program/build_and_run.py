"""A model as a library with a C interface, and a C program that uses it.

    python examples/c_program/build_and_run.py

`exe.export` writes squeezenet.so with squeezenet.h; the C compiler of this machine builds main.c with them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from dlc_frontend_onnx.testing import light

import dlc_core as dlc

compiler = shutil.which(os.environ.get("CC", "cc"))
if compiler is None:
    sys.exit("no C compiler: set CC")

exe = dlc.compile(light.with_weights("squeezenet").SerializeToString())
with tempfile.TemporaryDirectory() as folder:
    for path in exe.export(Path(folder, "squeezenet.so")):
        print(f"{path.name}: {path.stat().st_size} bytes")
    source, program = Path(__file__).with_name("main.c"), Path(folder, "classify")
    flags = ["-std=c11", "-O2", "-Wall", "-Werror", f"-I{folder}", f"-Wl,-rpath,{folder}"]
    library = str(Path(folder, "squeezenet.so"))
    subprocess.run([compiler, *flags, str(source), library, "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout

scores = exe(*light.input_of("squeezenet").values()).ravel()
print(f"from C: class, score = {printed.strip()}")
best, score = printed.split()
assert int(best) == np.argmax(scores)
assert abs(float(score) - scores.max()) < 1e-5
