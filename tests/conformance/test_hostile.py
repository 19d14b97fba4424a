"""Level 4 of the kit finds devices that leak memory, hide failures or allow accesses to freed memory."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import RuntimeFailure
from dlc_core.driver import compile as compile_model
from dlc_core.driver import find_target
from dlc_core.plugin.registry import fresh_registry
from dlc_core.runtime.call import copying
from dlc_core.testing.faults import EVERY, Faulty
from dlc_core.testing.levels.device_models import layers
from dlc_core.testing.levels.hostile import HostileLevel, check_fault
from dlc_core.testing.levels.layers import inputs
from dlc_core.testing.parts import executable_on
from tests.backend.test_simulated import Device, Plugin

pytestmark = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))


@pytest.fixture
def compiled() -> Any:
    with fresh_registry({"toy": Plugin()}):
        yield compile_model(layers(), find_target("toy"))


def test_faults_are_raised_on_request() -> None:
    device = Faulty(Device())
    with device.failing("alloc", OSError("gone"), after=1):
        handle = device.alloc(8)
        with pytest.raises(OSError, match="gone"):
            device.alloc(8)
        device.free(handle)
    with device.failing(EVERY, OSError("gone")), pytest.raises(OSError, match="gone"):
        device.sync()
    device.sync()
    assert not device.live


def test_calls_that_leak_memory_are_found(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(compiled, Faulty(compiled.device), "read")
    kept: list[Any] = []
    upload = copying.Copying._upload

    def keeping(self: Any, host: Any) -> Any:
        kept.append(upload(self, host))
        return kept[-1]

    monkeypatch.setattr(copying.Copying, "_upload", keeping)
    with pytest.raises(AssertionError, match="whose read fails does not free its memory"):
        check_fault(compiled, Faulty(compiled.device), "read")


def test_errors_without_a_device_name_are_found(compiled: Any) -> None:
    class Silent(Faulty):
        def launch(self, *args: Any) -> None:
            try:
                super().launch(*args)
            except OSError:
                raise RuntimeFailure("something failed") from None

    with pytest.raises(AssertionError):
        check_fault(compiled, Silent(compiled.device), "launch")


def test_devices_that_do_not_free_memory_are_found(compiled: Any) -> None:
    class Careless(Device):
        def free(self, handle: int) -> None:
            """Memory is never freed."""

    exe = executable_on(compiled, Careless())
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        HostileLevel().test_memory_is_not_used_after_it_is_freed(exe)


def test_errors_in_copies_name_the_device(compiled: Any) -> None:
    device = Faulty(compiled.device)
    exe = executable_on(compiled, device)
    bound = exe.bind([inputs()])
    for method in ("write", "read"):
        with device.failing(method, OSError("gone")), pytest.raises(RuntimeFailure, match="'toy' failed"):
            bound()
    bound()
    del exe, bound
    gc.collect()
    assert not device.live
