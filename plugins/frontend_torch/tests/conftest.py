"""Tests of the PyTorch frontend need torch: `make .venv/.ready-torch`. Without it `test_installed.py` says so."""

from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec


def _is_installed() -> bool:
    try:
        distribution("dlc-frontend-torch")
    except PackageNotFoundError:
        return False
    return find_spec("torch") is not None


collect_ignore_glob = [] if _is_installed() else ["test_[!i]*.py", "test_i[!n]*.py"]
