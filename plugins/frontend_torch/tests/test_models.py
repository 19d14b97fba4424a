"""Small networks of transformers, timm and torch.nn, imported and right."""

import warnings

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: it is in the extra of benchmarks")

from benchmarks.torch_models.catalog import chosen, models
from benchmarks.torch_models.checking import check
from benchmarks.torch_models.listing import page


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
