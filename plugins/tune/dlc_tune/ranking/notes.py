"""Features of measured candidates as text, for the notes of records: a model can be trained on records
without the kernels that they were measured for.

    Record(..., notes={FEATURES: features_text(task, candidate)})
    row_of(found.notes[FEATURES])              [len(NAMES)]; None if its features are of another version

The text has a checksum of the names of the features, and the values in half precision.
"""

from __future__ import annotations

import base64
import binascii
import zlib

import numpy as np

from dlc_tune.ranking.candidates import KNOWN
from dlc_tune.ranking.features import NAMES, Row
from dlc_tune.space import Candidate
from dlc_tune.task import Task

FEATURES = "features"
"""The note of a record with its features."""
_VERSION = f"{zlib.crc32(' '.join(NAMES).encode()):08x}"


def features_text(task: Task, candidate: Candidate) -> str:
    """The features of a candidate as ASCII text of 0.3 kB; empty if the compiler refuses it."""
    row = KNOWN.rows(task, [candidate])[0]
    return "" if np.isnan(row).any() else text_of(row)


def text_of(row: Row) -> str:
    """Features, [len(NAMES)], as ASCII text."""
    return f"{_VERSION}:{base64.b64encode(row.astype('<f2').tobytes()).decode()}"


def row_of(text: str) -> Row | None:
    """The features of a text, [len(NAMES)] float32; None for a text of another version or another form."""
    version, _, data = text.partition(":")
    if version != _VERSION:
        return None
    try:
        values = np.frombuffer(base64.b64decode(data, validate=True), "<f2")
    except (binascii.Error, ValueError):
        return None
    if values.shape != (len(NAMES),) or not np.isfinite(values).all():
        return None
    return values.astype(np.float32)


__all__ = ["FEATURES", "features_text", "row_of", "text_of"]
