"""A mutation fuzzer for loaders of ONNX models.

`mutants(seed, count)` yields malformed, unusual and sometimes valid models. Bytes are truncated, flipped,
inserted, deleted and spliced, and messages are changed: sizes, cycles, lost or repeated names, paths outside
the folder, attributes of a wrong type, deep nesting, recursive calls. Equal seeds give equal models.

`run(load, ...)` writes each mutant into a folder with traps (links, hard links, pipes, a secret file outside
the folder) and calls `load(path)`. A result or a `DlcError` is a success. Failures in the `Report` are any
other exception, more than `timeout` seconds, an attempt to open the secret, and its content among the
`values` of a result.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from onnx import ModelProto

from dlc_core.diag import DlcError
from dlc_frontend_onnx.testing.mutations import BYTES, STRUCTURED
from dlc_frontend_onnx.testing.seeds import seeds

SECRET = b"this must never be read "
WEIGHTS = bytes(range(256)) * 16


@dataclass
class Report:
    """The findings of a run: `failures` has one text per mutant that the loader failed on."""

    total: int = 0
    accepted: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    grown_mib: float = 0.0


class _Hang(BaseException):
    pass


def mutants(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """`count` mutants as (label, bytes); equal seeds give equal mutants."""
    base = seeds()
    for number in range(count):
        rng = random.Random(f"{seed}:{number}")
        name, data = base[rng.randrange(len(base))]
        if rng.random() < 0.5:
            change: Callable[[random.Random, Any], str] = rng.choice(STRUCTURED)
            model = ModelProto.FromString(data)
            label = change.__name__
            with contextlib.suppress(DecodeError):  # protobuf does not copy too deeply nested messages
                for _ in range(rng.choice((1, 1, 1, 2, 3))):
                    change(rng, model)
                    change = rng.choice(STRUCTURED)
            yield f"{name}:{label}", model.SerializeToString()
        else:
            alter = rng.choice(BYTES)
            for _ in range(rng.choice((1, 1, 2, 4))):
                data = alter(rng, data, base)
            yield f"{name}:{alter.__name__}", data


def run(
    load: Callable[[str], Any],
    count: int,
    seed: int = 0,
    timeout: float = 10.0,
    values: Callable[[Any], Iterable[bytes]] | None = None,
    memory: int = 4 << 30,
) -> Report:
    """Load `count` mutants by `load(path)`. `values` returns the bytes of a result, which are searched for
    the secret.

    `memory` is the limit in bytes by which the address space may grow, if the system can enforce it.
    """
    report = Report()
    with tempfile.TemporaryDirectory() as root, _address_space(memory):
        folder, outside = traps(Path(root))
        before = _peak_mib()
        for number, (label, data) in enumerate(mutants(seed, count)):
            path = folder / "model.onnx"
            path.write_bytes(
                data.replace(b"{outside}", os.fsencode(outside)) if len(data) < 1 << 16 else data
            )
            report.total += 1
            report.labels[label] += 1
            start = time.perf_counter()
            try:
                with _watched(folder, outside) as opened, _limited(timeout):
                    result = load(str(path))
                    leak = values is not None and any(SECRET in part for part in values(result))
                report.accepted += 1
                if leak:
                    report.failures.append(f"mutant {number} of seed {seed} ({label}): the secret was read")
            except DlcError as error:
                report.refused += 1
                text = str(error)
                if len(text) > 8000 or not all(line.isprintable() for line in text.split("\n")):
                    report.failures.append(
                        f"mutant {number} of seed {seed} ({label}): message {text[:200]!r}"
                    )
            except _Hang:
                report.failures.append(f"mutant {number} of seed {seed} ({label}): over {timeout} s")
            except BaseException:  # noqa: BLE001 - the run looks for any exception
                report.failures.append(
                    f"mutant {number} of seed {seed} ({label}): {traceback.format_exc()[-1500:]}"
                )
            if opened:
                report.failures.append(f"mutant {number} of seed {seed} ({label}): opened {opened[0]}")
            report.slowest = max(report.slowest, (time.perf_counter() - start, f"{number}:{label}"))
        report.grown_mib = _peak_mib() - before
    return report


# --- monitoring of a run ---

_watch: tuple[Path, Path, list[str]] | None = None
_hooked = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _watch is None or event != "open" or not isinstance(args[0], (str, bytes)):
        return
    folder, outside, opened = _watch
    name = os.fsdecode(args[0])
    # A name relative to a folder handle appears relative to the working folder; try the candidates.
    for base in (folder, folder / "sub", Path.cwd()):
        with contextlib.suppress(OSError, ValueError):
            real = (base / name).resolve()
            if (
                real.is_relative_to(outside)
                or real.name == "hard.bin"
                or real.parts[1:2] in (("proc",), ("dev",))
            ):
                opened.append(name)


@contextlib.contextmanager
def _watched(folder: Path, outside: Path) -> Iterator[list[str]]:
    global _watch, _hooked
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    opened: list[str] = []
    _watch = (folder.resolve(), outside.resolve(), opened)
    try:
        yield opened
    finally:
        _watch = None


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def alarm(*_: object) -> None:
        raise _Hang

    old = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@contextlib.contextmanager
def _address_space(extra: int) -> Iterator[None]:
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


def _peak_mib() -> float:
    try:
        import resource
    except ImportError:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def traps(root: Path) -> tuple[Path, Path]:
    """A folder for models with data files and traps, and the folder outside of it that must not be read."""
    folder, outside = root / "folder", root / "outside"
    (folder / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.bin").write_bytes(SECRET * 512)
    (folder / "weights.bin").write_bytes(WEIGHTS)
    (folder / "sub" / "part.bin").write_bytes(WEIGHTS)
    (folder / "empty.bin").write_bytes(b"")
    with contextlib.suppress(OSError, NotImplementedError):
        (folder / "link.bin").symlink_to(outside / "secret.bin")
        (folder / "linkdir").symlink_to(outside, target_is_directory=True)
    with contextlib.suppress(OSError, NotImplementedError):
        os.link(outside / "secret.bin", folder / "hard.bin")
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.bin")
    return folder, outside
