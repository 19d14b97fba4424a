"""`dlc explain`: how many accesses are proved to lie in their buffers, and how many are checked."""

from __future__ import annotations

import onnx
import onnx.parser

PICKED = """
<ir_version: 9, opset_import: ["" : 18]>
picked (int64[3] i, float[5, 4] x) => (float[3, 4] y) { y = Gather(x, i) }
"""


def test_accesses_that_are_proved_are_counted(dlc, dlc_json):
    found = dlc_json("explain", "model.onnx", "--shape", "batch=8")["accesses"]
    assert found["proved"] > 0
    assert (found["checked"], found["indices"]) == (0, 0)
    words = f"{found['proved']} proved to lie in their buffers, 0 checked in each call\n"
    assert words in dlc("explain", "model.onnx", "--shape", "batch=8")


def test_checks_of_indices_are_counted(dlc, dlc_json, folder):
    onnx.save(onnx.parser.parse_model(PICKED), folder / "picked.onnx")
    found = dlc_json("explain", "picked.onnx")["accesses"]
    assert found["indices"] > 0
    assert f"{found['indices']} check" in dlc("explain", "picked.onnx")
