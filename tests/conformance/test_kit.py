"""The kit finds errors, respects exemptions, and runs from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc_core.diag import CodegenError, DlcError, UnsupportedError, UsageError
from dlc_core.driver import find_target
from dlc_core.graph.node import param
from dlc_core.hooks import hookimpl
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.declare import OpDecl
from dlc_core.plugin.registry import fresh_registry
from dlc_core.runtime.reference import Entry, LoadedModule, ReferenceDevice
from dlc_core.target import STAGES, Artifact, Description
from dlc_core.target.reference import KIND, ReferenceCodegen
from dlc_core.testing import ExpectedFailure, Golden, Unsupported, compile_all, conformance_suite
from dlc_core.testing.cases import difference, module_of, op_cases, symbolic_cases
from dlc_core.testing.expectations import Expectations
from dlc_core.testing.levels.core import CoreLevel
from dlc_core.testing.runner import Outcome, check_outcomes, expectations_of, run_cases, usable_target
from dlc_core.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]


class WrongEntry(Entry):
    """Its results are too large by one in int32, and have a wrong shape in int8."""

    def evaluate(self, *args: Any) -> list[Array]:
        results = super().evaluate(*args)
        change = {"int32": lambda a: a + 1, "int8": lambda a: a[..., None]}
        return [change.get(str(a.dtype), lambda a: a)(a) for a in results]


class WrongModule(LoadedModule):
    def entry(self, symbol: str) -> Entry:
        return WrongEntry(self, symbol, self._artifact)


class WrongDevice(ReferenceDevice):
    name = "wrong"

    def load(self, artifact: Any) -> LoadedModule:
        return WrongModule(artifact)


class WrongCodegen(ReferenceCodegen):
    name = "wrong"
    kinds = ("wrong",)


class PickyCodegen:
    """Refuses modules with float64."""

    name = "picky"
    kinds = ("picky",)
    format = "nothing"
    runs = 0

    def emit(self, module: IRModule, target: Any) -> Artifact:
        PickyCodegen.runs += 1
        funcs = module.of_kind(PrimFunc).values()
        if any(str(b.dtype) == "float64" for f in funcs for b in f.buffers):
            raise CodegenError("no float64 here")
        return Artifact(self.format, b"", str(target), tuple(f.name for f in funcs if f.attrs.get("entry")))


def no_description(options: Mapping[str, Any]) -> Description:
    """A kind whose description needs a device that is missing."""
    raise UnsupportedError("there is no device to ask")


class WrongPlugin:
    """A target whose results are wrong in two dtypes. It exempts one of them, and a right one."""

    @hookimpl
    def dlc_targets(self) -> Sequence[Any]:
        absent = replace(
            KIND, name="absent", problem=lambda: "there is no such machine", describe=no_description
        )
        picky = replace(KIND, name="picky", codegen="picky", stages=STAGES)
        return [replace(KIND, name="wrong", codegen="wrong", device="wrong"), absent, picky]

    @hookimpl
    def dlc_codegens(self) -> Sequence[Any]:
        return [WrongCodegen(), PickyCodegen()]

    @hookimpl
    def dlc_devices(self) -> Sequence[Any]:
        return [WrongDevice()]

    @hookimpl
    def dlc_expectations(self) -> Sequence[Any]:
        return [
            ExpectedFailure("wrong: int8", reason="results have a dim too many"),
            ExpectedFailure("wrong: ops/relu/*/int16", reason="thought to be wrong"),
            Unsupported("wrong: float64", reason="not on this machine"),
        ]


@pytest.fixture
def wrong() -> Iterator[Any]:
    caches = (expectations_of, usable_target)
    with fresh_registry({"wrong": WrongPlugin()}):
        for cached in caches:
            cached.cache_clear()
        yield find_target("wrong")
    for cached in caches:
        cached.cache_clear()


def test_wrong_results_are_found(wrong: Any) -> None:
    relu = std.BY_NAME["relu"]
    found = {o.case: o for o in run_cases(op_cases(relu), wrong)}
    status = {dtype: found[f"ops/relu/0/{dtype}"].status for dtype in relu.dtypes}
    assert status["float32"] == status["int64"] == "passed"
    assert status["int32"] == "failed"
    assert "of 30 differ; at (0, 0, 0)" in found["ops/relu/0/int32"].why
    assert status["int8"] == "fails as expected"
    assert status["float64"] == "unsupported"
    assert status["int16"] == "failed"
    assert "passes, though it is expected to fail: thought to be wrong" in found["ops/relu/0/int16"].why


class SamplelessPlugin:
    """Ops without samples: one that runs on the host alone, and one that fuses."""

    @hookimpl
    def dlc_ops(self) -> Sequence[Any]:
        same: dict[str, Any] = {"infer": lambda types, attrs: types[0], "reference": lambda x: x}
        host = OpDecl("bare_host", "The same.", ["x"], kind="opaque", **same)
        fused = OpDecl("bare_fused", "The same.", ["x"], kind="elementwise", lower=lambda c, x: x, **same)
        return [host, fused]


def test_ops_of_plugins_may_lack_samples_on_the_host_alone() -> None:
    check = CoreLevel().test_declaration_is_complete
    with fresh_registry({"bare": SamplelessPlugin()}) as known:
        check(known.ops["bare_host"])
        with pytest.raises(AssertionError):
            check(known.ops["bare_fused"])


def test_targets_without_their_machine_are_skipped(wrong: Any) -> None:
    with pytest.raises(pytest.skip.Exception, match="there is no such machine"):
        usable_target("absent")


def test_verdicts() -> None:
    check_outcomes([Outcome("a", "passed"), Outcome("b", "unsupported", "never")])
    with pytest.raises(pytest.skip.Exception, match="unsupported: never"):
        check_outcomes([Outcome("b", "unsupported", "never")])
    with pytest.raises(pytest.fail.Exception, match="1 of 2 cases fail\na: off by one"):
        check_outcomes([Outcome("a", "failed", "off by one"), Outcome("b", "passed")])


def test_exemptions_name_their_cases() -> None:
    assert Unsupported("acme: ops/relu/*", reason="r").covers("ops/relu/3/float32")
    assert Unsupported("acme: scatter_*", reason="r").covers("ops/scatter_nd/0/int8")
    assert not Unsupported("acme: relu", reason="r").covers("ops/leaky_relu/0/int8")
    given = [
        ExpectedFailure("acme: int8", reason="soon"),
        Unsupported("acme: relu", reason="never"),
        Unsupported("acme: rely", reason="misspelt"),
        Unsupported("other: relu", reason="another target"),
    ]
    known = Expectations(given, "acme")
    covering = known.of("ops/relu/0/int8")
    assert covering is not None
    assert covering.reason == "never"
    assert known.of("ops/add/0/float32") is None
    assert [e.reason for e in known.unused(["ops/relu/0/int8"])] == ["misspelt"]


@pytest.mark.parametrize(("name", "reason"), [("acme", "r"), ("acme: ", "r"), (": x", "r"), ("acme: x", " ")])
def test_exemptions_without_cases_or_reasons_are_refused(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match="the expectation"):
        Unsupported(name, reason=reason)


def test_differences() -> None:
    near = {"float32": (1e-5, 1e-6)}
    one = np.ones(3, np.float32)
    nan, inf = np.float32([np.nan, 1, 2]), np.float32([np.inf, 1, 2])
    assert difference([one], [one * (1 + 5e-6)], near) is None
    assert difference([one], [one * (1 + 5e-5)], near) is not None
    assert difference([one], [one * (1 + 5e-6)], {}) is not None
    assert difference([nan, inf], [nan.copy(), inf.copy()], near) is None
    assert "at (0,) inf instead of nan" in str(difference([inf], [nan], near))
    assert "2 results, 1 are expected" in str(difference([one, one], [one], near))
    assert "float64(3,), but float32(3,) is expected" in str(difference([one.astype("f8")], [one], near))


def test_symbolic_cases_are_tried_in_two_sizes() -> None:
    sizes = [[t.inputs[0].shape for t in c.trials] for c in symbolic_cases(std.BY_NAME["relu"])]
    assert sizes[0] == [(2, 3, 5), (3, 4, 6)]


def test_models_that_do_not_compile_fail_alone(wrong: Any) -> None:
    """Models share a run of the code generator. The one that it refuses is found by bisection."""
    modules = []
    for dtype in ("float32", "int32", "float64", "int8", "uint8"):
        x = param("x", tensor_type((3,), dtype))
        modules.append(module_of(std.abs(x), [x]))
    PickyCodegen.runs = 0
    made = compile_all(modules, find_target("picky"))
    assert [isinstance(m, DlcError) for m in made] == [False, False, True, False, False]
    assert "float64" in str(made[2])
    assert PickyCodegen.runs == 6  # all, one half, its two halves, the failing one alone, the other half


def test_suites_have_the_requested_levels() -> None:
    suite = conformance_suite("reference", levels=("device",))
    assert hasattr(suite, "test_sizes_change_from_call_to_call")
    assert not hasattr(suite, "test_samples")
    with pytest.raises(UsageError, match="no level 'sped'"):
        conformance_suite("reference", levels=("sped",))


def test_golden_files(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="--bless"):
        Golden(tmp_path).check("a.txt", "one\ntwo\n")
    Golden(tmp_path, bless=True).check("a.txt", "one\ntwo\n")
    Golden(tmp_path).check("a.txt", "one\ntwo\n")
    with pytest.raises(AssertionError, match=r"-two\n\+three"):
        Golden(tmp_path).check("a.txt", "one\nthree\n")


def test_options_restrict_suites(tmp_path: Path) -> None:
    """A test file of a backend runs with another target, one level, one op and two dtypes."""
    test_file = tmp_path / "test_acme.py"
    test_file.write_text(
        "from dlc_core.testing import conformance_suite\n\nTestAcme = conformance_suite('acme')\n"
    )
    options = ["--dlc-target=reference", "--dlc-level=ops", "--dlc-ops=relu", "--dlc-dtypes=float32,int8"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "--dlc-report=out"]
    done = subprocess.run(
        [*command, str(test_file)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("relu "))
    assert row.split() == ["relu", "100%", "+", "+", "+"]
    assert "3 passed" in done.stdout
    record = json.loads((tmp_path / "out" / "conformance.json").read_text())
    (told,) = record["targets"]
    cells = {dtype: cell["status"] for dtype, cell in told["ops"]["relu"].items()}
    assert cells.pop("float32") == cells.pop("int8") == cells.pop("symbolic") == "passed"
    assert set(cells.values()) == {"not run"}
    assert "<title>" in (tmp_path / "out" / "conformance.html").read_text()


def test_ops_of_the_command_line_select_the_tests_of_these_ops(tmp_path: Path) -> None:
    """Tests of other ops, of rules, of devices and of graphs are left out; so are ops of similar names."""
    (tmp_path / "test_acme.py").write_text(
        "import pytest\n"
        "from dlc_core.op import std\n"
        "from dlc_core.testing import conformance_suite\n"
        "\n"
        "TestAll = conformance_suite('reference', levels=('core', 'device', 'ops', 'graphs', 'models'))\n"
        "\n"
        "@pytest.mark.parametrize('op', [std.BY_NAME['relu'], std.BY_NAME['leaky_relu']])\n"
        "def test_of_an_op(op):\n"
        "    pass\n"
        "\n"
        "@pytest.mark.parametrize('word', ['relu'])\n"
        "def test_of_a_word(word):\n"
        "    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]
    done = subprocess.run(
        [*command, "--dlc-ops=relu"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    found = [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert found.pop() == "test_of_an_op[op0]", done.stdout
    assert sorted(found) == [
        "test_declaration_is_complete[relu]",
        "test_graphs_round_trip[relu]",
        "test_inferred_types_are_the_types_of_results[relu]",
        "test_programs_round_trip[relu]",
        "test_samples[relu]",
        "test_symbolic_dims[relu]",
        "test_wrong_operands_are_refused[relu]",
    ]


def test_only_the_kit_is_imported_with_rewritten_assertions() -> None:
    loaders = [
        type(sys.modules[name].__loader__).__name__ for name in ("dlc_core.diag", "dlc_core.testing.cases")
    ]
    assert loaders == ["SourceFileLoader", "AssertionRewritingHook"]
