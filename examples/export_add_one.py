"""`add_one`: built, exported as a shared library, loaded back, called, timed.

The library needs neither Python nor dlc; its header says how C calls it. `dlc.load_library` loads native
code; `dlc.open` never runs code of a file.
"""

import tempfile
from pathlib import Path

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.ir.expr import Var

n = Var("n")
a = te.placeholder((n,), name="a")
b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
exe = dlc.build(te.create_prim_func([a], [b], name="add_one"), num_threads=1)
print(exe)

with tempfile.TemporaryDirectory() as folder:
    files = exe.export(Path(folder, "add_one.so"))
    print("wrote", ", ".join(path.name for path in files))
    add_one = dlc.load_library(files[0], num_threads=1)

for size in (1, 10, 100_000):
    x = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(add_one(x), x + 1)

x = np.arange(100_000, dtype=np.float32)
print(add_one.time_evaluator(number=10, repeat=10)(x))
