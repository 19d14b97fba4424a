"""Tests keep to themselves, and are the same each time."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ["DLC_CACHE"] = "0"

settings.register_profile("vta", deadline=None, derandomize=True, max_examples=25, database=None)
settings.load_profile("vta")
