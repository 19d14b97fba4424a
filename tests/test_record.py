"""Records behave like frozen dataclasses; each test runs with both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from dlc_core.support.record import record

MAKERS = {"record": record, "dataclass": dataclasses.dataclass}


@record(frozen=True, order=True)
class Place:
    """A class at the top of the module, so that pickle finds it."""

    line: int
    column: int = 0


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]


@pytest.fixture
def cls(make: Any) -> Any:
    @make(frozen=True)
    class Thing:
        """A record."""

        name: str
        size: int = 1
        parts: list[int] = dataclasses.field(default_factory=list)
        unit: str = dataclasses.field(default="m", kw_only=True)

    return Thing


def test_arguments_are_positional_or_keyword(cls):
    thing = cls("a", size=2)
    assert (thing.name, thing.size, thing.parts, thing.unit) == ("a", 2, [], "m")
    assert cls("a", 2, [3], unit="s") == cls(unit="s", parts=[3], size=2, name="a")
    assert cls("a").parts is not cls("a").parts


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((), {}),
        (("a", 1, [], "s"), {}),
        (("a",), {"name": "b"}),
        (("a",), {"other": 1}),
        ((), {"other": "a"}),
    ],
)
def test_wrong_arguments_are_refused(cls, values, named):
    with pytest.raises(TypeError, match="Thing"):
        cls(*values, **named)


def test_the_refusal_names_the_argument():
    with pytest.raises(TypeError, match="Place: missing a required argument: 'line'"):
        Place()
    with pytest.raises(TypeError, match=r"Place: .*unexpected keyword argument 'row'"):
        Place(1, row=2)


def test_it_is_frozen(cls):
    thing = cls("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'size'"):
        thing.size = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'size'"):
        del thing.size
    assert thing == cls("a")


def test_repr_names_the_fields(cls):
    assert repr(cls("a")).endswith("Thing(name='a', size=1, parts=[], unit='m')")


def test_functions_of_dataclasses_accept_it(cls):
    assert dataclasses.is_dataclass(cls)
    assert [field.name for field in dataclasses.fields(cls)] == ["name", "size", "parts", "unit"]
    assert dataclasses.replace(cls("a"), size=3) == cls("a", 3)
    assert dataclasses.astuple(cls("a")) == ("a", 1, [], "m")
    match cls("a", 2):
        case cls(name, size):
            assert (name, size) == ("a", 2)


def test_the_signature_is_that_of_the_constructor(cls):
    shown = inspect.signature(cls)
    assert list(shown.parameters) == ["name", "size", "parts", "unit"]
    assert shown.parameters["unit"].kind is inspect.Parameter.KEYWORD_ONLY
    assert shown.parameters["size"].default == 1
    assert shown.parameters["name"].default is inspect.Parameter.empty
    assert shown.parameters["name"].annotation == "str"


def test_a_call_of_a_record_keeps_its_own_signature(make):
    @make(frozen=True)
    class Adder:
        """A callable record."""

        first: int

        def __call__(self, second: int) -> int:
            return self.first + second

    assert Adder(1)(2) == 3
    assert list(inspect.signature(Adder(1)).parameters) == ["second"]


def test_values_compare_and_hash_within_one_class(make):
    @make(frozen=True)
    class One:
        """A record of one field."""

        value: int

    @make(frozen=True)
    class Other:
        """A record with a field that is not compared."""

        value: int
        note: str = dataclasses.field(default="", compare=False)

    assert One(1) == One(1) != One(2)
    assert hash(One(1)) == hash(One(1))
    assert One(1) != Other(1)
    assert Other(1, "a") == Other(1, "b")
    assert hash(Other(1, "a")) == hash(Other(1, "b"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(One([1]))


def test_eq_false_compares_by_identity(make):
    @make(frozen=True, eq=False)
    class Node:
        """A record that is equal only to itself."""

        value: int

    one = Node(1)
    assert one == one
    assert one != Node(1)
    assert len({one, Node(1)}) == 2


def test_methods_of_the_class_are_not_replaced(make):
    @make(frozen=True)
    class Own:
        """A record with its own text and equality."""

        value: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "value", abs(self.value))

        def __repr__(self) -> str:
            return f"<{self.value}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

    assert repr(Own(-3)) == "<3>"
    assert Own(1) == Own(2)
    assert hash(Own(1)) == hash(Own(-1))


def test_derived_classes_add_fields(make):
    @make(frozen=True)
    class Base:
        """The first field."""

        a: int

    @make(frozen=True)
    class Derived(Base):
        """The second field."""

        b: int = 2

    assert Derived(1) == Derived(1, 2) != Base(1)
    assert repr(Derived(1)).endswith("Derived(a=1, b=2)")


def test_a_frozen_dataclass_is_derived_from_either(make):
    @make(frozen=True)
    class Base:
        """The first field."""

        a: int = 1

    @dataclasses.dataclass(frozen=True)
    class Derived(Base):
        """The second field."""

        b: int = 2

    assert Derived(3) == Derived(3, 2) != Derived(3, 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Derived().a = 2


def test_a_plain_derived_class_has_further_attributes(make):
    @make(frozen=True)
    class Base:
        """The first field."""

        a: int = 1

    class Plain(Base):
        """A derived class with another attribute."""

    made = Plain(3)
    made.note = "odd"
    assert (made.a, made.note) == (3, "odd")
    del made.note
    assert not hasattr(made, "note")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        made.a = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del made.a


def test_records_are_ordered_copied_and_pickled():
    places = [Place(2, 1), Place(1, 5), Place(2)]
    assert sorted(places) == [Place(1, 5), Place(2), Place(2, 1)]
    assert Place(1) <= Place(1) >= Place(0) < Place(3) > Place(2)
    with pytest.raises(TypeError):
        assert Place(1) < 2
    assert pickle.loads(pickle.dumps(places)) == places  # noqa: S301 (its own bytes)
    assert copy.deepcopy(places) == places


def test_records_must_be_frozen():
    with pytest.raises(TypeError, match="a record is frozen"):
        record(frozen=False)


def test_all_fields_are_arguments():
    class Point:
        x: int
        y: int = dataclasses.field(default=0, init=False)

    with pytest.raises(TypeError, match="are arguments: y"):
        record(frozen=True)(Point)
