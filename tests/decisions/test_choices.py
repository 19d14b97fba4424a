"""Choices as values: candidates with their predicted costs and refusals, and their text."""

from __future__ import annotations

from dlc_core import decisions
from dlc_core.decisions import CHOICES, MAX_CANDIDATES, Candidate, Choice, Decision, forced, scope, unrecorded
from dlc_core.diag import Span
from dlc_core.driver.choices import with_graph_choices

TILE = Decision("test.tile", "For these tests.", ("one", "many"), has_values=True)
WAY = Decision("test.way", "For these tests.", ("left", "right"))
for each in (TILE, WAY):  # other tests list only the decisions of the compiler
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
    assert len(costs) == MAX_CANDIDATES
    assert choice.chosen == Candidate("many", "3", 100.0)
    reasons = [one.refused for one in choice.candidates if one.refused]
    assert reasons[0] == "needs 10; registers of 9"
    assert len(reasons) == MAX_CANDIDATES


def test_a_choice_is_read_back_from_its_text_and_can_be_forced():
    choice = pick()
    assert Choice.parse(choice.full()) == choice
    assert Choice.parse(str(choice)) == Choice("test.tile", "many", "3")
    with forced(Choice.parse(choice.full()).forcing):
        again = pick(preferred=1)
    assert again.value == "3"
    assert again.preferred == "one 1"
    assert again.chosen == choice.chosen
    assert Choice.parse(again.full()) == again


def test_why_is_one_line():
    assert pick().why() == "test.tile=3: 100 cycles predicted; next 2 +10%"
    with forced("test.tile=2"):
        assert pick().why() == "test.tile=2: forced; preferred many 3"


def test_the_chosen_candidate_is_recorded_even_if_others_are_cheaper():
    assert pick(preferred=9).chosen == Candidate("many", "9", 160.0)


def test_costs_in_another_unit_than_cycles():
    with scope("kernel") as made:
        WAY.choose("left", cost={"left": 2048.0, "right": 4096.0}.__getitem__, unit="bytes")
    assert made[0].why() == "test.way=left: 2.05k bytes predicted; next right +100%"
    assert Choice.parse(made[0].full()) == made[0]


def test_costs_are_not_computed_outside_of_a_scope():
    def cost(size: int) -> float:
        raise AssertionError("costs explain a choice; they do not make it")

    assert TILE.pick(3, lambda: range(9), kind, cost=cost) == 3


def test_small_differences_have_enough_digits():
    def next_of(*costs: float) -> str:
        kept = tuple(Candidate("many", str(n), cost) for n, cost in enumerate(costs, 2))
        return Choice("test.tile", "many", "2", candidates=kept).why().rpartition("; ")[2]

    assert next_of(1000, 1100) == "next 3 +10%"
    assert next_of(1000, 1004) == "next 3 +0.4%"
    assert next_of(100000, 100003) == "next 3 +0.003%"
    assert next_of(1000, 990) == "next 3 -1%"
    assert next_of(1000, 1000) == "next 3 same"
    assert next_of(10, 1280) == "next 3 128 times as much"


def test_candidates_of_equal_value_are_identified_by_their_alternatives():
    kept = Candidate("one", "7", 10.0), Candidate("many", "7", 11.0), Candidate("many", "8", 12.0)
    choice = Choice("test.tile", "one", "7", candidates=kept)
    assert choice.forcing == "test.tile=one 7"
    assert choice.why() == "test.tile=one 7: 10 cycles predicted; next many 7 +10%"
    with forced(choice.forcing), scope("kernel") as made:
        TILE.pick(8, lambda: [7, 8], lambda size: "one" if size == 7 else "many")
    assert (made[0].alternative, made[0].value) == ("one", "7")


def test_a_forced_text_that_matches_no_candidate_is_recorded():
    with forced("test.tile=40"):
        choice = pick()
    assert (choice.value, choice.missing, choice.preferred) == ("3", "40", "")
    assert str(choice) == "test.tile=many 3 (no candidate: 40)"
    assert Choice.parse(choice.full()) == choice
    assert choice.why() == "test.tile=3: 40 was forced and is no candidate here"


def test_a_refused_value_that_was_forced_says_why():
    with forced("test.tile=9"), scope("kernel") as made:
        TILE.pick(3, lambda: [3, 4], kind, refused=lambda size: "too tall", compared=lambda: [3, 4, 9])
    assert made[0].why() == "test.tile=3: 9 was forced and is no candidate here, too tall"


def test_choices_name_model_nodes():
    spans = [Span("model", "conv1"), Span("model", "conv1"), Span("model", "relu")]
    with forced("test.way@relu=right"), scope("main") as made:
        assert WAY.choose("left", spans=spans) == "right"
        assert WAY.choose("left", spans=spans[:2]) == "left"
        assert WAY.choose("left", spans=spans[:2]) == "left"
    assert [one.nodes for one in made] == [("conv1", "relu"), ("conv1",)]


def test_unrecorded_choices():
    with scope("main") as made:
        with unrecorded():
            WAY.choose("left")
        assert made == []


def test_a_decision_is_forced_in_one_kernel():
    with forced("test.way@kernel=right"):
        with scope("kernel"):
            assert WAY.choose("left") == "right"
        with scope("other"):
            assert WAY.choose("left") == "left"


def test_sites_have_the_choices_of_their_nodes_in_the_order_of_the_compile() -> None:
    made = [
        Choice("test.layout", "wide", nodes=("a", "b")),
        Choice("test.layout", "narrow", nodes=("c",)),
        Choice("test.split", "four", nodes=("b", "c")),
        Choice("test.layout", "wide", nodes=("a", "b")),
        Choice("test.split", "two"),
    ]
    sites = with_graph_choices([{"nodes": ("c", "a")}, {"nodes": ("b",), "kernel": "k"}, {}], made)
    wide, narrow, four = (made[i].full() for i in (0, 1, 2))
    assert [site[CHOICES] for site in sites] == [[wide, narrow, four], [wide, four], []]
    assert sites[1]["kernel"] == "k"
