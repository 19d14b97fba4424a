"""Random nested branches and loops over various shapes and dtypes, compared with the reference."""

from __future__ import annotations

import pytest

from dlc_core.testing.control_programs import check_random_control


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_control_flow():
    for seed in range(4):
        check_random_control(seed, "llvm")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(4, 100))
def test_more_random_control_flow(seed):
    check_random_control(seed, "llvm")
