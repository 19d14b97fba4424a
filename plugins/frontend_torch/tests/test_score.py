"""The score of OpInfo samples counts right, wrong and refused ones."""

import json
from types import SimpleNamespace

import pytest
import torch
from dlc_frontend_torch.registry import CONVERTERS
from dlc_frontend_torch.score import __main__ as command
from dlc_frontend_torch.score import gradients
from dlc_frontend_torch.score.comparing import Tolerance, difference, is_contraction
from dlc_frontend_torch.score.judging import Options, outcomes
from dlc_frontend_torch.score.results import Outcome, Score
from dlc_frontend_torch.score.samples import operators
from dlc_frontend_torch.score.table import core_operators, opinfo_table, totals
from dlc_frontend_torch.score.ties import same_elements, same_gradients

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = Options(("float32",), limit=3)


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


def with_gradients(name, options=OPTIONS):
    return gradients.outcomes(operators()[name], options, lambda dtype, index: None)


def test_gradients_are_right():
    found = with_gradients("nn.functional.silu")
    assert {each.status for each in found} == {"right"}
    # The names are those of torch's decompositions, whatever converters there are.
    assert {each.called for each in found} == {("aten.sigmoid.default", "aten.mul.Tensor")}
    totals_of = totals([Score("silu", tuple(found))], gradients=True)
    assert totals_of[1].startswith(f"samples of Core ATen alone: {len(found)}: {len(found)} right")


def test_a_wrong_gradient_is_found(monkeypatch):
    monkeypatch.setitem(CONVERTERS, "aten.cos.default", CONVERTERS["aten.sin.default"])
    assert {each.status for each in with_gradients("sin")} == {"wrong"}


def test_operators_in_torch_are_fallbacks_and_not_right():
    found = with_gradients("linalg.svdvals", Options(("float32",), limit=2))
    assert {each.status for each in found} == {"fallback"}
    assert all("aten._linalg_svd.default has no converter" in each.why for each in found)
    score = Score("linalg.svdvals", tuple(found))
    assert "2: 0 right (0.00%), 0 wrong (0.00%), 2 fallback (100.00%)" in totals([score], gradients=True)[0]
    assert opinfo_table([score], gradients=True)[0].split(" | ")[3] == "fallback"


def test_samples_that_no_backend_runs_are_refused():
    found = with_gradients("nn.functional.gaussian_nll_loss", Options(("float32",), limit=1))
    assert [each.status for each in found] == ["refused"]
    assert "with no backend" in found[0].why


def test_errors_of_contractions_are_judged_by_eagers_largest():
    info = SimpleNamespace(decorators=[])
    true = torch.tensor([1000.0, 0.0], dtype=torch.float64)
    eager = torch.tensor([1000.0 + 1e-4, 0.0], dtype=torch.float64).float()
    near, far = (torch.tensor([1000.0, each]) for each in (2e-4, 4e-4))
    assert difference(near, eager, info, [true], 0) is not None
    assert difference(near, eager, info, [true], 0, by_norm=True) is None
    assert difference(far, eager, info, [true], 0, by_norm=True) is not None
    assert is_contraction(["aten.relu.default", "aten.mm.default"])
    assert not is_contraction(["aten.mul.Tensor"])


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


def test_gradients_of_equal_elements_may_be_at_others():
    x = torch.tensor([3.0, 1.0, 3.0])
    results = [torch.tensor([3.0]), torch.tensor([0]), torch.tensor([0.5, 0.0, 0.0])]
    others = [torch.tensor([3.0]), torch.tensor([2]), torch.tensor([0.0, 0.0, 0.5])]
    assert same_gradients(x, results, others)
    assert not same_gradients(x, results, [*others[:2], torch.tensor([0.0, 0.5, 0.0])])
    assert not same_gradients(x, results, [torch.tensor([1.0]), torch.tensor([1]), results[2]])
