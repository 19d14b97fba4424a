"""Texts of tensor programs with changed tokens, lines and bytes: parsed, printed, built and called."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import PassError, ScriptError
from dlc_core.script import difference, parse, to_script
from dlc_core.testing.te_programs import random_te_program
from dlc_core.tir.stmt import PrimFunc
from tests.fuzz.calls import call
from tests.fuzz.mutations import change_bytes
from tests.script.fuzz import changed

SECONDS = 60.0
PROGRAMS = 60


@cache
def seeds() -> list[bytes]:
    return [to_script(random_te_program(random.Random(n)).func)[0].encode() for n in range(PROGRAMS)]


def mutate(rng: random.Random, data: bytes, inputs: list[bytes]) -> bytes:
    if rng.random() < 0.2:
        return change_bytes(rng, data, inputs)
    text = data.decode(errors="replace")
    return changed(text, rng).encode() if text.strip() else data


def check(data: bytes, rng: random.Random) -> str:
    text = data.decode(errors="replace")
    found = parse(text, {}, verify=True)
    printed, metadata = to_script(found)
    again = parse(printed, metadata, verify=True)
    assert difference(found, again) is None, "the text of a program is another program's"
    if not isinstance(found, PrimFunc):
        return "parsed"
    with config.override(check_bounds=True):
        try:
            exe = dlc.build(found, target="llvm")
        except (PassError, ScriptError) as error:  # a pass fails only for programs that it was not told of
            raise AssertionError(f"a verified program is refused in a pass: {error}") from error
        return call(exe, rng)


def parts(data: bytes) -> Iterator[bytes]:
    """The text without one of its lines."""
    lines = data.splitlines(keepends=True)
    for number in range(len(lines)):
        yield b"".join(lines[:number] + lines[number + 1 :])
