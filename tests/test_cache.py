"""The cache: keys, damaged files, full disks, concurrent processes."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import disk_cache
from dlc_core.config import config
from dlc_core.driver import CompileRequest, cache, digests, key
from dlc_core.driver.cache import Store, cache_key
from dlc_core.driver.digests import code_stamp, file_digest, file_stamp
from dlc_core.driver.key import explain, key_parts
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.lookup import registered_ops
from dlc_core.passes import Pass
from dlc_core.support import private

TENSOR = "reference -level=tir"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Reader:
    """A frontend of one-number files."""

    name = "scaling"

    def digest(self, model, context):
        return file_digest([model])


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with config.override(cache=True, cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "double.scale"
    path.write_text("2")
    return path


def module(factor=2.0):
    x = param("x", tensor_type((2, 3)))
    value = constant(np.full((2, 3), factor, np.float32))
    return IRModule({"main": Function("main", (x,), registered_ops()["mul"].build(x, value))})


def test_the_part_without_a_lasting_name_is_named(monkeypatch):
    class Local(Pass):
        name = "local_pass"
        stage = "graph"

    reader = SimpleNamespace(name="net", suffixes=(".net",), load=None)
    monkeypatch.setattr(key, "reader_of", lambda model, name: reader)
    request = CompileRequest.of("reference")
    why = explain("model.net", request, Store()).why
    assert why.startswith("the model: frontend 'net' has no method `digest(model, context)`")
    reader.digest = lambda model, context: None
    why = explain("model.net", request, Store()).why
    assert why == "the model: the `digest` of frontend 'net' returns no name for the file"
    with dlc.PassContext(passes=[("after begin", Local())]):
        why = explain(module(), CompileRequest.of("reference"), Store()).why
    assert why.startswith("the pass 'local_pass': its class")


def compiled(factor=2.0):
    return dlc.compile(module(factor), TENSOR, cache=True)


def test_keys_contain_the_code_of_readers_and_plugins(model, tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    own = SimpleNamespace(__file__=str(package / "__init__.py"), __version__="1")
    monkeypatch.setattr(key, "version", own)
    monkeypatch.setattr(key, "reader_of", lambda model, name: Reader())
    request = CompileRequest.of("reference")
    before = key_parts(model, request)
    assert before == key_parts(model, request)
    (package / "new.py").write_text("x = 1")
    code_stamp.cache_clear()
    after = key_parts(model, request)
    assert [name for name in before if before[name] != after[name]] == ["code"]
    assert cache_key(before) != cache_key(after)
    assert key_parts(model, replace(request, config={"f": print})) is None
    monkeypatch.setattr(key, "reader_of", lambda model, name: None)
    assert key_parts(model, request) is None


def test_a_digest_is_remembered_until_the_file_changes(tmp_path, monkeypatch):
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    assert file_stamp(file) is None  # another write in the same tick of the clock would not be detected
    monkeypatch.setattr(digests, "_SETTLED", -1.0)
    first = file_digest([file])
    read = digests._content_digest
    monkeypatch.setattr(digests, "_content_digest", lambda path: pytest.fail("it is read again"))
    assert file_digest([file]) == first
    monkeypatch.setattr(digests, "_content_digest", read)
    file.write_bytes(b"two")
    assert file_digest([file]) != first
    for fact in disk_cache.folder().iterdir():
        fact.write_bytes(fact.read_bytes()[:-1] + b"?")
    assert file_digest([file]) != first
    file.write_bytes(b"one")
    assert file_digest([file]) == first
    with config.override(cache=False):
        assert file_digest([file]) == first


def test_old_facts_are_removed():
    assert disk_cache.disk_cached("a", "key", lambda: b"old") == b"old"
    assert disk_cache.disk_cached("a", "key", lambda: b"new") == b"old"
    assert disk_cache.disk_cached("a", "other", lambda: b"new") == b"new"
    (first, _) = sorted(disk_cache.folder().iterdir())
    os.utime(first, (0, 0))
    disk_cache.remove_unused()
    assert len(list(disk_cache.folder().iterdir())) == 1
    Store().clear()
    assert not list(disk_cache.folder().iterdir())


@pytest.mark.parametrize("place", [0.02, 0.5, 1.0])
def test_flipped_bits_are_found(place):
    exe = compiled()
    store = Store()
    (entry,) = store.entries()
    key, data = entry.path.stem, bytearray(entry.path.read_bytes())
    assert store.get(key) is not None
    data[int(place * (len(data) - 1))] ^= 4
    entry.path.write_bytes(data)
    found = store.get(key)
    if found is not None:  # a byte between two sections
        np.testing.assert_array_equal(found.weights, exe.weights)
    else:
        assert not entry.path.exists()
    again = compiled()
    np.testing.assert_array_equal(again(X), 2 * X)


def test_a_moved_file_is_compared_once(monkeypatch):
    compiled()
    store = Store()
    (entry,) = store.entries()
    entry.path.with_suffix(".mark").unlink()
    checked = []
    read = cache.read

    def counting(path, verify, **options):
        checked.append(verify)
        return read(path, verify=verify, **options)

    monkeypatch.setattr(cache, "read", counting)
    for _ in range(3):
        assert store.get(entry.path.stem) is not None
    assert checked == [True, False, False]


def test_reasons_for_not_caching_are_reported(model):
    request = CompileRequest.of(TENSOR)
    assert explain(module(), request, Store()).why == "the cache is empty"
    compiled()
    answer = explain(module(), request, Store())
    assert answer.entry is not None
    assert answer.entry.path.stem == answer.key
    for model, options, parts in (
        (module(), {"opt_level": 1}, ["opt_level"]),
        (module(), {"config": {"x": 1}}, ["config.x"]),
        (module(), {"shapes": {"n": 2}}, ["shapes.n"]),
        (module(), {"donate": {"x": 4}}, ["donate.x"]),
        (module(), {"precision": "bfloat16"}, ["config.precision"]),
        (module(), {"precision": "fast"}, ["config.precision"]),
        (module(3.0), {}, ["model"]),
        (module(), {"target": "reference"}, ["target"]),
    ):
        answer = explain(model, CompileRequest.of(**{"target": TENSOR, **options}), Store())
        assert answer.entry is None
        assert [each.part for each in answer.differences] == parts
    with dlc.PassContext(disabled=("fuse",)):
        answer = explain(module(), CompileRequest.of(TENSOR), Store())
    assert [each.part for each in answer.differences] == ["disabled"]
    unnamed = explain(module(), replace(request, config={"f": print}), Store())
    why = "the setting 'f': a builtin_function_or_method has no stable text"
    assert (unnamed.key, unnamed.why) == (None, why)
    next(iter(Store().entries())).path.write_bytes(b"not an artefact")
    assert explain(module(), replace(request, opt_level=1), Store()).why == "the cache is empty"


SCRIPT = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from tests.test_cache import X, compiled
for turn in range(6):
    factor = float(turn % int(sys.argv[2]) + 2)
    exe = compiled(factor)
    assert exe.report["cache"] in ("hit", "stored"), exe.report
    np.testing.assert_array_equal(exe(X), factor * X)
"""


@pytest.mark.parametrize("models", [1, 3])
def test_processes_share_the_folder(own_folder, models, request):
    """Several processes compile the same models at once. The folder has space for only some of them."""
    exe = compiled()
    size = Store().entries()[0].size
    assert exe.report["cache"] == "stored"
    limit = "1" if size < 1 << 20 else "8"
    variables = {**os.environ, "DLC_CACHE": "1", "DLC_CACHE_DIR": str(own_folder), "DLC_CACHE_SIZE": limit}
    command = [sys.executable, "-c", SCRIPT, str(request.config.rootpath), str(models)]
    running = [subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for one in running:
        _, said = one.communicate(timeout=100)
        assert one.returncode == 0, said
    assert len(Store().entries()) == models
    assert not list(Store().folder.glob(".*.part"))


def test_a_small_disk_is_filled_by_half_at_most(own_folder, monkeypatch):
    """If the disk has space for ten artefacts, five are kept, including the last one."""
    first = compiled(2.0)
    size = Store().entries()[0].size
    disk = type(shutil.disk_usage(own_folder))

    def usage(folder):
        used = sum(entry.size for entry in Store().entries())
        return disk(100 * size, 100 * size - 10 * size + used, 10 * size - used)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    for factor in range(3, 10):
        assert compiled(float(factor)).report["cache"] == "stored"
    assert 4 <= len(Store().entries()) <= 5
    assert compiled(9.0).report["cache"] == "hit"
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: disk(100 * size, 100 * size, 0))
    assert compiled(2.0).report["cache"] == "stored"
    assert len(Store().entries()) <= 3
    np.testing.assert_array_equal(first(X), 2 * X)


def test_a_full_disk_is_no_error(own_folder):
    """A limit on the size of files simulates a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        exe = compiled()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert exe.report["cache"].startswith("not stored: ")
    np.testing.assert_array_equal(exe(X), 2 * X)
    assert not [path for path in own_folder.rglob("*") if path.is_file() and path.suffix != ".mark"]
    assert compiled().report["cache"] == "stored"


def test_a_read_only_folder_is_used(own_folder, monkeypatch):
    compiled()

    def refuse(*arguments, **options):
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(os, "fchmod", refuse)
    monkeypatch.setattr(private, "new_file", refuse)
    monkeypatch.setattr(cache, "save", refuse)
    assert compiled().report["cache"] == "hit"
    Store().entries()[0].path.with_suffix(".mark").unlink()
    assert compiled().report["cache"] == "hit"


def test_models_for_several_targets_are_cached_by_all_targets():
    both = {"targets": ["reference", TENSOR]}

    def made(**options):
        return dlc.compile(module(), cache=True, **options)

    first, again = made(**both), made(**both)
    assert [first.report["cache"], again.report["cache"]] == ["stored", "hit"]
    assert list(again.regions) == list(first.regions) == ["region_0"]
    np.testing.assert_array_equal(again(X), X * 2)
    assert "region_0" in again.source("graph")
    others = {"targets": both["targets"][::-1]}, {**both, "place": {"mul": TENSOR}}
    assert [made(**other).report["cache"] for other in others] == ["stored", "stored"]
