from __future__ import annotations

import numpy as np
import pytest

from dlc_core.script import parse, to_script
from dlc_core.tir.interpreter import run
from dlc_core.tir.verify import verify_func


@pytest.fixture
def evaluate():
    """Runs a program on its inputs, with checks, parsed back from its text, and with iterations in both
    orders. Returns the outputs.
    """

    def evaluated(func, *inputs, outputs, externs=None, scalars=()):
        verify_func(func, level=2)
        texts = parse(*to_script(func))
        results = []
        for program, reverse in ((func, False), (texts, False), (func, True)):
            made = [np.zeros(shape, type_) for shape, type_ in outputs]
            run(program, *inputs, *made, *scalars, externs=externs, check=True, reverse=reverse)
            results.append(made)
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                np.testing.assert_array_equal(a, b)
        return results[0] if len(outputs) > 1 else results[0][0]

    return evaluated
