"""The sample of `make test` is stable, and fits in its budget."""

from __future__ import annotations

from pathlib import Path

from tests.sampling import BUDGET, LONGEST, Timing, function_of, list_of, read_list, sample

ROOT = Path(__file__).parents[1]
CASES = [f"tests/test_a.py::TestB::test_c[{i}-[x]]" for i in range(100)]
TAKEN = {"tests.test_a.TestB.test_c": Timing(100 * BUDGET / 5, 100)}


def test_a_function_is_named_as_in_junit_files():
    assert function_of("tests/test_a.py::TestB::test_c[x::y/z.py]") == "tests.test_a.TestB.test_c"


def test_the_sample_fits_in_the_budget_and_does_not_depend_on_the_order():
    chosen = sample([*CASES, "tests/test_a.py::test_d"], TAKEN)
    assert "tests/test_a.py::test_d" in chosen
    assert len(chosen) == 5 + 1
    assert sample([*reversed(CASES), "tests/test_a.py::test_d"], TAKEN) == chosen


def test_one_case_is_kept_unless_it_takes_too_long():
    for each, kept in ((BUDGET * 1.1, 1), (LONGEST, 1), (LONGEST * 1.1, 0)):
        assert len(sample(CASES[:10], {"tests.test_a.TestB.test_c": Timing(each * 10, 10)})) == kept


def test_the_list_is_made_of_junit_files(tmp_path):
    case = "<testcase classname='tests.test_a.TestB' name='test_{}[{}]' time='1'/>"
    first, rest = tmp_path / "first.xml", tmp_path / "rest.xml"
    first.write_text(f"<s>{case.format('c', 1)}{case.format('d', 1)}</s>")
    rest.write_text(f"<s>{case.format('c', 2)}</s>")
    assert list_of([first, rest]) == "2.0 2 tests.test_a.TestB.test_c\n"


def test_the_list_names_existing_tests():
    for function in read_list():
        parts = function.split(".")
        module = next(i for i, part in enumerate(parts) if part.startswith("test_"))
        path = ROOT.joinpath(*parts[: module + 1]).with_suffix(".py")
        assert path.is_file(), f"{function}: make tests/long_tests.txt again"
