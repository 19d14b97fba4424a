"""`dlc explain`"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from dlc_core.cli.arrays import gather_inputs
from dlc_core.cli.options import (
    CompileSource,
    Decided,
    Disabled,
    Json,
    ModelOrArtefact,
    NoCache,
    OptLevel,
    PlacementBy,
    Places,
    Precision,
    Rules,
    Shapes,
    ShowProgress,
    TargetTexts,
    Threads,
    Trust,
    compile_options,
    executable,
    overrides,
    parse_shapes,
)
from dlc_core.cli.tables import print_records, shortened
from dlc_core.diag import bytes_text
from dlc_core.runtime.measure.explain import Explanation, Kernel, Segment, Share
from dlc_core.target.cost import Machine
from dlc_core.testing.peak import measured_machine


def explain(
    model: ModelOrArtefact,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Also run the model, and show the time of each kernel."),
    ] = False,
    refused: Annotated[
        bool, typer.Option("--refused", help="Show only kernels that a rule refused, or that have no rule.")
    ] = False,
    why: Annotated[
        bool,
        typer.Option(
            "--why", help="Also show all choices of each kernel: candidates, predicted cycles, refusals."
        ),
    ] = False,
    target: TargetTexts = None,
    place: Places = None,
    placement: PlacementBy = "preference",
    threads: Threads = None,
    shape: Shapes = None,
    opt_level: OptLevel = 3,
    precision: Precision = "float32",
    rule: Rules = None,
    disable: Disabled = None,
    decided: Decided = None,
    no_cache: NoCache = False,
    trust: Trust = False,
    compile_source: CompileSource = False,
    show_progress: ShowProgress = None,
    as_json: Json = False,
) -> None:
    """Show each kernel: its schedule and why it was chosen, its work, its bound, and its time.

    FLOP/byte is the arithmetic intensity. The limit is the shortest time that the machine allows. It is the
    longer of two times: the arithmetic at the peak of the vector units, and the bytes at the bandwidth of the
    memory level that holds them. The longer one is the bound. The expected time is the prediction of the cost
    model.

    The column why has the choice that matters most: what was chosen, its predicted cycles, and how many more
    the next best candidate takes. Cycles are those of the whole kernel on one thread. --why adds for each
    kernel its plan and all of its choices with their candidates: a predicted cost, or the reason why it was
    refused. Choices of graph passes are listed with the kernels of their model nodes, the others come first.

    If a forced value is no candidate of a kernel, a line says so. If no kernel has it, that is an error.

    For a model with several targets it also shows the segments, their inputs and outputs, why nodes are not
    on an earlier target, and the share of each target: multiply-adds, bytes, and expected cycles and time by
    the target's own description. A region of a vendor's compiler and an op on the host are one row each.

    Examples:

    - `dlc explain model.onnx`
    - `dlc explain model.onnx --measure --threads 1`
    - `dlc explain model.onnx --why`
    - `dlc explain model.dlc --why`
    - `dlc explain model.onnx --rule cpu.loops --why`
    - `dlc explain model.onnx --set gemm.tile=4x2`
    - `dlc explain model.onnx --set winograd.tile@conv1=direct --why`
    - `dlc explain model.dlc --refused --json`
    - `dlc explain model.onnx -t NPU -t reference`
    """
    shapes = parse_shapes(shape)
    config = overrides(rule, disable, decided)
    options = compile_options(
        target, place, placement, threads, shapes, opt_level, precision, config, no_cache
    )
    options |= {"trust": trust, "compile_source": compile_source}
    exe = executable(model, show_progress, **options)
    report = machine = None
    if measure:
        report = exe.profile(gather_inputs(exe, None, None, 0, shapes))
        machine = None if Machine.of(exe.target.describe()).launches else measured_machine()
    explanation = exe.explain(machine, report)
    unscheduled = [k for k in explanation.kernels if k.refused or k.rule in ("", "none")]
    kernels = unscheduled if refused else explanation.kernels
    if as_json:
        print(explanation.to_json(kernels))
        return
    console = Console(soft_wrap=True, highlight=False)
    console.print(
        f"target  {escape(explanation.target)}, {_count(explanation.threads, explanation.machine.executor)}"
    )
    console.print(f"memory  {memory_text(explanation)}")
    console.print(f"code    {bytes_text(explanation.code)}")
    if explanation.accesses:
        console.print(f"access  {explanation.accesses_text()}")
    for name, one in explanation.machines.items():
        which = f"{escape(name)}: " if len(explanation.machines) > 1 else ""
        console.print(f"machine {which}{_machine_text(one, name == str(exe.target))}")
    console.print()
    if explanation.segments:
        print_records([_segment_record(one) for one in explanation.segments])
    placed = [*(line for one in explanation.costs for line in one.lines()), *explanation.refusals()]
    for line in placed:
        console.print(escape(line))
    if explanation.segments or placed:
        console.print()
    print_records([_record(k, explanation, measure) for k in kernels])
    for kernel in kernels:
        if kernel.origin:
            console.print(escape(f"{kernel.name} is tuned: {kernel.origin}"))
        for line in kernel.not_forced:
            console.print(escape(f"not forced in {kernel.name}: {line}"))
    if why:
        console.print()
        texts = [one.table() for one in explanation.graph_choices()]
        for text in [*texts, *dict.fromkeys(explanation.why(k.name) for k in kernels)]:
            console.print(escape(text))
    if explanation.is_divided:
        console.print()
        print_records([_share_record(one) for one in explanation.shares().values()])
    if explanation.compiled:
        console.print()
        print_records([{"function": name, **facts} for name, facts in explanation.compiled.items()])
    console.print(_totals_text(explanation))


def memory_text(explanation: Explanation) -> str:
    """Describe the bytes of weights, scratch memory (and the lower bound of any plan) and results."""
    scratch = f"{_bytes_text(explanation.arena)} of scratch"
    known = explanation.arena.isdigit()
    if explanation.live_peak and known:
        scratch += f" ({int(explanation.arena) / explanation.live_peak:.2f} × the peak of live bytes)"
    words = f"{bytes_text(explanation.weights)} of weights, {scratch}"
    if explanation.results is not None:
        words += f", {_bytes_text(explanation.results)} of results"
        known = known and explanation.results.isdigit()
    if explanation.maximum is not None and (explanation.segments or not known):
        words += f"; at most {explanation.maximum}"
    return words


def _bytes_text(size: str) -> str:
    return bytes_text(int(size)) if size.isdigit() else f"{escape(size)} bytes"


def _machine_text(machine: Machine, is_measurable: bool) -> str:
    names = [machine.level_name(level) for level in range(len(machine.bandwidths))]
    reads = ", ".join(f"{n} {b / 1e9:.0f} GB/s" for n, b in zip(names, machine.bandwidths, strict=True))
    how = "measured" if machine.measured else "from the target's description"
    if machine.launches:
        return f"{machine.flops / 1e9:.0f} GFLOP/s a unit, {reads} a unit ({how})"
    how += "; --measure measures it" if is_measurable and not machine.measured else ""
    return f"{machine.flops / 1e9:.0f} GFLOP/s a core, {reads} ({how})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _segment_record(one: Segment) -> dict[str, Any]:
    return {
        "segment": one.name,
        "target": one.target,
        "ops": shortened(one.ops, 4),
        "model nodes": shortened(one.nodes, 2),
        "bytes in": one.bytes_in,
        "bytes out": one.bytes_out,
        "why": one.why,
    }


def _share_record(one: Share) -> dict[str, Any]:
    def with_share(figure: str, value: float | None) -> str | None:
        share = one.shares[figure]
        return None if value is None else f"{value:.6g}" + (f" ({share:.1%})" if share is not None else "")

    record = {
        "target": one.target,
        "device": one.device,
        "kernels": one.kernels,
        "multiply-adds": with_share("multiply_adds", one.multiply_adds),
        "FLOP": with_share("flops", one.flops),
        "bytes": with_share("bytes", one.bytes),
        "expected cycles": None if one.cycles is None else round(one.cycles),
        "expected µs": with_share("estimate", None if one.estimate is None else 1e6 * one.estimate),
    }
    if one.seconds is not None:
        record["µs"] = with_share("seconds", 1e6 * one.seconds)
    return record


def _record(kernel: Kernel, explanation: Explanation, measured: bool) -> dict[str, Any]:
    work, estimate = kernel.work, kernel.estimate
    intensity, total = work.intensity, explanation.totals()["seconds"]
    record: dict[str, Any] = {
        "kernel": kernel.name,
        **({"target": kernel.target} if explanation.is_divided else {}),
        "model nodes": shortened(kernel.nodes, 2),
        "rule": kernel.rule,
        "MFLOP": None if work.flops is None else round(work.flops / 1e6, 3),
        "KiB": None if work.bytes is None else round(work.bytes / 1024, 1),
        "FLOP/byte": None if intensity is None else round(intensity, 2),
        "bound": None if estimate is None else estimate.bound,
        "limit µs": None if estimate is None else round(1e6 * estimate.limit, 1),
        "expected µs": None if estimate is None else round(1e6 * estimate.seconds, 1),
    }
    if measured:
        seconds, attained = kernel.seconds, kernel.attained
        record |= {
            "µs": None if seconds is None else round(1e6 * seconds, 1),
            "share": None if not seconds or not total else f"{seconds / total:.1%}",
            "GFLOP/s": None if not seconds or work.flops is None else round(work.flops / seconds / 1e9, 1),
            "% of limit": None if attained is None else round(100 * attained),
        }
    record["why"] = kernel.why
    record["refused"] = [reason.partition("\n")[0] for reason in kernel.refused]
    return record


def _totals_text(explanation: Explanation) -> str:
    totals, fit = explanation.totals(), explanation.fit()
    names = {"limit": "limit", "estimate": "expected", "seconds": "measured"}
    known = [
        f"{word} {1e3 * value:.3f} ms" for key, word in names.items() if (value := totals[key]) is not None
    ]
    lines = ["\ntotal   " + ", ".join(known)] if known else []
    if fit is not None:
        span = f"median {fit.median:.2f}, 80% from {fit.low:.2f} to {fit.high:.2f}"
        lines.append(
            f"model   expected over measured: {span}; "
            f"correlation of the logarithms {fit.correlation:.2f}, {fit.kernels} kernels"
        )
    return "\n".join(lines)
