"""The sensitivity of programs to heuristics: changed programs are measured alternately."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest
import typer

from benchmarks.programs import MAKERS, Program, corpus
from benchmarks.sensitivity import Change, Row, Versions, affected, chosen_numbers, main, ratio_of, rows
from dlc_core.diag import UsageError
from dlc_core.graph.node import Node, param
from dlc_core.heuristics import current_overrides, declared
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes.heuristics import FUSION

TARGET = "llvm -num-threads=1"


def chain() -> Node:
    """More operations than a kernel has after `fusion.max_ops` is set to three."""
    x = param("x", tensor_type((6,)))
    for _ in range(4):
        x = std.tanh(std.neg(x))
    return x


def versions(clock: object = None) -> Versions:
    pytest.importorskip("dlc_backend_llvm")
    ticks = count()
    return Versions(Program("chain", chain), TARGET, clock or (lambda: float(next(ticks))))


def row(*changes: Change, read: int = 1) -> Row:
    return Row("fusion.max_ops", 0.5, "24", read, changes)


class Machine:
    """A clock that calls advance. Some calls are slow."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = ""

    def call(self, name: str, seconds: float) -> None:
        self.calls += name
        disturbed = 100 < len(self.calls) < 200
        self.now += seconds * (3 if disturbed else 1)


def test_the_ratio_is_that_of_alternating_rounds() -> None:
    machine = Machine()
    found = ratio_of(
        lambda: machine.call("b", 0.003), lambda: machine.call("a", 0.002), 1.0, lambda: machine.now
    )
    assert found == pytest.approx(1.5)
    assert 0.5 < machine.now < 2.0
    warm, size = 6, 12
    rounds = [machine.calls[at : at + 2 * size] for at in range(warm, len(machine.calls), 2 * size)]
    assert set(rounds) == {"a" * size + "b" * size, "b" * size + "a" * size}


def test_programs_whose_kernels_change_are_measured() -> None:
    each = versions()
    assert "fusion.max_ops" in each.reads
    assert each.change({"fusion.max_ops": 30}, 0) is None
    change = each.change({"fusion.max_ops": 3}, 0)
    assert change is not None
    assert {"main"} < set(change.kernels)
    assert change.ratio is None
    change = each.change({"fusion.max_ops": 3}, 0.01)
    assert change is not None
    assert change.ratio == 1.0


def effects(each: Versions, names: list[str], factors: list[float], seconds: float = 0) -> list[Row]:
    numbers = [declared()[name] for name in names]
    return list(rows(numbers, [each], factors, seconds, affected(numbers, [each], factors)))


def test_a_failure_is_part_of_the_row() -> None:
    def stopped() -> float:
        raise RuntimeError("the clock stopped")

    (found,) = effects(versions(stopped), ["fusion.max_ops"], [0.05], seconds=0.01)
    assert found.verdict == "fails"
    assert found.cells()[-1] == "chain: the clock stopped"


def test_a_compile_that_fails_is_part_of_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    each = versions()

    def lowered() -> dict[str, str]:
        if FUSION.max_ops == 2:
            raise RuntimeError("too few")
        return {"main": f"{FUSION.contexts}"}

    monkeypatch.setattr(each, "_texts", lowered())
    monkeypatch.setattr(each, "_lowered", lowered)
    found = effects(each, ["fusion.max_ops", "fusion.contexts"], [0.05])
    assert [each.verdict for each in found] == ["fails", "not measured"]


def test_numbers_that_change_nothing_together_are_not_tried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    each = versions()
    tried: list[set[str]] = []

    def lowered() -> dict[str, str]:
        tried.append(set(current_overrides().values))
        return {"main": "less"} if "b" in current_overrides().values else {"main": "more"}

    monkeypatch.setattr(each, "_texts", {"main": "more"})
    monkeypatch.setattr(each, "_lowered", lowered)
    assert each.affecting(dict.fromkeys("abcd", 1)) == {"b"}
    assert tried == [{*"abcd"}, {*"ab"}, {"a"}, {"b"}, {*"cd"}]


def test_numbers_that_no_compile_reads_are_not_tried() -> None:
    names = ["strassen.gain", "fusion.max_ops"]
    found = effects(versions(), names, [0.5, 1.0])
    assert [each.verdict for each in found] == [*["not read"] * 2, *["no kernel changes"] * 2]
    assert [each.read for each in found] == [0, 0, 1, 1]


def test_verdicts() -> None:
    near, slow, fast = (Change(name, ("main",), ratio) for name, ratio in zip("abc", (1.02, 1.2, 0.8)))
    assert row(read=0).verdict == "not read"
    assert row().verdict == "no kernel changes"
    assert row(Change("a", ("main",))).verdict == "not measured"
    assert row(near).verdict == "equal"
    assert row(near, slow).verdict == row(slow, fast).verdict == "matters"
    assert row(near, fast).verdict == "better"
    assert row(near, fast).mean == pytest.approx((1.02 * 0.8) ** 0.5)
    assert row(near, slow, fast).cells()[-1] == "c 0.80, b 1.20"


def test_numbers_are_chosen_by_name_and_family() -> None:
    assert [each.name for each in chosen_numbers(["weights.packed_rows"])] == ["weights.packed_rows"]
    attention = {each.name.rpartition(".")[0] for each in chosen_numbers(["attention"])}
    assert attention == {"attention.tiled", "attention.two_pass", "attention.online"}
    assert len(chosen_numbers([])) == len(declared())
    with pytest.raises(UsageError, match="no heuristic or family 'fusio'") as error:
        chosen_numbers(["fusio"])
    assert "did you mean 'fusion'?" in str(error.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dlc_backend_llvm")
    out = tmp_path / "out.json"
    main(["weights.packed_rows"], only="4 bits, 12", seconds=0, factor=[0.5, 2.0], output=out)
    assert "weights.packed_rows × 2" in capsys.readouterr().out
    halved, doubled = json.loads(out.read_text())["rows"]
    assert halved["verdict"] == "no kernel changes"
    assert doubled["verdict"] == "not measured"
    assert doubled["changes"][0]["program"] == "4 bits, 12 rows"


@pytest.mark.parametrize(("names", "only"), [(["fusio"], ""), ([], "no such program")])
def test_unknown_names_are_refused(names: list[str], only: str) -> None:
    with pytest.raises(typer.Exit) as stop:
        main(names, only=only)
    assert stop.value.exit_code == 2


def test_the_corpus_has_inputs_of_its_programs() -> None:
    assert len(corpus()) == len(MAKERS)
    for program in corpus().values():
        params = program.module()["main"].params
        found = program.inputs()
        assert len(found) == len(params) > 0, program.name
        for array, each in zip(found, params, strict=True):
            assert array.ndim == len(each.shape), program.name
