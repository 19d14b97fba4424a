"""What the tiers share: settings, options of the command line, parametrisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from dlc_core.target import Target
from dlc_core.testing.runner import Outcome, usable_target

Note = Callable[[list[Outcome]], list[Outcome]]
Parameters = Callable[["Settings"], Sequence[Any]]


@dataclass(frozen=True)
class Settings:
    """What a suite tests.  Empty dtypes and ops mean all."""

    target: str
    dtypes: tuple[str, ...] = ()
    fast_dtypes: tuple[str, ...] = ()
    graphs: int = 40
    ops: tuple[str, ...] = ()

    def narrowed(self, config: pytest.Config) -> Settings:
        """With what the command line says."""

        def words(option: str) -> tuple[str, ...]:
            text: str = config.getoption(option, default="")
            return tuple(word.strip() for word in text.split(",") if word.strip())

        dtypes = words("--dlc-dtypes")
        return replace(
            self,
            target=config.getoption("--dlc-target", default="") or self.target,
            dtypes=dtypes or self.dtypes,
            fast_dtypes=() if dtypes else self.fast_dtypes,
            ops=words("--dlc-ops") or self.ops,
        )


class Tier:
    """Tests of one tier.  A parameter of a test is a name in `parameters`, which gives its values."""

    settings: ClassVar[Settings]
    tier: ClassVar[str] = ""
    parameters: ClassVar[dict[str, Parameters]] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        settings = self.settings.narrowed(metafunc.config)
        for owner in type(self).__mro__:
            if metafunc.function.__name__ in vars(owner) and issubclass(owner, Tier):
                for name, values in owner.parameters.items():
                    if name in metafunc.fixturenames:
                        metafunc.parametrize(name, values(settings))
                return

    @pytest.fixture
    def conformance(self, request: pytest.FixtureRequest) -> Settings:
        """The settings of the suite, narrowed by the command line."""
        return self.settings.narrowed(request.config)

    @pytest.fixture
    def note(self, request: pytest.FixtureRequest) -> Note:
        """Keeps outcomes for the table of `--dlc-report`, and hands them on."""

        def keep(outcomes: list[Outcome]) -> list[Outcome]:
            if request.config.getoption("--dlc-report", default=False):
                kept = [[o.case, o.status, o.why] for o in outcomes]
                request.node.user_properties.append(("dlc-outcomes", kept))
            return outcomes

        return keep

    @pytest.fixture
    def target(self, conformance: Settings) -> Target:
        """The target under test; a skip with the reason where this machine cannot run it."""
        return usable_target(conformance.target)


__all__ = ["Note", "Parameters", "Settings", "Tier"]
