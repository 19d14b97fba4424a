"""A network as a WebAssembly module, run by Node.js, by Wasmtime, and in a web page.

    python examples/wasm/build_and_run.py [FOLDER]
    python -m http.server -d FOLDER           then open http://localhost:8000

`exe.export` writes net.wasm: code with SIMD128 instructions, weights, and a description of inputs and
outputs, which the loader dlc.mjs reads. Nothing is installed where it runs. The network is SqueezeNet with
random weights. It needs `pip install ziglang wasmtime`; Node.js is used if there is one.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from dlc_frontend_onnx.testing import light

import dlc_core as dlc

HERE = Path(__file__).parent


def build(folder: Path) -> None:
    """Write the module, the page, an image, and the scores of the native code."""
    model = light.with_weights("squeezenet").SerializeToString()
    (image,) = light.input_of("squeezenet").values()
    module = dlc.compile(model, "wasm32")
    expected = dlc.compile(model, num_threads=1)(image)
    (path,) = module.export(folder / "net.wasm")
    print(f"{path.name}: {path.stat().st_size} bytes")
    (folder / "image.bin").write_bytes(image.tobytes())
    (folder / "expected.bin").write_bytes(expected.tobytes())
    for name in ("dlc.mjs", "check.mjs", "index.html"):
        shutil.copy(HERE / name, folder)
    problem = dlc.targets()["wasm32"].problem()
    if problem is None:
        np.testing.assert_allclose(module(image), expected, rtol=1e-4, atol=1e-6)
        print("Wasmtime: right")
    else:
        print(problem)


def main(folder: Path) -> None:
    build(folder)
    node = shutil.which("node")
    if node:
        subprocess.run([node, str(HERE / "run.mjs"), str(folder)], check=True)
    else:
        print("there is no Node.js")


if len(sys.argv) > 1:
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(Path(sys.argv[1]))
else:
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
