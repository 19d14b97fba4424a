"""The kit on kinds that take a part of a model: it tests the chip, and not the host."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from dlc_core.backend import RegionPattern
from dlc_core.backend.compiler import compiler_problem
from dlc_core.graph.node import param
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin.registry import fresh_registry
from dlc_core.rewrite import const_var, match_any, match_op, var
from dlc_core.testing import runner
from dlc_core.testing.around_cases import around_cases
from dlc_core.testing.batch import compile_all
from dlc_core.testing.capability import is_partial, taken
from dlc_core.testing.cases import module_of, op_cases
from dlc_core.testing.levels.layers import on_device, random_inputs, results, same, subject_of
from dlc_core.testing.parts import part_on
from dlc_core.testing.pattern_cases import pattern_cases, patterns_of
from dlc_core.testing.runner import ON_HOST, PASSED, check_outcomes, run_cases, usable_target
from dlc_core.testing.where import DEVICE, HOST, MIXED, Tally, Where, where_of, work_of
from tests.conformance.kinds import Compiled, Unit, bytes_only
from tests.conformance.sessions import session


@pytest.fixture
def unit():
    plugin = Unit()
    usable_target.cache_clear()
    with fresh_registry({"unit": plugin}):
        yield plugin
    usable_target.cache_clear()


def launches(plugin: Unit) -> int:
    """The number of regions that the unit has run."""
    return sum(name.startswith("region") for name in plugin.card.log)


# Where cases run


def test_places_and_shares() -> None:
    assert Where(0, 4).place == HOST
    assert Where(4, 4).place == DEVICE
    assert Where(1, 4).place == MIXED
    assert Where(1, 4).share == 0.25
    assert Where.of_record(Where(1, 4, "why", False).record()) == Where(1, 4, "why", False)


def test_a_level_fails_if_nothing_ran_on_the_target_and_nothing_excludes_it() -> None:
    excluded, unknown = Where(0, 2, "exp: no double precision"), Where(0, 2, "exp: no pattern matches", False)
    tally = Tally()
    assert tally.problem == ""
    tally.add("ops/exp/0/float64", excluded)
    assert tally.problem == ""
    tally.add("ops/exp/0/float32", unknown)
    assert tally.problem == "ops/exp/0/float32: exp: no pattern matches"
    other = Tally()
    other.add("ops/matmul/0/float32", Where(1, 2))
    other.merge(Tally.of_record(tally.record()))
    assert other.problem == ""
    assert (other.on, other.nodes, other.share) == (1, 6, 1 / 6)


def test_executables_tell_where_their_nodes_run(unit: Unit) -> None:
    target = usable_target("unit")
    x, w = param("x", tensor_type((4, 8))), param("w", tensor_type((8, 3)))
    module = module_of(std.exp(std.relu(std.matmul(x, w))), [x, w])
    (exe,) = compile_all([module], target)
    where = where_of(exe, target, module)
    assert (where.place, where.on, where.nodes) == (MIXED, 1, 3)
    assert where.work_on == where.work == 4 * 8 * 3
    assert where.why == "relu, exp: no pattern matches"
    assert taken(module, target) == replace(where, work_on=0, work=0)
    assert work_of(module) == 4 * 8 * 3
    part = part_on(exe, target)
    assert part is exe.regions["region_0"]
    assert where_of(exe, exe.target, module).place == MIXED
    assert is_partial(target)
    assert not is_partial(usable_target("reference"))


def test_cases_that_the_target_does_not_take_are_on_the_host_and_run_once(unit: Unit) -> None:
    target = usable_target("unit")
    found = run_cases(op_cases(std.BY_NAME["exp"]), target)
    assert len(found) > 3
    assert {each.status for each in found} == {ON_HOST}
    assert {each.why for each in found} == {"exp: no pattern matches"}
    assert launches(unit) == 0
    with pytest.raises(pytest.skip.Exception, match="on host: exp: no pattern matches"):
        check_outcomes(found)
    with mock.patch.object(runner, "compile_all", wraps=compile_all) as compiles:
        run_cases(op_cases(std.BY_NAME["exp"]), target)
    assert compiles.call_count == 1


def test_cases_that_the_target_takes_run_there(unit: Unit) -> None:
    found = run_cases(op_cases(std.BY_NAME["matmul"], ["float32"]), usable_target("unit"))
    assert {(each.status, each.where.place) for each in found} == {(PASSED, DEVICE)}
    assert launches(unit) >= len(found)


def test_texts_are_no_constant_weights(unit: Unit) -> None:
    found = run_cases(op_cases(std.BY_NAME["text_join"]), usable_target("unit"))
    assert {each.status for each in found} == {ON_HOST}


def test_constant_weights_are_tried() -> None:
    dense = match_op("matmul", var("x"), const_var("w"))
    usable_target.cache_clear()
    with fresh_registry({"unit": Unit(patterns=[RegionPattern("dense", dense)])}):
        found = run_cases(op_cases(std.BY_NAME["matmul"], ["float32"]), usable_target("unit"))
    usable_target.cache_clear()
    places = {(each.status, each.where.place) for each in found}
    assert (PASSED, DEVICE) in places
    assert places <= {(PASSED, DEVICE), (ON_HOST, HOST)}  # the pattern has no attributes


def fused_patterns() -> list[RegionPattern]:
    dense = match_op("add", match_op("matmul", var("x"), const_var("w")), const_var("b"))
    convolution = match_op("relu", match_op("add", match_any("conv"), const_var("b")))
    return [
        RegionPattern("dense_relu", match_op("relu", dense)),
        RegionPattern("dense", dense),
        RegionPattern("conv_relu", convolution),
        RegionPattern("never", match_op("exp", dense), lambda found, target: "no memory for it"),
    ]


def test_patterns_of_several_operations_are_tested() -> None:
    """The kit makes instances of them, because no sample of one operation matches."""
    usable_target.cache_clear()
    plugin = Unit(patterns=fused_patterns())
    with fresh_registry({"unit": plugin}):
        target = usable_target("unit")
        (one, *_) = run_cases(op_cases(std.BY_NAME["matmul"], ["float32"]), target)
        assert one.status == ON_HOST
        cases = {pattern.name: pattern_cases(part, pattern, target) for part, pattern in patterns_of(target)}
        assert {name: len(found) for name, found in cases.items()} == {
            "dense_relu": 3,
            "dense": 3,
            "conv_relu": 3,
            "never": 0,
        }
        before = launches(plugin)
        found = run_cases([case for each in cases.values() for case in each], target)
    usable_target.cache_clear()
    assert {(each.status, each.where.place) for each in found} == {(PASSED, DEVICE)}
    assert launches(plugin) == before + 9


@pytest.mark.parametrize("patterns", [[], bytes_only(), fused_patterns()], ids=["all", "bytes", "fused"])
def test_graphs_begin_with_operations_that_the_target_takes(patterns) -> None:
    usable_target.cache_clear()
    plugin = Unit(patterns=patterns)
    with fresh_registry({"unit": plugin}):
        found = run_cases(around_cases(usable_target("unit")), usable_target("unit"))
    usable_target.cache_clear()
    assert len(found) >= 3
    assert {(each.status, each.where.place) for each in found} <= {(PASSED, MIXED), (PASSED, DEVICE)}
    assert launches(plugin) >= len(found)


# The part of an executable on the device


def test_device_tests_launch_on_the_device(unit: Unit) -> None:
    subject = subject_of(usable_target("unit"), "shared")
    assert subject.device is unit.card
    _, run = on_device(subject.part)
    before = launches(unit)
    given = random_inputs(subject.part)
    run.write(given)
    run.launch()
    found = run.read()
    assert launches(unit) == before + 1
    assert same(found, results(subject.part, given))


def test_the_model_of_device_tests_is_one_that_the_target_takes() -> None:
    usable_target.cache_clear()
    with fresh_registry({"unit": Unit(patterns=bytes_only())}):
        assert subject_of(usable_target("unit"), "shared").model.dtype == "int8"
    usable_target.cache_clear()


posix = pytest.mark.skipif(os.name != "posix", reason="isolated processes inherit pipes")
needs_compiler = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))


@needs_compiler
def test_code_generators_that_support_some_operations() -> None:
    usable_target.cache_clear()
    plugin = Compiled()
    with fresh_registry({"unit": plugin}):
        target = usable_target("unit")
        assert is_partial(target)
        found = run_cases(op_cases(std.BY_NAME["relu"], ["float32"]), target)
        assert {(each.status, each.where.place) for each in found} == {(PASSED, DEVICE)}
        assert plugin.device.launches >= len(found)
        (one, *_) = run_cases(op_cases(std.BY_NAME["exp"], ["float32"]), target)
        assert (one.status, one.why, one.where.declared) == (ON_HOST, "exp: op: the unit has no exp", True)
        subject = subject_of(target, "shared")
        assert subject.device is plugin.device
    usable_target.cache_clear()


# Sessions


def test_level_0_passes_on_the_unit(tmp_path: Path) -> None:
    found = session(tmp_path, "Unit()", "--dlc-level=0", "--dlc-badge=badge.svg")
    assert found.code == 0, found.text
    assert "22 passed, 1 skipped" in found.text
    level = found.level("device")
    assert level["where"] == {"device": 0, "mixed": 14, "host": 0}
    assert level["share"] == pytest.approx(1 / 3, abs=1e-3)
    assert level["multiply_adds"] == 1.0
    assert "33% of nodes and 100% of multiply-adds on the target (14 mixed)" in found.text
    badge = json.loads((tmp_path / "badge.json").read_text())
    assert badge == {
        "schemaVersion": 1,
        "label": "dlc conformance",
        "message": "level 0, 100% on unit",
        "color": "green",
    }
    assert "level 0, 100% on unit" in (tmp_path / "badge.svg").read_text()


@needs_compiler
def test_level_0_passes_on_a_unit_with_a_code_generator(tmp_path: Path) -> None:
    found = session(tmp_path, "Compiled()", "--dlc-level=0")
    assert found.code == 0, found.text
    assert found.level("device")["where"] == {"device": 0, "mixed": 14, "host": 0}
    assert found.level("device")["multiply_adds"] == 1.0


def test_level_0_finds_a_unit_with_wrong_results(tmp_path: Path) -> None:
    found = session(tmp_path, "Unit(device=WrongCard)", "--dlc-level=0")
    assert found.code == 1
    assert found.level("device")["counts"]["failed"] >= 8, found.text


def test_ops_that_the_unit_does_not_take_do_not_pass(tmp_path: Path) -> None:
    found = session(tmp_path, "Unit()", "--dlc-level=ops", "--dlc-ops=exp")
    assert found.code == 1, found.text
    assert "FAILED level 'ops' of unit: nothing ran on the target." in found.text
    assert "exp: no pattern matches" in found.text
    level = found.level("ops")
    assert level["where"]["device"] == level["where"]["mixed"] == 0
    assert level["counts"]["on host"] == level["where"]["host"] > 3
    assert found.target["verdict"] == "failed"
    assert {cell["status"] for cell in found.target["ops"]["exp"].values()} == {"on host"}
    page = (tmp_path / "out" / "conformance.html").read_text()
    assert "nothing ran on the target" in page


def test_a_level_that_declarations_exclude_does_not_fail(tmp_path: Path) -> None:
    words = "--dlc-level=ops", "--dlc-ops=exp", "--dlc-dtypes=float32"
    found = session(tmp_path, "Unit(dtypes=('int8', 'int32'))", *words)
    assert found.code == 0, found.text
    cases = {case["case"]: case["why"] for case in found.target["cases"]}
    assert cases["ops/exp/0/float32"] == "Description.dtypes does not have float32"
    assert found.level("ops")["problem"] == ""


def test_the_report_has_the_share_of_each_op(tmp_path: Path) -> None:
    words = "--dlc-level=ops", "--dlc-ops=matmul,exp,gelu", "--dlc-dtypes=float32"
    found = session(tmp_path, "Unit()", *words)
    assert found.code == 0, found.text
    shares = found.target["shares"]
    assert {op: share["share"] for op, share in shares.items()} == {"exp": 0.0, "gelu": 0.0, "matmul": 1.0}
    assert shares["matmul"]["multiply_adds"] == found.level("ops")["multiply_adds"] == 1.0
    cases = {case["case"]: case for case in found.target["cases"]}
    assert (cases["ops/matmul/0/float32"]["where"], cases["ops/matmul/0/float32"]["share"]) == ("device", 1.0)
    assert (cases["ops/exp/0/float32"]["where"], cases["ops/exp/0/float32"]["share"]) == ("host", 0.0)


@posix
def test_a_crash_names_the_region_and_the_case(tmp_path: Path) -> None:
    words = "--dlc-level=ops", "--dlc-ops=matmul", "--dlc-dtypes=float32", "--dlc-isolate", "-k", "samples"
    found = session(tmp_path, "Unit(device=CrashingCard)", *words)
    assert "the process of the test died of SIGSEGV" in found.text, found.text
    assert "running:    ops/matmul/1/float32, entry point 'main'" in found.text
    assert "at fault:   segment region_0 (matmul) began last on device 'unit'" in found.text


@posix
@pytest.mark.slow  # it waits for the time limit
def test_native_code_that_does_not_end_is_killed(tmp_path: Path) -> None:
    words = "--dlc-level=ops", "--dlc-ops=matmul", "--dlc-dtypes=float32", "--dlc-isolate", "-k", "samples"
    found = session(tmp_path, "Unit(device=HangingCard)", *words, "--dlc-limit-factor=0.05")
    assert "the process of the test was killed after 12 s in one case" in found.text, found.text
    assert "running:    ops/matmul/1/float32, entry point 'main'" in found.text
