"""From a job to an artefact: the kernel compiled by the schedule of the job."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dlc_core.diag import ScheduleError
from dlc_core.driver import build as build_program
from dlc_core.driver import compile as compile_model
from dlc_core.driver.request import PRECISION
from dlc_core.passes import PassContext
from dlc_core.passes.tir.schedule_kernels import TUNED
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.measure.kernels import KERNEL
from dlc_tune.measuring.job import Job
from dlc_tune.measuring.kernel import dims_of, is_of_model, kernel_module


def compiled(job: Job) -> Executable:
    """Compile the kernel of a job. Raises ScheduleError if the trace of the job was refused, since the kernel
    then has another schedule; other errors of the compiler pass through.
    """
    dims_of(job.func, job.sizes)  # a run would miss them
    settings = dict(job.settings)
    # A tuner that answers None keeps the records of installed tuners out of the default schedule.
    with PassContext(tuner=lambda *_: job.trace):
        if is_of_model(job.func):
            exe = compile_model(
                kernel_module(job.func, job.inputs_seed, job.sizes),
                job.target,
                num_threads=job.threads,
                precision=str(settings.pop(PRECISION, "float32")),
                config=settings,
                cache=False,
            )
        else:  # a program of a user, whose names the trace refers to
            exe = build_program(job.func, job.target, num_threads=job.threads, config=settings)
    if job.trace is not None:
        _check_tuned(exe)
    return exe


def build(job: Job) -> bytes:
    """The artefact of a job, as `exe.save` writes it. Raises what `compiled` raises."""
    with tempfile.TemporaryDirectory(prefix="dlc-build-") as folder:
        path = Path(folder, "kernel.dlc")
        build_file(job, path)
        return path.read_bytes()


def build_file(job: Job, path: Path) -> None:
    """Write the artefact of a job. Raises what `compiled` raises."""
    compiled(job).save(path, sources=())


def _check_tuned(exe: Executable) -> None:
    """Raise ScheduleError unless the trace of the tuner scheduled each kernel."""
    kernels = [each for each in exe.explain().kernels if each.kind == KERNEL]
    if not kernels:
        raise ScheduleError("the trace was not applied", why="the compiled kernel does not run on the target")
    for each in kernels:
        if each.rule != TUNED:
            why = next((text for text in each.refused if text.startswith(TUNED)), f"its rule is {each.rule}")
            raise ScheduleError(f"the trace does not fit the kernel {each.name!r}", why=why)


__all__ = ["build", "build_file", "compiled"]
