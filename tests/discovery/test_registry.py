"""The registry with plugin objects that the tests make."""

from __future__ import annotations

import inspect
import sys
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from dlc_core import driver, hooks
from dlc_core.diag import DlcError, PluginError, UsageError
from dlc_core.driver import find_target
from dlc_core.hooks import Deferred, hookimpl
from dlc_core.plugin.categories import REQUIRED_ATTRIBUTES
from dlc_core.plugin.discovery import HOOKS
from dlc_core.plugin.registry import (
    CATEGORIES,
    UnknownNameError,
    fresh_registry,
    registry,
)
from dlc_core.target import TargetKind


@dataclass(frozen=True)
class Thing:
    """A declaration with all attributes that any kind needs."""

    name: str

    def __getattr__(self, name):
        if name in KNOWN:
            return
        raise AttributeError(name)


KNOWN = {name for needed in REQUIRED_ATTRIBUTES.values() for name in needed}


class Board:
    """A plugin that counts how often its hook is called."""

    def __init__(self) -> None:
        self.calls = 0

    @hookimpl
    def dlc_targets(self):
        self.calls += 1
        return (Thing(name) for name in ("board", "board-mini"))


def test_declarations_by_category_and_name():
    with fresh_registry({"board": Board()}) as made:
        assert registry() is made
        assert made.targets["board"] == Thing("board")
        assert made.get_or_error("targets", "board-mini") == Thing("board-mini")
        assert made.targets.provider("board") == "board"
        assert [name for name in made.targets if name.startswith("board")] == ["board", "board-mini"]
        assert made.devices.get("board") is None
    assert registry() is not made


def test_a_hook_is_called_once_and_only_if_its_category_is_used():
    board = Board()
    with fresh_registry({"board": board}) as made:
        assert len(made.knobs) > 0
        assert board.calls == 0
        assert "board" in made.targets
        assert len(made.plugins) == 2
        assert "board" in made.targets
        assert board.calls == 1


class Usurper:
    """A plugin that declares a name of the core, and one of its own."""

    @hookimpl
    def dlc_targets(self):
        return [Thing("reference"), Thing("own")]

    @hookimpl
    def dlc_ops(self):
        return [Thing("relu")]


def test_declarations_of_the_core_are_not_replaced():
    with fresh_registry({"usurper": Usurper()}) as made:
        assert made.targets.provider("reference") == made.ops.provider("relu") == "core"
        assert not made.targets.clashes
        assert made.targets["own"] == Thing("own")
        core, usurper = made.plugins
        assert core.status == "ok"
        assert usurper.status == "broken"
        assert "dlc_targets: the core has a target 'reference'" in usurper.problem
        assert usurper.provides == {"targets": ("own",)}


class Named:
    """A declaration that has only a name."""

    name = "named"


def junk(given):
    """A plugin whose hooks all return `given`."""
    return SimpleNamespace(
        **{
            name: hookimpl(specname=name)(lambda: given() if callable(given) else given)
            for name in HOOKS
            if name != "dlc_schedule"
        }
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "the hook returned int 7"),
        ("text", "it must return a list of declarations"),
        (Named(), "it must return a list of declarations"),
        ([Named()], "it has no options and no describe"),
        ({"name": Named()}, "it must return a list of declarations"),
        (lambda: (_ for _ in [Thing("fine"), 3]), "it has no name"),
    ],
)
def test_invalid_declarations_are_problems_of_their_plugin(given, message):
    with fresh_registry({"junk": junk(given), "board": Board()}) as made:
        assert set(made.targets) == {"reference", "board", "board-mini"}
        core, found, board = made.plugins
        assert (core.status, found.status, board.status) == ("ok", "broken", "ok")
        assert message in found.problem
        assert find_target("reference").kind.name == "reference"
        with pytest.raises(DlcError, match="dlc_frontends"):
            driver.load("model.onnx")


def test_a_target_whose_check_raises_does_not_affect_others():
    def ask():
        raise OSError("no such driver")

    kind = TargetKind("moody", "a board", "", "", problem=ask, host_rank=1000)
    plugin = SimpleNamespace(dlc_targets=hookimpl(specname="dlc_targets")(lambda: [kind]))
    with fresh_registry({"moody": plugin}) as made:
        assert made.targets["moody"] == kind
        assert kind.problem() == "the check failed: OSError: no such driver"
        with pytest.raises(DlcError, match="name a target: reference, moody"):
            find_target(None)


def test_threads_get_one_registry_and_one_category():
    board = Board()
    seen = []
    barrier = threading.Barrier(8)

    def ask():
        barrier.wait()
        seen.append(registry().targets)

    with fresh_registry({"board": board}):
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 8
    assert len({id(category) for category in seen}) == 1
    assert board.calls == 1


@pytest.fixture
def module_writer(tmp_path, monkeypatch):
    """A function that writes an importable module, and returns a function that tells whether it was imported.
    The modules are removed from `sys.modules` at the end.
    """

    def put(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        names.append(name)
        return lambda: name in sys.modules

    names = []
    monkeypatch.syspath_prepend(tmp_path)
    yield put
    for name in names:
        sys.modules.pop(name, None)


KIND = """
from dlc_core.target import TargetKind
KIND = TargetKind({name!r}, "a board", "", "", host_rank={rank})
"""


def deferring(*given):
    """A plugin whose targets are `given`."""
    return SimpleNamespace(dlc_targets=hookimpl(specname="dlc_targets")(lambda: list(given)))


def test_deferred_declarations_are_imported_on_lookup(module_writer):
    near = module_writer("near_board", KIND.format(name="near", rank=3))
    far = module_writer("far_board", KIND.format(name="far", rank=2))
    plugin = deferring(
        Deferred("near", "near_board:KIND", {"host_rank": 3}), Deferred("far", "far_board:KIND")
    )
    with fresh_registry({"boards": plugin}) as made:
        assert set(made.targets) == {"reference", "near", "far"}
        assert "near" in made.targets
        assert made.targets.attribute("near", "host_rank") == 3
        assert not near()
        assert made.targets["near"] is made.targets["near"]
        assert made.targets["near"].doc == "a board"
        assert (near(), far()) == (True, False)
        assert made.targets.attribute("far", "host_rank") == 2
        assert far()
        assert {type(kind) for kind in made.targets.values()} == {TargetKind}
        assert [plugin.status for plugin in made.plugins] == ["ok", "ok"]


def test_the_best_target_kind_is_chosen_without_importing_others(module_writer):
    best = module_writer("best_board", KIND.format(name="best", rank=3))
    other = module_writer("other_board", KIND.format(name="other", rank=2))
    given = [
        Deferred("other", "other_board:KIND", {"host_rank": 2}),
        Deferred("gone", "no_such_module:KIND"),
        Deferred("best", "best_board:KIND", {"host_rank": 3}),
    ]
    with fresh_registry({"boards": deferring(*given)}):
        assert find_target(None).kind.name == "best"
        assert (best(), other()) == (True, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise OSError('no such driver')", "OSError: no such driver"),
        ("", "AttributeError: module 'odd_board' has no attribute 'KIND'"),
        (KIND.format(name="other", rank=3), "its name is 'other', not 'odd'"),
        (KIND.format(name="odd", rank=4), "its host_rank is 4, not 3"),
        ("class KIND:\n    name, host_rank = 'odd', 3", "it has no options"),
    ],
)
def test_failed_imports_are_problems_of_their_plugin(text, message, module_writer):
    module_writer("odd_board", text)
    plugin = deferring(Deferred("odd", "odd_board:KIND", {"host_rank": 3}), Thing("fine"))
    with fresh_registry({"odd": plugin}) as made:
        assert made.targets.get("odd") is None
        with pytest.raises(UnknownNameError, match="there is no target 'odd'"):
            made.targets["odd"]
        assert set(made.targets) == {"reference", "fine"}
        core, broken = made.plugins
        assert (core.status, broken.status) == ("ok", "broken")
        assert message in broken.problem
    with fresh_registry({"odd": plugin}) as made:
        sys.modules.pop("odd_board", None)
        assert [kind.name for kind in made.targets.values()] == ["reference", "fine"]


def test_the_registry_is_frozen():
    with fresh_registry({"board": Board()}) as made:
        with pytest.raises(AttributeError):
            made.targets = {}
        with pytest.raises(TypeError):
            made.targets["other"] = Thing("other")
        with pytest.raises(TypeError):
            made.plugins[1].provides["targets"] = ()


def test_unknown_category_and_unknown_name():
    with fresh_registry() as made:
        with pytest.raises(PluginError, match="there is no category 'target'") as caught:
            made.category("target")
        assert "targets" in str(caught.value)
        with pytest.raises(UnknownNameError, match="there is no command 'plugin'") as caught:
            made.commands["plugin"]
        assert "did you mean 'plugins'" in str(caught.value)
        with pytest.raises(UnknownNameError) as caught:
            made.devices["some-device"]
        assert "install a package that provides this device" in str(caught.value)


def test_a_hook_cannot_read_its_own_category():
    class Mirror:
        @hookimpl
        def dlc_watchers(self):
            return list(registry().watchers.values())

    with fresh_registry({"mirror": Mirror()}) as made:
        assert list(made.watchers) == []
        (info,) = [info for info in made.plugins if info.name == "mirror"]
        assert info.status == "broken"
        assert "reads its own category from the registry" in info.problem


def test_the_cause_of_an_unknown_name_is_the_first_broken_plugin():
    reason = RuntimeError("the board is not attached")

    class Absent:
        @hookimpl
        def dlc_devices(self):
            raise reason

    with fresh_registry({"absent": Absent()}) as made:
        with pytest.raises(UnknownNameError, match="RuntimeError: the board is not attached") as caught:
            made.devices["board"]
        assert caught.value.__cause__ is reason


@pytest.mark.parametrize(
    ("written_for", "words"),
    [
        ("0.2", "written for interface 0.2"),
        (">=0.2,<0.4", "written for interface >=0.2,<0.4"),
        ("1.0", "written for interface 1.0"),
        ("new", "DLC_API is 'new'"),
        (1, "DLC_API is 1"),
    ],
)
def test_interface_versions(written_for, words):
    with fresh_registry({"odd": SimpleNamespace(DLC_API=written_for)}) as made:
        assert words in made.plugins[1].problem
    with fresh_registry({"even": SimpleNamespace(DLC_API="0.1")}) as made:
        assert made.plugins[1].status == "ok"


def test_older_minor_versions_are_compatible_from_version_one(monkeypatch):
    monkeypatch.setattr(hooks, "API_VERSION", (1, 4))
    written_for = ["1.4", "1.3", "1.5", "2.0", "0.4"]
    plugins = {text: SimpleNamespace(DLC_API=text) for text in written_for}
    with fresh_registry(plugins) as made:
        status = {info.name: info.status for info in made.plugins}
    assert [status[text] for text in written_for] == ["ok", "ok", "broken", "broken", "broken"]


def test_a_class_is_not_a_plugin():
    with fresh_registry({"board": Board}) as made:
        assert "name an instance or a module" in made.plugins[1].problem


def test_a_hook_wrapper_is_not_accepted():
    class Wrapper:
        @hookimpl(wrapper=True)
        def dlc_targets(self):
            return (yield)

    with fresh_registry({"wrapper": Wrapper()}) as made:
        assert "is a hook wrapper" in made.plugins[1].problem


def test_the_first_tuner_with_an_answer_wins():
    class Tuner:
        def __init__(self, answer):
            self.answer = answer

        @hookimpl
        def dlc_schedule(self, kernel):
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer and f"{self.answer} for {kernel}"

    with fresh_registry({"a": Tuner(None), "b": Tuner("tiles"), "c": Tuner("other")}) as made:
        assert made.schedule("matmul", "board") == "tiles for matmul"
        assert made.plugins[2].provides == {"schedule": ("dlc_schedule",)}
    with fresh_registry({"a": Tuner(None)}) as made:
        assert made.schedule("matmul", "board") is None
    with fresh_registry({"a": Tuner(OSError("no database")), "b": Tuner("tiles")}) as made:
        with pytest.warns(RuntimeWarning, match="plugin a of a failed to schedule a kernel: OSError"):
            assert made.schedule("matmul", "board") == "tiles for matmul"
        assert made.plugins[1].status == "broken"


def test_tuners_give_decisions():
    class Tuner:
        def __init__(self, answer, state=None):
            self.answer, self.state = answer, state

        @hookimpl
        def dlc_decisions(self, target):
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    class WithState(Tuner):
        @hookimpl
        def dlc_schedule_state(self):
            if isinstance(self.state, Exception):
                raise self.state
            return self.state

    with fresh_registry({"a": Tuner({"form": "tiles"}), "b": Tuner({"form": "direct", "rows": "2"})}) as made:
        assert made.decisions("board") == {"form": "tiles", "rows": "2"}
        assert made.has_tuner
        assert made.schedule_state() is None
    failed = pytest.warns(RuntimeWarning, match="plugin a of a failed to give decisions: OSError")
    with fresh_registry({"a": Tuner(OSError()), "b": Tuner({"form": "tiles"})}) as made, failed:
        assert made.decisions("board") == {"form": "tiles"}
    with fresh_registry({"a": WithState({}, "3"), "b": WithState({}, "x")}) as made:
        assert made.decisions("board") == {}
        assert made.schedule_state() == "a: 3; b: x"
    with fresh_registry({"a": WithState({}, OSError("locked"))}) as made:
        assert made.schedule_state() is None
        assert made.plugins[1].status == "broken"
    with fresh_registry({"a": WithState({}, UsageError("a setting"))}) as made, pytest.raises(UsageError):
        made.schedule_state()
    with fresh_registry({}) as made:
        assert made.schedule_state() == ""
        assert not made.has_tuner


def test_every_category_has_its_hook_and_every_hook_its_example():
    assert {f"dlc_{category}" for category in CATEGORIES} | {
        "dlc_schedule",
        "dlc_decisions",
        "dlc_schedule_state",
    } == set(HOOKS)
    for name in HOOKS:
        assert "Example: `return " in inspect.getdoc(getattr(hooks, name))
