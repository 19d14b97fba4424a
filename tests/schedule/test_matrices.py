"""Tensor intrinsics of matrix units: what is described, what runs, and the reference agree."""

from __future__ import annotations

import pytest

from dlc_core.schedule.matrices import matrix_intrin, matrix_tiles
from dlc_core.testing.intrins import check_intrin
from tests.schedule.rules.gpu.test_matrix import unit


@pytest.mark.parametrize("name", ["1x1", "2x1.thread.xat", "1x2.thread.xbt", "1x1.thread.xatbt"])
def test_descriptions_implementations_and_references_agree(name: str) -> None:
    tiles = {t.name: t for t in matrix_tiles(unit("float16", "float32"), "thread.x")}
    (found,) = [t for full, t in tiles.items() if full.endswith(name if "." in name else f"{name}.thread.x")]
    assert (found.rows, found.columns) == (4 * found.down, 4 * found.across)
    check_intrin(matrix_intrin(found))
