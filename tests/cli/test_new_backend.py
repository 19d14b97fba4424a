"""`dlc new-backend` writes a short package that installs and computes."""

from __future__ import annotations

import importlib.util
import re
from types import SimpleNamespace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.cli.main import main
from dlc_core.cli.new_backend import write_backend
from dlc_core.diag import UsageError
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry
from dlc_core.testing.networks import mlp


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "acme_npu"]) == 0
    return tmp_path / "dlc-backend-acme-npu"


def plugin_of(package):
    path = package / "dlc_backend_acme_npu" / "plugin.py"
    spec = importlib.util.spec_from_file_location("acme_npu_plugin", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_package_is_complete_and_has_at_most_sixty_lines(package):
    files = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert files == {
        "pyproject.toml",
        "README.md",
        "dlc_backend_acme_npu/__init__.py",
        "dlc_backend_acme_npu/plugin.py",
        "tests/test_conformance.py",
        ".github/workflows/ci.yml",
    }
    lines = sum(len((package / f).read_text().splitlines()) for f in files if f.endswith(".py"))
    assert lines <= 60
    for path in package.rglob("*"):
        assert not path.is_file() or not re.search(r"@[A-Z]+@", path.read_text())


class Many:
    """A plugin whose code generator and device have names that no target has."""

    @hookimpl
    def dlc_codegens(self):
        return [SimpleNamespace(name="generator", format="", emit=None)]

    @hookimpl
    def dlc_devices(self):
        return [SimpleNamespace(name="board", formats=(), load=None)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("generator", "a codegen 'generator'"),
        ("board", "a device 'board'"),
        ("many", "a plugin 'many'"),
    ],
)
def test_names_of_anything_installed_are_taken(name, said, tmp_path):
    with fresh_registry({"many": Many()}), pytest.raises(UsageError, match=f"there is {said} already"):
        write_backend(name, tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))
def test_the_package_computes_a_model(package):
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    with fresh_registry({"acme_npu": plugin_of(package)}):
        found = dlc.compile(mlp(), "acme_npu -cores=2")(x)
        np.testing.assert_allclose(found, dlc.compile(mlp(), "reference")(x), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Acme"], "cannot name a target"),
        (["class"], "cannot name a target"),
        (["core"], "cannot name a target"),
        (["none"], "cannot name a target"),
        (["../acme"], "cannot name a target"),
        (["a" * 300], "cannot name a target"),
        (["reference"], "there is a target 'reference' already"),
        (["fine", "-o", "full/file/inside"], "cannot be written"),
        (["fine", "-o", "full"], "full exists already"),
    ],
)
def test_wrong_use_is_reported_and_writes_nothing(words, said, tmp_path, monkeypatch, capsys):
    here = tmp_path / "here"
    (here / "full").mkdir(parents=True)
    (here / "full" / "file").write_text("")
    monkeypatch.chdir(here)
    assert main(["new-backend", *words]) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in here.iterdir()] == ["full"]
