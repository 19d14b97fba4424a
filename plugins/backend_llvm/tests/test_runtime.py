"""The C runtime: it lists, checks and runs saved models and libraries, and refuses damaged files."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import threading
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from dlc_backend_llvm.runtime_source import write_runtime

import dlc_core as dlc
from dlc_core import te
from dlc_core.cli.main import main
from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.graph.node import Function, constant, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type

CC = shutil.which(os.environ.get("CC", "cc"))
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")
HERE = Path(__file__).parent
STRICT = ["-O1", "-g", "-Wall", "-Wextra", "-Werror"]
LIBRARIES = ["-ldl", "-lm", "-lpthread"]
WEIGHT = np.linspace(-1, 1, 40, dtype=np.float32).reshape(8, 5)


class Info(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("item_size", ctypes.c_size_t),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dims", ctypes.POINTER(ctypes.c_char_p)),
    )


class Runtime:
    """The runtime in this process, called like from C."""

    def __init__(self, library: Path) -> None:
        self.c = ctypes.CDLL(str(library))
        for name in ("dlc_open", "dlc_session_new", "dlc_get_output"):
            getattr(self.c, name).restype = ctypes.c_void_p
        for name in ("dlc_error", "dlc_function_name"):
            getattr(self.c, name).restype = ctypes.c_char_p
        for name in ("dlc_input", "dlc_output"):
            getattr(self.c, name).restype = ctypes.POINTER(Info)

    def error(self) -> str:
        return self.c.dlc_error().decode()

    def open(self, path) -> ctypes.c_void_p:
        found = self.c.dlc_open(str(path).encode())
        assert found, self.error()
        return ctypes.c_void_p(found)

    def refusal(self, path) -> str:
        """The error for a file that is not opened."""
        assert not self.c.dlc_open(str(path).encode())
        return self.error()

    def session(self, model, name=None) -> ctypes.c_void_p:
        found = self.c.dlc_session_new(model, name)
        assert found, self.error()
        return ctypes.c_void_p(found)

    def values(self, model, function=0):
        """Name, dtype and dims of inputs and of outputs."""
        found = []
        for side, count in (("dlc_input", "dlc_num_inputs"), ("dlc_output", "dlc_num_outputs")):
            infos = [
                getattr(self.c, side)(model, function, i).contents
                for i in range(getattr(self.c, count)(model, function))
            ]
            found.append(
                [(t.name.decode(), t.dtype.decode(), [d.decode() for d in t.dims[: t.ndim]]) for t in infos]
            )
        return found

    def set_input(self, session, index, array) -> int:
        shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        return self.c.dlc_set_input(session, index, ctypes.c_void_p(array.ctypes.data), shape, array.ndim)

    def output(self, session, index, ndim, dtype=np.float32):
        shape = ctypes.POINTER(ctypes.c_int64)()
        data = self.c.dlc_get_output(session, index, ctypes.byref(shape))
        assert data, self.error()
        sizes = shape[:ndim]
        raw = ctypes.string_at(data, int(np.prod(sizes)) * np.dtype(dtype).itemsize)
        return np.frombuffer(raw, dtype).reshape(sizes)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runtime")
    _, source, _ = write_runtime(folder)
    made = folder / "libdlc_runtime.so"
    command = [CC, "-std=c11", "-pedantic", *STRICT, "-shared", "-fPIC", source, *LIBRARIES, "-o", made]
    subprocess.run(command, check=True)
    return Runtime(made)


def network(weight=WEIGHT):
    """relu(x @ w) + shift, and its sum over columns."""
    ops = dlc.ops()
    x, shift = param("x", tensor_type((Var("n"), 8))), param("shift", tensor_type((5,)))
    y = ops["add"].build(ops["relu"].build(ops["matmul"].build(x, constant(weight))), shift)
    attrs = {"inputs": ("x", "shift"), "outputs": ("y", "total")}
    body = make_tuple([y, ops["reduce_sum"].build(y, axes=(1,))])
    return IRModule({"main": Function("main", (x, shift), body, attrs)})


def feeds(rows):
    x = np.sin(np.arange(rows * 8, dtype=np.float32)).reshape(rows, 8)
    return x, np.arange(5, dtype=np.float32)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A network as an executable, as a saved file and as a library."""
    folder = tmp_path_factory.mktemp("net")
    exe = dlc.compile(network(), "llvm", num_threads=2)
    exe.save(folder / "net.dlc", sources=(), library=True)
    exe.export(folder / "net.so")
    return exe, folder / "net.dlc", folder / "net.so"


@pytest.mark.parametrize("form", [1, 2], ids=["dlc", "so"])
def test_functions_are_listed(runtime, net, form):
    model = runtime.open(net[form])
    assert runtime.c.dlc_runtime_version() == 1
    assert runtime.c.dlc_num_functions(model) == 1
    assert runtime.c.dlc_function_name(model, 0) == b"main"
    inputs, outputs = runtime.values(model)
    assert inputs == [("x", "float32", ["n", "8"]), ("shift", "float32", ["5"])]
    assert outputs == [("y", "float32", ["n", "5"]), ("total", "float32", ["n"])]
    assert runtime.c.dlc_input(model, 0, 0).contents.shape[:2] == [-1, 8]
    session = runtime.session(model, b"main")
    assert runtime.c.dlc_input_index(session, b"shift") == 1
    assert runtime.c.dlc_output_index(session, b"total") == 1
    runtime.c.dlc_session_free(session)
    runtime.c.dlc_close(model)


@pytest.mark.parametrize("form", [1, 2], ids=["dlc", "so"])
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_results_are_those_of_python(runtime, net, form, threads):
    exe = net[0]
    model = runtime.open(net[form])
    session = runtime.session(model)
    for rows in (3, 40, 0, 1):
        arrays = feeds(rows)
        for index, array in enumerate(arrays):
            assert runtime.set_input(session, index, array) == 0
        assert runtime.c.dlc_run(session, threads) == 0, runtime.error()
        y, total = exe(*arrays)
        np.testing.assert_array_equal(runtime.output(session, 0, 2), y)
        np.testing.assert_array_equal(runtime.output(session, 1, 1), total)
    runtime.c.dlc_session_free(session)
    runtime.c.dlc_close(model)


def test_outputs_in_memory_of_the_caller(runtime, net):
    exe = net[0]
    model = runtime.open(net[1])
    session = runtime.session(model)
    arrays, memory = feeds(3), np.full(20, -1, np.float32)
    for index, array in enumerate(arrays):
        runtime.set_input(session, index, array)
    at = ctypes.c_void_p(memory.ctypes.data)
    assert runtime.c.dlc_set_output(session, 0, at, ctypes.c_size_t(60)) == 0
    assert runtime.c.dlc_run(session, 1) == 0
    np.testing.assert_array_equal(memory[:15].reshape(3, 5), exe(*arrays)[0])
    assert (memory[15:] == -1).all()
    assert runtime.c.dlc_set_output(session, 0, at, ctypes.c_size_t(59)) == 0
    assert runtime.c.dlc_run(session, 1) < 0
    assert runtime.error() == "output 'y' needs 60 bytes, and 59 are given"
    runtime.c.dlc_session_free(session)
    runtime.c.dlc_close(model)


def test_threads_share_a_model(runtime, net):
    exe = net[0]
    model, wrong = runtime.open(net[1]), []

    def work(rows):
        session = runtime.session(model)
        arrays = feeds(rows)
        want = exe(*arrays)[0]
        for index, array in enumerate(arrays):
            runtime.set_input(session, index, array)
        wrong.extend(
            rows
            for _ in range(50)
            if runtime.c.dlc_run(session, 0) or not np.array_equal(runtime.output(session, 0, 2), want)
        )
        runtime.c.dlc_session_free(session)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 7, 64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    runtime.c.dlc_close(model)


def test_calls_that_do_not_fit(runtime, net):
    model = runtime.open(net[1])
    session = runtime.session(model)
    x, shift = feeds(3)
    run = runtime.c.dlc_run
    cases = (
        (lambda: run(session, 0), "input 'x' is not set"),
        (lambda: runtime.set_input(session, 2, x), "there is no input 2"),
        (lambda: runtime.set_input(session, -1, x), "there is no input -1"),
        (lambda: runtime.set_input(session, 0, shift), "input 'x' has 1 dims, not 2"),
        (lambda: runtime.c.dlc_set_input(session, 0, None, None, 2), "the shape of input 'x' is NULL"),
        (lambda: runtime.c.dlc_set_output(session, 2, None, 0), "there is no output 2"),
        (lambda: runtime.c.dlc_input_index(session, b"z"), "there is no input 'z'"),
        (lambda: runtime.c.dlc_run(None, 0), "the session is NULL"),
        (lambda: runtime.c.dlc_num_inputs(model, 1), "there is no function 1"),
    )
    for act, message in cases:
        assert act() < 0
        assert runtime.error() == message
    assert not runtime.c.dlc_get_output(session, 0, None)
    assert runtime.error() == "there are no outputs: dlc_run has not succeeded"
    assert not runtime.c.dlc_session_new(model, b"other")
    assert runtime.error() == "there is no function 'other'"
    wide = np.zeros((3, 9), np.float32)
    odd = np.zeros(97, np.uint8)[1:].view(np.float32).reshape(3, 8)
    for array, message in (
        (wide, "input 'x' has the shape [3, 9], which does not fit [n, 8] and the other inputs"),
        (odd, "input 'x' is not aligned to its elements"),
    ):
        runtime.set_input(session, 0, array)
        runtime.set_input(session, 1, shift)
        assert run(session, 0) < 0
        assert runtime.error() == message
    runtime.c.dlc_set_input(session, 0, None, (ctypes.c_int64 * 2)(3, 8), 2)
    assert run(session, 0) < 0
    assert runtime.error() == "input 'x' is NULL"
    runtime.set_input(session, 0, x)
    assert run(session, -1) < 0
    assert run(session, 0) == 0
    runtime.c.dlc_session_free(session)
    runtime.c.dlc_close(model)


def test_several_functions(runtime, tmp_path):
    def program(name, combine):
        x, y = te.placeholder((6,), name="x"), te.placeholder((6,), name="y")
        result = te.compute((6,), lambda i: combine(x[i], y[i]), name="z")
        return te.create_prim_func([x, y], [result], name)

    exe = dlc.build(
        IRModule.of(program("add", lambda a, b: a + b), program("sub", lambda a, b: a - b)), "llvm"
    )
    exe.save(tmp_path / "two.dlc", library=True)
    exe.export(tmp_path / "two.so")
    x, y = np.arange(6, dtype=np.float32), np.ones(6, np.float32)
    for path in (tmp_path / "two.dlc", tmp_path / "two.so"):
        model = runtime.open(path)
        assert [runtime.c.dlc_function_name(model, i) for i in range(2)] == [b"add", b"sub"]
        for name, want in ((b"add", x + y), (b"sub", x - y), (None, x + y)):
            session = runtime.session(model, name)
            runtime.set_input(session, 0, x)
            runtime.set_input(session, 1, y)
            assert runtime.c.dlc_run(session, 1) == 0
            np.testing.assert_array_equal(runtime.output(session, 0, 1), want)
            runtime.c.dlc_session_free(session)
        runtime.c.dlc_close(model)


def test_sizes_and_indices_that_are_data(runtime, tmp_path):
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 20]>
    grid (float[n] x, int64[2] shape, int64[k] picks) => (float[rows, columns] y, float[k] z) {
        y = Reshape(x, shape)
        z = Gather(x, picks)
    }
    """)
    exe = dlc.compile(model, "llvm")
    exe.save(tmp_path / "grid.dlc", library=True)
    opened = runtime.open(tmp_path / "grid.dlc")
    session = runtime.session(opened)
    x, picks = np.arange(12, dtype=np.float32), np.array([0, -1, 5])
    runtime.set_input(session, 0, x)
    for shape in ((3, 4), (2, -1)):
        sizes = np.array(shape)
        runtime.set_input(session, 1, sizes)
        runtime.set_input(session, 2, picks)
        assert runtime.c.dlc_run(session, 0) == 0, runtime.error()
        y, z = exe(x, sizes, picks)
        np.testing.assert_array_equal(runtime.output(session, 0, 2), y)
        np.testing.assert_array_equal(runtime.output(session, 1, 1), z)
    wrong, far = np.array([5, 5]), np.array([0, 12, 3])
    runtime.set_input(session, 1, wrong)
    assert runtime.c.dlc_run(session, 0) < 0
    runtime.set_input(session, 1, sizes)
    runtime.set_input(session, 2, far)
    assert runtime.c.dlc_run(session, 0) < 0
    assert runtime.error() == "an index in the data of the inputs is out of range"
    runtime.c.dlc_session_free(session)
    runtime.c.dlc_close(opened)


def test_equal_code_with_other_weights(runtime, tmp_path):
    """Code is loaded once; each model has its own weights, and no file stays open for it."""
    paths = []
    for index in range(3):
        exe = dlc.compile(network(WEIGHT * (index + 1)), "llvm", num_threads=1)
        paths.append((tmp_path / f"{index}.dlc", exe))
        exe.save(paths[-1][0], library=True)
    arrays = feeds(4)

    def run(path, exe):
        model = runtime.open(path)
        session = runtime.session(model)
        for index, array in enumerate(arrays):
            runtime.set_input(session, index, array)
        assert runtime.c.dlc_run(session, 1) == 0
        np.testing.assert_array_equal(runtime.output(session, 0, 2), exe(*arrays)[0])
        runtime.c.dlc_session_free(session)
        runtime.c.dlc_close(model)

    for each in paths:
        run(*each)
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir())) if files.exists() else 0
    for each in paths * 5:
        run(*each)
    assert not files.exists() or len(list(files.iterdir())) <= before


def test_damaged_files(runtime, net, tmp_path):
    good = net[1].read_bytes()
    length = struct.unpack_from("<I", good, 12)[0]
    bad = tmp_path / "bad.dlc"

    def with_header(old: bytes, new: bytes) -> bytes:
        text = good[48 : 48 + length]
        assert len(old) == len(new)
        assert old in text
        text = text.replace(old, new)
        return good[:16] + sha256(text).digest() + text + good[48 + length :]

    cases = (
        (b"", "it is no .dlc file and no library"),
        (b"\x7fELF", "it is no .dlc file and no library"),
        (good[:20], "it is shorter than the prefix"),
        (b"\x00" + good[1:], "it is no .dlc file and no library"),
        (good[:8] + struct.pack("<I", 7) + good[12:], "it has the format 7, this runtime reads 1"),
        (good[:12] + b"\xff\xff\xff\xff" + good[16:], "its header is longer than the file"),
        (good[:60] + b"?" + good[61:], "the checksum of its header differs"),
        (good[:-200], "section 'weights' ends after the file"),
        (good[:-1], "bytes follow its last section"),
        (good + b"\0", "bytes follow its last section"),
        (with_header(b'{"core"', b'["core"'), "its header is not JSON"),
        (with_header(b'"sections"', b'"Sections"'), "it lists no sections"),
        (with_header(b'"offset":0,', b'"offset":1,'), "its list of sections is malformed"),
        (with_header(b'"name":"library"', b'"name":"Library"'), "it has no library; save it with"),
        (with_header(b'"name":"library"', b'"name":"weights"'), "it has two sections 'weights'"),
        (with_header(b'"sha256":"', b'"sha256":X'), "its header is not JSON"),
    )
    for data, message in cases:
        bad.write_bytes(data)
        assert message in runtime.refusal(bad)
    code = good.index(b"\x7fELF")
    bad.write_bytes(good[: code + 100] + b"\xff" + good[code + 101 :])
    assert "the checksum of its library differs" in runtime.refusal(bad)
    assert "No such file" in runtime.refusal(tmp_path / "none.dlc")
    assert "it is no .dlc file" in runtime.refusal(tmp_path)
    net[0].save(tmp_path / "plain.dlc")
    assert "it has no library; save it with exe.save(path, library=True)" in runtime.refusal(
        tmp_path / "plain.dlc"
    )


def test_libraries_of_other_origin(runtime, net, tmp_path):
    """A library without a table, with another version, and the library of a file without its weights."""
    fields = "unsigned abi, count; const void *rows, *weights; unsigned long long size;"
    table = f"static const void *row[16]; struct {{{{ {fields} }}}} dlc_library = {{{{{{}}}}}};"
    for name, text, message in (
        ("plain", "int nothing;", "has no table dlc_library"),
        ("newer", table.format("99, 1, 0, 0, 0"), "its library has version 99, this runtime reads 1"),
        ("empty", table.format("1, 0, 0, 0, 0"), "its table is malformed"),
        ("bare", table.format("1, 1, row, 0, 0"), "without weights"),
        (
            "odd",
            table.format("1, 1, row, row, 0"),
            "a function of the library is incomplete",
        ),
    ):
        source, made = tmp_path / f"{name}.c", tmp_path / f"{name}.so"
        source.write_text(text)
        subprocess.run([CC, "-shared", "-fPIC", source, "-o", made], check=True)
        assert message in runtime.refusal(made)


def test_only_exportable_code_has_a_library(tmp_path):
    exe = dlc.compile(network(), "reference")
    with pytest.raises(UnsupportedError, match="does not support library"):
        exe.save(tmp_path / "net.dlc", library=True)
    assert not (tmp_path / "net.dlc").exists()


def test_python_opens_files_with_a_library(net):
    opened = dlc.open(net[1], verify=True)
    for got, want in zip(opened(*feeds(3)), net[0](*feeds(3)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_command_writes_the_runtime(tmp_path, capsys):
    assert main(["runtime", str(tmp_path / "vendor")]) == 0
    assert sorted(p.name for p in (tmp_path / "vendor").iterdir()) == [
        "dlc_device.h",
        "dlc_runtime.c",
        "dlc_runtime.h",
    ]
    assert "dlc_runtime.h" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_runtime(tmp_path / "file")


def test_the_command_compiles_files_for_it(runtime, tmp_path):
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 20]>
    relu (float[n] x) => (float[n] y) { y = Relu(x) }
    """)
    onnx.save(model, tmp_path / "relu.onnx")
    words = ["compile", str(tmp_path / "relu.onnx"), "--no-cache", "-o", str(tmp_path / "relu.dlc")]
    assert main([*words, "--library"]) == 0
    opened = runtime.open(tmp_path / "relu.dlc")
    assert runtime.values(opened)[0] == [("x", "float32", ["n"])]
    runtime.c.dlc_close(opened)


def sanitizers(folder: Path) -> list[str]:
    """The flags of the sanitizers that this compiler has."""
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    built = subprocess.run([CC, *flags, probe, "-o", folder / "probe"], capture_output=True, check=False)
    ran = not built.returncode and not subprocess.run([folder / "probe"], check=False).returncode
    return flags if ran else []


def test_two_thousand_damaged_files_do_not_crash_it(net, tmp_path):
    write_runtime(tmp_path)
    program = tmp_path / "fuzz"
    flags = [*STRICT, *sanitizers(tmp_path), f"-I{tmp_path}"]
    subprocess.run([CC, "-std=c11", *flags, HERE / "runtime_fuzz.c", *LIBRARIES, "-o", program], check=True)
    done = subprocess.run(
        [program, net[1], tmp_path / "copy", "2000"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    opened, refused, described = (int(word) for word in done.stdout.split() if word.isdigit())
    assert opened + refused == 2000
    assert refused > 1000
    assert described < 2000
