"""Common parts of the levels: settings, command-line options, parametrisation, cases, exemptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from dlc_core.config import config as knobs
from dlc_core.target import Target
from dlc_core.testing.expectations import Unsupported
from dlc_core.testing.limits import limited, scaled
from dlc_core.testing.properties import OUTCOMES, TALLY, TEST
from dlc_core.testing.runner import UNSUPPORTED, Outcome, expectations_of, kind_of, usable_target
from dlc_core.testing.where import Tally, Where

Record = Callable[[list[Outcome]], list[Outcome]]
RanOn = Callable[[Where], None]
Parameters = Callable[["Settings"], Sequence[Any]]


@dataclass(frozen=True)
class Settings:
    """The settings of a suite. Empty `dtypes` and `ops` mean all."""

    target: str
    dtypes: tuple[str, ...] = ()
    fast_dtypes: tuple[str, ...] = ()
    fast_symbolic: int = 0
    """The number of samples of each op that fast tests run with symbolic dims; 0 is all. Other samples are
    slow tests.
    """
    graphs: int = 40
    ops: tuple[str, ...] = ()
    fraction: float = 0.0
    """The fraction of the declared roofline that level 5 requires."""
    guard: str = ""
    """The guard mode, if any (see `runtime.guard.mode`)."""
    limit_factor: float = 1.0
    """Multiplies the time limits of `testing.limits`."""

    def with_options(self, config: pytest.Config) -> Settings:
        """The settings with the options of the command line."""

        def items(option: str) -> tuple[str, ...]:
            text: str = config.getoption(option, default="")
            return tuple(word.strip() for word in text.split(",") if word.strip())

        dtypes = items("--dlc-dtypes")
        fraction: float | None = config.getoption("--dlc-fraction", default=None)
        factor: float | None = config.getoption("--dlc-limit-factor", default=None)
        return replace(
            self,
            target=config.getoption("--dlc-target", default="") or self.target,
            dtypes=dtypes or self.dtypes,
            fast_dtypes=() if dtypes else self.fast_dtypes,
            fast_symbolic=0 if items("--dlc-ops") else self.fast_symbolic,
            ops=items("--dlc-ops") or self.ops,
            fraction=self.fraction if fraction is None else fraction,
            guard=config.getoption("--dlc-guard", default="") or self.guard,
            limit_factor=self.limit_factor if factor is None else factor,
        )


class Level:
    """The base of the tests of a level. `parameters` maps the names of test parameters to functions that
    return values.
    """

    settings: ClassVar[Settings]
    level: ClassVar[str] = ""
    parameters: ClassVar[dict[str, Parameters]] = {}
    by_test: ClassVar[bool] = False
    """Whether each test is a case `<level>/<test>`, which exemptions can name."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        settings = self.settings.with_options(metafunc.config)
        owner = owner_of(type(self), metafunc.function.__name__)
        for name, values in owner.parameters.items() if owner else ():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values(settings))

    @pytest.fixture
    def conformance(self, request: pytest.FixtureRequest) -> Settings:
        """The settings of the suite, with the options of the command line."""
        return self.settings.with_options(request.config)

    @pytest.fixture(autouse=True)
    def guard(self, conformance: Settings) -> Iterator[None]:
        """Guard mode, if the suite or the command line requests it."""
        with knobs.override(**({"guard": conformance.guard} if conformance.guard else {})):
            yield

    @pytest.fixture(autouse=True)
    def time_limits(self, request: pytest.FixtureRequest, conformance: Settings) -> Iterator[None]:
        """The time limits of cases. A test that is a case has the limit of its level."""
        owner, test = owner_of(request.cls, request.node.originalname), request.node.originalname
        with scaled(conformance.limit_factor):
            if owner is None or not owner.by_test:
                yield
                return
            with limited(case_of(owner, test), owner.level):
                yield

    @pytest.fixture(autouse=True)
    def exempt(self, request: pytest.FixtureRequest, conformance: Settings) -> None:
        """Describe the test to the report. If the test is a case, skip it if it is `Unsupported`, and require
        that an `ExpectedFailure` fails.
        """
        owner = owner_of(request.cls, request.node.originalname)
        if owner is None:
            return
        case = case_of(owner, request.node.originalname)
        described = [conformance.target, owner.level, case, conformance.limit_factor]
        request.node.user_properties.append((TEST, described))
        if not owner.by_test:
            return
        expected = expectations_of(kind_of(conformance.target)).of(case)
        if isinstance(expected, Unsupported):
            pytest.skip(f"{UNSUPPORTED}: {expected.reason}")
        elif expected is not None:
            request.applymarker(pytest.mark.xfail(strict=True, reason=expected.reason))

    @pytest.fixture
    def record(self, request: pytest.FixtureRequest) -> Record:
        """A function that records outcomes for the report, and returns them."""

        def add(outcomes: list[Outcome]) -> list[Outcome]:
            tally = Tally()
            for each in outcomes:
                if each.where is not None:
                    tally.add(each.case, each.where)
            request.node.user_properties.append((TALLY, tally.record()))
            if _is_reported(request):
                request.node.user_properties.append((OUTCOMES, [each.record() for each in outcomes]))
            return outcomes

        return add

    @pytest.fixture
    def ran_on(self, request: pytest.FixtureRequest) -> RanOn:
        """A function that records where a test that is a case runs."""

        def add(where: Where) -> None:
            owner = owner_of(request.cls, request.node.originalname)
            assert owner is not None
            tally = Tally()
            tally.add(case_of(owner, request.node.originalname), where)
            request.node.user_properties.append((TALLY, tally.record()))  # the last one counts

        return add

    @pytest.fixture
    def target(self, conformance: Settings) -> Target:
        """The target under test. If this machine cannot run it, the test is skipped with the reason."""
        return usable_target(conformance.target)


def _is_reported(request: pytest.FixtureRequest) -> bool:
    options = (request.config.getoption(name, default="") for name in ("--dlc-report", "--dlc-badge"))
    return any(options)


def owner_of(suite: type, test: str) -> type[Level] | None:
    """The level that a test of a suite comes from."""
    for owner in suite.__mro__:
        if test in vars(owner) and issubclass(owner, Level):
            return owner
    return None


def case_of(owner: type[Level], test: str) -> str:
    """The case name of a test."""
    return f"{owner.level}/{test.removeprefix('test_')}"


def tests_of(owner: type[Level]) -> list[str]:
    """The names of a level's own tests."""
    return [name for name in vars(owner) if name.startswith("test_")]


__all__ = [
    "Level",
    "Parameters",
    "RanOn",
    "Record",
    "Settings",
    "case_of",
    "owner_of",
    "tests_of",
]
