"""The page of everything that `emit` may receive agrees with what code generators receive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dlc_core as dlc
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Expr, Load, const_value, post_order
from dlc_core.ir.module import IRModule
from dlc_core.plugin.registry import fresh_registry
from dlc_core.target import Artifact, Description, Option, TargetKind
from dlc_core.testing.cases import op_cases, symbolic_cases
from dlc_core.testing.emit_grammar import constructs, known, page
from dlc_core.testing.networks import cifar, mlp
from dlc_core.tir.functor import exprs_of, stmts, stmts_of
from dlc_core.tir.stmt import Alloc, For, PrimFunc, Store

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "emit.md"
MACHINES = {
    "vectors": Description(vector_bits=256, cores=2, fma=True),
    "scalar": Description(parallel=False),
    "control": Description(vector_bits=128, control=True, cores=2),
    "threads": Description(
        thread_axes={"block.x": 1 << 30, "block.y": 1 << 16, "thread.x": 256, "thread.y": 256},
        memory_scopes=("global", "local", "shared"),
        group_threads=256,
        shared_bytes=16 << 10,
        parallel=False,
        cores=8,
    ),
}
OPS = ("add", "softmax", "conv", "max_pool", "gather", "cumsum", "where", "matmul", "resize", "lrn")


class Recorder:
    """A code generator that keeps the modules it receives."""

    name, kinds, format = "recorder", ("recorder",), "recorded"

    def __init__(self) -> None:
        self.received: list[IRModule] = []

    def emit(self, module: IRModule, target: dlc.Target) -> Artifact:
        self.received.append(module)
        return Artifact(self.format, b"", str(target), symbols=(module.entry,))

    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self) -> list[TargetKind]:
        machine = Option("machine", "str", "vectors", "the described machine")
        return [
            TargetKind("recorder", "records", "recorder", "", (machine,), lambda o: MACHINES[o["machine"]])
        ]

    @hookimpl
    def dlc_codegens(self) -> list[Recorder]:
        return [self]


def models() -> Iterator[IRModule]:
    yield mlp()
    yield cifar()
    for name in OPS:
        decl = dlc.ops()[name]
        for cases in (op_cases(decl, ("float32",)), symbolic_cases(decl, ("float32",))):
            case = next(iter(cases), None)
            if case is not None:
                yield case.module


@pytest.fixture(scope="module", params=MACHINES)
def received(request: pytest.FixtureRequest) -> tuple[str, list[IRModule]]:
    recorder = Recorder()
    with fresh_registry({"recorder": recorder}):
        for model in models():
            dlc.compile(model, f"recorder -machine={request.param}", cache=False)
    assert len(recorder.received) >= len(OPS)
    return request.param, recorder.received


def test_the_page_is_generated() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(written), "run: python -m dlc_core.testing.emit_grammar docs/internals/emit.md"


def test_modules_have_only_what_the_page_lists(received: tuple[str, list[IRModule]]) -> None:
    _, modules = received
    found = set().union(*map(constructs, modules))
    assert found <= known()
    assert {"Store", "For serial", "Binary add", "Call kernel.", "Call clock"} <= found


def test_entry_points_have_the_listed_parameters(received: tuple[str, list[IRModule]]) -> None:
    _, modules = received
    for module in modules:
        main = module[module.entry]
        names = [buffer.name for buffer in main.buffers]
        assert names[-2:] == ["weights", "arena"]
        assert {buffer.dtype.name for buffer in main.buffers[-2:]} == {"uint8"}
        assert all(scalar.dtype.name == "int64" for scalar in main.scalars)
        assert main.params == (*main.buffers, *main.scalars)
        profiled = module[f"{module.entry}__profile"]
        assert [buffer.name for buffer in profiled.buffers] == [*names, "profile"]


def test_kernels_have_the_listed_form(received: tuple[str, list[IRModule]]) -> None:
    machine, modules = received
    for module in modules:
        for name, func in module.of_kind(PrimFunc).items():
            assert name.isidentifier()
            loads = [e for s in stmts(func.body) for root in exprs_of(s) for e in _loads(root)]
            if not name.startswith(module.entry):  # a kernel: entry points have the shapes of the model
                assert all(len(access.indices) <= 1 for access in loads)
                assert all(len(store.indices) <= 1 for store in stmts_of(func.body, Store))
            for loop in stmts_of(func.body, For):
                inner = [each.kind for each in stmts_of(loop.body, For)]
                assert loop.kind != "parallel" or "parallel" not in inner
                assert loop.kind != "unrolled" or const_value(loop.extent) is not None
                assert loop.kind != "parallel" or MACHINES[machine].parallel
                assert loop.kind != "thread" or MACHINES[machine].thread_axes
            scopes = {each.buffer.scope for each in stmts_of(func.body, Alloc)}
            assert scopes <= set(MACHINES[machine].memory_scopes)
            lanes = {e.dtype.lanes for e in loads}
            assert lanes <= {1} or MACHINES[machine].vector_bits or MACHINES[machine].thread_axes


def _loads(root: Expr) -> Iterator[Load]:
    return (e for e in post_order(root) if isinstance(e, Load))
