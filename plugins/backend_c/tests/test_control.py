"""Branches and loops in generated C, compared with the reference, also in exported sources."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from dlc_backend_c.emulated import problem

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, get_item, make_tuple, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.control_programs import check_random_control, number, scan_and_loop, vector

TARGETS = ("c", "c -vector-bits=256")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wno-psabi", "-O2"]


@pytest.mark.parametrize("target", TARGETS)
def test_loops_of_all_kinds_and_sizes(target):
    reference, exe = (
        dlc.compile(scan_and_loop(), "reference"),
        dlc.compile(scan_and_loop(), target, cache=False),
    )
    assert exe.program is None
    assert "host" not in exe.about
    rng = np.random.default_rng(0)
    for size, rounds, count in ((5, 4, 0), (33, 7, 3), (16, 1, 9), (3, 2, 4)):
        shapes = ((size,), (size,), (rounds, size))
        arrays = [rng.normal(size=shape).astype("f4") for shape in shapes]
        arrays.append(np.array(count, np.int32))
        for found, expected in zip(exe(*arrays), reference(*arrays), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_control_flow():
    for seed in range(3):
        check_random_control(seed, "c")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(3, 40))
def test_more_random_control_flow(seed):
    check_random_control(seed, TARGETS[seed % 2])


@pytest.mark.skipif(problem("cortex-a72") is not None, reason=str(problem("cortex-a72")))
def test_control_flow_on_an_emulated_machine():
    arrays = [
        np.float32([1, -2, 3]),
        np.float32([2, 1, 0]),
        np.ones((4, 3), np.float32),
        np.array(2, np.int32),
    ]
    found = dlc.compile(scan_and_loop(), "c_emulated -mcpu=cortex-a72", cache=False)(*arrays)
    for one, expected in zip(found, dlc.compile(scan_and_loop(), "reference")(*arrays), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)


def newton():
    """Square roots by Newton's method, until the largest change is small, in at most `limit` iterations. The
    number of iterations is data-dependent. The body has a constant.
    """
    x, y, i, limit = vector("x", 6), vector("y", 6), param("i", tensor_type((), "int32")), number(50)
    change = param("change", tensor_type((), "float32"))
    inner = [vector("x", 6), vector("y", 6), param("i", i.type), param("change", change.type)]
    far = std.greater(change, constant(np.float32(1e-6)))
    cond = Function("cond", (x, y, i, change), std.logical_and(far, std.less(i, limit)))
    half = constant(np.full(6, 0.5, np.float32))
    after = std.mul(std.add(inner[1], std.div(inner[0], inner[1])), half)
    moved = std.reduce_max(std.abs(std.sub(after, inner[1])), axes=(0,))
    body = Function("body", tuple(inner), make_tuple([inner[0], after, std.add(inner[2], number(1)), moved]))
    given = vector("given", 6)
    start = std.add(given, constant(np.float32(1)))
    made = std.while_(given, start, number(0), constant(np.float32(1)), cond=cond, body=body)
    results = make_tuple([get_item(made, 1), get_item(made, 2)])
    attrs = {"inputs": ("given",), "outputs": ("root", "rounds")}
    return IRModule({"main": Function("main", (given,), results, attrs)})


@pytest.mark.parametrize("cc", [name for name in ("gcc", "clang") if shutil.which(name)])
def test_exported_sources_run_data_dependent_loops(tmp_path, cc):
    exe = dlc.compile(newton(), "c", cache=False)
    exe.export(tmp_path / "net")
    text = (tmp_path / "net" / "net.c").read_text()
    assert "0.5f, 0.5f" in text, "weights of a body are numbers, not bytes"
    sanitized = ["-g", "-fsanitize=undefined", "-fno-sanitize-recover=all"] if cc == "gcc" else []
    made = subprocess.run(
        [cc, *STRICT, *sanitized, "main.c", "net.c", "-o", "net", "-lm"],
        cwd=tmp_path / "net", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    seen = set()
    for values in ([1, 1, 1, 1, 1, 1], [1, 2, 3, 4, 5, 6], [1e4, 2, 3, 4, 5, 1e-3]):
        x = np.float32(values)
        done = subprocess.run([tmp_path / "net" / "net"], input=x.tobytes(), capture_output=True, check=True)
        np.testing.assert_allclose(np.frombuffer(done.stdout[:24], np.float32), np.sqrt(x), 1e-5)
        seen.add(int(np.frombuffer(done.stdout[24:], np.int32)[0]))
    assert len(seen) == 3
