"""Calls in steps: set_input, run, get_output."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UsageError
from dlc_core.runtime.call.arrays import NDArray

A, B = (np.arange(6, dtype=np.float32).reshape(2, 3) + i for i in (1, 5))


@pytest.fixture
def exe(target, models):
    return dlc.compile(models.two(), target)


def test_inputs_by_name_by_number_and_several(exe):
    a, b = (value.name for value in exe.inputs)
    first, second = (value.name for value in exe.outputs)
    for steps in ([((a, A), {}), ((b, B), {})], [((0, A), {}), ((1, B), {})], [((), {a: A, b: B})]):
        session = exe.session()
        for args, named in steps:
            session.set_input(*args, **named)
        outputs = session.run()
        np.testing.assert_array_equal(outputs[first], A + B)
        np.testing.assert_array_equal(session.get_output(0), A + B)
        np.testing.assert_array_equal(session.get_output(second), A * B)
    np.testing.assert_array_equal(session.get_input(a), A)


def test_inputs_are_copied_and_stay_set(exe):
    session = exe.session()
    array = A.copy()
    session.set_input(0, array)
    session.set_input(1, B)
    array[:] = 0
    session.run()
    total = session.get_output()
    np.testing.assert_array_equal(total, A + B)
    session.set_input(0, B)
    session.run()
    np.testing.assert_array_equal(session.get_output(), B + B)
    np.testing.assert_array_equal(total, A + B)


def test_outputs_are_copied_to_given_arrays(exe):
    session = exe.session()
    session.set_input(0, A)
    session.set_input(1, B)
    session.run()
    out = np.zeros((3, 2), np.float32).T
    assert session.get_output(0, out) is out
    np.testing.assert_array_equal(out, A + B)
    for wrong, message in (
        (np.zeros((3, 2), np.float32), r"is float32\[3, 2\], float32\[2, 3\] is needed"),
        (np.zeros((2, 3)), "is float64"),
        ([[0.0]], "a Python list"),
        (np.broadcast_to(np.float32(0), (2, 3)), "cannot be written"),
    ):
        with pytest.raises(UsageError, match=message):
            session.get_output(0, wrong)


def test_the_executable_has_a_session_for_each_thread(exe):
    exe.set_input(0, A)
    exe.set_input(1, B)
    seen = []

    def other():
        try:
            exe.run()
        except UsageError as error:
            seen.append(str(error))
        exe.set_input(0, B)
        exe.set_input(1, B)
        exe.run()
        seen.append(exe.get_output(0))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    exe.run()
    np.testing.assert_array_equal(exe.get_output(), A + B)
    assert "is not set" in seen[0]
    np.testing.assert_array_equal(seen[1], B + B)
    with pytest.raises(UsageError, match="is not set"):
        exe.with_threads(1).run()


def test_errors(exe):
    session = exe.session()
    a, b = (value.name for value in exe.inputs)
    for act, message in (
        (lambda: session.run(), f"input '{a}' is not set\n  hint: set_input: {a}, {b}"),
        (lambda: session.get_output(), r"no outputs yet\n  hint: call run\(\) first"),
        (lambda: session.get_input(0), "is not set"),
        (lambda: session.set_input("z", A), f"there is no input 'z'\n  hint: inputs: {a}, {b}"),
        (lambda: session.set_input(z=A), "there is no input 'z'"),
        (lambda: session.set_input(2, A), "there is no input 2"),
        (lambda: session.set_input(-1, A), "there is no input -1"),
        (lambda: session.set_input(True, A), "there is no input True"),
        (lambda: session.get_output("z"), "there is no output 'z'"),
        (lambda: session.set_input(0, A.astype(np.float64)), "is float64, float32 is needed"),
        (lambda: session.set_input(0, A[0]), "it has 1 dims, not 2"),
        (lambda: session.set_input(0, None), "is None"),
    ):
        with pytest.raises(UsageError, match=message):
            act()
    session.set_input(0, A)
    with pytest.raises(UsageError, match="is float64"):
        session.set_input(**{a: B, b: B.astype(np.float64)})
    np.testing.assert_array_equal(session.get_input(0), A)  # nothing was set
    session.set_input(1, B[:1])
    with pytest.raises(UsageError, match="dim 0 is 1, but n is 2"):
        session.run()
    session.set_input(1, B)
    session.run()
    session.set_input(1, B[:1])
    with pytest.raises(UsageError, match="dim 0"):
        session.run()
    with pytest.raises(UsageError, match="no outputs yet"):
        session.get_output()


def test_inputs_on_the_device_stay_there(devices, models):
    session = dlc.compile(models.two(), "board").session()
    for index, array in enumerate((A, B)):
        session.set_input(index, NDArray.from_host(devices.board, array))
    session.run()
    assert isinstance(session.get_output(), NDArray)
    out = np.zeros((2, 3), np.float32)
    session.get_output(1, out)
    np.testing.assert_array_equal(out, A * B)
