"""Command lines of `dlc` with wrong words: an exit code and a message, and no traceback.

All files are in a temporary folder, and no word is a path outside of it.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from dlc_core.cli.main import main
from dlc_core.plugin.builtin import COMMANDS
from tests.fuzz.mutations import WORDS

SECONDS = 120.0
MODEL = """<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, 4] x) => (float[batch, 4] y) { y = Relu(x) }"""
LINES = """compile model.onnx -o out.dlc
compile model.onnx -t llvm --opt-level 2 -o out.dlc
run model.onnx --random --shape x=2,4
run model.dlc --input x=x.npy
run model.onnx --input x=x.npy --output y.npy
bench model.onnx --shape batch=2 --repeat 1
inspect model.onnx
inspect model.dlc
explain model.onnx --json
explain model.onnx --why
opt module.py
opt module.py --passes simplify
cache list --json
cache explain model.onnx --opt-level 1
cache size
targets
target show llvm -mcpu=generic
plugins -v
ops
ops relu
rules --decisions
rules cpu.map
config
new-backend acme
why-not model.onnx"""
FILES = ("model.onnx", "model.dlc", "x.npy", "module.py", "empty", "noise", "absent", ".", "folder")
OPTIONS = (
    *("--json", "--target", "-t", "--shape", "--opt-level", "--precision", "--help", "-h", "--verbose", "-v"),
    *("--check-bounds", "--input", "--output", "-o", "--passes", "--dump", "--place", "--placement", "--"),
    *("--num-threads", "--repeat", "--random", "--expect", "--show", "-", "--version"),
)
VALUES = (
    *("llvm", "reference", "llvm -mcpu=none", "reference -level=tir", "-1", "0", "99999999999999999999"),
    *("1e400", "nan", "x=", "=x", "x=1", "x=1,2", "batch=-1", "batch=1", "[", "]", "{}", "\x1b[31m", "é"),
    *("[bold]", "[/]", "%s", "{0}"),
)
SKIPPED = ("serve", "tune", "cluster", "worker", "deploy", "flash")
"""Commands that wait for others, or take minutes."""


def seeds() -> list[bytes]:
    lines = LINES.splitlines() + [command.name for command in COMMANDS]
    return [line.replace(" ", "\n").encode() for line in lines]


def mutate(rng: random.Random, data: bytes, inputs: list[bytes]) -> bytes:
    words = data.decode(errors="replace").split("\n")
    place, how = rng.randrange(len(words)), rng.randrange(6)
    new = rng.choice((rng.choice(FILES), rng.choice(OPTIONS), rng.choice(VALUES), str(rng.choice(WORDS))))
    if how == 0 and len(words) > 1:
        del words[place]
    elif how == 1:
        words[place] = new
    elif how == 2:
        words.insert(place + 1, new)
    elif how == 3:
        words.append(new)
    elif how == 4:
        words[place] += rng.choice((new, "\0", " ", "=", ",,", "-"))
    else:
        words.insert(place, rng.choice(rng.choice(inputs).decode(errors="replace").split("\n")))
    return "\n".join(words).encode()


def check(data: bytes, rng: random.Random) -> str:
    words = [word.replace("/", "_").replace("..", "__") for word in data.decode(errors="replace").split("\n")]
    if any(word in SKIPPED for word in words):
        return "skipped"
    with _folder():
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = main(words)
        text = out.getvalue() + errors.getvalue()
    assert code in (0, 1, 2), f"the exit code is {code}: {text[-500:]}"
    assert "Traceback (most recent call last)" not in text, text[-2000:]
    assert code == 0 or text, f"the exit code is {code}, and there is no message"
    return f"exit code {code}"


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    """A temporary working folder with the files that command lines name."""
    with tempfile.TemporaryDirectory() as name:
        before = Path.cwd()
        os.chdir(name)
        try:
            model = onnx.parser.parse_model(MODEL)
            onnx.save(model, "model.onnx")
            np.save("x.npy", np.ones((2, 4), np.float32))
            Path("module.py").write_text(_SCRIPT)
            Path("empty").write_bytes(b"")
            Path("noise").write_bytes(random.Random(0).randbytes(500))
            Path("model.dlc").write_bytes(b"\x89DLC\r\n\x1a\n" + bytes(100))
            Path("folder").mkdir()
            yield
        finally:
            os.chdir(before)


_SCRIPT = """
@G.function
def main(x: G.Tensor((2, 4), "float32")):
    y = G.relu(x)
    return y
"""


def parts(data: bytes) -> Iterator[bytes]:
    """The line without one of its words."""
    words = data.split(b"\n")
    for number in range(len(words)):
        yield b"\n".join(words[:number] + words[number + 1 :])
