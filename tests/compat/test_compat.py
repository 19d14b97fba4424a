"""Plugins of each version of the interface on the present core, and the names of the interface. See
README.md.
"""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import backend, hooks, target
from dlc_core.backend import deploy
from dlc_core.backend.compiler import compiler_problem
from dlc_core.backend.deploy import table
from dlc_core.cli.main import main
from dlc_core.graph import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.discovery import HOOKS
from dlc_core.plugin.registry import CATEGORIES, fresh_registry
from dlc_core.rewrite.check import check_rule
from dlc_core.runtime import device, library
from dlc_core.runtime.artefact import container
from dlc_core.schedule.rules import RULES
from dlc_core.support.deprecated import DEPRECATIONS
from dlc_core.testing import Golden
from dlc_core.testing.intrins import check_intrin
from dlc_core.testing.networks import feed, mlp
from dlc_core.testing.runner import expectations_of, run_cases
from dlc_core.testing.schedules import check_schedule, kernel_of
from tests.compat.surface import c_names, c_surface, names_of, surface

HERE = Path(__file__).parent
RUNTIME_HEADER = HERE.parents[1] / "plugins/backend_llvm/dlc_backend_llvm/runtime_source/dlc_runtime.h"
NOW = "interface_" + "_".join(map(str, hooks.API_VERSION))
BEFORE = f"interface_{hooks.API_VERSION[0]}_{hooks.API_VERSION[1] - 1}"
"""The version before, whose plugins still run."""
OLD = sorted(path.name for path in HERE.glob("interface_*") if path.name not in (NOW, BEFORE))
ADVICE = (
    "packages that are installed rely on it: keep it, deprecate it (docs/stability.md), or raise API_VERSION"
    " in dlc_core/hooks.py and add a folder for the new version to tests/compat"
    " (additions: pytest tests/compat --bless)"
)
SURFACES = {
    "backend": (backend, list(backend.__all__)),
    "deploy": (deploy, [name for name in deploy.__all__ if name != "HEADERS"]),
    "device": (device, ["Device", "HostMemory", "Loaded"]),
    "hooks": (hooks, [*hooks.__all__, *HOOKS]),
    "target": (target, list(target.__all__)),
}
TITLES = {
    "hooks": "Hooks and declarations, `dlc_core.hooks`",
    "target": "Targets and artefacts, `dlc_core.target`",
    "backend": "Base classes and partitioners, `dlc_core.backend`",
    "deploy": "Exports with regions on devices, `dlc_core.backend.deploy`",
    "device": "The protocol of devices, `dlc_core.runtime.device`",
}
PAGE = HERE.parents[1] / "docs" / "stability.md"
BEGIN, END = "<!-- names: begin -->", "<!-- names: end -->"
HEADERS = {path.name: path for path in (deploy.HEADERS[0], deploy.HEADERS[2], RUNTIME_HEADER)}
"""The interfaces in C."""
needs_compiler = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))


def removable() -> set[str]:
    """The deprecated names whose version of removal has come."""
    versions = {one.name: tuple(map(int, one.removal.split("."))) for one in DEPRECATIONS.values()}
    return {name for name, removal in versions.items() if removal <= hooks.API_VERSION}


def frozen(version: str, name: str) -> Any:
    return importlib.import_module(f"tests.compat.{version}.{name}")


@pytest.fixture
def plugin() -> Any:
    found = frozen(NOW, "every_hook")
    with fresh_registry({"frozen": found}) as known:
        assert [info.problem for info in known.plugins] == ["", ""], ADVICE
        expectations_of.cache_clear()
        found.SEEN.clear()
        yield found
    expectations_of.cache_clear()


def test_there_are_plugins_of_this_version() -> None:
    assert (HERE / NOW).is_dir(), f"tests/compat has no folder for the interface {hooks.API_VERSION}"


@pytest.mark.parametrize("name", SURFACES)
def test_names_and_signatures(name: str, bless: bool) -> None:
    module, names = SURFACES[name]
    text, kept = surface(module, names), HERE / "surface" / f"{name}.txt"
    gone = names_of(kept.read_text(encoding="utf-8")) - names_of(text) if kept.exists() else set()
    early = sorted(gone - removable())
    assert not early, f"{early} of dlc_core.{name} are gone, and were not deprecated for a version: {ADVICE}"
    try:
        Golden(HERE / "surface", bless=bless).check(f"{name}.txt", text)
    except AssertionError as error:
        raise AssertionError(f"the public surface of dlc_core.{name} is another: {ADVICE}\n{error}") from None


@pytest.mark.parametrize("name", HEADERS)
def test_declarations_in_c(name: str, bless: bool) -> None:
    try:
        Golden(HERE / "surface", bless=bless).check(f"{name}.txt", c_surface(HEADERS[name].read_text()))
    except AssertionError as error:
        advice = f"programs are compiled with {name}: add at the ends of structs, or raise its version"
        raise AssertionError(f"the declarations of {name} are others: {advice}\n{error}") from None


def test_the_page_about_stability_lists_the_names(bless: bool) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    listed, _, after = rest.partition(f"{END}\n")
    wanted = stable_names()
    if bless:
        PAGE.write_text(f"{before}{BEGIN}\n{wanted}{END}\n{after}", encoding="utf-8")
    else:
        assert listed == wanted, "pytest tests/compat --bless writes the list of docs/stability.md"


def stable_names() -> str:
    """The list of stable names, from the surface files."""
    found = []
    for name, title in TITLES.items():
        kept = (HERE / "surface" / f"{name}.txt").read_text(encoding="utf-8")
        words = sorted((one for one in names_of(kept) if "." not in one), key=str.lower)
        text = f"- {title}: {', '.join(f'`{word}`' for word in words)}."
        found += textwrap.wrap(text, 110, subsequent_indent="  ", break_long_words=False)
    for name in HEADERS:
        kept = (HERE / "surface" / f"{name}.txt").read_text(encoding="utf-8")
        text = f"- In C, `{name}`: {', '.join(f'`{word}`' for word in c_names(kept))}."
        found += textwrap.wrap(text, 110, subsequent_indent="  ", break_long_words=False)
    return "\n" + "\n".join(found) + "\n\n"


def test_the_versions_of_formats() -> None:
    """Files and runtimes of each version are read by the next; a change of one needs a reader of the old."""
    versions = (container.SCHEMA, library.VERSION, table.ABI)
    assert versions == (1, 1, 1), "keep a reader of the old version for one minor version of the interface"


def test_hooks_of_this_version_are_still_there(plugin: Any) -> None:
    gone = [name for name in vars(plugin) if name.startswith("dlc_") and name not in HOOKS]
    assert not gone, f"{gone}: {ADVICE}"


def test_every_category_is_given(plugin: Any) -> None:
    with fresh_registry({"frozen": plugin}) as known:
        info = known.plugins[1]
    assert {*CATEGORIES, "schedule", "decisions", "schedule_state"} == set(info.provides)


@needs_compiler
def test_the_generated_package_computes() -> None:
    with fresh_registry({"acme": frozen(NOW, "generated")}):
        found = dlc.compile(mlp(), "acme -cores=2")(feed(mlp()))
        np.testing.assert_allclose(found, dlc.compile(mlp(), "reference")(feed(mlp())), 1e-5, 1e-6)


@needs_compiler
def test_every_hook_is_used(plugin: Any, tmp_path: Path) -> None:
    """Frontend, pass, op, tuner, schedule rule, code generator, device, knob."""
    path = tmp_path / "model.frozen"
    path.write_text("16")
    exe = dlc.compile(path, "frozen -cores=2", cache=False)
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    np.testing.assert_array_equal(exe(x), x * 3)
    assert {"frontend", "pass", "schedule"} <= set(plugin.SEEN)
    assert exe.explain().kernels[0].rule == "frozen.vector"
    assert exe.device.cycles > 0
    assert plugin.SLOTS.look_up()[0] == 4


def test_watchers_see_passes(plugin: Any) -> None:
    dlc.compile(plugin.model(), "reference", cache=False, watchers=[plugin.Watcher()])
    assert "watcher" in plugin.SEEN


def test_commands_run(plugin: Any) -> None:
    assert main(["frozen"]) == 0
    assert "command" in plugin.SEEN


def test_namespaces_are_attributes(plugin: Any) -> None:
    with fresh_registry({"frozen": plugin}):
        assert dlc.frozen.sqrt(4) == 2
        with pytest.raises(AttributeError, match="no attribute 'melted'"):
            dlc.melted  # noqa: B018
    dlc.__dict__.pop("frozen", None)


@needs_compiler
def test_partitioners_take_their_regions(plugin: Any) -> None:
    x = param("x", tensor_type((3, 8)))
    w = constant(np.eye(8, 5, dtype=np.float32))
    ops = dlc.ops()
    module = IRModule({"main": Function("main", (x,), ops["exp"].build(ops["matmul"].build(x, w)))})
    exe = dlc.compile(module, targets=["frozen", "reference"], cache=False)
    a = np.ones((3, 8), np.float32)
    np.testing.assert_allclose(exe(a), np.exp(a @ np.eye(8, 5)), rtol=1e-5)
    assert "frozen" in {str(region.target) for region in exe.regions.values()}
    assert "partitioner" in plugin.SEEN


def test_declarations_pass_the_kit(plugin: Any) -> None:
    """Rules, schedule rules, intrinsics, exemptions and models pass the kit."""
    with fresh_registry({"frozen": plugin}) as known:
        assert check_rule(known.rules["frozen_neg_neg"]) > 0
        check_intrin(known.tensor_intrins["frozen.double"])
        assert known.importers["frozen::Op"].name == "frozen::Op"
        (case,) = known.models["frozen"].named()
        assert [o.status for o in run_cases([case], dlc.Target.parse("reference", known.targets))] == [
            "passed"
        ]
        kinds = {e.kind for e in expectations_of("frozen").entries}
        assert kinds == {"unsupported", "expected failure"}
        x = param("x", tensor_type((4, 16)))
        rule = known.schedule_rules["frozen.vector"]
        check_schedule(
            kernel_of(plugin.TIMES.build(x)), target.Description(vector_bits=128), rules=[rule, *RULES]
        )


@pytest.mark.parametrize("older", OLD)
def test_plugins_of_older_versions_are_refused_in_one_line(older: str) -> None:
    check_refused(frozen(older, "every_hook"))


@pytest.mark.parametrize("ours", [(0, 0), (0, 3), (1, 0)])
def test_plugins_of_this_version_are_refused_by_others(
    ours: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "API_VERSION", ours)
    check_refused(frozen(NOW, "every_hook"))


def test_the_next_version_runs_plugins_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "API_VERSION", (hooks.API_VERSION[0], hooks.API_VERSION[1] + 1))
    with fresh_registry({"frozen": frozen(NOW, "every_hook")}) as known:
        assert [info.problem for info in known.plugins] == ["", ""]


def check_refused(plugin: Any) -> None:
    with fresh_registry({"old": plugin}) as known:
        info = known.plugins[1]
    assert info.status == "broken"
    first = info.problem.splitlines()[0]
    assert "written for interface" in first
    assert "this dlc-core has" in first
    assert "install versions of the plugin and of dlc-core that fit" in info.problem
