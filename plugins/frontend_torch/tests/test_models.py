"""Small networks of transformers, timm and torch.nn, imported and right."""

import math
import warnings
from functools import partial

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: it is in the extra of benchmarks")

from benchmarks.torch_models.catalog import chosen, models
from benchmarks.torch_models.checking import check
from benchmarks.torch_models.listing import page
from benchmarks.torch_models.recipe import Model, values
from benchmarks.torch_models.training import as_precise


@pytest.mark.parametrize(
    "name", ["bert", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gpt2", "llama", "vit"))]
)
def test_models_are_right(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of torch and transformers
        found = check(models()[name], "static")
    assert found["outcome"] == "right", found


def test_the_list_is_long_and_names_are_checked():
    known = models()
    assert len(known) >= 300
    assert len({each.family for each in known.values()}) >= 150
    assert [each.name for each in chosen(["bert-span"])] == ["bert-span"]
    assert {each.kind for each in chosen(["classics"])} == {"classics"}
    with pytest.raises(KeyError, match="no-such-model"):
        chosen(["no-such-model"])


def test_calls_of_several_sizes_through_torch_compile():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check(models()["moe"], "compile")
    assert found["outcome"] == "right", found
    assert not found["reasons"], found


def test_the_page_shows_each_way_and_the_reasons():
    def record(way, outcome, **more):
        return {"name": "bert", "family": "bert", "way": way, "outcome": outcome, "reasons": [], **more}

    made = page([record("static", "right", error=3e-7), record("dynamic", "refused", reasons=["a | b"])])
    assert "| bert | 3e-07 | refused | - | - | a   b |" in made
    assert "| symbolic dims | 1 | 0 | 0 | 1 refused |" in made


def of_one_layer(bias):
    def make():
        layer = torch.nn.Linear(8, 4)
        torch.nn.init.constant_(layer.bias, bias)
        return layer

    return Model("layer", "layer", make, values({"input": (8,)}))


@pytest.mark.parametrize(("bias", "outcome"), [(1.0, "right"), (math.inf, "vacuous"), (1e7, "vacuous")])
def test_outputs_that_do_not_depend_on_inputs_show_nothing(bias, outcome):
    assert check(of_one_layer(bias), "static")["outcome"] == outcome


class InEager(torch.nn.Linear):
    @torch.compiler.disable
    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("way", ["compile", "training"])
def test_networks_that_run_in_eager_show_nothing(way):
    model = Model("layer", "layer", lambda: InEager(8, 4), values({"x": (8,)}), trains="values")
    found = check(model, way)
    assert (found["outcome"], found["reasons"]) == ("vacuous", ["torch runs the whole network"])


class Broken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)

    def forward(self, x):
        made = self.first(x)
        torch._dynamo.graph_break()
        return self.second(made)


def test_graph_breaks_are_named():
    found = check(Model("layers", "layers", Broken, values({"x": (8,)})), "compile")
    assert found["outcome"] == "right", found
    assert any(each.startswith("graph break: ") for each in found["reasons"]), found


def test_recurrent_networks_are_compiled():
    made = partial(torch.nn.RNN, 3, 4, batch_first=True)
    model = Model("rnn", "rnn", made, values({"input": (5, 3)}), trains="values")
    found = check(model, "training")
    assert (found["outcome"], found["reasons"]) == ("right", [])


@pytest.mark.parametrize(
    ("losses", "right"),
    [
        ([3.0, 2.0005], True),
        ([3.0, 1.8], True),
        ([2.8, 2.0], False),
        ([3.0, 1.5], False),
        ([3.0, math.nan], False),
    ],
)
def test_losses_may_be_as_far_from_exact_ones_as_those_of_eager(losses, right):
    """The second run of eager differs by 0.2 at the second step, and by nothing at the first."""
    assert as_precise(losses, [[3.0, 2.0], [3.0, 2.2]], [3.0, 2.0]) is right
