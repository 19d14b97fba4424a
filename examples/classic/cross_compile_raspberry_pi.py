"""Cross-compilation for a Raspberry Pi: a tag names the board, `export` links a library for it.

Copy the library to the board, and load it there by `dlc.load_library`, or from C with the header. Here an
emulator runs a program that uses it, if `qemu-aarch64` and the cross compiler are installed.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import dlc_core as dlc
from dlc_core.diag import DlcError
from dlc_core.testing.networks import mlp

target = dlc.Target("raspberry-pi/4b")
print(target, "\nkeys:", ", ".join(target.keys), "\nmodel:", target.model)

model = mlp()
exe = dlc.compile(model, target)  # compiling needs neither the board nor its tools
x = np.random.default_rng(0).standard_normal((1, 64), np.float32)
expected = dlc.compile(model, "llvm")(x)

MAIN = """#include <stdio.h>
#include <stdlib.h>
#include "model.h"
static float x[64], y[10];
int main(void) {
    if (fread(x, sizeof x, 1, stdin) != 1) return 2;
    const void *inputs[] = {x};
    void *outputs[] = {y};
    int status = model_run(inputs, outputs, malloc(model_workspace_size()), 0);
    if (status) return status;
    return fwrite(y, sizeof y, 1, stdout) != 1;
}
"""

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    try:
        files = exe.export(folder / "model.so")
    except DlcError as error:
        print(f"left out: {error}")
        raise SystemExit from None
    print("wrote", ", ".join(path.name for path in files))
    (folder / "main.c").write_text(MAIN)
    compiler, emulator = "aarch64-linux-gnu-gcc", shutil.which("qemu-aarch64")
    if not emulator or not shutil.which(compiler):
        print(f"not run: {compiler} and qemu-aarch64 are not installed")
        raise SystemExit
    command = [compiler, "-O1", "main.c", "./model.so", "-Wl,-rpath,.", "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    run = [emulator, "-L", "/usr/aarch64-linux-gnu", "./main"]
    done = subprocess.run(run, cwd=folder, input=x.tobytes(), capture_output=True, check=True)
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), expected[0], rtol=1e-4, atol=1e-5)
    print("the emulated board computes the same")
