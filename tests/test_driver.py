"""The driver: compiling models, the cache, and reproducers of failures."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.config import config
from dlc_core.diag import ArtifactError, DlcError, PassError, TargetError, UnsupportedError, UsageError
from dlc_core.driver import find_target
from dlc_core.driver.cache import Store
from dlc_core.driver.digests import file_digest
from dlc_core.graph.node import Function, constant, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.passes.base import Pass
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.schedule import Schedule
from dlc_core.target import Option
from dlc_core.tir.stmt import PrimFunc, loop, seq
from dlc_core.tir.stmt import Store as StoreStmt

TENSOR = "reference -level=tir"


class Scaling:
    """A frontend whose files contain a number. The model multiplies by it."""

    name = "scaling"
    suffixes = (".scale",)
    loads = 0

    def load(self, model, context):
        self.loads += 1
        rows = context["shapes"].get("x", (2, 3))
        factor = constant(np.float32(Path(model).read_text()))
        x = param("x", tensor_type(rows))
        body = registry().ops["mul"].build(x, factor)
        return IRModule({"main": Function("main", (x,), body)})

    def digest(self, model, context):
        return file_digest([model])

    def accepts(self, model):
        return False


@pytest.fixture
def scaling(tmp_path):
    """The frontend, the targets of the core, and temporary folders."""
    frontend = Scaling()
    plugin = SimpleNamespace(dlc_frontends=hookimpl(specname="dlc_frontends")(lambda: [frontend]))
    folders = {"cache_dir": tmp_path / "cache", "reproducer_dir": tmp_path / "reproducers"}
    with fresh_registry({"scaling": plugin}), config.override(cache=True, **folders):
        yield frontend


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "double.scale"
    path.write_text("2")
    return path


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def relu_module():
    x = param("x", tensor_type((2, 3)))
    return IRModule({"main": Function("main", (x,), registry().ops["relu"].build(x))})


def test_a_frontend_is_chosen_by_suffix(scaling, model, tmp_path):
    assert isinstance(dlc.load(model), IRModule)
    np.testing.assert_array_equal(dlc.compile(str(model), "reference")(X), 2 * X)
    with pytest.raises(UsageError, match=r"no frontend reads .net\n  hint: known suffixes: .dlc, .scale"):
        dlc.load(tmp_path / "model.net")
    with pytest.raises(UsageError, match="no frontend takes a list"):
        dlc.compile([1], "reference")
    with pytest.raises(DlcError, match="there is no frontend 'onyx'"):
        dlc.compile(model, "reference", frontend="onyx")


@pytest.mark.parametrize(("kind", "said"), [("int", "a whole number"), ("bool", "true or false")])
def test_options_list_their_values(kind: str, said: str) -> None:
    with pytest.raises(TargetError, match=f"-units=x: not {said}\n  hint: those that there are"):
        Option("units", kind, 0, "those that there are").parse("x")


def test_targets_are_found_by_text_json_and_value(scaling):
    target = find_target(TENSOR)
    for same in ({"kind": "reference", "level": "tir"}, '{"kind": "reference", "level": "tir"}', target):
        assert find_target(same) == target
    with pytest.raises(TargetError, match="no installed target can be the default"):
        find_target(None)
    with pytest.raises(TargetError, match="-level=low"):
        dlc.compile(relu_module(), "reference -level=low")
    assert "reference" in dlc.targets()
    assert "relu" in dlc.ops()
    assert {plugin.name for plugin in dlc.plugins()} == {"core", "scaling"}


def test_a_compiled_model_is_cached_and_found(scaling, model):
    first = dlc.compile(model, TENSOR)
    assert (first.report["cache"], scaling.loads) == ("stored", 1)
    again = dlc.compile(model, TENSOR)
    assert (again.report["cache"], scaling.loads) == ("hit", 1)
    np.testing.assert_array_equal(again(X), first(X))
    assert again.source("graph") == first.source("graph")
    model.write_text("3")
    other = dlc.compile(model, TENSOR)
    assert (other.report["cache"], scaling.loads) == ("stored", 4)
    np.testing.assert_array_equal(other(X), 3 * X)


@pytest.mark.parametrize(
    "changed",
    [
        {"opt_level": 0},
        {"config": {"check_indices": False}},
        {"shapes": {"x": (4, 3)}},
        {"target": "reference"},
    ],
)
def test_every_setting_is_in_the_key(scaling, model, changed):
    dlc.compile(model, TENSOR)
    settings = {"target": TENSOR, **changed}
    assert dlc.compile(model, **settings).report["cache"] == "stored"
    assert dlc.compile(model, **settings).report["cache"] == "hit"
    with dlc.PassContext(disabled=("fuse",)):
        assert dlc.compile(model, **settings).report["cache"] == "stored"


def test_the_cache_is_off_if_disabled_or_impossible(scaling, model, monkeypatch):
    dlc.compile(model, TENSOR)
    assert dlc.compile(model, TENSOR, cache=False).report["cache"] == "off"
    assert dlc.compile(model, TENSOR, verify="structure").report["cache"] == "off"
    assert dlc.compile(model, TENSOR, config={"traces": object()}).report["cache"] == "off"
    assert dlc.compile(relu_module(), TENSOR).report["cache"] == "off"
    module = relu_module()
    assert dlc.compile(module, TENSOR, cache=True).report["cache"] == "stored"
    assert dlc.compile(relu_module(), TENSOR, cache=True).report["cache"] == "hit"
    with config.override(cache=False):
        assert dlc.compile(model, TENSOR).report["cache"] == "off"
        assert dlc.compile(model, TENSOR, cache=True).report["cache"] == "hit"
    monkeypatch.setattr(scaling, "digest", None, raising=False)
    assert dlc.compile(model, TENSOR).report["cache"] == "off"


def test_damaged_entries_are_removed(scaling, model):
    dlc.compile(model, TENSOR)
    (entry,) = Store().entries()
    for data in (b"", entry.path.read_bytes()[:-5], b"\0" * 5000):
        entry.path.write_bytes(data)
        exe = dlc.compile(model, TENSOR)
        assert exe.report["cache"] == "stored"
        np.testing.assert_array_equal(exe(X), 2 * X)
    assert dlc.compile(model, TENSOR).report["cache"] == "hit"


def test_an_unwritable_cache_is_no_error(scaling, model, tmp_path):
    (tmp_path / "file").write_text("")
    with config.override(cache_dir=tmp_path / "file"):
        exe = dlc.compile(model, TENSOR)
    assert exe.report["cache"].startswith("not stored: the cache folder")
    np.testing.assert_array_equal(exe(X), 2 * X)


def test_least_recently_used_entries_are_removed_first(scaling, model, tmp_path):
    exe = dlc.compile(model, TENSOR, cache=False)
    store = Store(tmp_path / "own", limit=1 << 30)
    for age, key in ((300, "a"), (200, "b"), (100, "c")):
        store.put(key, exe)
        os.utime(store.path(key).with_suffix(".mark"), (1e9 - age, 1e9 - age))
    size = store.entries()[0].size
    assert [e.path.stem for e in store.entries()] == ["a", "b", "c"]
    assert store.get("a") is not None
    small = Store(tmp_path / "own", limit=2 * size)
    (small.folder / ".old.part").write_bytes(b"")
    os.utime(small.folder / ".old.part", (0, 0))
    small.trim()
    assert [e.path.stem for e in store.entries()] == ["c", "a"]
    assert not (small.folder / ".old.part").exists()
    Store(tmp_path / "own", limit=0).put("d", exe)
    assert [e.path.stem for e in store.entries()] == ["d"]
    assert store.clear() == 1
    assert store.get("d") is None


def test_progress_is_reported_for_each_step(scaling):
    told = []
    dlc.compile(relu_module(), TENSOR, progress=told.append)
    assert [step.done for step in told] == list(range(told[0].total))
    assert [step.stage for step in told][-1] == "codegen"
    assert list(dict.fromkeys(step.stage for step in told)) == ["graph", "lower", "tir", "main", "codegen"]


def test_watchers_and_verification_run_after_each_pass(scaling):
    class Names:
        name = "names"
        seen = ()

        def before(self, one, module, context):
            self.seen += (one.name,)

        def after(self, one, module, context):
            pass

    names = Names()
    exe = dlc.compile(relu_module(), TENSOR, watchers=[names], verify="each")
    assert "fuse" in names.seen
    assert "build_main" in names.seen
    np.testing.assert_array_equal(exe(X - 3), np.maximum(X - 3, 0))
    with pytest.raises(UsageError, match="verify"):
        dlc.compile(relu_module(), TENSOR, verify="sometimes")


def test_a_failing_pass_leaves_a_reproducer(scaling, tmp_path):
    class Broken(Pass):
        name = "broken"
        after = "begin"

        def run(self, module, context):
            raise ZeroDivisionError("on purpose")

    plugin = SimpleNamespace(dlc_passes=hookimpl(specname="dlc_passes")(lambda: [Broken]))
    with fresh_registry({"broken": plugin}):
        with pytest.raises(PassError, match="pass 'broken' failed: on purpose") as failure:
            dlc.compile(relu_module(), TENSOR)
        assert "reproducer: " in str(failure.value)
    (path,) = (tmp_path / "reproducers").iterdir()
    assert "ZeroDivisionError" in path.read_text()


def test_a_failing_code_generator_leaves_a_reproducer(scaling, tmp_path, monkeypatch):
    def emit(module, target):
        raise KeyError("no such register")

    monkeypatch.setattr(registry().codegens["reference"], "emit", emit, raising=False)
    with pytest.raises(TargetError, match="code generator 'reference' failed") as failure:
        dlc.compile(relu_module(), TENSOR)
    assert "reproducer: " in str(failure.value)
    (path,) = (tmp_path / "reproducers").iterdir()
    assert path.name.startswith("codegen-")
    assert "relu" in path.read_text()


def test_precisions_are_checked(scaling):
    with pytest.raises(UsageError, match="precision 'float31'"):
        dlc.compile(relu_module(), TENSOR, precision="float31")
    if not any(getattr(p, "precisions", ()) for p in registry().passes.values()):
        with pytest.raises(UnsupportedError, match="no pass computes in bfloat16"):
            dlc.compile(relu_module(), TENSOR, precision="bfloat16")


def axpy():
    n = Var("n")
    a, b = te.placeholder((n, 8), name="A"), te.placeholder((n, 8), name="B")
    return a, b, te.compute((n, 8), lambda i, j: a[i, j] + b[i, j] * 2.0, name="C")


@pytest.mark.parametrize("target", ["reference", TENSOR])
def test_single_operators_are_built(scaling, target):
    a, b = np.ones((3, 8), np.float32), np.full((3, 8), 2, np.float32)
    tensors = axpy()
    func = te.create_prim_func(tensors[:2], tensors[2:], "axpy")
    scheduled = Schedule(func)
    for subject in (tensors, func, scheduled, IRModule({"axpy": func}), IRModule({"main": func})):
        exe = dlc.build(subject, target)
        assert str(exe.signature) == "(A: float32[n, 8], B: float32[n, 8]) -> (C: float32[n, 8])"
        np.testing.assert_array_equal(exe(a, b), a + 2 * b)


def test_programs_written_by_hand_are_built(scaling):
    x, y, total = Buffer("x", (4,)), Buffer("y", (4,)), Buffer("total", (4,))
    i = Var("i")
    func = PrimFunc("main", (x, y, total), loop(i, 4, StoreStmt(total, (i,), x[i] * y[i]), "parallel"))
    exe = dlc.build(func, TENSOR)
    v = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(exe(v, v), v * v)
    wrong = PrimFunc("f", (total, x, y), func.body)
    for subject, message in (
        (wrong, "do not come last"),
        (PrimFunc("f", (x, y), seq()), "writes none of its buffers"),
        (IRModule({}), "the module has no PrimFunc"),
        (IRModule({"a": func, "b": wrong}), "the buffers that 'b' writes do not come last"),
        (axpy()[:2], "none of the arguments is computed"),
        (7, "a int cannot be built"),
    ):
        with pytest.raises(UsageError, match=message):
            dlc.build(subject, TENSOR)


def test_open_names_what_is_missing(scaling, model, tmp_path):
    exe = dlc.compile(model, TENSOR)
    exe.save(tmp_path / "m.dlc")
    np.testing.assert_array_equal(dlc.open(tmp_path / "m.dlc", num_threads=2)(X), 2 * X)
    with pytest.raises(ArtifactError, match="cannot be read"):
        dlc.open(tmp_path / "absent.dlc")
