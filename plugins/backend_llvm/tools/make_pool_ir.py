"""Compile the C source of the thread pool to LLVM IR files in the same folder.

    pip install ziglang==0.17.1
    python tools/make_pool_ir.py

The package of the Zig compiler includes clang and the C headers for all architectures. Attributes, metadata
and flags that only help optimisation are removed, so that all versions of LLVM since 15 can read the text.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "dlc_backend_llvm" / "pool_source" / "pool.c"
ARCHITECTURES = ("aarch64", "riscv64", "x86_64")
FLAGS = (
    "-S", "-emit-llvm", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-Wno-unused-command-line-argument",
    "-fno-discard-value-names", "-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops",
    "-fno-strict-aliasing", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-stack-protector",
    "-fno-sanitize=all",
)  # fmt: skip
_DROPPED = re.compile(r"^(; |source_filename|target |attributes |!|declare void @llvm\.lifetime)")
_FLAGS = re.compile(
    r"\b(?:noundef|nonnull|noalias|samesign|disjoint|nneg|nuw|nsw|inbounds|local_unnamed_addr|unnamed_addr|tail"
    r"|immarg|writeonly|captures\(none\)|dereferenceable\(\d+\)|range\([^()]*\)) "
)
_REST = re.compile(
    r" (?:noundef|immarg|writeonly|captures\(none\))(?=[,) ])|, !(?:llvm\.loop|srcloc) !\d+|\s+; preds = .*"
)


def reduced(text: str) -> str:
    """The module without the syntax that older versions of LLVM cannot read."""
    lines = []
    for line in text.splitlines():
        if _DROPPED.match(line) or "@llvm.lifetime" in line:
            continue
        line = _REST.sub("", _FLAGS.sub("", line))
        is_definition = line.startswith("define")
        if is_definition:
            line = line.replace("signext ", "")  # generated code calls these without extending arguments
        nounwind = " nounwind" if is_definition else ""
        lines.append(re.sub(r" #\d+(?= \{|$)", nounwind, line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def compiled(architecture: str) -> str:
    """The IR of the pool for Linux on an architecture; CalledProcessError if the compiler fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pool.ll"
        target = f"{architecture}-linux-gnu"
        command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, "-target", target, str(SOURCE)]
        subprocess.run([*command, "-o", str(out)], check=True)
        head = f"; Made of pool.c by tools/make_pool_ir.py for Linux on {architecture}.\n\n"
        return head + reduced(out.read_text())


def main() -> None:
    for architecture in ARCHITECTURES:
        SOURCE.with_name(f"pool.{architecture}.ll").write_text(compiled(architecture))


if __name__ == "__main__":
    main()
