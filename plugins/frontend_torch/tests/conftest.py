"""Tests of the PyTorch frontend need torch (`make .venv/.ready-torch`); else test_installed.py says so."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

import pytest


def is_installed() -> bool:
    """Whether torch and this package are installed."""
    try:
        distribution("dlc-frontend-torch")
    except PackageNotFoundError:
        return False
    return find_spec("torch") is not None


collect_ignore_glob = [] if is_installed() else ["test_[!i]*.py"]


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Warnings about torch's own code, which no caller can avoid, are not errors here."""
    for item in items:
        if "frontend_torch" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"))
