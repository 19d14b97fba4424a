"""The garbage collector runs less often during a compile, and as often as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.support.garbage import THRESHOLDS, fewer_collections


@pytest.fixture(autouse=True)
def _own_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 9)
    yield
    gc.set_threshold(*before)


def test_thresholds_are_raised_inside_and_restored_after_the_last_block() -> None:
    with fewer_collections():
        assert gc.get_threshold() == THRESHOLDS
        with fewer_collections():
            pass
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_threshold() == (701, 11, 9)


def test_an_error_restores_them() -> None:
    with pytest.raises(KeyError), fewer_collections():
        raise KeyError
    assert gc.get_threshold() == (701, 11, 9)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (1_000_000, 5, 5)])
def test_a_disabled_or_rarer_collector_is_unchanged(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(*chosen)
    with fewer_collections():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


def test_thresholds_that_others_set_meanwhile_are_kept() -> None:
    with fewer_collections():
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)


def test_compiles_and_builds_raise_the_thresholds() -> None:
    seen = []

    class Watch:
        name = "watch"

        def before(self, one: object, module: object, context: object) -> None:
            seen.append(gc.get_threshold())

        def after(self, one: object, module: object, context: object) -> None:
            """Do nothing."""

    a = te.placeholder((4,), name="a")
    with dlc.PassContext(watchers=(Watch(),)):
        dlc.build([a, te.compute((4,), lambda i: a[i] + 1.0)], "reference")
    assert set(seen) == {THRESHOLDS}
    assert gc.get_threshold() == (701, 11, 9)
