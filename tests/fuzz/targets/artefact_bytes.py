"""Artefacts with changed bytes, opened and called, with and without a right checksum of the header."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.lookup import registered_ops
from dlc_core.runtime.artefact.container import MAGIC, SCHEMA
from tests.fuzz.calls import call
from tests.fuzz.mutations import change_bytes

SECONDS = 20.0
_PREFIX = struct.Struct("<8sII32s")
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
    if rng.random() < 0.5 or len(data) < _PREFIX.size:
        return change_bytes(rng, data, inputs)
    length = _PREFIX.unpack_from(data)[2]
    text, rest = data[_PREFIX.size : _PREFIX.size + length], data[_PREFIX.size + length :]
    text = change_bytes(rng, text)
    start = -(_PREFIX.size + len(text)) % 4096
    head = _PREFIX.pack(MAGIC, SCHEMA, len(text), hashlib.sha256(text).digest()) + text
    return head + bytes(start) + rest.lstrip(b"\0") if rng.random() < 0.5 else head + rest


def check(data: bytes, rng: random.Random) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.dlc")
        path.write_bytes(data)
        exe = dlc.open(path, verify=rng.random() < 0.5, trust=True)
        json.dumps(dict(exe.about))
        str(exe.signature)
        return call(exe, rng)
