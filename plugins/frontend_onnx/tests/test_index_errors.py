"""Out-of-range indices, computed or as inputs, are errors that name the node."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import TensorProto, helper

import dlc_core as dlc
from dlc_core.diag import RuntimeFailure

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
TARGETS = ("llvm", "c", "reference -level=tir", "reference")
X = np.arange(40, dtype=np.float32).reshape(8, 5)


def model(op, *inputs, **attrs):
    """One node called `pick`; its inputs are (name, dtype, shape)."""
    node = helper.make_node(op, [name for name, _, _ in inputs], ["y"], "pick", **attrs)
    given = [helper.make_tensor_value_info(*each) for each in inputs]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


DATA, UPDATES = ("x", FLOAT, [8, 5]), ("u", FLOAT, [3, 5])
CASES = {
    "Gather": (model("Gather", DATA, ("i", INT, [3])), [3], None),
    "Gather, axis 1": (model("Gather", DATA, ("i", INT, [3]), axis=1), [3], None),
    "GatherElements": (model("GatherElements", DATA, ("i", INT, [3, 5])), [3, 5], None),
    "GatherND": (model("GatherND", DATA, ("i", INT, [3, 1])), [3, 1], None),
    "ScatterElements": (model("ScatterElements", DATA, ("i", INT, [3, 5]), UPDATES), [3, 5], (3, 5)),
    "ScatterElements, add": (
        model("ScatterElements", DATA, ("i", INT, [3, 5]), UPDATES, reduction="add"), [3, 5], (3, 5)
    ),
    "ScatterND": (model("ScatterND", DATA, ("i", INT, [3, 1]), UPDATES), [3, 1], (3, 5)),
}  # fmt: skip


def feeds(case, first):
    """Inputs whose first index is `first`; the other indices are distinct and in range."""
    _, shape, updates = CASES[case]
    index = np.arange(np.prod(shape), dtype=np.int64).reshape(shape) % 3 + 1
    index.flat[0] = first
    given = [X, index]
    return given if updates is None else [*given, np.ones(updates, np.float32)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_an_index_out_of_range_fails_the_call(case, target):
    exe = dlc.compile(CASES[case][0], target)
    extent = 5 if "axis 1" in case else 8
    expected = exe(*feeds(case, extent - 1))
    for first in (extent, -extent - 1, 2**62, -(2**63)):
        with pytest.raises(RuntimeFailure) as caught:
            exe(*feeds(case, first))
        if target != "reference":
            assert "'pick'" in str(caught.value)
            assert str(first) in str(caught.value)
            assert f"{-extent} to {extent - 1}" in str(caught.value)
        # A failed call does not affect the next one.
        np.testing.assert_array_equal(exe(*feeds(case, extent - 1)), expected)
    np.testing.assert_array_equal(exe(*feeds(case, -1)), expected)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_indices_may_be_clamped(target):
    exe = dlc.compile(CASES["Gather"][0], target, config={"check_indices": False})
    found = exe(X, np.int64([100, -100, 3]))
    np.testing.assert_array_equal(found, X[[7, 0, 3]])


def test_concurrent_calls_fail_independently():
    exe = dlc.compile(CASES["Gather"][0], "llvm")

    def call(first):
        index = np.int64([first, 1, 2])
        for _ in range(50):
            if 0 <= first < 8:
                np.testing.assert_array_equal(exe(X, index), X[index])
            else:
                with pytest.raises(RuntimeFailure, match=f"index {first} "):
                    exe(X, index)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, [3, 9, 5, -77]))


def test_bindings_work_after_a_failure():
    exe = dlc.compile(CASES["Gather"][0], "llvm")
    out = np.empty((3, 5), np.float32)
    index = np.int64([1, 2, 99])
    bound = exe.bind([X, index], [out])
    with pytest.raises(RuntimeFailure, match="index 99 is out of range in 'pick'"):
        bound()
    index[2] = -8
    bound()
    np.testing.assert_array_equal(out, X[[1, 2, 0]])


def looped():
    """Eight iterations of a loop that picks row `start` plus the iteration number."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["round", "start"], ["at"]),
            helper.make_node("Gather", ["x", "at"], ["row"], "pick"),
            helper.make_node("Identity", ["more"], ["still"]),
        ],
        "body",
        [value("round", INT, []), value("more", TensorProto.BOOL, [])],
        [value("still", TensorProto.BOOL, []), value("row", FLOAT, [5])],
    )
    loop = helper.make_node("Loop", ["count", "on"], ["y"], "rounds", body=body)
    constants = [
        helper.make_tensor("count", INT, [], [4]),
        helper.make_tensor("on", TensorProto.BOOL, [], [True]),
    ]
    graph = helper.make_graph(
        [loop], "g", [value("x", FLOAT, [8, 5]), value("start", INT, [])],
        [value("y", FLOAT, [4, 5])], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_kernels_of_loops_report_to_the_call(target):
    exe = dlc.compile(looped(), target)
    np.testing.assert_array_equal(exe(X, np.int64(4)), X[4:])
    with pytest.raises(RuntimeFailure, match=r"index 8 is out of range in .*'pick'"):
        exe(X, np.int64(5))


def test_a_host_program_reports_for_its_segments():
    """A model with data-dependent sizes runs in parts: one of them fails."""
    nodes = [
        helper.make_node("NonZero", ["m"], ["where"]),
        helper.make_node("Squeeze", ["where", "zero"], ["places"]),
        helper.make_node("Gather", ["x", "places"], ["y"], "pick"),
    ]
    value = helper.make_tensor_value_info
    zero = helper.make_tensor("zero", INT, [1], [0])
    graph = helper.make_graph(
        nodes, "g", [value("m", FLOAT, [20]), value("x", FLOAT, [8, 5])], [value("y", FLOAT, None)], [zero]
    )
    exe = dlc.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), "llvm"
    )
    mask = np.zeros(20, np.float32)
    mask[[1, 7]] = 1
    np.testing.assert_array_equal(exe(mask, X), X[[1, 7]])
    mask[12] = 1
    with pytest.raises(RuntimeFailure, match="index 12 is out of range in 'pick'"):
        exe(mask, X)


def test_a_model_from_a_file_reports_the_same(tmp_path):
    dlc.compile(CASES["GatherND"][0], "llvm").save(tmp_path / "m.dlc")
    with pytest.raises(RuntimeFailure, match="index 8 is out of range in 'pick'"):
        dlc.open(tmp_path / "m.dlc")(*feeds("GatherND", 8))


needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc` here")


@needs_cc
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_exported_code_gives_a_status(target, tmp_path):
    exe = dlc.compile(CASES["Gather"][0], target)
    if target == "c":
        exe.export(tmp_path / "net")
        source = next((tmp_path / "net").glob("*.c"))
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", *map(str, source.parent.glob("*.c")), "-o",
             str(tmp_path / "net.so"), "-lm"],
            check=True,
        )  # fmt: skip
    else:
        exe.export(tmp_path / "net.so")
    library = ctypes.CDLL(str(tmp_path / "net.so"))
    text = "".join(path.read_text() for path in tmp_path.rglob("*.h"))
    assert "index" in text  # the header says what the status means
    out = np.zeros((3, 5), np.float32)
    workspace = np.zeros(1 << 16, np.uint8)
    failed = 1 if target == "llvm" else -3
    for last, status in ((2, 0), (8, failed), (-8, 0), (-9, failed)):
        index = np.int64([1, 2, last])
        given = (ctypes.c_void_p * 2)(X.ctypes.data, index.ctypes.data)
        made = (ctypes.c_void_p * 1)(out.ctypes.data)
        space = ctypes.c_void_p(-(-workspace.ctypes.data // 64) * 64)
        if target == "llvm":
            assert library.net_run(given, made, space, 1) == status
        else:
            arrays = map(ctypes.c_void_p, (*given, *made))
            assert library.net_run(*arrays, space) == status
        if not status:
            np.testing.assert_array_equal(out, X[index])


@pytest.mark.parametrize("target", TARGETS)
def test_no_division_by_sizes_of_zero(target):
    """The bounds proof's condition on sizes divides by a size, and stands outside of the loops over it."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], "resize")
    given = [
        helper.make_tensor_value_info("x", FLOAT, ["n", "c", "h", "w"]),
        helper.make_tensor_value_info("sizes", INT, [4]),
    ]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", FLOAT, None)])
    exe = dlc.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), target
    )
    image = np.ones((1, 1, 4, 4), np.float32)
    for sizes in ((1, 1, 7, 0), (1, 1, 0, 9), (0, 1, 7, 9), (1, 1, 7, 9)):
        assert np.array_equal(exe(image, np.array(sizes)), np.ones(sizes, np.float32))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_empty_shapes_that_numpy_cannot_hold(target):
    exe = dlc.compile(model("ConstantOfShape", ("sizes", INT, [2])), target)
    with pytest.raises(RuntimeFailure, match="a result has the shape"):
        exe(np.array([0, 2**62]))
    assert exe(np.array([0, 3])).shape == (0, 3)
