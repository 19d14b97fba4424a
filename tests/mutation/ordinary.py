"""Ordinary tests as checks: those of schedule primitives, of passes over tensor programs and of ops' shapes.

Random programs find wrong results of a primitive, but skip what it refuses. These tests check that right
programs are accepted, and that loops are split at the right index. Tests that compare texts with golden files
are excluded, because they also detect equivalent mutants.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from tests.mutation.check import Check

_FOLDERS = {
    "schedule": "primitives more_primitives refusals legality split trim stages recurrence several_values"
    " tensorize bounded_dims found_by_chance regions analysis threads tensor_copy matrices",
    "passes/tir": "partition strided unroll vectorize compact common storage no_ops",
    "passes": "workspace limit_nms positions tir_lowering",
    "op": "assumptions symbolic_attrs sizes scatter reference",
}
FILES = tuple(f"{folder}/test_{name}.py" for folder, names in _FOLDERS.items() for name in names.split())
"""The files of tests, relative to the parent of this folder."""


class FailedTestError(Exception):
    """One of the tests of a file fails."""


def ordinary_checks() -> Iterator[Check]:
    """One check for each file."""
    for file in FILES:
        yield Check(f"tests/{file}", partial(_passes, Path(__file__).parents[1] / file))


def _passes(file: Path) -> int:
    """Run the tests of a file in this process, whose working folder is temporary."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, TMPDIR=folder),
        mock.patch.object(tempfile, "tempdir", None),
    ):
        options = ["-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider"]
        # Modules that are already imported are not imported again to rewrite their assertions.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        if pytest.main([*options, "--rootdir", str(file.parents[2]), str(file)]):
            raise FailedTestError(file.name)
    return 0


__all__ = ["FILES", "FailedTestError", "ordinary_checks"]
