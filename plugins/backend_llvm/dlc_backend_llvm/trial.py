"""A trial compile for a machine that a user describes, in a separate process.

    tried(triple, cpu, features, abi, text) -> str      the assembly of a module, or TargetError

For contradictory processors and features (`-sse`, a 32-bit cpu for riscv64, extensions that exclude each
other) LLVM does not raise an error: it writes to standard error and ends the process. Therefore the module is
first compiled in a worker process. If none can be started, it is compiled in this process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable

from dlc_backend_llvm.binding import LOCK, llvm, target_of
from dlc_core.diag import TargetError, similar

_READY = "; ready\n"
_PATIENCE = 120.0

WORKER = "from dlc_backend_llvm.trial import answer; answer()"

CALLS = """
declare void @many(ptr, ptr, ptr, ptr, ptr, ptr, i64, float, double)
define i64 @probe_calls(ptr %a, i64 %n, i32 %m, double %x) {
  %space = alloca [64 x i8], align 64
  %y = load float, ptr %a, align 4
  %old = atomicrmw add ptr %a, i32 %m seq_cst
  call void @many(ptr %a, ptr %space, ptr %a, ptr %space, ptr %a, ptr %a, i64 %n, float %y, double %x)
  %q = sdiv i64 %n, 7
  %z = fptosi double %x to i64
  %s = add i64 %q, %z
  ret i64 %s
}
"""
"""LLVM IR with the features that kernels need besides vector arithmetic: calls, atomic sums, 64-bit integers,
aligned stacks.
"""


def tried(triple: str, cpu: str, features: str, abi: str, text: str) -> str:
    """Compile LLVM IR to assembly for a machine. Raises TargetError if LLVM cannot."""
    request = json.dumps([triple, cpu, features, abi, text])
    done = _in_worker(request)
    if done is None:
        return assembly(triple, cpu, features, abi, text)
    ready, _, made = done.stdout.decode("utf-8", "replace").partition(_READY)
    if ready or not done.stdout:
        return assembly(triple, cpu, features, abi, text)
    messages = done.stderr.decode("utf-8", "replace")
    unknown = dict.fromkeys(re.findall(r"'([^']*)' is not a recognized (processor|feature)", messages))
    if unknown:
        raise unknown_names(triple, unknown)
    if done.returncode:
        raise TargetError(
            f"LLVM cannot generate code for {triple} with the cpu {cpu!r} and the features {features!r}",
            why=_reason(messages, done.returncode),
            hint="leave the cpu out for the baseline; enable only features that do not exclude each other, "
            "and disable none that the ABI needs",
        )
    return made


def unknown_names(triple: str, unknown: Iterable[tuple[str, str]]) -> TargetError:
    """The error for pairs of an unknown name and its sort, "processor" or "feature"."""
    pairs, known = list(unknown), known_names(triple)
    names = ", ".join(f"{kind} {name!r}" for name, kind in pairs)
    close = [match for name, kind in pairs for match in similar(name.lstrip("+-"), known[kind], 3)]
    return TargetError(
        f"LLVM does not know the {names} for {triple}",
        hint=(f"did you mean {' or '.join(dict.fromkeys(close))}? " if close else "")
        + "leave the cpu out for the baseline, and use LLVM's names of features: +avx2, +sve, +v",
    )


def known_names(triple: str) -> dict[str, tuple[str, ...]]:
    """The names of processors and of features that LLVM knows for a triple, under the keys "processor" and
    "feature".  They are empty if no other process can be started, because LLVM only prints them.
    """
    done = _in_worker(json.dumps([triple, "help", "", "", ""]))
    lines = "" if done is None else done.stderr.decode("utf-8", "replace")
    processors, _, features = lines.partition("Available features")
    found = (tuple(re.findall(r"^  (\S+) +- ", part, re.MULTILINE)) for part in (processors, features))
    return dict(zip(("processor", "feature"), found, strict=True))


def _in_worker(request: str) -> subprocess.CompletedProcess[bytes] | None:
    """Run a worker process; None if it cannot be started or takes too long."""
    try:
        return subprocess.run(
            [sys.executable, "-c", WORKER],
            input=request.encode(),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def answer() -> None:
    """The main function of the worker process: reads a request and writes the assembly."""
    request = sys.stdin.read()
    llvm()
    sys.stdout.write(_READY)
    sys.stdout.flush()
    sys.stdout.write(assembly(*json.loads(request)))


def assembly(triple: str, cpu: str, features: str, abi: str, text: str) -> str:
    """Compile LLVM IR to assembly in this process."""
    with LOCK:
        binding = llvm()
        machine = target_of(triple).create_target_machine(
            cpu=cpu, features=features, opt=1, codemodel="small", abiname=abi
        )
        context = binding.create_context()
        module = binding.parse_assembly(text, context=context)
        module.triple = triple
        made = machine.emit_assembly(module)
        module.close()
        context.close()
    return str(made)


def _reason(messages: str, status: int) -> str:
    """The last message that LLVM wrote before it ended the process."""
    for line in messages.splitlines():
        found = re.search(r"LLVM ERROR: (.*)|^error: (?:<unknown>:0:0: )?(.*)|(Assertion .* failed)", line)
        if found:
            return found[1] or found[2] or found[3] or line
    last = messages.strip().splitlines()[-1:]
    return (
        last[0]
        if last
        else (
            f"it died of {signal.Signals(-status).name}"
            if status < 0
            else f"it ended with exit code {status}"
        )
    )


__all__ = ["CALLS", "answer", "assembly", "known_names", "tried", "unknown_names"]
