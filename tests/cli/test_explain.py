"""`dlc explain`: accesses that are proved or checked, and why a kernel got its schedule."""

from __future__ import annotations

import dlc_frontend_onnx.plugin as onnx_frontend
import onnx
import onnx.parser
import pytest

from dlc_core import driver
from dlc_core.diag import UsageError
from dlc_core.plugin.registry import fresh_registry
from dlc_core.testing.card import CardPlugin

PICKED = """
<ir_version: 9, opset_import: ["" : 18]>
picked (int64[3] i, float[5, 4] x) => (float[3, 4] y) { y = Gather(x, i) }
"""


def test_accesses_that_are_proved_are_counted(dlc, dlc_json):
    found = dlc_json("explain", "model.onnx", "--shape", "batch=8")["accesses"]
    assert found["proved"] > 0
    assert (found["checked"], found["indices"]) == (0, 0)
    words = f"{found['proved']} proved to be in their buffers, 0 checked in each call\n"
    assert words in dlc("explain", "model.onnx", "--shape", "batch=8")


def test_checks_of_indices_are_counted(dlc, dlc_json, folder):
    onnx.save(onnx.parser.parse_model(PICKED), folder / "picked.onnx")
    found = dlc_json("explain", "picked.onnx")["accesses"]
    assert found["indices"] > 0
    assert f"{found['indices']} check" in dlc("explain", "picked.onnx")


def test_each_kernel_has_a_line_that_says_why(dlc, dlc_json):
    kernel = dlc_json("explain", "model.onnx", "--shape", "batch=8")["kernels"][0]
    assert kernel["why"]
    assert kernel["why"] in dlc("explain", "model.onnx", "--shape", "batch=8")


def test_why_lists_candidates_and_refusals(dlc, dlc_json):
    output = dlc("explain", "model.onnx", "--shape", "batch=8", "--why")
    kernel = dlc_json("explain", "model.onnx", "--shape", "batch=8", "--why")["kernels"][0]
    rule = next(choice for choice in kernel["choices"] if choice["decision"] == "schedule.rule")
    assert rule["candidates"][0]["value"] == kernel["rule"]
    refused = [one["refused"] for one in rule["candidates"][1:]]
    assert refused
    assert all(reason.startswith("does not match") for reason in refused)
    assert rule["candidates"][1]["value"] == "cpu.strassen"  # the next one in priority
    assert refused[0] in output
    threads = next(choice for choice in kernel["choices"] if choice["decision"] == "loops.threads")
    costs = {one["alternative"]: one["cost"] for one in threads["candidates"]}
    assert costs["one"] < costs["all"]
    assert "cycles" in output


def test_an_artefact_contains_the_reasons_of_choices(dlc, dlc_json):
    dlc("compile", "model.onnx", "--shape", "batch=8", "-o", "model.dlc")
    direct = dlc_json("explain", "model.onnx", "--shape", "batch=8")["kernels"]
    assert [k["choices"] for k in dlc_json("explain", "model.dlc", "--why")["kernels"]] == [
        k["choices"] for k in direct
    ]
    assert "schedule.rule" in dlc("explain", "model.dlc", "--why")


def test_why_of_an_unknown_kernel(folder):
    explanation = driver.compile("model.onnx", shapes={"batch": 8}).explain()
    name = explanation.kernels[0].name
    assert explanation.why(name).startswith(f"{name}: {explanation.kernels[0].rule}\n")
    with pytest.raises(UsageError, match="there is no kernel") as caught:
        explanation.why(f"{name}x")
    assert name in str(caught.value)


def test_targets_are_columns_and_have_shares(dlc, dlc_json):
    with fresh_registry({"card": CardPlugin(), "onnx": onnx_frontend}):
        arguments = "model.onnx", "--no-cache", "--shape", "batch=8", "-t", "card", "-t", "reference"
        text, found = dlc("explain", *arguments), dlc_json("explain", *arguments)
    (kernel,) = found["kernels"]
    assert (kernel["target"], kernel["device"], kernel["kind"]) == ("card", "card", "region")
    assert kernel["nodes"] == ["product", "shifted", "y"]
    (share,) = found["shares"]
    assert (share["multiply_adds"], share["shares"]["multiply_adds"]) == (8 * 4 * 3, 1)
    assert "96 (100.0%)" in text
    assert "machine card: " in text
    assert set(found["machines"]) == {"card", "reference"}
    assert "multiply-adds" in text
