"""The functions that Dask workers of a cluster run. `dlc worker` gives its Dask worker a `Bench`."""

from __future__ import annotations

import pickle
import zlib
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from dlc_core.diag import DlcError
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_tune.measuring.announced import Announced, Meaning, Place
from dlc_tune.measuring.job import Comparison, Job, Outcome

if TYPE_CHECKING:
    import distributed
    from distributed import worker as dask_worker
else:
    distributed = lazy("distributed")
    dask_worker = lazy("distributed.worker")

EXTENSION = "dlc"
"""The name of the extension of a Dask worker that is its bench."""


@record(frozen=True)
class Built:
    """An artefact, as `exe.save` writes it, and how long the build took."""

    artefact: bytes
    seconds: float


class Bench(Protocol):
    """Builds and runs jobs of one worker, in processes of their own."""

    announced: Announced

    def build(self, job: Job) -> Built | Outcome:
        """The artefact of a job, or the reason why there is none."""
        ...

    def run(self, job: Job, built: Built, default: Built | None) -> Outcome:
        """Measure an artefact. `default` is the artefact of the default schedule, None if it could not be
        built. The state is "wrong" if their results differ.
        """
        ...

    def compare(self, jobs: tuple[Job, Job], built: tuple[Built, Built]) -> Comparison:
        """Compare two artefacts in one process."""
        ...


@record(frozen=True)
class Rejected:
    """A builder where the text of a target means another machine than where the job comes from."""

    why: str


@record(frozen=True)
class Offer:
    """A target that a worker announced, and the meaning of the client's text on this worker."""

    place: Place
    meaning: Meaning


@record(frozen=True)
class Offers:
    """The answer of a worker to the text of a target; `why` is a reason why it offers nothing."""

    announced: Announced
    offers: tuple[Offer, ...] = ()
    why: str = ""


def dask_settings(bench: Bench) -> dict[str, Any]:
    """The arguments of a Dask worker that has a bench."""
    return {
        "nthreads": bench.announced.builders + 1,
        "resources": bench.announced.resources,
        "extensions": {**dask_worker.DEFAULT_EXTENSIONS, EXTENSION: lambda _: bench},
        "memory_limit": 0,
        "dashboard": False,
    }


def pack(job: Job) -> bytes:
    """A job without its trace, which all jobs of a kernel share: a few KB, compressed."""
    return zlib.compress(pickle.dumps(replace(job, trace=None)))


def unpack(packed: bytes, trace: str | None) -> Job:
    """The job of `pack`, with a trace."""
    return replace(_read(packed), trace=trace)


@lru_cache(maxsize=64)
def _read(packed: bytes) -> Job:
    found: Job = pickle.loads(zlib.decompress(packed))  # noqa: S301 (Dask unpickles every message of the same sender)
    return found


def offers(text: str, dask_worker: distributed.Worker) -> Offers | None:
    """The offers of a worker for a target; None if it is a Dask worker of something else."""
    bench = dask_worker.extensions.get(EXTENSION)
    if bench is None:
        return None
    announced: Announced = bench.announced
    try:
        target = Target(text)
        meaning = Meaning.of(target)
    except DlcError as error:
        return Offers(announced, why=error.what)
    found = []
    for place in announced.places:
        own = Target(place.target)
        same = own.kind.name == target.kind.name and own.model == target.model
        if same and own.identity == meaning.identity:
            found.append(Offer(place, meaning))
    return Offers(announced, tuple(found))


def build_job(packed: bytes, trace: str | None, meaning: Meaning) -> Built | Outcome | Rejected:
    """Build a job. It is rejected if the text of its target has another meaning here."""
    job = unpack(packed, trace)
    here = Meaning.of(Target(job.target))
    if here != meaning:
        return Rejected(f"for the builder, {job.target} is {here.identity}, not {meaning.identity}")
    return _bench().build(job)


def run_job(
    packed: bytes,
    trace: str | None,
    built: Built | Outcome | Rejected,
    default: Built | Outcome | Rejected,
) -> Outcome | Rejected:
    """Run the artefact of `build_job`; what is no artefact is the result. `default` is the artefact of the
    default schedule.
    """
    if not isinstance(built, Built):
        return built
    if isinstance(default, Rejected):
        return default
    return _bench().run(unpack(packed, trace), built, default if isinstance(default, Built) else None)


def compare_jobs(
    packed: tuple[bytes, bytes], built: tuple[Built | Outcome | Rejected, Built | Outcome | Rejected]
) -> Comparison | Rejected:
    """Run two artefacts of `build_job` alternately."""
    candidate, default = built
    for each in built:
        if isinstance(each, Rejected):
            return each
        if isinstance(each, Outcome):
            return Comparison(each.state, why=each.why)
    assert isinstance(candidate, Built)
    assert isinstance(default, Built)
    first, second = (unpack(each, None) for each in packed)
    return _bench().compare((first, second), (candidate, default))


def _bench() -> Bench:
    found: Bench = distributed.get_worker().extensions[EXTENSION]
    return found


__all__ = [
    "EXTENSION",
    "Bench",
    "Built",
    "Offer",
    "Offers",
    "Rejected",
    "build_job",
    "compare_jobs",
    "dask_settings",
    "offers",
    "pack",
    "run_job",
    "unpack",
]
