"""Foreign functions that the tests register for this process, and remove."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dlc_core.foreign import ForeignFunction, foreign_functions, register_foreign, unregister_foreign


@pytest.fixture
def register() -> Iterator[Callable[[ForeignFunction], ForeignFunction]]:
    """Registers functions until the end of the test."""
    before = set(foreign_functions())
    yield register_foreign
    for name in set(foreign_functions()) - before:
        unregister_foreign(name)
