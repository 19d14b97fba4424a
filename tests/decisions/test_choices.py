"""Choices as values: candidates with their predicted costs and refusals, and their text."""

from __future__ import annotations

from dlc_core import decisions
from dlc_core.decisions import MOST_CANDIDATES, Candidate, Choice, Decision, forced, scope

TILE = Decision("test.tile", "For these tests.", ("one", "many"), has_values=True)
WAY = Decision("test.way", "For these tests.", ("left", "right"))
for each in (TILE, WAY):  # other tests list the decisions of the compiler alone
    del decisions._declared[each.name]


def kind(size: int) -> str:
    return "one" if size == 1 else "many"


def pick(preferred: int = 3) -> Choice:
    with scope("kernel") as made:
        TILE.pick(
            preferred,
            lambda: range(1, 20),
            kind,
            cost=lambda size: 100.0 + 10 * abs(size - 3),
            refused=lambda size: f"needs {size} | registers\nof 9" if size > 9 else "",
        )
    return made[0]


def test_candidates_have_costs_or_reasons():
    choice = pick()
    costs = [one.cost for one in choice.candidates if not one.refused]
    assert costs == sorted(costs)
    assert len(costs) == MOST_CANDIDATES
    assert choice.chosen == Candidate("many", "3", 100.0)
    reasons = [one.refused for one in choice.candidates if one.refused]
    assert reasons[0] == "needs 10; registers of 9"
    assert len(reasons) == MOST_CANDIDATES


def test_a_choice_is_read_back_from_its_text_and_can_be_forced():
    choice = pick()
    assert Choice.parse(choice.full()) == choice
    assert Choice.parse(str(choice)) == Choice("test.tile", "many", "3")
    with forced(Choice.parse(choice.full()).forcing):
        again = pick(preferred=1)
    assert again.value == "3"
    assert again.instead_of == "one 1"
    assert again.chosen == choice.chosen
    assert Choice.parse(again.full()) == again


def test_one_line_says_why():
    assert pick().why() == "test.tile=3: 100 cycles predicted; next 2 +10%"
    with forced("test.tile=2"):
        assert pick().why() == "test.tile=2: forced; preferred many 3"


def test_the_chosen_candidate_is_kept_though_others_are_cheaper():
    assert pick(preferred=9).chosen == Candidate("many", "9", 160.0)


def test_another_measure_than_cycles():
    with scope("kernel") as made:
        WAY.choose("left", cost={"left": 2048.0, "right": 4096.0}.__getitem__, unit="bytes")
    assert made[0].why() == "test.way=left: 2.05k bytes predicted; next right +100%"
    assert Choice.parse(made[0].full()) == made[0]


def test_costs_are_not_computed_where_nothing_is_recorded():
    def cost(size: int) -> float:
        raise AssertionError("costs explain a choice; they do not make it")

    assert TILE.pick(3, lambda: range(9), kind, cost=cost) == 3


def test_a_decision_is_forced_in_one_kernel():
    with forced("test.way@kernel=right"):
        with scope("kernel"):
            assert WAY.choose("left") == "right"
        with scope("other"):
            assert WAY.choose("left") == "left"
