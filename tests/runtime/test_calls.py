"""Calls by position, by name, bound, and from many threads; errors before anything runs."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import ArtifactError, RuntimeFailure, UnsupportedError, UsageError
from dlc_core.graph.node import param
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import op
from dlc_core.plugin.registry import fresh_registry
from dlc_core.runtime.call.arrays import NDArray
from dlc_core.runtime.memory import dlpack
from dlc_core.target.reference import KIND

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)


def expected(models, x):
    return np.maximum(x @ models.weight, 0)


def test_positions_names_and_bound_calls_agree(target, models):
    exe = dlc.compile(models.dense(), target)
    want = expected(models, X)
    np.testing.assert_allclose(exe(X), want, rtol=1e-6)
    np.testing.assert_array_equal(exe.run({"x": X})["output0"], exe(X))
    bound = exe.bind([X])
    np.testing.assert_array_equal(bound(), exe(X))
    x, y = X.copy(), np.full((2, 4), np.nan, np.float32)
    bound = exe.bind({"x": x}, [y])
    assert bound() is y
    x *= 2
    bound()
    np.testing.assert_allclose(y, 2 * want, rtol=1e-6)


def test_symbolic_dims_are_bound_by_each_call(target, models):
    exe = dlc.compile(models.rows(), target)
    assert str(exe.signature) == "(x: float32[n, 6]) -> (output0: float32[n, 4])"
    for n in (1, 5, 2, 5, 0):
        x = np.arange(6 * n, dtype=np.float32).reshape(n, 6) / 7
        np.testing.assert_allclose(exe(x), expected(models, x), rtol=1e-5)


def test_several_results(target, models):
    exe = dlc.compile(models.two(), target)
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 3, np.float32)
    total, product = exe(a, b)
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(product, a * b)
    with pytest.raises(UsageError, match="dim 0 is 1, but n is 2"):
        exe(a, b[:1])


def test_a_result_that_is_an_input_is_a_copy(target, models):
    exe = dlc.compile(models.identity(), target)
    x = np.arange(3, dtype=np.float32)
    y = exe(x)
    np.testing.assert_array_equal(y, x)
    assert target == "reference" or not np.shares_memory(x, y)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((), "0 inputs given, 1 needed"),
        ((X, X), "2 inputs given"),
        ((None,), "input 'x' is None, not an array"),
        (([[1.0] * 6] * 2,), "input 'x' is a Python list"),
        ((1.0,), "input 'x' is a Python float"),
        ((object(),), "input 'x' is a object, not an array"),
        ((np.array([None]),), "dtype object"),
        ((X.astype(np.float64),), "input 'x' is float64, float32 is needed"),
        ((X.astype(">f4"),), "is >f4, float32 is needed"),
        ((X.astype(ml_dtypes.bfloat16),), "input 'x' is bfloat16"),
        ((X[0],), "it has 1 dims, not 2"),
        ((X[:, :5],), "dim 1 is 5, not 6"),
    ],
)
def test_refuses_arrays_that_do_not_match(target, models, arrays, message):
    exe = dlc.compile(models.dense(), target)
    with pytest.raises(UsageError, match=message):
        exe(*arrays)
    with pytest.raises(UsageError):
        exe.bind(list(arrays))


def test_refuses_wrong_names(devices, models):
    exe = dlc.compile(models.dense(), "shared")
    with pytest.raises(UsageError, match=r"unknown input 'y'\n  hint: inputs: x: float32\[2, 6\]"):
        exe.run({"x": X, "y": X})
    with pytest.raises(UsageError, match="input 'x' is missing"):
        exe.run({})


def test_accepts_any_layout_and_copies_no_contiguous_memory(devices, models):
    seen = []
    shared = dlc.compile(models.dense(), "shared")
    want = shared(X)
    inner = shared.device.launch
    shared.device.launch = lambda entry, buffers, *rest: (
        seen.append(buffers[0]),
        inner(entry, buffers, *rest),
    )
    exe = dlc.compile(models.dense(), "shared")
    frozen = X.copy()
    frozen.flags.writeable = False
    layouts = (X, frozen, np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], memoryview(X), Exporter(X))
    for array in layouts:
        np.testing.assert_array_equal(exe(array), want)
    assert [at == X.ctypes.data for at in seen] == [True, False, False, False, True, True]
    assert seen[1] == frozen.ctypes.data


class Exporter:
    """An array that exports its memory by DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return dlpack.CPU

    def __dlpack__(self, *, max_version=None, **_):
        return self.array.__dlpack__(max_version=max_version)


def test_bound_memory_is_checked(target, models):
    exe = dlc.compile(models.dense(), target)
    y = np.empty((2, 4), np.float32)
    for inputs, outputs, message in (
        ([np.asfortranarray(X)], None, "not contiguous"),
        ([X], [y, y], "2 outputs given, 1 needed"),
        ([X], [y[:1]], r"is float32\[1, 4\], float32\[2, 4\] is needed"),
        ([X], [y.astype(np.float64)], "is float64"),
        ([X], [np.empty((4, 2), np.float32).T], "must be contiguous"),
        ([X], [None], "output 'output0' is None"),
    ):
        with pytest.raises(UsageError, match=message):
            exe.bind(inputs, outputs)
    memory = np.zeros(20, np.float32)
    with pytest.raises(UsageError, match="overlaps"):
        exe.bind([memory[:12].reshape(2, 6)], [memory[10:18].reshape(2, 4)])


def test_threads_call_at_once(target, models):
    exe = dlc.compile(models.rows(), target)
    exe(X)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(8):
            x = rng.standard_normal((int(rng.integers(1, 6)), 6)).astype(np.float32)
            if not np.allclose(exe(x), expected(models, x), rtol=1e-5, atol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_scratch_memory_stays_bounded_and_can_be_released(devices, models):
    exe = dlc.compile(models.rows(), "shared")
    for n in (1, 50, 3, 50, 2):
        exe(np.ones((n, 6), np.float32))
    assert len(exe._caller._arenas) == 1
    exe.release()
    assert exe._caller._arenas == []
    exe(X)


def test_num_threads_can_be_set(devices, models):
    exe = dlc.compile(models.dense(), "board", num_threads=3)
    seen = []
    inner = exe.device.launch
    exe.device.launch = lambda *args: (seen.append(args[-1]), inner(*args))
    exe(X)
    exe.num_threads = 1
    exe(X)
    exe.bind([X])()
    assert seen == [3, 1, 1]
    for wrong in (0, -1, 1.5, True, None):
        with pytest.raises(UsageError, match="num_threads"):
            exe.num_threads = wrong


def test_callers_use_different_numbers_of_threads(devices, models):
    exe = dlc.compile(models.dense(), "shared", num_threads=2)
    one = exe.with_threads(1)
    assert (exe.num_threads, one.num_threads) == (2, 1)
    x = np.ones(exe.inputs[0].shape, np.float32)
    np.testing.assert_array_equal(one(x), exe(x))
    assert one._caller is exe._caller
    with pytest.raises(UsageError, match="num_threads is 0"):
        exe.with_threads(0)


def test_arrays_stay_on_the_device_until_they_are_freed(devices, models):
    exe = dlc.compile(models.dense(), "board")
    exe(X)
    kept = len(devices.board.memory)
    on_board = NDArray.from_host(devices.board, X)
    result = exe(on_board)
    assert isinstance(result, NDArray)
    assert repr(result) == "<float32[2, 4] on board>"
    np.testing.assert_allclose(result.numpy(), expected(models, X), rtol=1e-6)
    np.testing.assert_array_equal(np.from_dlpack(result), result.numpy())
    np.testing.assert_array_equal(np.asarray(result), result.numpy())
    with pytest.raises(UsageError, match="float32 is needed"):
        exe(NDArray.from_host(devices.board, X.astype(np.int32)))
    with pytest.raises(UsageError, match="dim 1"):
        exe(NDArray.from_host(devices.board, X[:, :3]))
    del result, on_board
    for _ in range(3):
        exe(X)
    assert len(devices.board.memory) == kept


def test_errors_name_the_device(devices, models):
    exe = dlc.compile(models.dense(), "board")
    devices.board.failing = True
    with pytest.raises(
        RuntimeFailure, match=r"device 'board' failed\n  because OSError: the board does not answer"
    ):
        exe(X)
    devices.board.failing = False
    assert exe(X).shape == (2, 4)


def test_the_reference_computes_data_dependent_shapes(devices, models):
    x = param("x", tensor_type((4,)))
    m = Var("m")
    above = op(
        "above",
        "the values above zero",
        ["x"],
        kind="opaque",
        infer=lambda types, attrs: tensor_type((m,)),
        reference=lambda x: x[x > 0],
    )
    plugin = SimpleNamespace(dlc_ops=hookimpl(specname="dlc_ops")(lambda: [above]))
    with fresh_registry({"above": plugin}):
        exe = dlc.compile(models.module(above.build(x)), "reference")
        for values in ([1, -1, 2, 3], [-1, -2, -3, -4]):
            array = np.array(values, np.float32)
            np.testing.assert_array_equal(exe(array), array[array > 0])
    with pytest.raises(UsageError, match="sizes of this call depend on m"):
        exe.bind([np.ones(4, np.float32)])


def test_unsupported_uses_raise(devices, models):
    exe = dlc.compile(models.dense(), "reference")
    with pytest.raises(UnsupportedError, match="does not support export") as caught:
        exe.export("model.so")
    assert "dlc compile -o NAME.dlc" in str(caught.value)
    with pytest.raises(UsageError, match="no source 'asm'"):
        exe.source("asm")
    assert "matmul" in dlc.compile(models.dense(), "shared").source("graph")
    assert repr(exe) == "<Executable for reference: (x: float32[2, 6]) -> (output0: float32[2, 4])>"
    assert repr(exe.inputs) == "(<x: float32[2, 6]>,)"


def test_saves_but_does_not_run_without_a_device(devices, models, tmp_path):
    class Kinds:
        @hookimpl
        def dlc_targets(self):
            return [replace(KIND, name="nowhere", device="nowhere")]

    with fresh_registry({"kinds": Kinds()}):
        exe = dlc.compile(models.dense(), "nowhere")
        exe.save(tmp_path / "m.dlc")
        with pytest.raises(UnsupportedError, match="there is no device 'nowhere' to run on"):
            exe(X)
        with pytest.raises(ArtifactError, match="not known here"):
            dlc.open(tmp_path / "m.dlc")
