"""Deprecated names warn at the line that uses them, and are removed in time."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy
import pytest

import dlc_core
from dlc_core import hooks
from dlc_core.backend import Kernel
from dlc_core.support.deprecated import DEPRECATIONS, deprecated, deprecated_names, deprecation

PLUGIN = '''\
"""A package that uses old names."""
import library


def of_a_property(kernel):
    return kernel.meets


def of_a_function():
    return library.old_sum(1,
                           2)


def of_a_module():
    return library.old_name
'''
LINES = {"of_a_property": 6, "of_a_function": 10, "of_a_module": 15}


@deprecated("library.new_sum", since="0.1", name="library.old_sum")
def old_sum(a: int, b: int) -> int:
    """The sum."""
    return a + b


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, which imports a library with old names."""
    library = ModuleType("library")
    library.new_name = 5
    library.old_sum = old_sum
    library.__getattr__ = deprecated_names("library", {"old_name": "new_name"}, since="0.1")
    monkeypatch.setitem(sys.modules, "library", library)
    path = tmp_path / "used.py"
    path.write_text(PLUGIN)
    spec = importlib.util.spec_from_file_location("used", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


USES = [
    ("of_a_property", [Kernel("k", (), (), "", (), True)], True, "Kernel.meets", "Kernel.has_barriers"),
    ("of_a_function", [], 3, "library.old_sum", "library.new_sum"),
    ("of_a_module", [], 5, "library.old_name", "library.new_name"),
]


@pytest.mark.parametrize(("name", "arguments", "result", "old", "new"), USES, ids=[use[0] for use in USES])
def test_old_names_work_and_warn_at_the_line_of_the_plugin(used, name, arguments, result, old, new):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert getattr(used, name)(*arguments) == result
    (warning,) = caught
    assert warning.category is DeprecationWarning
    expected = f"{old} is deprecated since interface 0.1 and is removed in 0.3; write {new} instead"
    assert str(warning.message) == expected
    assert (warning.filename, warning.lineno) == (used.__file__, LINES[name])


def test_names_that_never_were_are_errors(used):
    with pytest.raises(AttributeError, match="module 'library' has no attribute 'none'"):
        used.library.none  # noqa: B018


def test_wrapped_functions_keep_their_texts():
    assert (old_sum.__name__, old_sum.__doc__) == ("old_sum", "The sum.")


def test_old_hooks_warn_at_the_function_of_the_plugin(tmp_path):
    class Specs:
        @hooks.hookspec(warn_on_impl=deprecation("the hook dlc_old", "dlc_targets", since="0.1"))
        def dlc_old(self):
            """A hook with a new name."""

    (tmp_path / "old_hook.py").write_text(
        "from dlc_core.hooks import hookimpl\n\n\n@hookimpl\ndef dlc_old():\n    return []\n"
    )
    spec = importlib.util.spec_from_file_location("old_hook", tmp_path / "old_hook.py")
    assert spec is not None
    assert spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(Specs)
    with pytest.warns(
        DeprecationWarning, match="the hook dlc_old is deprecated.* write dlc_targets"
    ) as caught:
        manager.register(plugin)
    assert caught[0].filename == plugin.__file__
    assert caught[0].lineno in (4, 5)


def test_no_deprecated_name_outlives_its_version():
    """Each works for at least one minor version after the one that deprecated it, and is then removed."""
    for found in pkgutil.walk_packages(dlc_core.__path__, "dlc_core."):
        if not found.name.endswith("__main__") and "templates" not in found.name:
            import_module(found.name)
    assert "Kernel.meets" in DEPRECATIONS
    for one in DEPRECATIONS.values():
        since, removal = (tuple(map(int, text.split("."))) for text in (one.since, one.removal))
        assert removal >= (since[0], since[1] + 2) or removal[0] > since[0], f"{one}: too early"
        assert removal > hooks.API_VERSION, f"{one}: remove it now"
