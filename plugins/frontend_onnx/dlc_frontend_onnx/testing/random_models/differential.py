"""Random valid models, compiled by dlc and compared with the evaluator of the onnx package.

    python -m dlc_frontend_onnx.testing.random_models.differential --count 5000
    python -m dlc_frontend_onnx.testing.random_models.differential --seed 17 --count 1 -o folder
    DLC_GUARD=end python -m dlc_frontend_onnx.testing.random_models.differential --count 5000 --decisions

Each case runs in a separate process with a time limit. If results differ, the model is reduced to the
smallest part that still differs, and written to the folder. The evaluator is wrong for some operators, so a
case also passes if onnxruntime is installed and agrees with dlc.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, defs

from dlc_core.config import config as settings
from dlc_core.decisions import DECISIONS
from dlc_core.diag import DlcError
from dlc_core.testing.decision_coverage import executed
from dlc_frontend_onnx.bisect.cut import cut
from dlc_frontend_onnx.specialized import CallableModel
from dlc_frontend_onnx.testing.random_models.builder import Builder, Refused
from dlc_frontend_onnx.testing.random_models.templates import all_templates
from dlc_frontend_onnx.testing.score import run, summary
from dlc_frontend_onnx.testing.suite import Score

Array = np.ndarray[Any, Any]

OLDEST = 7
NEWEST_OF_ONNXRUNTIME = 25
TOLERANCES = {"float64": 1e-6, "float32": 2e-4, "float16": 3e-2, "bfloat16": 1e-1}
"""Relative to the largest element of an output, because sums are ordered differently, and dlc rounds narrow
floats less.
"""
MISREAD = (
    "BatchNormalization", "Conv", "ConvTranspose", "GRU", "GlobalMaxPool", "LRN", "LSTM", "Loop",
    "LpNormalization", "LpPool", "MaxPool", "RNN", "Resize", "Unsqueeze", "Upsample",
)  # fmt: skip
"""Operators that the evaluator computes wrongly in some opsets or with groups. Without onnxruntime, a
difference is no evidence there.
"""
TRUSTED = tuple(op for op in all_templates() if op not in MISREAD)
"""The other operators of random models."""


@dataclass(frozen=True)
class Case:
    """A model, its feeds, and all its values."""

    model: ModelProto
    feeds: Mapping[str, Array]
    values: Mapping[str, Array]

    @property
    def outputs(self) -> list[str]:
        return [value.name for value in self.model.graph.output]


def draw(seed: int, *, nodes: int = 8, ops: Sequence[str] = ()) -> Case:
    """A random model; equal seeds give equal models. If `ops` is not empty, it uses only these operators."""
    rng = random.Random(seed)
    newest = defs.onnx_opset_version()
    opset = rng.randint(*rng.choice(((OLDEST, 12), (13, 18), (18, newest))))
    builder = Builder(rng, opset)
    table = {op: item for op, item in all_templates().items() if not ops or op in ops}
    names, weights = list(table), [weight for _, weight in table.values()]
    wanted = rng.randint(1, nodes)
    for _ in range(20 * nodes):
        op = rng.choices(names, weights)[0]
        try:
            table[op][0](builder, op)
        except Refused:
            continue
        if len(builder.nodes) >= wanted:
            break
    model = builder.model(symbolic=rng.random() < 0.4)
    return Case(model, builder.feeds(), {value.name: value.array for value in builder.values})


def difference(found: Any, wanted: Any) -> str:
    """A description of how an array differs from the expected one; empty if it does not."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype != wanted.dtype:
        return f"dtype {found.dtype}, {wanted.dtype} is wanted"
    if found.shape != wanted.shape:
        return f"shape {found.shape}, {wanted.shape} is wanted"
    name = wanted.dtype.name
    if name not in TOLERANCES:
        return "" if np.array_equal(found, wanted) else "differs"
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    if np.allclose(a, b, rtol=TOLERANCES[name], atol=TOLERANCES[name] * scale, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"differs by {np.nanmax(np.abs(a - b)):.3g}, the largest element is {scale:.3g}"


def wrong_outputs(
    case: Case, run_model: Callable[[ModelProto, Mapping[str, Array]], Sequence[Any]]
) -> dict[str, str]:
    """The outputs that differ, with the difference; raises the errors of the run."""
    found = run_model(case.model, case.feeds)
    wrong = {name: difference(array, case.values[name]) for name, array in zip(case.outputs, found)}
    return {name: text for name, text in wrong.items() if text}


@dataclass
class ByDlc:
    """Runs models by dlc; `decisions` are the compiler's choices for the last outputs."""

    target: str | None = None
    decisions: Sequence[str] = ()

    def __call__(self, model: ModelProto, feeds: Mapping[str, Array]) -> Sequence[Any]:
        made = CallableModel(model, self.target)
        outputs = made(feeds)
        self.decisions = made.latest.about[DECISIONS]
        return outputs


def by_onnxruntime(model: ModelProto, feeds: Mapping[str, Array]) -> Sequence[Any]:
    """The outputs by onnxruntime without optimization; raises its errors.

    Opsets that it does not know are replaced by the newest that it knows.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    known = ModelProto.FromString(model.SerializeToString())
    for item in known.opset_import:
        item.version = min(item.version, NEWEST_OF_ONNXRUNTIME) if item.domain == "" else item.version
    session = onnxruntime.InferenceSession(
        known.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: Sequence[Any] = session.run(None, dict(feeds))
    return found


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The smallest part of a failing case that still fails: one output, with values in place of nodes."""
    for name in case.outputs:
        alone = part(case, [name], case.feeds)
        if fails(alone):
            case = alone
            break
    progress = True
    while progress:
        progress = False
        for node in list(case.model.graph.node)[:-1]:
            given = {name: case.values[name] for name in node.output if name in case.values}
            smaller = part(case, case.outputs, {**case.feeds, **given})
            if len(smaller.model.graph.node) < len(case.model.graph.node) and fails(smaller):
                case, progress = smaller, True
                break
    return case


def part(case: Case, outputs: Sequence[str], given: Mapping[str, Array]) -> Case:
    """The part of a case that computes some of its values from others."""
    fresh = {name: array for name, array in given.items() if name not in case.feeds}
    model = cut(case.model, outputs, fresh)
    names = {value.name for value in model.graph.input}
    return Case(model, {name: array for name, array in given.items() if name in names}, case.values)


def judge(
    seed: int,
    target: str | None = None,
    folder: Path | None = None,
    ops: Sequence[str] = (),
    decisions: bool = False,
) -> None:
    """Compare one model; AssertionError, with the smallest part, if neither peer agrees with dlc.

    With `decisions` all decisions of the compiler are drawn at random from the seed.
    """
    with settings.override(decisions=f"*=random:{seed}" if decisions else settings.decisions):
        _judge(seed, target, folder, ops)


def _judge(seed: int, target: str | None, folder: Path | None, ops: Sequence[str]) -> None:
    case = draw(seed, ops=ops)
    ours = ByDlc(target)
    wrong = wrong_outputs(case, ours)
    if not wrong or third_opinion(case, ours(case.model, case.feeds)) == "agrees with dlc":
        executed(ours.decisions)
        return

    def fails(smaller: Case) -> bool:
        try:
            return bool(wrong_outputs(smaller, ours))
        except DlcError:
            return False

    small = shrink(case, fails)
    wrong = wrong_outputs(small, ours) or wrong
    verdict = third_opinion(small, ours(small.model, small.feeds))
    if verdict == "agrees with dlc":
        return
    texts = [f"{name} {text}" for name, text in wrong.items()]
    if folder is not None:
        write(small, folder / f"seed{seed}")
    left = " ".join(
        f"{node.op_type}({small.model.opset_import[0].version})" for node in small.model.graph.node
    )
    raise AssertionError(f"seed {seed}: {left}: {'; '.join(texts)}; onnxruntime {verdict}")


def third_opinion(case: Case, ours: Sequence[Any]) -> str:
    """The result of onnxruntime for a case in which dlc and the evaluator differ."""
    try:
        theirs = by_onnxruntime(case.model, case.feeds)
    except Exception as error:  # noqa: BLE001  (a peer that cannot run the model gives no result)
        return f"cannot tell: {str(error).splitlines()[0][:120]}"
    pairs = zip(case.outputs, ours, theirs, strict=True)
    if not any(difference(own, their) for _, own, their in pairs):
        return "agrees with dlc"
    wanted = [case.values[name] for name in case.outputs]
    same = not any(difference(their, want) for their, want in zip(theirs, wanted))
    return "agrees with the evaluator" if same else "has a third result"


def write(case: Case, stem: Path) -> None:
    """Write the model as a file, with its inputs and expected outputs next to it."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".onnx").write_bytes(case.model.SerializeToString())
    arrays = {f"in_{name}": array for name, array in case.feeds.items()}
    arrays |= {f"out_{index}": case.values[name] for index, name in enumerate(case.outputs)}
    np.savez(stem.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns 1 if a model was wrong, crashed or late."""
    parser = argparse.ArgumentParser(
        prog="python -m dlc_frontend_onnx.testing.random_models.differential",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument("-n", "--count", type=int, default=1000, help="models")
    parser.add_argument("--seed", type=int, default=0, help="of the first model; later models count up")
    parser.add_argument("-t", "--target", help="target; by default this machine's CPU")
    parser.add_argument("-j", "--jobs", type=int, default=0, help="processes; by default one for each core")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a model may take")
    parser.add_argument("--ops", nargs="*", default=(), help="only models of these operators")
    parser.add_argument("--trusted", action="store_true", help="no operators of `MISREAD`")
    parser.add_argument("--decisions", action="store_true", help="force the compiler's decisions at random")
    parser.add_argument("-o", "--output", type=Path, help="a folder for the models that differ")
    options = parser.parse_args(arguments)
    ops = TRUSTED if options.trusted else options.ops
    tests = {
        f"random {seed}": partial(judge, seed, options.target, options.output, ops, options.decisions)
        for seed in range(options.seed, options.seed + options.count)
    }
    score = Score()
    for verdict in run(tests, target=options.target, jobs=options.jobs, limit=options.limit):
        score.verdicts.append(verdict)
        if verdict.outcome not in ("pass", "unsupported"):
            sys.stdout.write(f"{verdict.name}: {verdict.outcome}: {verdict.reason}\n")
            sys.stdout.flush()
    sys.stdout.write(summary(score) + "\n")
    return int(any(score.of(outcome) for outcome in ("wrong", "crashed", "late")))


if __name__ == "__main__":
    sys.exit(main())
