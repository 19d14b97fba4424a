"""The battery notices changes of index arithmetic, and leaves the code as it is alone."""

from __future__ import annotations

import pytest

from tests.mutation.mutants import mutants_of, verdict

pytest.importorskip("dlc_backend_llvm", reason="kernels run in guard mode on the backend for this machine")


def test_the_code_as_it_is_passes():
    assert verdict(None) == "survived"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function", "kind"),
    [
        ("dlc_core.passes.tir.flatten", "offset", "self.settled(stride): another operator"),
        ("dlc_core.op.std.pool", "_window_reduction", "o * s: another operator"),
        ("dlc_core.passes.tir.unroll", "_one_by_one", "loop.begin + step: another operator"),
    ],
)
def test_a_mutant_is_noticed(module, function, kind):
    (mutant, *_) = [m for m in mutants_of(module) if m.function[-1] == function and m.kind.endswith(kind)]
    assert verdict(mutant) != "survived"
