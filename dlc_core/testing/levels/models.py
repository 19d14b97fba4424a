"""Level `models`: networks have the results of the ops' references, or given expected results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from dlc_core.target import Target
from dlc_core.testing.levels.base import Level, Parameters, Record, Settings
from dlc_core.testing.models import Models, all_models
from dlc_core.testing.runner import check_outcomes, run_cases


def _groups(settings: Settings) -> Sequence[Any]:
    return [
        pytest.param(group, id=group.name, marks=[pytest.mark.slow] if group.slow else [])
        for group in all_models().values()
        if not settings.dtypes or not group.dtype or group.dtype in settings.dtypes
    ]


class ModelsLevel(Level):
    """Tests of the core's networks in all float dtypes of the target, and of the models of the hook
    `dlc_models`.
    """

    level: ClassVar[str] = "models"
    parameters: ClassVar[dict[str, Parameters]] = {"group": _groups}

    def test_models(self, group: Models, target: Target, record: Record) -> None:
        if not group.is_for(target):
            pytest.skip(f"{target.kind.name} does not compute in {group.dtype}")
        check_outcomes(record(run_cases(group.named(), target)))


__all__ = ["ModelsLevel"]
