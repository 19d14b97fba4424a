"""A compiled model as one file: written once, opened in milliseconds, without frontend and compiler.

The weights stay in the file and are mapped into memory as they are used: several processes share them.
Opening checks the file and runs nothing of it.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

import dlc_core as dlc

model = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
image = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "squeezenet.dlc")
    exe = dlc.compile(model)
    exe.save(path)
    print(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB")

    start = time.perf_counter()
    opened = dlc.open(path, num_threads=1)
    print(f"opened in {1e3 * (time.perf_counter() - start):.1f} ms")
    np.testing.assert_array_equal(opened(image), exe(image))

    path.write_bytes(path.read_bytes()[:-100])
    try:
        dlc.open(path)
    except dlc.DlcError as error:
        print(f"damaged: {error}")
