"""Fixtures that isolate the tests."""

from __future__ import annotations

import os

os.environ["DLC_CACHE"] = "0"
