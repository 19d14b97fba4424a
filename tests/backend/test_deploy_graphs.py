"""Control flow with regions in it, and random graphs on several devices, as C."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UnsupportedError
from dlc_core.graph.node import Function, constant, get_item, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from tests.backend import test_deploy as deploy
from tests.backend.test_deploy import BIAS, CC, WEIGHTS, X, dense, module, op, registered, run, sanitizers

pytestmark = deploy.pytestmark


@pytest.fixture(params=["c", "llvm"])
def host(request: pytest.FixtureRequest) -> Any:
    """A host target, in a registry with three cards."""
    with registered(request.param, pytest.importorskip(f"dlc_backend_{request.param}.plugin")):
        yield request.param


@pytest.fixture
def llvm() -> Any:
    with registered("llvm", pytest.importorskip("dlc_backend_llvm.plugin")):
        yield "llvm"


def loop(steps: int = 4) -> IRModule:
    """A loop whose body computes on the card and swaps two parts of its state."""

    def state() -> list[Any]:
        return [param("i", tensor_type((), "int32")), *(param(n, tensor_type((6, 8))) for n in "ab")]

    i, a, b = state()
    cond = Function("cond", (i, a, b), op("less", i, constant(steps, "int32")))
    i, a, b = state()
    after = op("sub", i, constant(-1, "int32"))
    body = Function("body", (i, a, b), make_tuple((after, b, op("softmax", dense(a)))))
    x = param("x", tensor_type((6, 8)))
    done = op("while_", constant(0, "int32"), x, dense(x, 1), cond=cond, body=body)
    return module(x, get_item(done, 1), get_item(done, 2), get_item(done, 0))


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_loops_with_regions_in_them(host, tmp_path, steps):
    net = loop(steps)
    exe = dlc.compile(net, targets=["card", host], cache=False)
    assert len(exe.regions) == 2
    want = exe(X)
    if host == "llvm":
        exe.export(tmp_path / "net.so")
        got = dlc.load_library(tmp_path / "net.so")(X)
    else:
        exe.export(tmp_path / "net")
        flags = " ".join(sanitizers(tmp_path))
        words = ["make", "-s", f"CC={CC}", f"CFLAGS={flags} -Werror", f"LDFLAGS={flags}"]
        subprocess.run(words, cwd=tmp_path / "net", check=True)
        done = run(tmp_path / "net" / "net")
        assert (done.returncode, done.stderr) == (0, b"")
        flat = np.frombuffer(done.stdout[:384], np.float32).reshape(2, 6, 8)
        got = [*flat, np.frombuffer(done.stdout[384:], np.int32)[0]]
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)


def branches() -> IRModule:
    """A branch of which one side computes on two cards, inside a branch."""

    def sides(inner: bool) -> dict[str, Function]:
        c, a, b = (param(n, tensor_type(shape, kind)) for n, shape, kind in PARAMS)
        there = op("softmax", op("matmul", dense(a), constant(WEIGHTS[1])))
        if inner:
            there = op("if_", c, c, there, b, **sides(False))
        then = Function("then", (c, a, b), op("add", there, b))
        c, a, b = (param(n, tensor_type(shape, kind)) for n, shape, kind in PARAMS)
        return {"then_branch": then, "else_branch": Function("else", (c, a, b), b if inner else dense(b, 2))}

    x = param("x", tensor_type((6, 8)))
    c = op("less", constant(0.0, "float32"), op("reduce_sum", x, axes=(0, 1)))
    return module(x, op("if_", c, c, dense(x), op("softmax", x), **sides(True)), x)


PARAMS = [("c", (), "bool"), ("a", (6, 8), "float32"), ("b", (6, 8), "float32")]


def test_branches_with_regions_in_them(llvm, tmp_path):
    exe = dlc.compile(branches(), targets=["card", "other", "llvm"], place={"matmul": "other"}, cache=False)
    assert {str(r.target) for r in exe.regions.values()} == {"card", "other"}
    exe.export(tmp_path / "net.so")
    lib = dlc.load_library(tmp_path / "net.so")
    for x in (X, -X, X + 1, X - 1):
        for one, other in zip(lib(x), exe(x), strict=True):
            np.testing.assert_allclose(one, other, 1e-5, 1e-6)


def test_other_control_flow_with_regions_is_refused(llvm, tmp_path):
    s, item = param("s", tensor_type((6, 8))), param("item", tensor_type((8,)))
    body = Function("body", (s, item), dense(op("add", s, item)))
    x = param("x", tensor_type((6, 8)))
    scanned = get_item(op("scan", x, constant(BIAS.reshape(1, 8)), num_state=1, body=body), 0)
    exe = dlc.compile(module(x, scanned), targets=["card", "llvm"], cache=False)
    assert exe.regions
    with pytest.raises(UnsupportedError, match=r"scan .*C programs have no such control flow"):
        exe.export(tmp_path / "net.so")


def random_net(seed: int) -> tuple[IRModule, dict[str, str]]:
    """A random graph, with results of all kinds, and a random placement of its ops."""
    rng = np.random.default_rng(seed)
    x = param("x", tensor_type((6, 8) if seed % 3 else (Var("n"), 8)))
    values = [x]
    for _ in range(int(rng.integers(3, 14))):
        a, b = (values[int(k)] for k in rng.integers(max(0, len(values) - 5), len(values), 2))
        made = [
            lambda a, b: op("matmul", a, constant(WEIGHTS[int(rng.integers(4))])),
            lambda a, b: op("add", a, b),
            lambda a, b: op("add", a, constant(BIAS)),
            lambda a, b: op("relu", a),
            lambda a, b: op("softmax", a),
            lambda a, b: op("mul", a, b),
            lambda a, b: op("tanh", b),
        ][int(rng.integers(7))](a, b)
        values.append(made)
    kept = [values[int(k)] for k in rng.integers(0, len(values), int(rng.integers(1, 5)))]
    place = {name: str(rng.choice(["card", "other", "third"])) for name in ("matmul", "add", "relu")}
    return module(x, op("tanh", dense(values[-1])), *kept), place


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(k, marks=pytest.mark.slow) for k in range(3, 60))]
)
def test_random_graphs_on_three_cards_and_the_host(llvm, tmp_path, seed):
    net, place = random_net(seed)
    exe = dlc.compile(net, targets=["card", "other", "third", "llvm"], place=place, cache=False)
    assert exe.regions
    exe.export(tmp_path / "net.so")
    lib = dlc.load_library(tmp_path / "net.so")
    for _ in range(2):
        want, got = exe(X), lib(X)
        for one, other in zip(
            got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)
        ):
            np.testing.assert_allclose(one, other, 2e-5, 1e-5)
