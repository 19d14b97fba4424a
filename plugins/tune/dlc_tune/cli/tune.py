"""`dlc tune`"""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from dlc_core.cli.arrays import read_arrays
from dlc_core.cli.options import (
    Decided,
    Disabled,
    Json,
    OptLevel,
    Precision,
    Rules,
    Shapes,
    ShowProgress,
    TargetTexts,
    Threads,
    Trust,
    compile_options,
    console,
    overrides,
    parse_shapes,
)
from dlc_core.cli.tables import print_records
from dlc_core.diag import UsageError
from dlc_core.plugin.registry import registry
from dlc_tune.cli.live import NARROW, live
from dlc_tune.cli.stopping import stoppable
from dlc_tune.model import KEPT_BACK
from dlc_tune.model_result import ModelResult
from dlc_tune.tuner import SPACES, STRATEGY
from dlc_tune.tuner import tune as search

SHORT = 20
"""The seconds below which a budget is called short."""


def tune(
    model: Annotated[Path | None, typer.Argument(help="A model file.", metavar="MODEL")] = None,
    seconds: Annotated[float, typer.Option("--seconds", "-s", min=1, help="The budget.")] = 60.0,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="At most this many candidates of each kernel.")
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option("--space", help="A search space; several are searched in order. --list shows all."),
    ] = None,
    strategy: Annotated[str, typer.Option("--strategy", help="The search strategy. --list shows all.")] = (
        STRATEGY
    ),
    graph: Annotated[
        bool, typer.Option("--graph/--no-graph", help="Search decisions of graph passes too.")
    ] = True,
    database: Annotated[
        str | None,
        typer.Option("--database", "-d", help="Where records go: a path, or a URL such as postgresql://..."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Measure on the workers of this Dask scheduler: tcp://HOST:PORT."),
    ] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="The certificate of the authority, for --cluster tls://HOST:PORT.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate of the tuner.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of the tuner.")] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Candidates of a round.")] = 8,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the search.")] = 0,
    together: Annotated[
        Path | None, typer.Option("--inputs", help="Inputs in a .npz file; random ones by default.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List spaces and strategies, and end.")] = False,
    target: TargetTexts = None,
    threads: Threads = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    precision: Precision = "float32",
    rule: Rules = None,
    disable: Disabled = None,
    decided: Decided = None,
    trust: Trust = False,
    show_progress: ShowProgress = None,
    as_json: Json = False,
) -> None:
    """Search for faster schedules of a model's kernels, and keep them for compiles.

    Each kernel gets a part of the budget by the time that it may still save. Candidates are built and run in
    processes of their own. The best are compared with the default schedule, interleaved; one is kept if it is
    faster beyond the noise with the same results. Compiles use it from then on: `dlc explain` says where
    each schedule comes from, `dlc records` lists what is kept.

    Ctrl-C, SIGTERM and SIGHUP end the search and compare the best candidates until then, which takes some
    seconds; a second one ends at once. All trials are kept, and the next run goes on from there. The exit
    code is then 128 plus the number of the signal: 130 after Ctrl-C, 143 after SIGTERM.

    Examples:

    - `dlc tune model.onnx --seconds 60`
    - `dlc tune model.onnx -t "llvm -mcpu=znver4" --threads 1`
    - `dlc tune model.onnx --space sketches --strategy random --trials 32`
    - `dlc tune model.onnx --database postgresql://tuner@db/records`
    - `dlc tune model.onnx --cluster tcp://scheduler:8786`
    - `dlc tune model.onnx --cluster tls://scheduler:8786 --tls-ca ca.pem --tls-cert me.pem --tls-key me.key`
    - `dlc tune --list`
    """
    if show:
        print_records(_choices(), as_json=as_json)
        return
    if model is None:
        raise UsageError("no model is given", hint="dlc tune MODEL; `dlc tune --help` shows examples")
    shapes = parse_shapes(shape)
    config = overrides(rule, disable, decided)
    options = compile_options(
        target, None, "preference", threads, shapes, opt_level, precision, config, False
    )
    for name in ("cache", "place", "placement"):
        del options[name]
    if trust:
        options["trust"] = True
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors say what is wrong
    if seconds < SHORT:
        text = f"a budget of {seconds:g} s goes to compiling the model for the most part; {SHORT} s find more"
        Console(stderr=True).print(text, highlight=False, soft_wrap=True)
    with stoppable() as stops:
        with live(show_progress) as report:
            result = search(
                model,
                seconds=seconds,
                trials=trials,
                space=tuple(space or SPACES),
                strategy=strategy,
                database=database,
                cluster=cluster,
                tls_ca=tls_ca,
                tls_cert=tls_cert,
                tls_key=tls_key,
                graph=graph,
                batch=batch,
                seed=seed,
                inputs=None if together is None else read_arrays(together),
                sizes={name: value for name, value in shapes.items() if isinstance(value, int)},
                progress=report,
                **options,
            )
        assert isinstance(result, ModelResult)
        if as_json:
            typer.echo(json.dumps(_record(result), indent=2))
            return
        if console().width < NARROW:
            for each in result.results:
                console().print(escape(str(each)))
        elif result.results:
            print_records(_rows(result))
        for line in _summary(result, seconds, stops):
            console().print(escape(line))


def _choices() -> list[dict[str, Any]]:
    known = registry()
    kinds: Mapping[str, Any] = {"space": known.search_spaces, "strategy": known.search_strategies}
    return [
        {"kind": kind, "name": each.name, "about": each.about}
        for kind, category in kinds.items()
        for each in category.values()
    ]


def _rows(result: ModelResult) -> list[dict[str, Any]]:
    found = []
    for each in result.results:
        kept = each.chosen is not None
        found.append(
            {
                "kernel": each.task.name,
                "trials": each.trials,
                "failed": each.failed,
                "result": f"{each.ratio:.3f} of the default's time" if kept else "default",
                "space": each.chosen.space if kept and each.chosen else "",
                "why": "" if kept else each.why,
            }
        )
    return found


def _summary(result: ModelResult, seconds: float, stops: Sequence[signal.Signals]) -> Iterator[str]:
    for found in result.decided:
        decision, _, layer = found.decision.partition("/")
        yield f"{decision}: {found.option} instead of {found.preferred} for {layer}"
    for name, why in result.left_out.items():
        yield f"not tuned: {name}: {why}"
    more = f" and {result.model_trials} of the whole model" if result.model_trials else ""
    kept = "1 schedule is" if len(result.chosen) == 1 else f"{len(result.chosen)} schedules are"
    yield f"{result.trials} trials of kernels{more} in {result.seconds:.0f} s; {kept} kept"
    if result.interrupted:
        by = f"interrupted by {stops[0].name}" if stops else "interrupted"
        yield f"{by}: all trials are kept, and the next run goes on from there"
    elif not result.trials and result.seconds >= seconds * (1 - KEPT_BACK):
        least = 10 * ceil(3 * result.seconds / 10)
        yield f"the budget ended before the search began; with {least} s or more it does"
    if result.withdrawn:
        yield f"withdrawn: {result.withdrawn}"
    if result.ratio is not None and (result.chosen or result.decided):
        yield f"the whole model takes {result.ratio:.3f} ± {result.noise:.3f} of its time before"


def _record(result: ModelResult) -> dict[str, Any]:
    return {
        "kernels": _rows(result),
        "decided": {each.decision: each.option for each in result.decided},
        "ratio": result.ratio,
        "noise": result.noise,
        "trials": result.trials,
        "model_trials": result.model_trials,
        "seconds": result.seconds,
        "withdrawn": result.withdrawn,
        "interrupted": result.interrupted,
        "left_out": dict(result.left_out),
    }


__all__ = ["tune"]
