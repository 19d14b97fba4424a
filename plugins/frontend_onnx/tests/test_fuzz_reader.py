"""For any bytes, reading returns a model or raises a `DlcError`, within a time limit, and opens no file
outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from dlc_frontend_onnx import wire
from dlc_frontend_onnx.reader import Graph, SparseTensor, Tensor, read_model
from dlc_frontend_onnx.testing import fuzz, seeds

from dlc_core.diag import DlcError


def constants(path: str) -> list[bytes]:
    """The bytes of every constant of the model at `path`."""
    model = read_model(path)
    waiting: list[Any] = [model.graph, *model.functions.values()]
    found: list[bytes] = []
    while waiting:
        body = waiting.pop()
        values: list[Any] = [value for node in body.nodes for value in node.attrs.values()]
        if isinstance(body, Graph):
            values += [*body.initializers.values(), *body.sparse_initializers.values()]
        for value in values:
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Graph):
                    waiting.append(item)
                elif isinstance(item, (Tensor, SparseTensor)):
                    found.append(item.to_numpy().tobytes())
    return found


def check(report: fuzz.Report, count: int) -> None:
    assert report.failures == []
    assert report.total == report.accepted + report.refused == count
    assert report.accepted > count // 20
    assert report.refused > count // 2
    assert report.grown_mib < 500


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat small models like large ones, whose weights are extracted before parsing."""
    monkeypatch.setattr(wire, "SCAN_FROM", 0)
    monkeypatch.setattr(wire, "CUT_FROM", 8)


def test_mutants_are_read_or_refused() -> None:
    check(fuzz.run(constants, 500, seed=0, values=list), 500)


@pytest.mark.usefixtures("scanned")
def test_mutants_are_read_or_refused_field_by_field() -> None:
    check(fuzz.run(constants, 300, seed=1, values=list), 300)


@pytest.mark.slow
def test_many_mutants() -> None:
    check(fuzz.run(constants, 10_000, seed=2, values=list), 10_000)


@pytest.mark.slow
@pytest.mark.usefixtures("scanned")
def test_many_mutants_field_by_field() -> None:
    check(fuzz.run(constants, 5_000, seed=3, values=list), 5_000)


@pytest.mark.usefixtures("scanned")
@pytest.mark.parametrize("number", range(300))
def test_extracting_weights_does_not_change_the_outcome(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, data),) = [*fuzz.mutants(4 + number, 1)]

    def verdict() -> tuple[str, object]:
        try:
            model = read_model(data)
        except DlcError as error:
            return ("refused", type(error))
        tensors = {name: tensor.shape for name, tensor in model.graph.initializers.items()}
        return ("read", (len(model.graph.nodes), tensors))

    scanned = verdict()
    monkeypatch.setattr(wire, "SCAN_FROM", 1 << 62)
    assert verdict() == scanned


def test_seeds_are_valid(tmp_path: Path) -> None:
    folder, _ = fuzz.traps(tmp_path)
    for name, data in seeds.seeds():
        model = read_model(data, base_dir=folder)
        assert model.graph.nodes, name


def test_same_seed_gives_same_mutants() -> None:
    assert list(fuzz.mutants(9, 40)) == list(fuzz.mutants(9, 40))
    assert list(fuzz.mutants(9, 40)) != list(fuzz.mutants(10, 40))


def test_run_notices_raw_exceptions() -> None:
    report = fuzz.run(lambda path: onnx.ModelProto.FromString(Path(path).read_bytes()), 100)
    assert len(report.failures) > 10
    assert "DecodeError" in "".join(report.failures)


def test_run_notices_a_hang() -> None:
    def hang(path: str) -> Iterator[None]:
        while True:
            pass

    report = fuzz.run(hang, 1, timeout=0.05)
    assert len(report.failures) == 1
    assert "over 0.05 s" in report.failures[0]


def test_run_notices_an_open_outside() -> None:
    def curious(path: str) -> bytes:
        return (Path(path).parent / "link.bin").read_bytes()

    report = fuzz.run(curious, 1, values=lambda data: [data])
    text = "".join(report.failures)
    assert "the secret was read" in text
    assert "opened" in text


def test_run_notices_a_memory_bomb() -> None:
    report = fuzz.run(lambda path: bytearray(1 << 40), 1)
    assert "MemoryError" in report.failures[0]
