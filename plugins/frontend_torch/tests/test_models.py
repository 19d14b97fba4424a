"""Small networks of transformers from configs, imported and right."""

import warnings

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: it is in the extra of benchmarks")

from benchmarks.torch_models.catalog import chosen, models
from benchmarks.torch_models.checking import check


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
    assert len(known) >= 70
    assert len({each.family for each in known.values()}) >= 28
    assert [each.name for each in chosen(["bert-span"])] == ["bert-span"]
    with pytest.raises(KeyError, match="no-such-model"):
        chosen(["no-such-model"])
