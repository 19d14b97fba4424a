"""A session with a device that has no operating system: the model as C, a program around it, and a host that
sends inputs and gets outputs over a serial line.

The "board" is a process of this machine, and its line is a pair of pipes. For a real board, compile the same
C with its compiler (docs/microcontrollers.md does so for a Cortex-M4) and open its serial port.
"""

import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import dlc_core as dlc
from dlc_core.testing.networks import cifar, feed

FIRMWARE = """#include <stdio.h>
#include "model.h"

static float x[MODEL_INPUT0_SIZE], y[MODEL_OUTPUT0_SIZE];

int main(void) {
    for (int command; (command = getchar()) == 'r';) {  /* run: input, then status and output */
        if (fread(x, sizeof x, 1, stdin) != 1) return 1;
        int status = model_run(x, y, NULL);
        fwrite(&status, sizeof status, 1, stdout);
        fwrite(y, sizeof y, 1, stdout);
        fflush(stdout);
    }
    return 0;
}
"""


class Session:
    """A connection with the board. Use it in a `with` statement."""

    def __init__(self, program: Path, results: int) -> None:
        self._program, self._results = program, results

    def __enter__(self) -> "Session":
        self._board = subprocess.Popen([self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        self._board.communicate(b"q", timeout=10)

    def run(self, x: np.ndarray) -> np.ndarray:
        self._board.stdin.write(b"r" + x.astype(np.float32).tobytes())
        self._board.stdin.flush()
        (status,) = struct.unpack("i", self._board.stdout.read(4))
        if status:
            raise RuntimeError(f"the model failed with status {status}")
        return np.frombuffer(self._board.stdout.read(4 * self._results), np.float32)


network = cifar()
exe = dlc.compile(network, "c -mcpu=cortex-m4")
x = feed(network)
reference = dlc.compile(network, "reference")
if not shutil.which("cc"):
    raise SystemExit("left out: there is no C compiler")
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    files = exe.export(folder / "model.c")
    (folder / "main.c").write_text(FIRMWARE)
    subprocess.run(["cc", "-O2", "main.c", "model.c", "-o", "firmware", "-lm"], cwd=folder, check=True)
    with Session(folder / "firmware", reference(x).size) as board:
        for scale in (1.0, 0.5):
            y = board.run(x * np.float32(scale))
            want = reference(x * np.float32(scale))
            np.testing.assert_allclose(y, want.ravel(), rtol=1e-3, atol=1e-4)
            print("class", int(y.argmax()), "with score", round(float(y.max()), 4))
print("wrote", ", ".join(path.name for path in files), "- the board and this machine agree")
