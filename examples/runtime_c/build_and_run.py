"""ResNet-50 in programs without Python, through the C runtime: in C, in C++ and in Rust.

    python examples/runtime_c/build_and_run.py [c] [c++] [rust]

`exe.save(path, library=True)` writes the model as one file, `write_runtime` the runtime. The programs run the
model on an image and compare the scores with those that Python computed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from dlc_backend_llvm.runtime_source import write_runtime
from dlc_frontend_onnx.testing import light

import dlc_core as dlc

HERE = Path(__file__).parent
LINK = ["-ldl", "-lm", "-lpthread"]
COMPILERS = {
    "c": os.environ.get("CC", "cc"),
    "c++": os.environ.get("CXX", "c++"),
    "rust": os.environ.get("RUSTC", "rustc"),
}


def build(language: str, folder: Path) -> Path:
    """Build the program of a language with the runtime."""
    program = folder / f"classify-{language}"
    header, source, _ = write_runtime(folder)
    compiled = [COMPILERS["c"], "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-c", str(source), "-o"]
    subprocess.run([*compiled, str(folder / "dlc_runtime.o")], check=True)
    strict = ["-O2", "-Wall", "-Wextra", "-Werror", f"-I{header.parent}"]
    if language == "c":
        command = ["-std=c11", *strict, str(HERE / "main.c"), str(folder / "dlc_runtime.o"), *LINK]
    elif language == "c++":
        command = ["-std=c++17", *strict, str(HERE / "main.cpp"), str(folder / "dlc_runtime.o"), *LINK]
    else:
        archive = ["ar", "rcs", str(folder / "libdlc_runtime.a"), str(folder / "dlc_runtime.o")]
        subprocess.run(archive, check=True)
        command = ["--edition=2021", "-O", "-Dwarnings", f"-L{folder}", str(HERE / "main.rs")]
    subprocess.run([COMPILERS[language], *command, "-o", str(program)], check=True)
    return program


languages = sys.argv[1:] or [name for name in COMPILERS if shutil.which(COMPILERS[name])]
missing = [name for name in languages if shutil.which(COMPILERS.get(name, "")) is None]
if missing or not languages or shutil.which(COMPILERS["c"]) is None:
    sys.exit(f"no compiler for {', '.join(missing) or 'C'}: set CC, CXX or RUSTC")

exe = dlc.compile(light.with_weights("resnet50").SerializeToString())
(image,) = light.input_of("resnet50").values()
with tempfile.TemporaryDirectory() as name:
    work = Path(name)
    exe.save(work / "resnet50.dlc", library=True)
    print(f"resnet50.dlc: {(work / 'resnet50.dlc').stat().st_size} bytes")
    image.tofile(work / "image")
    np.asarray(exe(image)).tofile(work / "scores")
    for each in languages:
        words = [str(build(each, work)), *(str(work / part) for part in ("resnet50.dlc", "image", "scores"))]
        printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        print(f"{each}: {printed.strip()}")
