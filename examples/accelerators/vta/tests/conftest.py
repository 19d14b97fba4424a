"""Fixtures that isolate the tests and make them deterministic."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ["DLC_CACHE"] = "0"

settings.register_profile("vta", deadline=None, derandomize=True, max_examples=25, database=None)
settings.load_profile("vta")
