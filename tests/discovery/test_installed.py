"""Discovery of installed packages, in separate processes."""

from __future__ import annotations

import json

import pytest

BROKEN = {
    "broken_import": "No module named 'a_module_that_nobody_has'",
    "broken_exit": "SystemExit: no licence file",
    "broken_hook": "dlc_targets: ValueError: no board attached",
    "misspelt": "did you mean 'dlc_targets'?",
    "unmarked": "put @hookimpl above it",
    "extra_argument": "Argument(s) {'machine'} are declared in the hookimpl but",
    "nameless": "is not a declaration",
    "too_new": "written for interface 0.7, this dlc-core has 0.1",
    "impatient": "calls registry() while it is imported",
}


def run_code(python, code, **options):
    done = python("-W", "error", "-c", code, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def listed(python):
    """`dlc plugins --json` with everything installed: the records by name, the twins as a list."""
    done = python("-m", "dlc_core", "plugins", "--json")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    twins = [record for record in records if record["name"] == "twin"]
    return {**{record["name"]: record for record in records}, "twin": twins}


def test_a_plugin_provides_its_declarations(python):
    code = "from dlc_core.plugin.registry import registry; print(registry().targets['good-board'].name)"
    assert run_code(python, code) == "good-board"


def test_the_list_has_the_declarations_of_each_plugin(listed):
    assert listed["core"]["status"] == "ok"
    assert "debug" in listed["core"]["provides"]["knobs"]
    good = listed["good"]
    assert (good["distribution"], good["version"]) == ("dlc-good", "1.2")
    assert good["provides"] == {
        "targets": ["good-board", "shared-board"],
        "commands": ["good-hello", "good-lost"],
        "knobs": ["good_slots"],
    }


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_isolated_with_the_reason(listed, name):
    assert listed[name]["status"] == "broken"
    assert BROKEN[name] in listed[name]["problem"]
    assert "Traceback" in listed[name]["traceback"]
    assert listed["good"]["provides"]["targets"] == ["good-board", "shared-board"]


def test_a_raising_hook_does_not_affect_other_hooks(listed):
    assert listed["broken_hook"]["provides"] == {"devices": ["still-there"]}


def test_unknown_names_list_known_and_similar_names_and_broken_plugins(python):
    code = """
from dlc_core.diag import PluginError
from dlc_core.plugin.registry import registry
try:
    registry().targets["goodboard"]
except PluginError as error:
    assert isinstance(error, KeyError)
    print(error)
"""
    text = run_code(python, code)
    assert text.startswith("there is no target 'goodboard'\n")
    assert "good-board, " in text
    assert "rival-board" in text
    assert "hint: did you mean 'good-board'?" in text
    assert "broken plugin broken_import of dlc-broken-import 1.2: import of dlc_broken_import: " in text
    for name, reason in BROKEN.items():
        assert name in text
        assert reason in text


def test_a_clash_is_reported_on_lookup_with_all_providers(python, listed):
    code = """
from dlc_core.diag import PluginError
from dlc_core.plugin.registry import registry
targets = registry().targets
print(sorted(name for name in targets if name in ("good-board", "rival-board", "shared-board")))
print(dict(targets.clashes))
for ask in (lambda: targets["shared-board"], lambda: targets.get("shared-board")):
    try:
        ask()
    except PluginError as error:
        print(error)
"""
    text = run_code(python, code)
    assert "['good-board', 'rival-board']\n{'shared-board': ('good', 'rival')}" in text
    assert (
        text.count(
            "2 plugins provide a target 'shared-board'\n  good of dlc-good 1.2\n  rival of dlc-rival 1.2"
        )
        == 2
    )
    assert "target 'shared-board' is also provided by good" in listed["rival"]["problem"]
    assert "target 'shared-board' is also provided by rival" in listed["good"]["problem"]


def test_two_distributions_with_one_plugin_name(listed):
    twins = listed["twin"]
    assert [twin["distribution"] for twin in twins] == ["dlc-twin-a", "dlc-twin-b"]
    for twin in twins:
        assert twin["status"] == "broken"
        assert "2 distributions provide a plugin 'twin': dlc-twin-a 1.2, dlc-twin-b 1.2" in twin["problem"]


def test_none_loads_no_plugin(python):
    code = """
import sys
from dlc_core.plugin.registry import registry
named = ("core", "good", "broken_import")
print([(info.name, info.status) for info in registry().plugins if info.name in named])
print([name for name in sys.modules if name.startswith("dlc_") and name.split(".")[0] != "dlc_core"])
try:
    registry().targets["good-board"]
except KeyError as error:
    print(error)
"""
    text = run_code(python, code, plugins="none")
    assert "[('core', 'ok'), ('broken_import', 'disabled'), ('good', 'disabled')]\n[]\n" in text
    assert "not loaded because of DLC_PLUGINS: broken_exit, broken_hook, " in text


def test_a_list_loads_only_its_plugins(python):
    code = """
from dlc_core.plugin.registry import registry
print([info.name for info in registry().plugins if info.status == "ok"])
print(registry().targets["shared-board"].name)
"""
    assert run_code(python, code, plugins="good") == "['core', 'good']\nshared-board"


def test_an_override_gives_another_registry(python):
    code = """
from dlc_core.config import config
from dlc_core.plugin.registry import registry
before = registry()
with config.override(plugins=["rival"]):
    print("good-board" in registry().targets, "rival-board" in registry().targets)
print(registry() is before)
"""
    assert run_code(python, code, plugins="good") == "False True\nTrue"


def test_an_unknown_name_in_the_list_is_an_error(python):
    done = python("-m", "dlc_core", "plugins", plugins="good,rivl")
    assert done.returncode == 1
    assert "DLC_PLUGINS names 'rivl', and no such plugin is installed" in done.stderr
    assert "did you mean 'rival'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_package_installed_while_the_process_runs_is_found(python, late_wheel, tmp_path):
    code = f"""
import os, subprocess, sys
from dlc_core.diag import PluginError
from dlc_core.plugin.registry import registry
first = registry()
try:
    first.targets["late-board"]
except PluginError:
    print("not yet")
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
    "--no-index", "--no-compile", "--target", os.getcwd(), {str(late_wheel)!r}], check=True)
print(first.targets["late-board"].name, "late-board" in first.targets, "late-board" in registry().targets)
"""
    assert run_code(python, code, site=tmp_path) == "not yet\nlate-board False True"


def test_commands_and_knobs_of_a_plugin(python):
    assert "good-hello" in python("-m", "dlc_core", "--help", plugins="good").stdout
    done = python("-m", "dlc_core", "good-hello", "--name", "you", plugins="good", DLC_GOOD_SLOTS="7")
    assert (done.returncode, done.stdout) == (0, "hello you, 7 slots\n")
    done = python("-m", "dlc_core", "good-lost", plugins="good")
    assert done.returncode == 1
    assert "the command 'good-lost' cannot be loaded from dlc_good_lost:hello" in done.stderr
    settings = json.loads(
        python("-m", "dlc_core", "config", "--json", plugins="good", DLC_GOOD_SLOTS="7").stdout
    )
    assert settings["good_slots"] == {"value": 7, "origin": "env", "help": "Slots of the queue."}
    assert settings["plugins"] == {
        "value": ["good"],
        "origin": "env",
        "help": "The only plugins to load, by name; unset loads every installed one.",
    }


def test_import_is_fast_and_imports_no_plugin(python):
    code = """
import sys
before = set(sys.modules)
import time
start = time.process_time()
import dlc_core
spent = time.process_time() - start
taken = {name.split(".")[0] for name in set(sys.modules) - before}
heavy = {"numpy", "pluggy", "typer", "rich", "ml_dtypes"}
print(spent, sorted(name for name in taken if name in heavy or name.startswith("dlc_")))
"""
    times = []
    for _ in range(5):
        spent, _, taken = run_code(python, code).partition(" ")
        assert taken == "['dlc_core']"
        times.append(float(spent))
    assert min(times) < 0.1


def test_the_registry_reads_entry_points_without_importing(python):
    code = """
import sys
from dlc_core.plugin.installed import scan
names = [source.name for source in scan("dlc")]
print(names == sorted(names), {"good", "rival", "twin"} <= set(names))
print([name for name in sys.modules if name.startswith("dlc_") and name.split(".")[0] != "dlc_core"])
"""
    assert run_code(python, code) == "True True\n[]"
