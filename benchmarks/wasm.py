"""Run times of WebAssembly modules, compared with native code for one thread.

    python -m benchmarks.wasm [MODEL...]

Each model is compiled for this machine, for an x86-64 with vectors of 128 bits as WebAssembly has (on other
machines this column is empty), and as modules with and without relaxed SIMD. Modules are run by Wasmtime and
by Node.js, whichever is installed. Rounds of all alternate. Times are medians; ratios are to native code.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from dlc_backend_llvm.wasm.device import wasmtime
from dlc_frontend_onnx.testing import light

import dlc_core as dlc
from dlc_core.diag import PluginError

MODELS = ("squeezenet", "shufflenet", "inception_v1", "resnet50")
ROUNDS, RUNS = 5, 7
EXAMPLE = Path(__file__).parents[1] / "examples" / "wasm"
NARROW = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2 -num-threads=1"

Call = Callable[[], float]
"""Returns a time in milliseconds."""


def timed(call: Callable[[], Any]) -> Call:
    """The median time of some calls."""

    def measure() -> float:
        times = []
        for _ in range(RUNS):
            begin = perf_counter()
            call()
            times.append(perf_counter() - begin)
        return 1e3 * median(times)

    return measure


def in_wasmtime(path: Path, image: np.ndarray[Any, Any], count: int) -> Call:
    """Calls of a module in Wasmtime. Input, output and workspace stay in its memory."""
    run = wasmtime()
    store = run.Store()
    module = run.Module.from_file(store.engine, str(path))
    found = run.Instance(store, module, []).exports(store)
    memory, name = found["memory"], path.stem
    source = found["__heap_base"].value(store) + 63 & ~63
    tables = source + image.nbytes + 63 & ~63
    out = tables + 64
    space = out + 4 * count + 63 & ~63
    size = found[f"{name}_workspace_size"](store)
    memory.grow(store, max(0, space + size - memory.data_len(store) + 0xFFFF >> 16))
    memory.write(store, image.tobytes(), source)
    memory.write(store, np.array([source, out], np.uint32).tobytes(), tables)
    entry = found[f"{name}_run"]

    def call() -> None:
        assert entry(store, tables, tables + 4, space, 1) == 0

    call()
    return timed(call)


def in_node(node: str, folder: Path) -> Call:
    """Calls in Node.js by the loader of the example, which copies input and output."""

    def measure() -> float:
        words = [node, str(EXAMPLE / "run.mjs"), str(folder), str(RUNS)]
        printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        return float(printed.split()[-2])

    return measure


def compiled(name: str, folder: Path) -> dict[str, Call]:
    """The ways to run a model, by name."""
    model = light.with_weights(name).SerializeToString()
    (image,) = light.input_of(name).values()
    native = dlc.compile(model, num_threads=1)
    expected = native(image)
    found = {"native": timed(lambda: native(image))}
    if platform.machine() in ("x86_64", "AMD64"):
        narrow = dlc.compile(model, NARROW)
        narrow(image)
        found["x86-64-v2"] = timed(lambda: narrow(image))
    node = shutil.which("node")
    for feature in ("", "+relaxed-simd"):
        own = folder / (feature.strip("+") or "simd128")
        own.mkdir(parents=True)
        (path,) = dlc.compile(model, f"wasm32 -mattr={feature}").export(own / "net.wasm")
        (own / "image.bin").write_bytes(image.tobytes())
        (own / "expected.bin").write_bytes(expected.tobytes())
        try:
            found[f"wasmtime {own.name}"] = in_wasmtime(path, image, expected.size)
        except PluginError as error:
            print(error, file=sys.stderr)
        if node and not feature:  # Node.js 20 has no relaxed SIMD
            found[f"node {own.name}"] = in_node(node, own)
    return found


def main(models: list[str]) -> None:
    """Print the table in Markdown."""
    heads: list[str] = []
    for name in models or MODELS:
        with tempfile.TemporaryDirectory(prefix="dlc-wasm-") as folder:
            calls = compiled(name, Path(folder))
            rounds = [{way: call() for way, call in calls.items()} for _ in range(ROUNDS)]
        if not heads:
            heads = list(calls)
            print(f"| model | native, ms | {' | '.join(heads[1:])} |\n|---|{'---:|' * len(heads)}")
        base = median(each["native"] for each in rounds)
        ratios = [median(each[way] / each["native"] for each in rounds) for way in heads[1:]]
        print(f"| {name} | {base:.2f} | {' | '.join(f'{r:.2f}' for r in ratios)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
