"""The memory of a call, computed before the call."""

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.graph.node import Function, make_tuple, param
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.runtime.machine import memory as machine_memory
from dlc_core.runtime.machine.memory import available_memory
from dlc_core.runtime.memory.host import copied

GIB = 1 << 30


def module(body, *shapes):
    params = tuple(param(f"x{i}", tensor_type(shape, "float32")) for i, shape in enumerate(shapes))
    return IRModule({"main": Function("main", params, body(*params))})


def chain(n, m):
    """Softmax along both axes, with transposed intermediate values."""
    return module(
        lambda x: std.softmax(
            std.transpose(std.softmax(std.transpose(x, axes=(1, 0)), axis=1), axes=(1, 0)), axis=1
        ),
        (n, m),
    )


def ones(*shape):
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("target", ["llvm", "reference"])
def test_equals_the_memory_of_plans(target):
    n, m = Var("n"), Var("m", bounds=Bounds(1, 40))
    exe = dlc.compile(chain(n, m), target)
    assert exe.memory.maximum is None
    for rows, columns in ((1, 1), (7, 40), (1000, 3)):
        plan = exe.signature.plan([(rows, columns)])
        found = exe.memory.at(n=rows, m=columns)
        assert (found.scratch, found.results) == (plan.arena, rows * columns * 4)
        assert found.total == found.scratch + found.results
        assert exe.memory.at({"n": rows}).scratch >= found.scratch
    assert [v.name for v in exe.memory.dims] == ["n", "m"]


def test_maximum_over_bounded_dims():
    exe = dlc.compile(chain(Var("n"), Var("m")), shapes={"n": (1, 100), "m": (2, 8)})
    maximum = exe.memory.maximum
    for rows in (1, 33, 100):
        for columns in (2, 8):
            plan = exe.signature.plan([(rows, columns)])
            assert plan.arena <= maximum.scratch
            assert rows * columns * 4 <= maximum.results
    assert maximum == exe.memory.at(n=100, m=8)
    assert "at most" in str(exe.memory)
    record = exe.memory.record()
    assert record["maximum"] == {"scratch": maximum.scratch, "results": 3200}
    assert exe.report["memory"] == record


def test_artefacts_and_explanations_report_it(tmp_path):
    exe = dlc.compile(chain(Var("n"), Var("m")), shapes={"n": (1, 100), "m": 8})
    exe.save(tmp_path / "m.dlc")
    again = dlc.open(tmp_path / "m.dlc")
    assert again.memory.record() == exe.memory.record() == again.report["memory"]
    for one in (exe, again):
        explanation = one.explain()
        assert explanation.maximum == exe.memory.maximum
        text = f"at most  {explanation.maximum.scratch} bytes of scratch memory and 3200 of results"
        assert text in str(explanation)
        assert "n in 1..100" in str(explanation)
    static = dlc.compile(chain(4, 8)).explain()
    assert static.results == "128"
    assert "at most" not in str(static)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"k": 3}, "no dim 'k'(.|\n)*dims: n, m"),
        ({"n": -1}, "not a size"),
        ({"n": 1.5}, "not a size"),
        ({"n": True}, "not a size"),
        ({"m": 41}, r"m is 41, and the model is compiled for m in 1\.\.40"),
        ({"m": 4}, "depends on n(.|\n)*no upper bound"),
        ({}, "depends on n"),
    ],
)
def test_refuses_sizes_that_no_call_has(sizes, match):
    exe = dlc.compile(chain(Var("n"), Var("m", bounds=Bounds(1, 40))))
    with pytest.raises(UsageError, match=match):
        exe.memory.at(sizes)


def test_data_dependent_dims_count_with_their_upper_bounds():
    indices = module(lambda x: std.nonzero(std.relu(x), count=Var("found")), (Var("n"), 4))
    free = dlc.compile(indices)
    assert free.memory.maximum is None
    assert free.memory.at(n=10).results == 2 * 40 * 8
    exe = dlc.compile(indices, shapes={"n": (1, 50)})
    assert exe.memory.maximum.results == 2 * 200 * 8
    # The indices exist twice: all possible ones, and the actual ones.
    assert exe.memory.maximum.scratch >= 2 * 200 * 8
    assert exe(ones(50, 4)).nbytes <= exe.memory.maximum.results


def test_host_programs_count_live_values():
    def body(x):
        one = std.nonzero(x, count=Var("found"))
        return make_tuple([one, std.add(x, x)])

    exe = dlc.compile(module(body, (Var("n"), 4)), shapes={"n": (1, 50)})
    assert exe.program is not None
    assert exe.memory.scratch is None
    assert exe.memory.maximum.results == 2 * 200 * 8 + 800
    assert "at most" in str(exe.memory)
    assert exe.explain().maximum == exe.memory.maximum


def test_strings_have_no_size():
    x = param("x", tensor_type((3,), "string"))
    exe = dlc.compile(IRModule({"main": Function("main", (x,), x)}), "reference")
    assert exe.memory.maximum is None
    with pytest.raises(UsageError, match="depends on strings"):
        exe.memory.at()


@pytest.mark.parametrize("target", ["llvm", "reference"])
def test_refuses_too_large_calls_before_allocation(target, monkeypatch):
    exe = dlc.compile(chain(Var("n"), Var("m")), target)
    monkeypatch.setattr(machine_memory, "available_memory", lambda: GIB // 2)
    wide = np.broadcast_to(np.float32(1), (1 << 14, 1 << 14))
    assert exe(ones(3, 4)).shape == (3, 4)
    big = np.broadcast_to(np.float32(1), (1 << 30, 1 << 30))
    with pytest.raises(RuntimeFailure, match=r"(.|\n)*512 MiB are available(.|\n)*n is 16384") as found:
        exe._load().plan((wide.shape,))
    assert "of memory" in found.value.what
    with pytest.raises(RuntimeFailure, match="available"):
        exe._load().plan((big.shape,))
    monkeypatch.setattr(machine_memory, "available_memory", lambda: None)
    assert exe._load().plan((wide.shape,)).outputs == (wide.shape,)


def test_frees_kept_memory_before_it_refuses_a_call(monkeypatch):
    exe = dlc.compile(chain(Var("n"), Var("m")), "llvm")
    exe(ones(300, 300))
    kept = exe._load()._arenas
    assert kept
    monkeypatch.setattr(machine_memory, "available_memory", lambda: 0 if kept else 1 << 50)
    assert exe._load().plan(((1 << 14, 1 << 14),)).arena > 0
    assert not kept


def test_available_memory_considers_cgroup_limits(tmp_path):
    assert available_memory(tmp_path) is None
    proc, cgroup = tmp_path / "proc", tmp_path / "sys/fs/cgroup/box"
    (proc / "self").mkdir(parents=True)
    cgroup.mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 4000 kB\nMemAvailable:    1000 kB\nSwapFree:  24 kB\n")
    assert available_memory(tmp_path) == 1 << 20
    (proc / "self/cgroup").write_text("0::/box\n")
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text("500000\n")
    (cgroup / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    assert available_memory(tmp_path) == 1 << 20
    (cgroup / "memory.max").write_text("700000\n")
    assert available_memory(tmp_path) == 300000
    (proc / "meminfo").write_text("nothing\n")
    assert available_memory(tmp_path) is None
    assert available_memory() is None or available_memory() > 0


def test_a_copy_without_memory_for_it_is_a_clear_error() -> None:
    array = np.broadcast_to(np.float32(1), (1 << 45,))
    with pytest.raises(RuntimeFailure, match="cannot allocate"):
        copied(array)
    np.testing.assert_array_equal(copied(np.arange(6).reshape(2, 3).T), [[0, 3], [1, 4], [2, 5]])
