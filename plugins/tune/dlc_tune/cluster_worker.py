"""`dlc worker`: a Dask worker that builds and runs jobs of the tuner (`python -m dlc_tune.cluster_worker`).

The worker announces its targets and builders as resources (`measuring/announced.py`). Builds and runs happen
in processes of their own, so a kernel that crashes does not end the worker. A machine needs one worker: it
runs one kernel at a time.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dlc_core.cli.main import main
from dlc_core.diag import UsageError
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record
from dlc_tune.measuring.announced import announce
from dlc_tune.measuring.cluster_bench import LocalBench
from dlc_tune.measuring.cluster_connecting import connect, require_distributed, security_of
from dlc_tune.measuring.cluster_tasks import dask_settings

if TYPE_CHECKING:
    import distributed
else:
    distributed = lazy("distributed")

LAST_SECONDS = 2.0
"""The time of the last try to connect, which gives the reason."""
LOOPBACK = ("127.", "localhost", "[::1]")


def worker(
    scheduler: Annotated[
        str, typer.Argument(help="The address of the Dask scheduler: tcp://HOST:PORT or tls://HOST:PORT.")
    ],
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", help="A target that it runs; without it, all that have a device here."
        ),
    ] = None,
    builders: Annotated[int, typer.Option(min=0, help="The number of builder processes.")] = 1,
    runs: Annotated[bool, typer.Option(help="Run kernels; --no-runs is a worker that only builds.")] = True,
    name: Annotated[str, typer.Option(help="The name of the worker in the scheduler's pages.")] = "",
    reconnect: Annotated[
        float,
        typer.Option(min=0, help="Seconds to wait for the scheduler, at the start and when it vanishes."),
    ] = 60.0,
    tls_ca: Annotated[Path | None, typer.Option(help="The certificate of the authority, for tls://.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate of this worker.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of this worker.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the log of Dask.")] = False,
) -> None:
    """Build and run kernels for tuners that use a Dask scheduler (`dlc tune --cluster`).

    A process that reaches the scheduler can run any code here. Outside of one machine or a private network,
    use tls:// with certificates. `dask scheduler --host 127.0.0.1` starts a scheduler for this machine only.

    Examples:

    - `dlc worker tcp://127.0.0.1:8786`
    - `dlc worker tcp://10.0.0.1:8786 --target "llvm -mcpu=znver4 -num-threads=8"`
    - `dlc worker tcp://10.0.0.1:8786 --builders 16 --no-runs`
    - `dlc worker tls://10.0.0.1:8786 --tls-ca ca.pem --tls-cert me.pem --tls-key me.key`
    """
    require_distributed()
    if not runs and targets:
        raise UsageError("--no-runs with --target", why="a worker that only builds runs no target")
    if not (runs or builders):
        raise UsageError("a worker without builders that does not run", hint="give one of both")
    logging.getLogger("distributed").setLevel(logging.INFO if verbose else logging.ERROR)
    # Dask complains at its end that its folder is removed already, with that of the bench.
    logging.getLogger("distributed.diskutils").setLevel(logging.CRITICAL)
    security = security_of(scheduler, tls_ca, tls_cert, tls_key)
    announced = announce(targets or (), builders=builders, runs=runs)
    console = Console(stderr=True)
    if security is None and not scheduler.partition("://")[2].startswith(LOOPBACK):
        console.print("warning: neither encrypted nor authenticated; tls:// is", style="yellow")
    with LocalBench(announced) as bench:
        settings = {
            **dask_settings(bench),
            "name": name or None,
            "security": security,
            "local_directory": str(bench.folder),
        }
        asyncio.run(Service(scheduler, settings, reconnect, bench, console).serve())


@record(frozen=True)
class Service:
    """The Dask workers that follow one another when the connection to the scheduler ends."""

    scheduler: str
    settings: dict[str, Any]
    reconnect: float
    bench: LocalBench
    console: Console

    async def serve(self) -> None:
        """Work until a signal stops the process, or the scheduler is away for too long.

        Raises UsageError, with the reason, if no scheduler answered at all.
        """
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, stop.set)
        stopped = asyncio.ensure_future(stop.wait())
        connected = False
        while not stop.is_set():
            started = await self._started(stopped)
            if started is None:
                break
            connected = True
            self.console.print(f"{started.address}: {self.bench.announced}", highlight=False, soft_wrap=True)
            finished = asyncio.ensure_future(started.finished())
            await asyncio.wait({finished, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                self.bench.stop()
                await started.close(reason="the worker was stopped", nanny=False)
            finished.cancel()
        stopped.cancel()
        if not (connected or stop.is_set()):
            client = await asyncio.to_thread(connect, self.scheduler, self.settings["security"], LAST_SECONDS)
            await asyncio.to_thread(client.close)
            raise UsageError(
                f"the Dask scheduler at {self.scheduler} accepted no worker in {self.reconnect:g} s",
                hint="--reconnect gives it more time",
            )

    async def _started(self, stopped: asyncio.Future[Any]) -> distributed.Worker | None:
        """A worker that is connected; None if the scheduler does not answer in time or the process stops."""
        made = distributed.Worker(self.scheduler, **self.settings)
        starting = asyncio.ensure_future(made.start())
        await asyncio.wait(
            {starting, stopped}, timeout=self.reconnect or None, return_when=asyncio.FIRST_COMPLETED
        )
        if starting.done() and starting.exception() is None:
            return made
        starting.cancel()
        await made.close(nanny=False, reason="no scheduler")
        return None


if __name__ == "__main__":
    sys.exit(main(["worker", *sys.argv[1:]]))

__all__ = ["worker"]
