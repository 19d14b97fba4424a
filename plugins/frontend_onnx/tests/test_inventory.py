"""Every operator of the installed onnx is imported or listed here, so new operators of a release fail the
test.
"""

from __future__ import annotations

import onnx
from dlc_frontend_onnx.dtypes import ELEMENT_TYPES
from dlc_frontend_onnx.support import supported_ops
from onnx import defs

MISSING: set[tuple[str, str]] = set()


def test_every_operator_is_imported_or_known_to_be_missing():
    newest = {(s.domain, s.name): s.since_version for s in defs.get_all_schemas() if not s.deprecated}
    rows = {(row.domain, row.op): row.versions for row in supported_ops()}
    unknown = {key for key, version in newest.items() if version not in rows.get(key, ())}
    assert unknown == {key for key in MISSING if key in newest}


def test_every_version_from_opset_7_on_is_imported():
    rows = {(row.domain, row.op): row.versions for row in supported_ops()}
    history = {}
    for s in defs.get_all_schemas_with_history():
        if s.domain == "" and not s.deprecated and (s.domain, s.name) not in MISSING:
            history.setdefault(s.name, set()).add(s.since_version)
    for name, versions in history.items():
        # The version that opset 7 uses, and all later ones.
        at_7 = max((v for v in versions if v <= 7), default=None)
        expected = {v for v in versions if v > 7 or (v == at_7 and v >= 6)}
        assert expected <= set(rows["", name]), name


def test_every_element_type_is_known():
    names = onnx.TensorProto.DataType.items()
    assert {number for name, number in names if name != "UNDEFINED"} == {row.number for row in ELEMENT_TYPES}
