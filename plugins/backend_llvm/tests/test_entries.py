"""Modules with several entry points in one executable, and source texts in artefacts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dlc_backend_llvm import codegen, engine

import dlc_core as dlc
from dlc_core import te
from dlc_core.cli.main import main
from dlc_core.config import config
from dlc_core.diag import ArtifactError, UnsupportedError, UsageError
from dlc_core.ir.module import IRModule
from dlc_core.schedule import Schedule

X = np.arange(6, dtype=np.float32)


def program(name, change):
    x = te.placeholder((6,), name="x")
    return te.create_prim_func([x], [te.compute((6,), lambda i: change(x[i]), name="y")], name)


@pytest.fixture(scope="module")
def module():
    return IRModule(
        {"add": program("add", lambda v: v + 1.0), "double": program("double", lambda v: v * 2.0)}
    )


@pytest.fixture(scope="module")
def exe(module):
    return dlc.build(module, "llvm", num_threads=1)


def test_programs_are_called_by_name(exe):
    assert exe.entries == ("add", "double")
    np.testing.assert_array_equal(exe["add"](X), X + 1)
    np.testing.assert_array_equal(exe["double"](X), X * 2)
    np.testing.assert_array_equal(exe(X), X + 1)
    assert exe["double"].time_evaluator(number=2, repeat=2)(X).min > 0
    assert len(exe["add"].profile([X])) == 1
    (row,) = exe["double"].profile([X])  # only the module's own entry is instrumented
    assert (row.kernel, row.measured, row.flops) == ("main_double", "clock", None)
    with pytest.raises(UsageError, match="it has: add, double"):
        exe["triple"]


def test_the_entry_of_the_module_is_the_default(module):
    exe = dlc.build(IRModule(module.functions, entry="double"), "llvm")
    assert exe.entries == ("double", "add")
    np.testing.assert_array_equal(exe(X), X * 2)
    np.testing.assert_array_equal(exe["add"](X), X + 1)


def test_a_schedule_of_a_module(module):
    schedule = Schedule(module)
    (loop,) = schedule.get_loops(schedule.get_block("y", func="double"))
    schedule.unroll(loop)
    exe = dlc.build(schedule, "llvm")
    np.testing.assert_array_equal(exe["add"](X), X + 1)
    np.testing.assert_array_equal(exe["double"](X), X * 2)


def test_a_single_program_is_called_by_name_too(module):
    exe = dlc.build(module["add"], "llvm")
    assert exe.entries == ("add",)
    np.testing.assert_array_equal(exe["add"](X), X + 1)
    with pytest.raises(UsageError, match="it has: add"):
        exe["double"]


def test_functions_of_other_targets_are_in_one_executable(module, tmp_path, capsys):
    exe = dlc.build({"llvm": module["add"], "reference": module["double"]})
    exe.save(tmp_path / "both.dlc")
    for each in (exe, dlc.open(tmp_path / "both.dlc")):
        np.testing.assert_array_equal(each["add"](X), X + 1)
        np.testing.assert_array_equal(each["double"](X), X * 2)
        assert each["double"].target.kind.name == "reference"
    assert main(["inspect", str(tmp_path / "both.dlc")]) == 0
    assert "functions    add, double on reference" in capsys.readouterr().out
    with pytest.raises(UnsupportedError, match="part 'reference' runs on reference"):
        exe.export(tmp_path / "both.so")


def test_weights_of_graphs_are_separate():
    x = dlc.graph.param("x", dlc.graph.constant(X).type)
    graphs = {
        name: dlc.graph.Function(name, (x,), dlc.ops()[op].build(x, dlc.graph.constant(X + 1)))
        for name, op in (("main", "add"), ("scale", "mul"))
    }
    exe = dlc.compile(IRModule(graphs), "llvm")
    np.testing.assert_array_equal(exe(X), X + X + 1)
    np.testing.assert_array_equal(exe["scale"](X), X * (X + 1))


def test_artefacts_keep_the_names(exe, tmp_path):
    exe.save(tmp_path / "two.dlc")
    opened = dlc.open(tmp_path / "two.dlc")
    assert opened.entries == exe.entries
    np.testing.assert_array_equal(opened["double"](X), X * 2)


def test_artefacts_of_single_operators_keep_their_code(exe, tmp_path):
    exe.save(tmp_path / "two.dlc")
    opened = dlc.open(tmp_path / "two.dlc")
    assert opened.source("llvm") == exe.source("llvm")
    assert opened.source("asm") == exe.source("asm")
    assert "add" in opened.source("asm")
    with pytest.raises(UsageError, match="this executable has: llvm"):
        opened.source("tir")


def test_code_of_files_is_assembled_only_if_it_is_allowed(exe, tmp_path):
    """Assembly in LLVM IR could include other files."""
    path = tmp_path / "two.dlc"
    exe.save(path)
    with config.override(keys_dir=tmp_path / "keys"):
        with pytest.raises(ArtifactError, match="unless the caller allows it"):
            dlc.open(path, trust=True).source("asm")
        allowed = dlc.open(path, trust=True, compile_source=True)
        assert allowed.source("asm") == exe.source("asm")
        hostile = 'module asm ".incbin \\22/etc/hostname\\22"\n' + exe.source("llvm")
        allowed.artifact = replace(allowed.artifact, sources={"llvm": hostile})
        with pytest.raises(ArtifactError, match="'asm' is not allowed"):
            allowed.source("asm")


def test_missing_sources_of_an_artefact_are_an_error(exe, tmp_path):
    exe.save(tmp_path / "bare.dlc", sources=())
    opened = dlc.open(tmp_path / "bare.dlc")
    with pytest.raises(UsageError, match=r'sources=\["llvm"\]\) keeps more'):
        opened.source("asm")


def test_models_from_the_cache_show_their_code(tmp_path):
    from dlc_core.config import config

    x = dlc.graph.param("x", dlc.graph.constant(X).type)
    relu = dlc.ops()["relu"].build(x)
    model = IRModule({"main": dlc.graph.Function("main", (x,), relu)})
    with config.override(cache_dir=str(tmp_path)):
        fresh = dlc.compile(model, "llvm", cache=True)
        cached = dlc.compile(model, "llvm", cache=True)
    assert (fresh.report["cache"], cached.report["cache"]) == ("stored", "hit")
    assert cached.source("llvm") == fresh.source("llvm")
    assert cached.source("asm") == fresh.source("asm")


def test_long_entries_are_not_optimised(monkeypatch, exe, module):
    levels = []
    compile_ir = engine.compile_ir
    monkeypatch.setattr(
        engine,
        "compile_ir",
        lambda text, *a, opt, **k: levels.append(opt) or compile_ir(text, *a, opt=opt, **k),
    )
    monkeypatch.setattr(codegen, "LONG", 0)
    with config.override(cache=False):
        quick = dlc.build(module, "llvm", num_threads=1)
    assert levels[-1] == 0
    assert max(levels) > 0
    for name in exe.entries:
        np.testing.assert_array_equal(quick[name](X), exe[name](X))
