"""The conformance kit of dlc on the card; `pytest --dlc-level 0` runs a part of it."""

import pytest

from dlc_core.testing import conformance_suite

TestDevice = conformance_suite("dpu", levels=("device",))


@pytest.mark.slow
class TestOperators(conformance_suite("dpu", levels=("ops", "graphs"))):
    """Levels 1 and 2: every operator, random graphs."""
