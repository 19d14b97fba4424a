"""Tests of the PyTorch frontend need torch (`make .venv/.ready-torch`); else test_installed.py says so."""

from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec


def is_installed() -> bool:
    """Whether torch and this package are installed."""
    try:
        distribution("dlc-frontend-torch")
    except PackageNotFoundError:
        return False
    return find_spec("torch") is not None


collect_ignore_glob = [] if is_installed() else ["test_[!i]*.py"]
