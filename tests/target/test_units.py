"""Memory scopes with capacities, and units, in a description."""

from __future__ import annotations

import pytest

from dlc_core.diag import TargetError
from dlc_core.target import Description, MemoryScope, Unit
from dlc_core.target.units import LOAD, PRODUCT, STORE, VECTOR

PAD = MemoryScope("pad", bytes=1 << 16, banks=16, align=64)


def test_names_and_declarations_of_scopes_are_mixed() -> None:
    machine = Description(memory_scopes=("global", "local", PAD))
    assert machine.scope_names == ("global", "local", "pad")
    assert machine.capacities == {"pad": 1 << 16}
    assert machine.scope("pad") is PAD
    assert machine.scope("local") == MemoryScope("local")
    assert machine.scope("shared") is None


def test_descriptions_differ_by_capacities() -> None:
    other = MemoryScope("pad", bytes=1 << 15, banks=16, align=64)
    first, second = (Description(memory_scopes=("global", each)) for each in (PAD, other))
    assert first != second
    assert repr(first) != repr(second)  # keys of the caches are made from this text


def test_a_buffer_takes_whole_banks() -> None:
    assert PAD.bank_bytes == 4096
    assert [PAD.taken(size) for size in (1, 4096, 4097)] == [4096, 4096, 8192]
    assert MemoryScope("pad", bytes=1 << 16, align=64).taken(65) == 128


def test_cycles_of_units() -> None:
    copy = Unit("load", LOAD, rate=32, latency=64)
    assert copy.copy_cycles(runs=7, run_bytes=28) == 64 + 7
    assert copy.copy_cycles(runs=1, run_bytes=196) == 64 + 7
    assert copy.copy_cycles(1, 64, MemoryScope("pad", bandwidth=8, latency=10)) == 10 + 8
    array = Unit("array", PRODUCT, shape=(16, 8), startup=5)
    assert array.product_cycles(rows=49, columns=64, depth=147) == 5 + 49 * 8 * 10
    assert array.product_cycles(rows=1, columns=8, depth=16) == 5 + 16
    assert array.product_cycles(rows=64, columns=4, depth=8) == 5 + 64
    both = Unit("dma", (LOAD, STORE), rate=8)
    assert both.works == (LOAD, STORE)
    assert str(both) == "dma (load, store)"
    assert Unit("vector", VECTOR, rate=16, startup=8).vector_cycles(100, 3) == 8 + 3 * 7


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: MemoryScope("", 1), "name is empty"),
        (lambda: MemoryScope("pad", -1), "out of range"),
        (lambda: MemoryScope("pad", 100, banks=3), "not 3 equal banks"),
        (lambda: MemoryScope("pad", 1024, banks=2, align=384), "no multiple of the alignment"),
        (lambda: Unit("u", "fly"), "of load, store, product, vector"),
        (lambda: Unit("u", LOAD, rate=0), "out of range"),
        (lambda: Unit("u", PRODUCT), "an array has two sizes"),
        (lambda: Unit("u", LOAD, shape=(4, 4)), "an array has two sizes"),
        (lambda: Description(units=(Unit("u", LOAD),)).unit("v"), "units: u"),
    ],
)
def test_wrong_numbers_are_refused(make, text: str) -> None:
    with pytest.raises(TargetError, match=text):
        make()
