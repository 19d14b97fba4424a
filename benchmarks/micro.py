"""Flash and memory of small models on a Cortex-M4: dlc compared with other tools that convert models to C.

    python -m benchmarks.micro

Everything is compiled by arm-none-eabi-gcc with the same options, and the sections of the objects are
counted: flash is code and constants; memory is written data without the caller's input and output and the
stack. Tools that are not installed have no row.

onnx2c        on the PATH, or `ONNX2C`; from the ONNX form of the same model
emlearn       only perceptrons, which it converts from scikit-learn; the same layers with other weights
tflite-micro  only its arena, which includes input and output; its code is a C++ library (see `tflm`)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dlc_core as dlc
from benchmarks import tflm
from dlc_core.graph.node import CONST, PARAM, Node, post_order
from dlc_core.ir.module import IRModule
from dlc_core.testing import networks

FLAGS = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "-w", "-I.")
LEVELS = ("-Os", "-O2")
MODELS: Mapping[str, Callable[[], IRModule]] = {**networks.NETWORKS, "mobilenet": networks.mobilenet}


@dataclass(frozen=True)
class Sizes:
    """The sizes of an object in bytes."""

    flash: int
    memory: int


def main() -> None:
    """Print the tables in Markdown."""
    print("| model | tool | flash -Os | flash -O2 | memory |\n|---|---|---|---|---|")
    for name, make in MODELS.items():
        module = make()
        micro = tflm.arena(module)
        if micro is not None:
            print(f"| {name} | tflite-micro | - | - | {micro[0]}, of them {micro[1]} for tensors |")
        for tool, build in TOOLS.items():
            with tempfile.TemporaryDirectory(prefix="dlc-micro-") as folder:
                source = build(name, module, Path(folder))
                if source is None:
                    continue
                sizes = [compiled(source, level) for level in LEVELS]
                flash = " | ".join(str(one.flash) for one in sizes)
                print(f"| {name} | {tool} | {flash} | {sizes[0].memory} |", flush=True)


def compiled(source: Path, level: str) -> Sizes:
    """The sections of a file, compiled for the processor."""
    made = source.with_suffix(".o")
    command = ["arm-none-eabi-gcc", *FLAGS, level, "-c", source.name, "-o", made.name]
    subprocess.run(command, cwd=source.parent, check=True)
    listed = subprocess.run(
        ["arm-none-eabi-size", "-A", made.name], cwd=source.parent, capture_output=True, text=True, check=True
    )
    flash = memory = 0
    for line in listed.stdout.splitlines():
        words = line.split()
        if len(words) != 3 or not words[0].startswith("."):
            continue
        if words[0].startswith((".text", ".rodata", ".data")):
            flash += int(words[1])
        if words[0].startswith((".bss", ".data")):
            memory += int(words[1])
    return Sizes(flash, memory)


def ours(options: str) -> Callable[[str, IRModule, Path], Path | None]:
    """A function that writes the C of dlc for a Cortex-M4 with these options."""

    def build(name: str, module: IRModule, folder: Path) -> Path | None:
        dlc.compile(module, f"c -mcpu=cortex-m4{options}", cache=False).export(folder / "net.c")
        return folder / "net.c"

    return build


def onnx2c(name: str, module: IRModule, folder: Path) -> Path | None:
    """The C that onnx2c writes; its tensors are static."""
    program = os.environ.get("ONNX2C") or shutil.which("onnx2c")
    if not program:
        return None
    (folder / "net.onnx").write_bytes(onnx_of(module))
    done = subprocess.run([program, "net.onnx"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"onnx2c refuses {name}: {done.stderr.strip()[-200:]}")
        return None
    (folder / "net.c").write_text(done.stdout)
    return folder / "net.c"


def emlearn(name: str, module: IRModule, folder: Path) -> Path | None:
    """A perceptron of the same layers through scikit-learn and emlearn."""
    try:
        import emlearn as tool
        import numpy as np
        from sklearn.neural_network import MLPClassifier
    except ImportError:
        return None
    if name != "mlp":
        return None
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = MLPClassifier((32,), max_iter=1).fit(rng.standard_normal((100, 64)), np.arange(100) % 10)
    here = Path.cwd()
    os.chdir(folder)  # the conversion writes files to the working folder
    try:
        tool.convert(network, method="inline", dtype="float").save(file="net.h", name="net")
    finally:
        os.chdir(here)
    headers = Path(tool.__file__).parent
    for header in headers.glob("*.h"):
        shutil.copy(header, folder)
    call = "int run(const float *x, float *y)\n{\n    return net_predict_proba(x, 64, y, 10);\n}\n"
    (folder / "main.c").write_text(f'#include "net.h"\n{call}')
    return folder / "main.c"


TOOLS: Mapping[str, Callable[[str, IRModule, Path], Path | None]] = {
    "dlc": ours(""),
    "dlc `-stream-rows=1`": ours(" -stream-rows=1"),
    "dlc `-opt-for=size`": ours(" -opt-for=size"),
    "dlc `-opt-for=size -stream-rows=1`": ours(" -opt-for=size -stream-rows=1"),
    "onnx2c": onnx2c,
    "emlearn": emlearn,
}

_NAMES = {"conv": "Conv", "add": "Add", "relu": "Relu", "max_pool": "MaxPool", "reshape": "Reshape"}
_NAMES |= {"matmul": "MatMul", "softmax": "Softmax", "reduce_mean": "Reshape"}


def onnx_of(module: IRModule) -> bytes:
    """The ONNX form of one of the networks here."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    function = module["main"]
    names: dict[Node, str] = {}
    nodes: list[Any] = []
    held: list[Any] = []
    for n in post_order(function.body):
        label = names[n] = "x" if n.op is PARAM else f"v{len(names)}"
        if n.op is CONST:
            held.append(numpy_helper.from_array(np.array(n.attrs["value"].data), label))
        elif n.op.name == "transpose" and n.args[0].op is CONST:
            data = np.ascontiguousarray(n.args[0].attrs["value"].data.transpose(n.attrs["axes"]))
            held.append(numpy_helper.from_array(data, label))
        elif n.op is not PARAM:
            args, attrs = [names[arg] for arg in n.args], _attributes(n)
            if n.op.name == "reduce_mean":  # some tools support the mean of all pixels only by this name
                nodes.append(helper.make_node("GlobalAveragePool", args, [f"{label}_pool"]))
                args = [f"{label}_pool"]
            if n.op.name in ("reshape", "reduce_mean"):
                held.append(numpy_helper.from_array(np.array(n.shape, np.int64), f"{label}_shape"))
                args.append(f"{label}_shape")
            nodes.append(helper.make_node(_NAMES[n.op.name], args, [label], **attrs))
    ends = [(names[n], list(n.shape)) for n in (function.params[0], function.body)]
    infos = [helper.make_tensor_value_info(label, TensorProto.FLOAT, shape) for label, shape in ends]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def _attributes(n: Node) -> dict[str, Any]:
    if n.op.name == "conv":
        kept = {"strides": n.attrs["strides"], "pads": n.attrs["padding"], "group": n.attrs["groups"]}
        return {**kept, "kernel_shape": n.args[1].shape[2:]}
    if n.op.name == "max_pool":
        return {"kernel_shape": n.attrs["kernel"], "strides": n.attrs["strides"]}
    if n.op.name == "softmax":
        return {"axis": n.attrs["axis"]}
    return {}


if __name__ == "__main__":
    main()
