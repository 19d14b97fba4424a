"""The rankers: features of lowered programs, the analytic order, and the learned one."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace

import numpy as np
import pytest
from dlc_tune.measuring.job import CRASH, OK
from dlc_tune.ranking import analytic_ranker, default_ranker, features_text, learned_ranker, model
from dlc_tune.ranking.features import NAMES, Features
from dlc_tune.ranking.learned import LearnedRanker
from dlc_tune.ranking.notes import row_of, text_of
from dlc_tune.ranking.touched import Lines, touched
from dlc_tune.ranking.train import train
from dlc_tune.ranking.weights import load_weights, problem_of, save_weights
from dlc_tune.records.lines import write_lines
from dlc_tune.records.record import TRIED, Record
from dlc_tune.space import Candidate
from dlc_tune.strategy import Tried
from dlc_tune.task import Task

from dlc_core import te
from dlc_core.diag import PluginError, UsageError
from dlc_core.ir.expr import Var, const
from dlc_core.target import Target
from dlc_core.tir.stmt import For, PrimFunc

needs_lightgbm = pytest.mark.skipif(
    importlib.util.find_spec("lightgbm") is None, reason="LightGBM is not installed (dlc-tune[ranking])"
)
HASH = "0" * 64
CPU = "c -mcpu=cortex-a72"


def product(n, m, k) -> PrimFunc:
    a, b = te.placeholder((n, k), "float32", "A"), te.placeholder((k, m), "float32", "B")
    r = te.reduce_axis((0, k), "r")
    return te.create_prim_func(
        [a, b], [te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")], "product"
    )


def symbolic_product() -> PrimFunc:
    n, k, m = Var("n"), Var("k"), Var("m")
    return product(n, m, k)


def made(task: Task, apply) -> Candidate:
    """The candidate that a function of a schedule makes."""
    schedule = task.schedule()
    apply(schedule)
    return Candidate("test", {}, (), schedule.trace, schedule.func)


def tiled(task: Task, rows: int, columns: int, vectors: bool = True) -> Candidate:
    """A GEMM in register tiles of `rows` by `columns`."""

    def apply(schedule):
        block = schedule.get_block("C")
        i, j, k = schedule.get_loops(block)
        (io, ii), (jo, ji) = schedule.split(i, [None, rows]), schedule.split(j, [None, columns])
        schedule.reorder(io, jo, k, ii, ji)
        schedule.unroll(ii)
        if vectors:
            schedule.vectorize(ji)

    return made(task, apply)


@pytest.fixture
def gemm() -> Task:
    return Task(product(64, 64, 64), Target(CPU))


@pytest.fixture
def candidates(gemm: Task) -> list[Candidate]:
    shapes = [(1, 4), (2, 4), (4, 4), (8, 4), (1, 8), (2, 8), (4, 8), (1, 16), (2, 16), (4, 16)]
    return [tiled(gemm, *shape, vectors) for shape in shapes for vectors in (True, False)]


def feature(task: Task, one: Candidate, name: str) -> float:
    return float(Features(task).of(one.func)[NAMES.index(name)])


def test_features_are_finite_numbers_of_a_fixed_length(gemm, candidates):
    features = Features(gemm)
    rows = np.stack([features.of(one.func) for one in candidates])
    assert rows.shape == (len(candidates), len(NAMES))
    assert np.isfinite(rows).all()
    assert len(set(NAMES)) == len(NAMES)
    assert len(np.unique(rows, axis=0)) == len(candidates)


def test_features_say_how_loops_run(gemm):
    scalar, vector = tiled(gemm, 4, 4, False), tiled(gemm, 4, 4)
    assert feature(gemm, vector, "main_vectorized") == 2.0
    assert feature(gemm, scalar, "main_vectorized") == 0.0
    assert feature(gemm, vector, "main_unrolled") == 2.0
    assert feature(gemm, scalar, "seconds_over_limit") > 1.0 + feature(gemm, vector, "seconds_over_limit")


def test_blocks_that_fit_the_cache_miss_it_less():
    task = Task(product(512, 512, 512), Target(CPU))

    def rows(schedule):
        schedule.get_loops(schedule.get_block("C"))

    def blocks(schedule):
        i, j, k = schedule.get_loops(schedule.get_block("C"))
        (io, ii), (jo, ji) = schedule.split(i, [None, 32]), schedule.split(j, [None, 32])
        ko, ki = schedule.split(k, [None, 32])
        schedule.reorder(io, jo, ko, ii, ki, ji)

    assert feature(task, made(task, blocks), "misses0") < feature(task, made(task, rows), "misses0") - 2


def test_symbolic_dims_have_the_sizes_of_the_task():
    func = symbolic_product()
    small, large = (Task(func, Target(CPU), sizes={"n": n, "m": 64, "k": 64}) for n in (8, 512))
    scheduled = [
        made(task, lambda schedule: schedule.get_loops(schedule.get_block("C"))) for task in (small, large)
    ]
    operations = [feature(task, one, "operations") for task, one in zip((small, large), scheduled)]
    assert operations[1] - operations[0] == pytest.approx(6.0, abs=0.1)


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ([(1, 16)], 64),
        ([(0, 100), (1, 16)], 64),
        ([(256, 4), (1, 16)], 4 * 64),
        ([(4, 16)], 4 * 64),
        ([(64, 3), (64, 10), (1, 3), (1, 14)], 12 * 64),
        ([(16, 8), (1, 16)], 8 * 64),
    ],
    ids=["row", "same", "rows", "strided", "windows", "matrix"],
)
def test_distinct_bytes_are_counted_in_cache_lines(dims, expected):
    assert touched(dims, 4, Lines(64)).bytes == expected


def test_rows_at_powers_of_two_take_the_room_of_all_sets():
    rows = touched([(512, 64), (1, 16)], 4, Lines(64, 4096))
    padded = touched([(528, 64), (1, 16)], 4, Lines(64, 4096))
    assert rows.bytes == padded.bytes == 64 * 64
    assert rows.run == padded.run == 64
    # Rows 2048 bytes apart are mapped to 2 of 64 sets: 1/32 of the cache.
    assert rows.room == 32 * rows.bytes
    assert padded.room == padded.bytes


def test_the_analytic_ranker_prefers_vectors(gemm, candidates):
    scores = analytic_ranker().scores(gemm, candidates)
    assert scores.shape == (len(candidates),)
    assert np.mean(scores[::2]) > np.mean(scores[1::2])
    assert int(np.argmax(scores)) % 2 == 0


def test_candidates_that_the_compiler_refuses_come_last(gemm, candidates):
    body = For(Var("i"), const(0), Var("n"), gemm.func.body, "vectorized")
    broken = Candidate("test", {}, (), tiled(gemm, 32, 32).trace, replace(gemm.func, body=body))
    scores = analytic_ranker().scores(gemm, [candidates[0], broken])
    assert np.isfinite(scores[0])
    assert scores[1] == -np.inf


@needs_lightgbm
def test_the_learned_ranker_begins_with_the_analytic_order(gemm, candidates):
    learned, analytic = learned_ranker(0), analytic_ranker()
    assert np.array_equal(learned.scores(gemm, candidates), analytic.scores(gemm, candidates))


@needs_lightgbm
def test_the_learned_ranker_follows_measurements_that_contradict_the_model(gemm, candidates):
    ranker = learned_ranker(0)
    scores = analytic_ranker().scores(gemm, candidates)
    order = scores.argsort().argsort()
    seconds = 1e-3 * (1 + order)  # the candidate that the model prefers is the slowest
    ranker.learn(gemm, [Tried(one, float(time)) for one, time in zip(candidates, seconds)])
    found = ranker.scores(gemm, candidates)
    assert np.corrcoef(found, -seconds)[0, 1] > np.corrcoef(scores, -seconds)[0, 1] + 0.5


@needs_lightgbm
def test_equal_seeds_and_results_give_equal_scores(gemm, candidates):
    def scores():
        ranker = learned_ranker(3)
        ranker.learn(gemm, [Tried(one, 1e-3 * (1 + n % 7)) for n, one in enumerate(candidates)])
        ranker.learn(gemm, [Tried(candidates[0], None)])
        return ranker.scores(gemm, candidates)

    assert np.array_equal(scores(), scores())


def test_without_the_library_the_default_is_analytic(monkeypatch, gemm, candidates):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    assert not isinstance(default_ranker(), LearnedRanker)
    with pytest.raises(PluginError) as caught:
        learned_ranker()
    assert "dlc-tune[ranking]" in str(caught.value)


@pytest.fixture
def weights(gemm, candidates, tmp_path):
    pytest.importorskip("lightgbm", reason="LightGBM is not installed (dlc-tune[ranking])")
    features = Features(gemm)
    rows = np.stack([features.of(one.func) for one in candidates])
    seconds = np.linspace(1, 2, len(rows))
    booster = model.trained([model.Group(rows, seconds)])
    save_weights(booster, tmp_path / "weights.txt")
    return booster, rows, tmp_path / "weights.txt"


def test_weights_are_read_as_they_were_written(weights, gemm, candidates):
    booster, rows, path = weights
    assert np.allclose(load_weights(path).predict(rows), booster.predict(rows), rtol=1e-12)
    ranker = learned_ranker(weights=path)
    assert not np.array_equal(ranker.scores(gemm, candidates), analytic_ranker().scores(gemm, candidates))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: "", "no model"),
        (lambda text: text.replace(NAMES[3], "other"), "not those of this version"),
        (lambda text: text.replace("left_child=", "left_child=9 ", 1), "left_childs"),
        (lambda text: text.replace("split_feature=", "split_feature=x", 1), "lacks a number"),
        (lambda text: text.replace("num_leaves=", "num_leaves=9", 1), "of another kind|another number"),
        (lambda text: text.replace("max_feature_idx=", "max_feature_idx=9"), "head"),
        (lambda text: text.replace("\nTree=1\n", "\n"), "head contradicts its trees"),
    ],
    ids=["empty", "features", "children", "words", "leaves", "head", "trees"],
)
def test_weights_that_are_damaged_are_refused_with_the_reason(weights, change, reason, tmp_path):
    text = weights[2].read_text()
    assert not problem_of(text)
    other = tmp_path / "other.txt"
    other.write_text(change(text))
    assert other.read_text() != text
    with pytest.raises(UsageError) as caught:
        load_weights(other)
    assert re.search(reason, str(caught.value))


def test_a_tree_with_a_cycle_is_refused(weights, tmp_path):
    text = weights[2].read_text()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("right_child=") and " " in line:
            before = lines[number - 1].split("=")[1].split()
            after = line.split("=")[1].split()
            inner = [child for child in (*before, *after) if int(child) > 0]
            swap = {inner[0]: "0"} if inner else {}
            lines[number - 1] = "left_child=" + " ".join(swap.get(child, child) for child in before)
            lines[number] = "right_child=" + " ".join(swap.get(child, child) for child in after)
            break
    other = tmp_path / "other.txt"
    other.write_text("\n".join(lines))
    with pytest.raises(UsageError, match="weights") as caught:
        load_weights(other)
    assert "do not form a tree" in str(caught.value)


def record_of(task: Task, one: Candidate, seconds: float | None, **notes) -> Record:
    outcome = OK if seconds else CRASH
    return Record(
        kernel=task.key, target=CPU, processor="p", family=HASH, extents=(64,), space="test", point={},
        trace=one.trace.to_json(), state=TRIED, outcome=outcome, seconds=seconds, notes=notes,
    )  # fmt: skip


def test_weights_are_trained_from_records(gemm, tmp_path):
    pytest.importorskip("lightgbm", reason="LightGBM is not installed (dlc-tune[ranking])")
    tasks = [gemm, *(Task(product(n, 64, 64), Target(CPU)) for n in (32, 96, 128))]
    shapes = [(rows, columns) for rows in (1, 2, 4) for columns in (4, 8, 16)]
    lines = []
    for task in tasks:
        for rows, columns in shapes:
            for vectors in (True, False):
                one = tiled(task, rows, columns, vectors)
                # These times contradict the cost model: scalars are fast.
                seconds = None if rows == 1 and vectors else (2.0 if vectors else 1.0) * columns * 1e-6
                lines.append(record_of(task, one, seconds, features=features_text(task, one)))
    lines.append(record_of(gemm, one, 1.0))
    source, weights = tmp_path / "records.jsonl", tmp_path / "weights.txt"
    write_lines(source, iter(lines))
    with source.open("a") as file:
        file.write("no record\n")
    found = train(source, weights)
    assert (found.samples, len(found.groups), found.without) == (72, 4, 1)
    other = Task(product(48, 64, 64), Target(CPU))
    pair = [tiled(other, 2, 8, vectors) for vectors in (True, False)]
    fast, slow = load_weights(weights).predict(np.stack([Features(other).of(one.func) for one in pair]))
    assert slow > fast  # scalars first, as in the records


def test_too_few_records_train_nothing(gemm, candidates, tmp_path):
    source = tmp_path / "records.jsonl"
    write_lines(source, iter([record_of(gemm, candidates[0], 1.0)]))
    with pytest.raises(UsageError) as caught:
        train(source, tmp_path / "weights.txt")
    assert "0 records" in str(caught.value)
    assert "1 others have no features" in str(caught.value)


def test_features_in_notes_keep_their_values(gemm, candidates):
    row = Features(gemm).of(candidates[0].func)
    found = row_of(features_text(gemm, candidates[0]))
    assert found is not None
    assert np.allclose(found, row, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("text", ["", "12345678:AAAA", "{version}:AAAA", "{version}:+++", "{version}:{nan}"])
def test_features_in_notes_of_another_form_are_left_out(gemm, candidates, text):
    version, _, data = features_text(gemm, candidates[0]).partition(":")
    nan = text_of(np.full(len(NAMES), np.nan, np.float32)).partition(":")[2]
    assert data
    assert row_of(text.format(version=version, nan=nan)) is None
