"""The conformance kit: tests of targets, ops and passes, for the core and for plugins.

    from dlc_core.testing import conformance_suite

    TestNpu = conformance_suite("npu")

The names are resolved on first use, because pytest imports the plugin of this package in every session.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlc_core.testing.batch import compile_all as compile_all
    from dlc_core.testing.expectations import ExpectedFailure as ExpectedFailure
    from dlc_core.testing.expectations import Unsupported as Unsupported
    from dlc_core.testing.golden import Golden as Golden
    from dlc_core.testing.suite import conformance_suite as conformance_suite

_LAZY = {
    "ExpectedFailure": "dlc_core.testing.expectations",
    "Golden": "dlc_core.testing.golden",
    "Unsupported": "dlc_core.testing.expectations",
    "compile_all": "dlc_core.testing.batch",
    "conformance_suite": "dlc_core.testing.suite",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
