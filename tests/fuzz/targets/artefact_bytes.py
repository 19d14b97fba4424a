"""Artefacts with changed bytes and headers, opened and called, with and without right checksums."""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

import dlc_core as dlc
from dlc_core.diag import DlcError
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.lookup import registered_ops
from dlc_core.runtime.artefact.container import MAGIC, PAGE, PREFIX, SCHEMA
from tests.forging.files import forged
from tests.forging.mutations import mutate as change_header
from tests.fuzz.calls import call
from tests.fuzz.mutations import change_bytes

SECONDS = 20.0

TARGET = "reference -level=tir"
"""It runs no native code, so that changed code sections are no findings."""


@cache
def _made() -> bytes:
    x = param("x", tensor_type((2, 3)))
    value = constant(np.full((2, 3), 2, np.float32))
    module = IRModule({"main": Function("main", (x,), registered_ops()["mul"].build(x, value))})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.dlc")
        dlc.compile(module, TARGET, cache=False).save(path)
        return path.read_bytes()


def seeds() -> list[bytes]:
    return [_made()]


def mutate(rng: random.Random, data: bytes, inputs: list[bytes]) -> bytes:
    if rng.random() < 0.3 or len(data) < PREFIX.size:
        return change_bytes(rng, data, inputs)
    if rng.random() < 0.7:
        try:
            return forged(data, lambda header: change_header(rng, header), contract=rng.random() < 0.5)
        except (ArithmeticError, LookupError, TypeError, ValueError, DlcError):  # damaged before
            return data
    length = PREFIX.unpack_from(data)[2]
    end = PREFIX.size + length
    text, sections = change_bytes(rng, data[PREFIX.size : end]), data[end + -end % PAGE :]
    head = PREFIX.pack(MAGIC, SCHEMA, len(text), hashlib.sha256(text).digest()) + text
    return head + bytes(-len(head) % PAGE) + sections


def check(data: bytes, rng: random.Random) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.dlc")
        path.write_bytes(data)
        exe = dlc.open(path, verify=rng.random() < 0.5, trust=True)
        json.dumps(dict(exe.about))
        str(exe.signature)
        return call(exe, rng)
