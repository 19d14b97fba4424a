"""Memory that the system can take back: pages of mapped files and of libraries, and the peak of a compile."""

import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dlc_core.runtime.memory.mapped import drop_code, drop_pages, return_free

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc/self/smaps")
SIZE = 1 << 22


@pytest.fixture
def mapped(tmp_path):
    """The path of a file of SIZE bytes, and its bytes as an array of the file mapped read-only."""
    path = tmp_path / "weights.bin"
    path.write_bytes(np.arange(SIZE // 4, dtype=np.int32).tobytes())
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return path, np.frombuffer(view, np.int32)


def resident(path):
    """The bytes of a mapped file that are in the memory of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    found = 0
    for line in lines:
        if line.endswith(str(path)):
            found += next(int(each.split()[1]) << 10 for each in lines if each.startswith("Rss:"))
    return found


@ON_LINUX
@pytest.mark.parametrize(
    "view",
    [
        lambda array: array,
        lambda array: array.reshape(1024, -1).T,
        lambda array: array[::-1],
        lambda array: array.view(np.uint8)[64:],
    ],
    ids=["whole", "transposed", "reversed", "from a part"],
)
def test_pages_of_a_mapped_file_are_dropped_and_read_again(mapped, view):
    path, array = mapped
    total = array.sum()
    assert resident(path) >= SIZE
    drop_pages(view(array))
    assert resident(path) <= SIZE // 16
    assert array.sum() == total


@ON_LINUX
def test_other_pages_of_the_file_stay(mapped):
    path, array = mapped
    array.sum()
    drop_pages(array[: array.size // 2])
    assert SIZE // 2 <= resident(path) < SIZE * 3 // 4


def test_memory_that_can_be_written_keeps_its_values(tmp_path):
    anonymous = np.frombuffer(mmap.mmap(-1, SIZE), np.int32)
    anonymous[:] = 7
    with (tmp_path / "file").open("w+b") as file:
        file.truncate(SIZE)
        private = np.frombuffer(mmap.mmap(file.fileno(), SIZE, access=mmap.ACCESS_COPY), np.int32)
    private[:] = 7
    own = np.full(SIZE // 4, 7, np.int32)
    for array in (anonymous, private, own):
        view = array.view()
        view.flags.writeable = False
        drop_pages(view)
        assert (array == 7).all()


def test_code_of_unknown_libraries_and_free_memory(tmp_path):
    drop_code(str(tmp_path))
    kept = np.full(SIZE // 4, 7, np.int32)
    return_free()
    assert (kept == 7).all()


PEAK = """
import sys
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
import dlc_core as dlc

def model(count, size):
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(count):
        weights.append(numpy_helper.from_array(rng.random((size, size), np.float32), f"w{i}"))
        weights.append(numpy_helper.from_array(rng.random((size,), np.float32), f"s{i}"))
        nodes.append(helper.make_node("Mul", [f"w{i}", f"s{i}"], [f"v{i}"]) if i % 2 else
                     helper.make_node("Identity", [f"w{i}"], [f"v{i}"]))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"v{i}"], [f"x{i + 1}"]))
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, size])
    graph = helper.make_graph(nodes, "main", [value("x0")], [value(f"x{count}")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])

def status(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key + ":"))

large, small = sys.argv[1:3]
if sys.argv[3:]:
    onnx.save(model(12, 2048), large)
    onnx.save(model(12, 64), small)
else:
    dlc.compile(small, num_threads=1, cache=False)
    before = status("VmRSS")
    exe = dlc.compile(large, num_threads=1, cache=False)
    print((status("VmHWM") - before) / exe.weights.nbytes)
"""


@ON_LINUX
def test_a_compile_holds_weights_once(tmp_path):
    """At the peak, a compile has the packed weights in memory, and few of the unpacked ones. Half
    of the weights are folded, so their unpacked form is no part of the model's file.
    """
    models = [str(tmp_path / "large.onnx"), str(tmp_path / "small.onnx")]
    subprocess.run([sys.executable, "-c", PEAK, *models, "write"], check=True)
    done = subprocess.run([sys.executable, "-c", PEAK, *models], check=True, capture_output=True, text=True)
    assert 1 <= float(done.stdout) <= 1.7, done.stdout
