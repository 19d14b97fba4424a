"""The comparison of generated code finds differences, and equal compilers generate equal text."""

from __future__ import annotations

from pathlib import Path

from tests.generated_code import TARGETS, compare, main, programs, record


def test_two_records_of_one_compiler_are_equal(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert record(tmp_path / name, "ops/softmax/0/float32") >= len(TARGETS)
    assert list(compare(tmp_path / "a", tmp_path / "b")) == []


def test_differences_are_shown_with_their_lines(tmp_path: Path) -> None:
    for name, text in (("a/x.txt", "one\ntwo\n"), ("b/x.txt", "one\n2\n"), ("a/y.txt", ""), ("b/z.txt", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shown = list(compare(tmp_path / "a", tmp_path / "b"))
    assert [one.splitlines()[0] for one in shown] == ["x.txt: changed", "y.txt: missing", "z.txt: new"]
    assert "-two" in shown[0]
    assert "+2" in shown[0]
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 0


def test_every_nth_sample_and_all_networks_are_recorded() -> None:
    names = [name for name, _ in programs("relu", every=3)]
    assert len(names) < len([name for name, _ in programs("relu")])
    assert {"networks/mlp", "blocks/encoder"} <= {name for name, _ in programs(every=100)}
