"""WebAssembly: the kit in Wasmtime, exported modules in Wasmtime and in Node.js, and their parts."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.wasm import export as exporting
from dlc_backend_llvm.wasm import linking
from dlc_backend_llvm.wasm.builtins import builtins_object
from dlc_backend_llvm.wasm.device import DEVICE, problem, wasmtime
from dlc_backend_llvm.wasm.module import with_data, with_section
from dlc_frontend_onnx.testing import light

import dlc_core as dlc
from dlc_core import nn
from dlc_core.diag import ArtifactError, CodegenError, RuntimeFailure, TargetError, UnsupportedError
from dlc_core.graph import Function, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.target import Artifact
from dlc_core.testing import conformance_suite
from dlc_core.testing.networks import cifar, feed

NODE = shutil.which("node")
LOADER = Path(__file__).parents[3] / "examples" / "wasm" / "dlc.mjs"
MACHINE = "wasm32-unknown-unknown", "generic", "+simd128"
runs = pytest.mark.skipif(problem() is not None, reason=str(problem()))
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node.js")

SLICE = ("matmul", "conv", "softmax", "layer_norm", "exp", "erf", "sin", "reduce_max", "gather", "concat")
TestWasm = runs(
    conformance_suite("wasm32", levels=("ops", "device"), dtypes=("float32", "float16", "int8"), ops=SLICE)
)
TestAllWasm = pytest.mark.slow(runs(conformance_suite("wasm32", levels=("ops", "device"))))


def products(out: int = 64) -> Any:
    module = nn.Linear(32, out).init(seed=0)
    return module.to_module({"x": (8, 32)}), module.state_dict()


@pytest.mark.parametrize(
    ("target", "wanted", "missing"),
    [
        ("wasm32", ("f32x4.mul", "f32x4.add", "v128.load"), "relaxed"),
        ("wasm32 -mattr=+relaxed-simd", ("f32x4.relaxed_madd", "v128.load"), "f32x4.mul"),
        ("wasm32 -mattr=-simd128", ("f32.mul", "f32.add"), "v128"),
        ("llvm -mtriple=wasm32-wasi", ("f32x4.mul", "f32x4.add"), "relaxed"),
    ],
)
def test_products_are_vector_instructions(target: str, wanted: tuple[str, ...], missing: str) -> None:
    module, params = products()
    text = dlc.compile(module, target, params=params, cache=False).source("asm")
    assert all(text.count(word) >= 8 for word in wanted)
    assert missing not in text


def test_the_description_of_the_machine() -> None:
    machine = dlc.Target("wasm32").describe()
    assert (machine.vector_bits, machine.fma, machine.cores, machine.parallel) == (128, False, 1, False)
    assert dlc.Target("wasm32 -mattr=+relaxed-simd").describe().fma
    assert dlc.Target("wasm32 -mattr=-simd128").describe().vector_bits == 0
    assert dlc.Target("wasm32").keys == ("wasm", "cpu")


@runs
@pytest.mark.parametrize(
    "options", ["", " -mattr=+relaxed-simd", " -mattr=-simd128", " -mcpu=mvp -mattr=-bulk-memory"]
)
def test_a_network(options: str) -> None:
    model = cifar()
    x = feed(model)
    found = dlc.compile(model, f"wasm32 {options}", cache=False)(x)
    np.testing.assert_allclose(found, dlc.compile(model, "reference")(x), rtol=1e-4, atol=1e-6)


@runs
@pytest.mark.slow
@pytest.mark.parametrize("name", light.NETWORKS)
def test_a_model_of_published_size(name: str) -> None:
    model, inputs = light.with_weights(name).SerializeToString(), light.input_of(name).values()
    found, expected = (dlc.compile(model, target)(*inputs) for target in ("wasm32", "llvm"))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5 * float(np.abs(expected).max()))


@runs
def test_an_exported_module_imports_nothing_and_runs(tmp_path: Path) -> None:
    model = cifar()
    x = feed(model)
    (path,) = dlc.compile(model, "wasm32").export(tmp_path / "net.wasm")
    run = wasmtime()
    store = run.Store()
    module = run.Module.from_file(store.engine, str(path))
    assert not module.imports
    names = [one.name for one in module.exports]
    assert sorted(names) == ["__heap_base", "memory", "net_run", "net_weights", "net_workspace_size"]
    found = run.Instance(store, module, []).exports(store)
    memory, base = found["memory"], found["__heap_base"].value(store) + 63 & ~63
    size = found["net_workspace_size"](store)
    source, out, tables, space = base, base + x.nbytes, base + x.nbytes + 64, base + x.nbytes + 128
    memory.grow(store, (space + size - memory.data_len(store) >> 16) + 1)
    memory.write(store, x.tobytes(), source)
    memory.write(store, np.array([source, out], np.uint32).tobytes(), tables)
    assert found["net_run"](store, tables, tables + 4, space, 1) == 0
    scores = np.frombuffer(memory.read(store, out, out + 40), np.float32)
    np.testing.assert_allclose(scores, dlc.compile(model, "reference")(x).ravel(), rtol=1e-4, atol=1e-6)
    assert found["net_run"](store, 0, tables + 4, space, 1) == -1


SCRIPT = """
import {readFileSync} from "node:fs";
import {Model} from "LOADER";
const {inputs, dims, expected} = JSON.parse(readFileSync(0, "utf-8"));
const types = {float32: Float32Array, int32: Int32Array, int64: BigInt64Array, uint8: Uint8Array};
const model = await Model.load(readFileSync(process.argv[2]));
const given = Object.fromEntries(model.about.inputs.map(({name, dtype}) =>
  [name, types[dtype].from(inputs[name], dtype === "int64" ? BigInt : Number)]));
let refused = 0;
try { model.run({}); } catch { refused = 1; }
for (let i = 0; i < 2; ++i) {
  const made = model.run(given, dims);
  const shown = Object.entries(made).map(([n, {shape, data}]) => [n, shape, Array.from(data, Number)]);
  console.log(JSON.stringify([refused, ...shown]));
}
"""


def in_node(path: Path, inputs: dict[str, Any], dims: dict[str, int]) -> list[Any]:
    script = path.with_suffix(".mjs")
    script.write_text(SCRIPT.replace("LOADER", LOADER.as_uri()))
    assert NODE
    given = json.dumps({"inputs": {n: a.ravel().tolist() for n, a in inputs.items()}, "dims": dims})
    command = [NODE, str(script), str(path)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == second
    assert first[0] == 1
    return list(first[1:])


@needs_node
@runs
def test_node_runs_a_model_with_symbolic_dims(tmp_path: Path) -> None:
    rows, ops = Var("rows"), dlc.ops()
    x, y = param("x", tensor_type((rows, 4), "float32")), param("y", tensor_type((rows, 4), "float32"))
    made = ops["concat"].build(ops["add"].build(x, y), x, axis=0)
    exe = dlc.compile(IRModule({"main": Function("main", (x, y), made)}), "wasm32")
    (path,) = exe.export(tmp_path / "sum.wasm")
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.full((3, 4), 0.5, np.float32)
    ((_, shape, values),) = in_node(path, {"x": a, "y": b}, {"dim_rows": 3})
    assert shape == [6, 4]
    np.testing.assert_array_equal(values, np.concatenate([a + b, a]).ravel())


@needs_node
@runs
def test_node_runs_a_model_of_integers(tmp_path: Path) -> None:
    x, y = param("x", tensor_type((5,), "int64")), param("y", tensor_type((5,), "int64"))
    exe = dlc.compile(IRModule({"main": Function("main", (x, y), dlc.ops()["mul"].build(x, y))}), "wasm32")
    (path,) = exe.export(tmp_path / "product.wasm")
    a, b = np.array([1, -2, 3, 1 << 20, 5]), np.array([7, 8, -9, 1 << 20, 0])
    ((_, shape, values),) = in_node(path, {"x": a, "y": b}, {})
    assert (shape, values) == ([5], (a * b).tolist())


@runs
def test_large_products_of_128_bits() -> None:
    """`__multi3`, which sines of large arguments need."""
    caller = """
declare void @__multi3(ptr, i64, i64, i64, i64)
define void @product(ptr %out, i64 %a, i64 %b, i64 %c, i64 %d) {
  call void @__multi3(ptr %out, i64 %a, i64 %b, i64 %c, i64 %d)
  ret void
}
"""
    code = linking.link_module([compile_ir(caller, *MACHINE), builtins_object(*MACHINE)], ["product"])
    run = wasmtime()
    store = run.Store()
    found = run.Instance(store, run.Module(store.engine, code), []).exports(store)
    base = found["__heap_base"].value(store)
    found["memory"].grow(store, 1)
    generator = random.Random(3)
    for _ in range(50):
        a, b = (generator.getrandbits(generator.choice((8, 64, 128))) for _ in range(2))
        halves = np.array([a % (1 << 64), a >> 64, b % (1 << 64), b >> 64], np.uint64).view(np.int64)
        found["product"](store, base, *halves.tolist())
        made = int.from_bytes(found["memory"].read(store, base, base + 16), "little")
        assert made == a * b % (1 << 128)


@runs
def test_data_and_sections_are_added_to_a_module() -> None:
    text = "@here = hidden global [300 x i8] zeroinitializer, align 64\ndefine i32 @one() { ret i32 1 }\n"
    linked = linking.link_module([compile_ir(text, *MACHINE)], ["here", "one"])
    data = bytes(range(1, 201))
    module = with_section(
        with_data(with_data(linked, "here", memoryview(data)), "here", memoryview(b"AB")), "note", b"hello"
    )
    run = wasmtime()
    store = run.Store()
    found = run.Instance(store, run.Module(store.engine, module), []).exports(store)
    at = found["here"].value(store)
    assert bytes(found["memory"].read(store, at, at + 200)) == b"AB" + data[2:]
    assert module.endswith(b"\x04notehello")
    with pytest.raises(ArtifactError, match="does not export there"):
        with_data(linked, "there", memoryview(data))
    with pytest.raises(ArtifactError, match="not a WebAssembly module"):
        with_data(b"\x7fELF", "here", memoryview(data))
    for size in range(9, len(linked), 7):
        with pytest.raises(ArtifactError):
            with_data(linked[:size], "here", memoryview(data))


def test_what_modules_cannot_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetError, match="a WebAssembly module has one thread"):
        dlc.compile(cifar(), "llvm -mtriple=wasm32-wasi -num-threads=2")
    with pytest.raises(TargetError, match="no option -num-threads"):
        dlc.Target("wasm32 -num-threads=2")
    with pytest.raises(TargetError, match="-num-threads=2: a WebAssembly module has one thread"):
        dlc.compile(cifar(), "llvm -mtriple=wasm32-wasi", num_threads=2)
    with pytest.raises(ArtifactError, match="the code is for wasm32, this machine is"):
        dlc.compile(cifar(), "llvm -mtriple=wasm32-wasi")(feed(cifar()))
    exe = dlc.compile(cifar(), "wasm32")
    with pytest.raises(UnsupportedError, match=r"(?s)exported as a WebAssembly module.*model\.wasm"):
        exe.export(tmp_path / "net.so")
    with pytest.raises(UnsupportedError, match="guard mode"):
        DEVICE.alloc_guarded(None)  # type: ignore[arg-type]
    monkeypatch.setattr(exporting, "MEMORY", 1 << 10)
    with pytest.raises(UnsupportedError, match=r"(?s)does not fit.*addresses have 32 bits"):
        exe.export(tmp_path / "net.wasm")


def test_a_missing_linker_and_a_failing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "find_linker", lambda: ["/nowhere/wasm-ld"])
    with pytest.raises(CodegenError, match="could not be run"):
        linking.link_module([b""], [])
    monkeypatch.undo()
    monkeypatch.setattr(linking.shutil, "which", lambda name: None)
    monkeypatch.setattr(linking, "zig_command", list)
    with pytest.raises(UnsupportedError, match=r"(?s)no linker for WebAssembly.*pip install ziglang"):
        linking.find_linker()


@runs
def test_undefined_functions_and_foreign_code_are_refused() -> None:
    text = """
declare i32 @missing()
define i32 @f() {
  %x = call i32 @missing()
  ret i32 %x
}
"""
    code = compile_ir(text, *MACHINE)
    with pytest.raises(CodegenError, match=r"(?s)linking.*undefined symbol: missing"):
        linking.link_module([code], ["f"])
    with pytest.raises(ArtifactError, match="not for WebAssembly"):
        DEVICE.load(Artifact("object", b"", "llvm", metadata={"triple": "x86_64-linux-gnu"}))


@runs
def test_a_trap_is_a_runtime_failure() -> None:
    text = """
declare void @llvm.trap()
define i32 @main__entry(ptr %b, ptr %s, i32 %t) {
  call void @llvm.trap()
  unreachable
}
"""
    names = dict(zip(("triple", "cpu", "features"), MACHINE))
    program = DEVICE.load(Artifact("object", compile_ir(text, *MACHINE), "wasm32", ("main",), metadata=names))
    with pytest.raises(RuntimeFailure, match="main failed in WebAssembly"):
        DEVICE.run(program.entry("main"), [], [], 1)
    with pytest.raises(ArtifactError, match="no entry point other"):
        program.entry("other")
