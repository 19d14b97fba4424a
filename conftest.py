"""Tests keep to themselves: no compiled model and no reproducer of theirs lands in the user's own folders."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_FOLDER = tempfile.mkdtemp(prefix="dlc-tests-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
os.environ["DLC_CACHE"] = "0"
os.environ["DLC_CACHE_DIR"] = _FOLDER
