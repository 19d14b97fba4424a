"""Time limits: a case that takes too long fails with its name."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace

import pytest

from dlc_core.hooks import hookimpl
from dlc_core.op import std
from dlc_core.plugin.registry import fresh_registry
from dlc_core.runtime.reference import Entry, LoadedModule, ReferenceDevice
from dlc_core.target.reference import KIND, ReferenceCodegen
from dlc_core.testing.cases import op_cases
from dlc_core.testing.levels import LEVELS
from dlc_core.testing.limits import (
    CASE_SECONDS,
    LEVEL_SECONDS,
    CaseTooLong,
    case_seconds,
    limited,
    scaled,
)
from dlc_core.testing.runner import FAILED, PASSED, run_cases, usable_target

SHORT = 0.2 / CASE_SECONDS["ops"]
"""The factor with which a case has 0.2 seconds."""


def test_every_level_has_limits_and_levels_0_to_3_have_20_minutes() -> None:
    assert set(CASE_SECONDS) == set(LEVEL_SECONDS) == set(LEVELS)
    assert sum(LEVEL_SECONDS[level] for level in LEVELS[:4]) == 20 * 60
    with scaled(2.0):
        assert case_seconds("ops") == 2 * CASE_SECONDS["ops"]
    assert case_seconds("ops") == CASE_SECONDS["ops"]


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no timer signals")
def test_a_case_is_interrupted() -> None:
    start = time.monotonic()
    with scaled(SHORT), pytest.raises(CaseTooLong) as caught, limited("ops/a", "ops"):
        time.sleep(30)
    assert "ops/a takes longer than 0.2 s, the time limit of a case of level 'ops'" in str(caught.value)
    assert time.monotonic() - start < 20
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_other_threads_check_the_time_at_the_end() -> None:
    found: list[BaseException] = []

    def work() -> None:
        try:
            with scaled(SHORT), limited("ops/a", "ops"):
                time.sleep(0.3)
        except CaseTooLong as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(found) == 1


class SlowEntry(Entry):
    """An entry point that takes long for int32."""

    def evaluate(self, *args):
        made = super().evaluate(*args)
        if str(made[0].dtype) == "int32":
            time.sleep(30)
        return made


class SlowModule(LoadedModule):
    def entry(self, symbol):
        return SlowEntry(self, symbol, self._artifact)


class SlowDevice(ReferenceDevice):
    name = "slow"

    def load(self, artifact):
        return SlowModule(artifact)


class SlowCodegen(ReferenceCodegen):
    name, kinds = "slow", ("slow",)


class SlowPlugin:
    """A target that takes long in one dtype."""

    @hookimpl
    def dlc_targets(self):
        return [replace(KIND, name="slow", codegen="slow", device="slow")]

    @hookimpl
    def dlc_codegens(self):
        return [SlowCodegen()]

    @hookimpl
    def dlc_devices(self):
        return [SlowDevice()]


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no timer signals")
def test_a_slow_case_fails_and_the_others_run() -> None:
    usable_target.cache_clear()
    with fresh_registry({"slow": SlowPlugin()}), scaled(1 / CASE_SECONDS["ops"]):
        cases = op_cases(std.BY_NAME["relu"], ["float32", "int32", "int8"])
        found = {each.case: each for each in run_cases(cases, usable_target("slow"))}
    usable_target.cache_clear()
    slow = [name for name in found if name.endswith("int32")]
    assert {found[name].status for name in slow} == {FAILED}
    assert f"{slow[0]} takes longer than 1 s" in found[slow[0]].why
    assert {one.status for name, one in found.items() if name not in slow} == {PASSED}
