"""Ordinary tests as checks: those of schedule primitives, of passes over tensor programs and of ops' shapes.

Random programs catch the errors of a primitive and give up what it refuses: that a right program is accepted,
and that a loop is cut where it should be, these tests say.  Tests that compare whole texts with kept ones are
left out: they would notice what changes no result.
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
"""The files of tests, beside this folder."""


class FailedTestError(Exception):
    """One of the tests of a file fails."""


def ordinary_checks() -> Iterator[Check]:
    """One check for each file."""
    for file in FILES:
        yield Check(f"tests/{file}", partial(_passes, Path(__file__).parents[1] / file))


def _passes(file: Path) -> int:
    """Run the tests of a file in this process, which has a folder of its own for what they write."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, TMPDIR=folder),
        mock.patch.object(tempfile, "tempdir", None),
    ):
        options = ["-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider"]
        # Modules that this process has are not read again to have their assertions rewritten.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        if pytest.main([*options, "--rootdir", str(file.parents[2]), str(file)]):
            raise FailedTestError(file.name)
    return 0


__all__ = ["FILES", "FailedTestError", "ordinary_checks"]
