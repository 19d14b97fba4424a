"""Tests of the PyTorch frontend need torch: `make .venv/.ready-torch`."""

import pytest

pytest.importorskip("torch", reason="torch is not installed: make .venv/.ready-torch")
