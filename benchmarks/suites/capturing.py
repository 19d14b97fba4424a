"""`python -m benchmarks.suites.capturing FOLDER STUBS FILE…` runs tests and saves the models that they use.

Saved are the models that a test loads into onnxruntime, with the inputs of the first run, and those that it
gives to a function of a stub. `STUBS` are names of packages with commas between. Each is replaced by objects
that accept every use, so that the tests of a package run without it. The outcomes of the tests do not matter.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import inspect
import re
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import onnx
import pytest

from benchmarks.suites.storage import save


class Recorder:
    """Saves each model once, under the name of the running test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self.test = "start"

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.test = re.sub(r"[^\w.\[\]=-]+", "_", item.nodeid.split("::", 1)[-1])[:120]

    def record(self, model: bytes, feeds: Mapping[str, Any] | None) -> None:
        key = hashlib.sha256(model).hexdigest()
        if key in self._seen:
            return
        self._seen.add(key)
        number = 0
        while (self._folder / f"{self.test}-{number}").exists():
            number += 1
        try:
            save(self._folder / f"{self.test}-{number}", model, feeds)
        except (TypeError, ValueError, NotImplementedError) as error:
            sys.stderr.write(f"{self.test}: not saved: {error}\n")


def _content(source: Any) -> bytes | None:
    """The bytes of a model that a session was given; external data is taken into them."""
    if isinstance(source, bytes):
        return source
    if isinstance(source, onnx.ModelProto):
        return source.SerializeToString()
    try:
        return bytes(onnx.load(source).SerializeToString())
    except Exception:  # noqa: BLE001  (a test may use a file that is no model)
        return None


def watch_sessions(recorder: Recorder) -> None:
    """Replace the session class of onnxruntime by one that records."""
    import onnxruntime

    class Recording(onnxruntime.InferenceSession):
        def __init__(self, source: Any, *more: Any, **options: Any) -> None:
            self._content = _content(source)
            super().__init__(source, *more, **options)

        def run(self, names: Any, feeds: Mapping[str, Any], *more: Any) -> Any:
            if self._content is not None:
                recorder.record(self._content, feeds)
            return super().run(names, feeds, *more)

    onnxruntime.InferenceSession = Recording


def stub_class(recorder: Recorder) -> type[MagicMock]:
    """The class of objects that accept every use. A decorator of a function returns the function."""

    class Stub(MagicMock):
        def __call__(self, *args: Any, **options: Any) -> Any:
            for value in (*args, *options.values()):
                if isinstance(value, onnx.ModelProto):
                    recorder.record(value.SerializeToString(), None)
            if len(args) == 1 and not options and inspect.isfunction(args[0]):
                return args[0]
            return super().__call__(*args, **options)

    return Stub


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of packages that are not there; each attribute is a stub."""

    def __init__(self, packages: Sequence[str], stub: type[MagicMock]) -> None:
        self._packages, self._stub = packages, stub

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] not in self._packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        stub = self._stub()
        module.__getattr__ = lambda name: _attribute(stub, name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


def _attribute(stub: MagicMock, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(stub, name)


def main(folder: str, stubs: str, *arguments: str) -> int:
    recorder = Recorder(Path(folder))
    watch_sessions(recorder)
    packages = [name for name in stubs.split(",") if name]
    sys.meta_path.insert(0, Stubs(packages, stub_class(recorder)))
    options = ["-q", "-p", "no:cacheprovider", "--tb=no", "-W", "ignore", "--continue-on-collection-errors"]
    return int(pytest.main([*options, *arguments], plugins=[recorder]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
