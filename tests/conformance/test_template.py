"""The package of `dlc new-backend` passes the kit unchanged."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from dlc_core.backend.compiler import compiler_problem
from dlc_core.cli.new_backend import write_backend
from dlc_core.plugin.registry import fresh_registry
from dlc_core.testing import conformance_suite
from dlc_core.testing.runner import expectations_of, usable_target

pytestmark = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))

FRONTENDS: dict[str, object] = {}
if importlib.util.find_spec("dlc_frontend_onnx") is not None:
    FRONTENDS["onnx"] = importlib.import_module("dlc_frontend_onnx.plugin")

SLICE = ("matmul", "softmax", "exp", "reduce_max", "transpose")
LEVELS = ("device", "ops", "graphs", "hostile")


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package is found as if it were installed, with the core and a frontend, whose models it runs."""
    folder = tmp_path_factory.mktemp("acme") / "package"
    write_backend("acme", folder)
    spec = importlib.util.spec_from_file_location("acme_plugin", folder / "dlc_backend_acme" / "plugin.py")
    assert spec is not None
    assert spec.loader is not None
    plugin: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    with fresh_registry({"acme": plugin, **FRONTENDS}):
        usable_target.cache_clear()
        yield
    usable_target.cache_clear()
    expectations_of.cache_clear()


TestSlice = conformance_suite("acme", levels=LEVELS, ops=SLICE, fast_dtypes=("float32",), graphs=20)
TestWhole = pytest.mark.slow(conformance_suite("acme"))
