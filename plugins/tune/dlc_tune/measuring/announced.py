"""The announcement of a worker: its compiler, its machine, and the targets that it runs.

Dask's scheduler gives a task to a worker that has the *resources* that the task names. A worker has these:

    dlc-build@STAMP            the number of its builders
    dlc-run                    1: its machine runs one kernel at a time
    dlc-run:KIND@STAMP         1 for each target that it runs
    dlc-build:KIND@STAMP       the number of its builders that make code for exactly this machine

The stamps are digests of all that must be equal for times to be comparable: the versions and the code of
the compiler and of the plugins, the processor and the description of the target, the machine. So workers
that do not fit never get a task, also those that join later.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

from dlc_core.diag import TargetError
from dlc_core.plugin.registry import registry
from dlc_core.runtime.machine.cores import usable_cores
from dlc_core.runtime.machine.resources import processor_facts
from dlc_core.support.record import record
from dlc_core.target import Target, TargetKind
from dlc_tune.measuring.vendor import measure_of

BUILD, RUN = "dlc-build", "dlc-run"


@record(frozen=True)
class Meaning:
    """The meaning of a target's text on one machine."""

    identity: str
    """The processor, as records name it."""
    description: str
    """A digest of the machine's description, which schedules are chosen for."""

    @staticmethod
    def of(target: Target) -> Meaning:
        return Meaning(target.identity, _digest(repr(target.describe())))


@record(frozen=True)
class Place:
    """A target that a worker runs. `stamp` is a digest of all that its times depend on."""

    target: str
    stamp: str

    @property
    def run(self) -> str:
        """The resource of its runs."""
        return f"{RUN}:{Target(self.target).kind.name}@{self.stamp}"

    @property
    def build(self) -> str:
        """The resource of builds for exactly this machine."""
        return f"{BUILD}:{Target(self.target).kind.name}@{self.stamp}"


@record(frozen=True)
class Announced:
    """The announcement of one worker. `compiler` is `compiler_parts()` there."""

    host: str
    machine: str
    compiler: Mapping[str, str]
    places: tuple[Place, ...]
    builders: int

    @cached_property
    def resources(self) -> dict[str, float]:
        """The resources of the Dask worker."""
        found: dict[str, float] = {}
        if self.builders:
            found[build_resource(self.compiler)] = self.builders
        if self.places:
            found[RUN] = 1
        for place in self.places:
            found[place.run] = 1
            if self.builders:
                found[place.build] = self.builders
        return found

    def __str__(self) -> str:
        targets = ", ".join(place.target for place in self.places) or "no target"
        return f"{self.host} ({self.machine}) runs {targets}; {self.builders} builders"


def announce(targets: Sequence[str] = (), *, builders: int, runs: bool = True) -> Announced:
    """The announcement of this machine.

    `targets` are the texts of those that it runs; without them, all kinds that have a device here. Raises
    TargetError for a text that is not a target, and for one that this machine cannot run.
    """
    chosen = [Target(text) for text in targets]
    for target in chosen:
        problem = target.kind.problem()
        if problem is not None:
            raise _cannot_run(target, problem)
    if runs and not chosen:
        chosen = [Target(kind) for kind in registry().targets.values() if _runs(kind)]
    compiler, machine = compiler_parts(), machine_name()
    places = tuple(_place(target, compiler, machine) for target in chosen) if runs else ()
    return Announced(platform.node(), machine, compiler, places, builders)


def _place(target: Target, compiler: Mapping[str, str], machine: str) -> Place:
    meaning, measure = Meaning.of(target), measure_of(target)
    # The costs of a deterministic measure, such as the cycles of a simulator, do not depend on the machine.
    where = machine if measure is None or not measure.deterministic else ""
    parts = (*sorted(compiler.items()), meaning.identity, meaning.description, target.model, where)
    return Place(str(target), _digest(repr(parts)))


def _runs(kind: TargetKind) -> bool:
    """Whether this machine has a device that runs kernels of a kind."""
    return bool(kind.codegen) and kind.device in registry().devices and kind.problem() is None


def _cannot_run(target: Target, problem: str) -> TargetError:
    return TargetError(f"this machine cannot run the target {target}", why=problem)


def build_resource(compiler: Mapping[str, str]) -> str:
    """The resource of builds by any worker that has this compiler."""
    return f"{BUILD}@{_digest(repr(sorted(compiler.items())))}"


@cache
def machine_name() -> str:
    """The processor and the cores of this machine, on which times of the host depend."""
    lines = (line.partition(":") for line in processor_facts().splitlines())
    names = [value.strip() for name, _, value in lines if name.strip().lower() == "model name"]
    return f"{names[0] if names else platform.machine()}, {usable_cores()} cores"


@cache
def compiler_parts() -> Mapping[str, str]:
    """The versions of Python, of the compiler and of all plugins, and a digest of their code, by name."""
    loaded = [plugin for plugin in registry().loaded if plugin.value is not None]
    found = {
        plugin.name: f"{plugin.source.distribution} {plugin.source.version}".strip() for plugin in loaded
    }
    names = {(getattr(plugin.value, "__name__", "") or type(plugin.value).__module__) for plugin in loaded}
    packages = sorted({name.partition(".")[0] for name in names})
    found["python"] = f"{platform.python_implementation()} {sys.version_info[0]}.{sys.version_info[1]}"
    found["code"] = _digest("".join(_code(package) for package in packages))
    return found


def _code(package: str) -> str:
    """A digest of the source of a package."""
    file = Path(sys.modules[package].__file__ or "")
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    hashed = hashlib.sha256()
    for each in files:
        hashed.update(each.relative_to(file.parent).as_posix().encode() + b"\0" + each.read_bytes())
    return hashed.hexdigest()


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The parts in which two compilers differ, one line each."""
    lines = []
    for name in sorted({*ours, *theirs}):
        here, there = ours.get(name, "missing"), theirs.get(name, "missing")
        if here != there and name != "code":
            lines.append(f"{name}: {here} here, {there} there")
    if not lines and ours.get("code") != theirs.get("code"):
        lines.append("the versions are equal, but the source files differ")
    return lines


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


__all__ = [
    "BUILD",
    "RUN",
    "Announced",
    "Meaning",
    "Place",
    "announce",
    "build_resource",
    "compiler_parts",
    "differences",
    "machine_name",
]
