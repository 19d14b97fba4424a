"""Errors of GEMM and convolutions on difficult inputs, compared with float64.

    python -m benchmarks.numerics       dlc by default and with precision="fast", and installed peers

An error is the largest one of all results, in multiples of ε (|A| |B|): the sum of the sizes of a result's
terms, times the distance from 1 to the next float32, and for each term the least subnormal number. Sums of k
terms in any order stay below k of these. Results that are not finite where float64's are, or the reverse, and
those that are not 0 where all terms are, are counted as wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.peers import OURS, Array, Peer, installed_peers
from benchmarks.report import head, machine, print_table

EPS = float(np.finfo(np.float32).eps)
LEAST = float(np.finfo(np.float32).smallest_subnormal)
LARGEST = float(np.finfo(np.float32).max)
ROWS, INNER, COLUMNS = 192, 1024, 3072
CHANNELS, SIZE = 64, 28
Inputs = tuple[Array, Array]


@dataclass(frozen=True)
class Work:
    """A product of `x` and constant weights: its model, and a function that computes it in float64."""

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    op: str
    attrs: dict[str, object]
    sums: Callable[[Array, Array], Array]
    terms: int
    """Those of a result."""

    def model(self, w: Array) -> onnx.ModelProto:
        node = helper.make_node(self.op, ["x", "w"], ["y"], **self.attrs)
        x, y = helper.make_tensor_value_info("x", 1, self.x), helper.make_tensor_value_info("y", 1, None)
        graph = helper.make_graph([node], "one", [x], [y], [numpy_helper.from_array(w, "w")])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _product(x: Array, w: Array) -> Array:
    return np.asarray(x @ w)


def _windows(x: Array, w: Array) -> Array:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    parts = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    n, c, rows, columns = parts.shape[:4]
    flat = parts.transpose(0, 2, 3, 1, 4, 5).reshape(n, rows * columns, c * 9)
    sums = flat @ w.reshape(len(w), -1).T
    return np.asarray(sums.transpose(0, 2, 1).reshape(n, len(w), rows, columns))


WORK = (
    Work("product", (ROWS, INNER), (INNER, COLUMNS), "MatMul", {}, _product, INNER),
    Work(
        "convolution",
        (2, CHANNELS, SIZE, SIZE),
        (CHANNELS, CHANNELS, 3, 3),
        "Conv",
        {"pads": [1, 1, 1, 1]},
        _windows,
        9 * CHANNELS,
    ),
)


def _even(x: Array, w: Array) -> Inputs:
    return x, w


def _times(factor: float, where: int | slice, x: Array, w: Array) -> Inputs:
    x[where] *= np.float32(factor)
    return x, w


def _spread(x: Array, w: Array) -> Inputs:
    sizes = 10.0 ** np.random.default_rng(3).uniform(-10, 10, (len(x), *[1] * (x.ndim - 1)))
    return x * sizes.astype(np.float32), w


def _columns(axis: int, x: Array, w: Array) -> Inputs:
    shape = [1] * w.ndim
    shape[axis] = w.shape[axis]
    return x, w * (10.0 ** np.random.default_rng(4).uniform(-10, 10, shape)).astype(np.float32)


def _channel(x: Array, w: Array) -> Inputs:
    x[:, 5] *= 1000
    return x, w


def _cancelling(axis: int, x: Array, w: Array) -> Inputs:
    half = x.shape[1] // 2
    x[:, half:] = x[:, :half]
    low, high = (np.take(w, range(*ends), axis) for ends in ((0, half), (half, 2 * half)))
    high[...] = -low
    return x, np.concatenate([low, high], axis)


def _one(value: float, x: Array, w: Array) -> Inputs:
    x[(0, *(n // 2 for n in x.shape[1:]))] = value
    return x, w


def cases(work: Work) -> dict[str, Callable[[Array, Array], Inputs]]:
    """The inputs, made from normal inputs and weights."""
    inner, outer = (0, 1) if work.op == "MatMul" else (1, 0)
    found: dict[str, Callable[[Array, Array], Inputs]] = {
        "even": _even,
        "rows or samples of sizes from 1e-10 to 1e10": _spread,
        "columns of weights of sizes from 1e-10 to 1e10": partial(_columns, outer),
        "one token or sample times 1000": partial(_times, 1e3, 0),
        "one channel times 1000": _channel,
        "sums that cancel": partial(_cancelling, inner),
        "results near the largest number": partial(_times, 1e37, slice(None)),
        "subnormal inputs": partial(_times, 1e-40, slice(None)),
        "a sample of zeros": partial(_times, 0.0, 0),
        "one Inf": partial(_one, np.inf),
        "one NaN": partial(_one, np.nan),
    }
    return found


def _inputs(work: Work) -> Inputs:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(work.x).astype(np.float32)
    w = rng.standard_normal(work.w) / np.sqrt(work.terms)
    return x, w.astype(np.float32)


def cell(found: Array, exact: Array, sizes: Array, terms: int) -> str:
    """The largest error of sums of `terms` terms, and the number of wrong results."""
    rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded) & (sizes < LARGEST)
    same = np.isnan(found) == np.isnan(rounded)
    wrong = int((finite & ~np.isfinite(found)).sum() + (~np.isfinite(exact) & ~same).sum())
    wrong += int(((sizes == 0) & (found != 0)).sum())
    good = finite & np.isfinite(found) & (sizes > 0)
    units = EPS * sizes[good] + terms * LEAST
    worst = float((np.abs(found[good] - exact[good]) / units).max(initial=0.0))
    text = f"{worst:.1f}" if worst < 1e4 else f"{worst:.0e}"
    return f"{text}, {wrong} wrong" if wrong else text


def rows(peers: Sequence[tuple[str, Peer]], threads: int) -> Iterator[list[str]]:
    """Yield the rows of the table."""
    with TemporaryDirectory(prefix="dlc-bench-") as folder, np.errstate(all="ignore"):
        path = Path(folder, "model.onnx")
        for work in WORK:
            for name, change in cases(work).items():
                x, w = change(*_inputs(work))
                onnx.save(work.model(w), path)
                wide = x.astype(np.float64), w.astype(np.float64)
                exact, sizes = work.sums(*wide), work.sums(np.abs(wide[0]), np.abs(wide[1]))
                cells = []
                for _, peer in peers:
                    (found,) = peer.load(path, threads)({"x": x}).values()
                    cells.append(cell(np.asarray(found), exact, sizes, work.terms))
                yield [f"{work.name}: {name}", *cells]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.numerics", description="Errors of hard inputs, in ε (|A| |B|)."
    )
    parser.add_argument("--threads", type=int, default=1, help="of all (%(default)s)")
    parser.add_argument(
        "--peers", help="only these, with commas between; all that are installed if not given"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args(arguments)
    expected = None if options.peers is None else options.peers.split(",")
    others = [
        p for p in installed_peers() if p.name != OURS.name and (expected is None or p.name in expected)
    ]
    print(head(machine(), [OURS, *others]), flush=True)
    columns = [("dlc", OURS), ("dlc fast", OURS.at("fast")), *((peer.name, peer) for peer in others)]
    table = list(rows(columns, options.threads))
    print_table(("inputs", *(name for name, _ in columns)), table, markdown=options.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
