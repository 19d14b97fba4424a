# ruff: noqa: N803
"""A plugin with every hook of the interface 0.1, each giving one declaration.  It is frozen."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dlc_core.backend import Partitioner, RegionPattern, SimulatedDevice, SourceCodegen
from dlc_core.config import Knob
from dlc_core.foreign import ForeignFunction, PythonCallable
from dlc_core.graph import Function, param
from dlc_core.hooks import Command, Namespace, TrustedKey, hookimpl
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.module import IRModule
from dlc_core.ir.plan import Plan
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import FLOATS, Attr, op
from dlc_core.op.infer import same_type
from dlc_core.op.lower import elementwise
from dlc_core.op.quant_format import QuantFormat
from dlc_core.op.samples import unary_samples
from dlc_core.passes import Pass
from dlc_core.rewrite import Rule, const_var, match_op, var
from dlc_core.schedule import TensorIntrin
from dlc_core.schedule.rules.base import ScheduleRule
from dlc_core.script import T
from dlc_core.target import Description, Option, TargetKind, TargetTag
from dlc_core.testing import ExpectedFailure, Unsupported
from dlc_core.testing.cases import Case, Trial
from dlc_core.testing.models import Models

DLC_API = "0.1"

SEEN = []
"""The calls, in order."""

TIMES = op(
    "frozen_times",
    "x times factor",
    ["x"],
    [Attr("factor", "float", 2.0)],
    kind="elementwise",
    infer=same_type(FLOATS),
    reference=lambda x, *, factor: x * x.dtype.type(factor),
    lower=elementwise("frozen_times", lambda x, *, factor: x * factor),
    samples=unary_samples(),
)


def half_byte(value):
    return value & 15


def half(x):
    return x / 2


def model(size=8):
    x = param("x", tensor_type((4, size)))
    return IRModule({"main": Function("main", (x,), TIMES.build(x, factor=3.0))})


class Codegen(SourceCodegen):
    name, kinds, format = "frozen", ("frozen",), "frozen-source"


class Device(SimulatedDevice):
    name, formats = "frozen", ("frozen-source",)
    memory_bytes = 1 << 24


def describe(options):
    return Description(vector_bits=128, vector_registers=16, fma=True, cores=options["cores"], parallel=False)


KIND = TargetKind(
    "frozen",
    doc="a target that stays as it is",
    codegen="frozen",
    device="frozen",
    options=(Option("cores", "int", 1, "cores of the device"),),
    describe=describe,
)


class Counts(Pass):
    """Changes nothing and says that it ran."""

    name, after = "frozen_counts", "begin"

    def run(self, module, context):
        SEEN.append("pass")
        return module


class Reader:
    name, suffixes = "frozen", (".frozen",)

    def load(self, model_, context=None):
        SEEN.append("frontend")
        text = model_.read_text() if hasattr(model_, "read_text") else str(model_)
        return model(int(text))


class Importer:
    name = "frozen::Op"


class Vectors(ScheduleRule):
    """The innermost loop as one vector."""

    name, priority = "frozen.vector", 950

    def matches(self, func, machine):
        return machine.lanes(32) > 1

    def apply(self, schedule, machine):
        (block,) = schedule.get_blocks()
        *_, innermost = schedule.get_loops(block)
        _, inner = schedule.split(innermost, [None, machine.lanes(32)])
        schedule.vectorize(inner)


@dataclass(frozen=True)
class Rows(Plan):
    name: ClassVar[str] = "frozen.rows"
    count: int

    def lower(self, type_, attrs, *tensors):
        return TIMES.lower(type_, attrs, *tensors)


@T.prim_func
def desc(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.serial(8):
        with T.block("update"):
            vi = T.axis.remap("S", [i])
            T.reads(A[vi])
            T.writes(B[vi])
            B[vi] = A[vi] + A[vi]


@T.prim_func
def doubled(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.vectorized(8):
        B[i] = A[i] + A[i]


def reference(a, b):
    b[...] = a + a


class Watcher:
    name = "frozen"

    def before(self, one, module, context):
        SEEN.append("watcher")

    def after(self, one, module, context):
        """Nothing."""


def command() -> None:
    """Say that it was called."""
    SEEN.append("command")


SLOTS = Knob("frozen_slots", int, 4, "Slots of the queue.")


def has_eight_rows(found, target):
    SEEN.append("partitioner")
    return found["w"].tensor_type.shape[0] == 8 or "not of 8 rows"


def cases():
    made = model()
    x = np.ones((4, 8), np.float32)
    yield Case("triple", made, [Trial([x], [x * 3])], {"float32": (1e-6, 0.0)})


@hookimpl
def dlc_ops():
    return [TIMES]


@hookimpl
def dlc_rules():
    once = match_op("neg", var("x"))
    return [Rule("frozen_neg_neg", match_op("neg", once), var("x"), doc="-(-x) = x", dtypes=("int32",))]


@hookimpl
def dlc_passes():
    return [Counts]


@hookimpl
def dlc_plans():
    return [Rows]


@hookimpl
def dlc_frontends():
    return [Reader()]


@hookimpl
def dlc_importers():
    return [Importer()]


@hookimpl
def dlc_targets():
    return [KIND]


@hookimpl
def dlc_codegens():
    return [Codegen()]


@hookimpl
def dlc_devices():
    return [Device()]


@hookimpl
def dlc_schedule_rules():
    return [Vectors()]


@hookimpl
def dlc_schedule(kernel, target):
    SEEN.append("schedule")


@hookimpl
def dlc_decisions(target):
    return {}


@hookimpl
def dlc_schedule_state():
    return "frozen"


class Searching:
    """A tuner, a space, a strategy, a measure and a file of records in one."""

    name = "frozen"
    path = "frozen.jsonl"

    def tune(self, subject, target, **options):
        return subject, target, options

    def fits(self, task):
        return ""

    def generate(self, schedule, choose, task):
        schedule.unroll(choose("loop", schedule.get_loops(schedule.get_blocks()[0])))

    def start(self, task, space, seed):
        return iter(())

    def measure(self, exe, inputs, repeat):
        return [1.0] * repeat, exe(*inputs)


@hookimpl
def dlc_tuners():
    return [Searching()]


@hookimpl
def dlc_namespaces():
    return [Namespace("frozen", "math")]


@hookimpl
def dlc_trusted_keys():
    return [TrustedKey("frozen", "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")]


@hookimpl
def dlc_search_spaces():
    return [Searching()]


@hookimpl
def dlc_search_strategies():
    return [Searching()]


@hookimpl
def dlc_measures():
    return [Searching()]


@hookimpl
def dlc_records():
    return [Searching()]


@hookimpl
def dlc_tensor_intrins():
    return [TensorIntrin("frozen.double", desc, doubled, reference)]


@hookimpl
def dlc_foreign_functions():
    return [ForeignFunction("frozen.half", "(float32 x) -> float32", [PythonCallable(half)], pure=True)]


@hookimpl
def dlc_partitioners():
    dense = match_op("matmul", var("x"), const_var("w"))
    return [Partitioner("frozen-dense", "frozen", [RegionPattern("dense", dense, has_eight_rows)])]


@hookimpl
def dlc_watchers():
    return [Watcher()]


@hookimpl
def dlc_commands():
    return [Command("frozen", "tests.compat.interface_0_1.every_hook:command", "Say that it was called.")]


@hookimpl
def dlc_knobs():
    return [SLOTS]


@hookimpl
def dlc_expectations():
    return [
        Unsupported("frozen: float64", reason="no double precision"),
        ExpectedFailure("frozen: ops/softmax/*/float16", reason="for the test"),
    ]


@hookimpl
def dlc_dtypes():
    return [
        DTypeDecl(
            "frozen4",
            4,
            "uint",
            lambda codes: codes,
            lambda values: values & 15,
            lambda code: code,
            half_byte,
        )
    ]


@hookimpl
def dlc_quant_formats():
    return [QuantFormat("frozen4", "frozen4", 16, "float16", zero=True)]


@hookimpl
def dlc_models():
    return [Models("frozen", cases)]


@hookimpl
def dlc_target_tags():
    return [TargetTag("frozen/board", "frozen -cores=2", "a board for the test")]
