"""The score of OpInfo samples counts right, wrong and refused ones."""

import json
from types import SimpleNamespace

import pytest
import torch
from dlc_frontend_torch.registry import CONVERTERS
from dlc_frontend_torch.score import __main__ as command
from dlc_frontend_torch.score.comparing import Tolerance
from dlc_frontend_torch.score.judging import Options, outcomes
from dlc_frontend_torch.score.results import Outcome, Score
from dlc_frontend_torch.score.samples import operators
from dlc_frontend_torch.score.table import core_operators, totals
from dlc_frontend_torch.score.ties import same_elements

OPTIONS = Options(("float32",), limit=3)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def judged(name):
    return outcomes(operators()[name], OPTIONS, lambda dtype, index: None)


def test_samples_are_right():
    found = judged("exp")
    assert {each.status for each in found} == {"right"}
    assert all(each.called == ("aten.exp.default",) for each in found)


def test_a_wrong_converter_is_found(monkeypatch):
    monkeypatch.setitem(CONVERTERS, "aten.exp.default", CONVERTERS["aten.exp2.default"])
    found = judged("exp")
    assert "wrong" in {each.status for each in found}
    assert any("Mismatched" in each.why or "differ" in each.why for each in found)


def test_refusals_name_the_operator():
    found = judged("linalg.eigvalsh")
    assert {each.status for each in found} == {"refused"}
    assert any("aten._linalg_eigh.default has no converter" in each.why for each in found)


def test_random_samples_are_set_apart():
    assert {each.status for each in judged("bernoulli")} == {"random"}


def test_a_score_survives_its_file():
    score = Score("add", (Outcome("float32", 0, "right", "", ("aten.add.Tensor",)),))
    assert Score.from_json(json.loads(json.dumps(score.to_json()))) == score
    assert "1 right (100.00%)" in totals([score])[0]


def test_core_operators_are_those_of_torch():
    assert {"aten.add.Tensor", "aten.convolution.default"} <= set(core_operators())


def test_the_command_reads_its_file(tmp_path, capsys):
    file = tmp_path / "score.jsonl"
    score = Score("exp", (Outcome("float32", 0, "wrong", "a difference", ("aten.exp.default",)),))
    file.write_text(json.dumps(score.to_json()) + "\n")
    assert command.main(["exp", "--json", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "| exp | 0 | 1 | 0 | 0 | a difference |" in printed
    assert "| aten.exp.default | 0 | 1 | 0 | 0 |" in printed
    assert command.main(["no_such_operator"]) == 2


def test_tolerances_are_those_of_the_operator():
    override = SimpleNamespace(d={torch.float32: 0.5})
    info = SimpleNamespace(decorators=[SimpleNamespace(decorators=[override], device_type=None)])
    assert Tolerance.of(info, torch.float32) == Tolerance(1.3e-6, 0.5)
    assert Tolerance.of(info, torch.float64) == Tolerance(1e-7, 1e-7)


def test_indices_of_equal_elements_may_differ():
    x = torch.tensor([3, 1, 3, 2])
    values, wanted = torch.tensor([3, 3]), torch.tensor([0, 2])
    assert same_elements(x, (values, torch.tensor([2, 0])), (values, wanted))
    assert not same_elements(x, (values, torch.tensor([2, 2])), (values, wanted))
    assert not same_elements(x, (values, torch.tensor([2, 3])), (values, wanted))
