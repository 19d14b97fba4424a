"""The extension interface of dlc: everything that a plugin can add, as pluggy hook specifications.

A plugin is a module or an object that an installed distribution names in the entry-point group `dlc`:

    [project.entry-points.dlc]
    npu = "dlc_backend_npu.plugin"

Its hooks *return declarations*: values with a `name`.  Importing a plugin registers nothing.  A hook is
called at most once per session and never on a hot path.  It should build small values and import heavy
modules only when they are used.  If even the declaration's module is slow to import, return a `Deferred`:

    from dlc_core.hooks import Deferred, hookimpl

    DLC_API = "0.1"  # the version of this interface, or a range: ">=0.1,<0.3"; see docs/stability.md

    @hookimpl
    def dlc_targets():
        return [NPU_KIND]

    @hookimpl
    def dlc_devices():
        return [Deferred("npu", "dlc_backend_npu.device:DEVICE")]

The declarations of a plugin keep their order.  The core's declarations come first, then those of plugins
sorted by name.  If two plugins declare the same name in one category, asking for the name is an error that
lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

import pluggy

API_VERSION = (0, 1)
"""Version of this interface. It runs plugins for itself and for the minor version before, from 1.0 on for all
earlier versions of the major one (`plugin.api_version`).
"""

PROJECT = "dlc"
"""The entry-point group and the pluggy project name."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Declaration(Protocol):
    """The return type of every hook: any value with a name that is unique in its category."""

    @property
    def name(self) -> str: ...


class Frontend(Declaration, Protocol):
    """A reader of models: `load` takes a path, bytes or an in-memory model and returns an `IRModule`.

    `suffixes` are the file suffixes that it reads, in lower case and with the dot.  Every frontend takes
    `context["shapes"]`.  An attribute `options` lists the other context entries that it takes: "importers"
    (see `dlc_importers`) and "taps" (names of nodes or values that become additional outputs).

    An optional method `digest(model, context)` returns a text that names the content of a model, such as a
    checksum of its files, without importing it, or None for a model whose content has no lasting name.
    Results of compiles are cached only for models with a digest; `dlc cache explain` says what lacks one.

    An attribute `runs_files` that is True says that a file can make its reader run code, for example because
    the reader unpickles. Then dlc reads files and bytes only with `trust=True`.
    """

    @property
    def suffixes(self) -> tuple[str, ...]: ...

    @property
    def load(self) -> Callable[[Any, Any], Any]: ...


@dataclass(frozen=True)
class Command:
    """A command of the command line: `dlc <name>`.

    `entry` is `"package.module:function"`, imported when the command runs or shows its help; the function's
    annotated parameters are its options, as typer reads them.  `help` is the one line that `dlc --help`
    shows.

    >>> Command("greet", "dlc_backend_npu.cli:greet", "Say hello to the device.").name
    'greet'
    """

    name: str
    entry: str
    help: str

    def load(self) -> Callable[..., Any]:
        """Import and return the function; an exception of its module passes through."""
        function: Callable[..., Any] = find_object(self.entry)
        return function


@dataclass(frozen=True)
class Deferred:
    """A declaration that is imported only when it is used.

    Any hook may return it instead of the declaration itself.  `entry` is `"package.module:attribute"`; that
    object must have the same `name`.  A user of another backend then never imports this one.  `known` holds
    attributes that dlc reads before it imports the declaration, such as `host_rank` of a target kind.

    >>> Deferred("npu", "dlc_backend_npu.kind:KIND", {"host_rank": 0}).name
    'npu'
    """

    name: str
    entry: str
    known: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def load(self) -> Any:
        """Import and return the declaration; an exception of its module passes through."""
        return find_object(self.entry)


@dataclass(frozen=True)
class TrustedKey:
    """A public key whose signatures of artefacts are accepted, as `dlc keys` prints it.

    >>> TrustedKey("releases", "ed25519:AAAAC3NzaC1lZDI1NTE5AAAAIBQ8z0_7nCYKoLRp1fQ").name
    'releases'
    """

    name: str
    key: str


@dataclass(frozen=True)
class Namespace:
    """A module that is an attribute of `dlc_core`: `dlc_core.<name>`.

    `entry` is `"package.module"`, imported when the attribute is used for the first time.

    >>> Namespace("npu", "dlc_backend_npu.api").name
    'npu'
    """

    name: str
    entry: str

    def load(self) -> Any:
        """Import and return the module; an exception of its own passes through."""
        return find_object(self.entry)


def find_object(entry: str) -> Any:
    """Import and return the object at `"package.module:attribute"`; without an attribute, the module."""
    module, _, attributes = entry.partition("[")[0].partition(":")
    found: Any = import_module(module.strip())
    for name in filter(None, attributes.strip().split(".")):
        found = getattr(found, name)
    return found


@hookspec
def dlc_ops() -> Iterable[Declaration]:
    """Operators: signature, type inference, reference, lowering, samples.

    Example: `return [npu_gelu]` with `npu_gelu` an op declared through `dlc_core.op.declare`.
    """
    raise NotImplementedError


@hookspec
def dlc_rules() -> Iterable[Declaration]:
    """Rewrite rules over the graph: pattern, replacement, condition.

    Example: `return [fold_double_transpose]`.
    """
    raise NotImplementedError


@hookspec
def dlc_passes() -> Iterable[Declaration]:
    """Pass classes; a class attribute gives the position in the pipeline.

    Example: `return [PackForNpu]`.
    """
    raise NotImplementedError


@hookspec
def dlc_plans() -> Iterable[Declaration]:
    """Classes of plans, which graph passes attach to nodes and schedule rules read (`dlc_core.ir.plan`).

    Example: `return [NpuTiles]`.
    """
    raise NotImplementedError


@hookspec
def dlc_dtypes() -> Iterable[Declaration]:
    """Element types of at most 16 bits: code, conversions, arithmetic (`dlc_core.ir.dtype_decl`).

    Example: `return [DTypeDecl("posit8", 8, "float", decode, encode)]`.
    """
    raise NotImplementedError


@hookspec
def dlc_quant_formats() -> Iterable[Declaration]:
    """Formats of weights in packed groups: element, group, scale, zero point, layout (`op.quant_format`).

    Example: `return [QuantFormat("npu3", "uint3", 64, "float16", zero=True)]`.
    """
    raise NotImplementedError


@hookspec
def dlc_frontends() -> Iterable[Frontend]:
    """Readers of model files: `name`, `suffixes`, `load(model, context) -> IRModule`.

    Example: `return [NpuNet(name="npunet", suffixes=(".nnet",))]`.
    """
    raise NotImplementedError


@hookspec
def dlc_importers() -> Iterable[Declaration]:
    """Importers of operators that a frontend does not know; the frontend documents how to write one.

    Example: `return [swish]` with `swish` a function under the frontend's own `@operator("com.npu::Swish")`.
    """
    raise NotImplementedError


@hookspec
def dlc_targets() -> Iterable[Declaration]:
    """Target kinds: option schema and description record.  Creating one never touches hardware.

    Example: `return [TargetKind("npu", codegen="npu", device="npu")]`.
    """
    raise NotImplementedError


@hookspec
def dlc_target_tags() -> Iterable[Declaration]:
    """Names of targets, such as those of boards: `dlc.Target("npu/card")`.

    Example: `return [TargetTag("npu/card", "npu -mcpu=big -slots=8", "the usual card")]`.
    """
    raise NotImplementedError


@hookspec
def dlc_codegens() -> Iterable[Declaration]:
    """Code generators: `emit(module, target) -> artifact`, pure, without hardware.

    Example: `return [NpuCodegen()]`.
    """
    raise NotImplementedError


@hookspec
def dlc_devices() -> Iterable[Declaration]:
    """Devices that run artefacts: `alloc free write read load launch sync`.

    Example: `return [NpuDevice()]`; a device opens its hardware on first use, not in this hook.
    """
    raise NotImplementedError


@hookspec
def dlc_schedule_rules() -> Iterable[Declaration]:
    """Rules that choose a schedule from a target's description record.

    Example: `return [TileForNpu()]`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def dlc_schedule(kernel: Any, target: Any) -> Any:
    """Return a schedule for one kernel: a Trace of primitives (or its JSON), or None. An object with such a
    `trace` (or None) may have an `origin`, a line for `dlc explain` that says where the schedule comes from,
    and `refused`, lines with the reasons why others were not taken.

    After None dlc calls the next plugin, then applies the schedule rules.  If a primitive refuses the trace,
    the rules schedule the kernel and `dlc explain` shows the reason.

    Example: `return database.get((structural_hash(kernel), str(target)))`.
    """


@hookspec
def dlc_decisions(target: Any) -> Any:
    """Return options for decisions of graph passes, by decision; called once for a compile.

    A key names a decision and, after a "/", the shapes and attributes that it concerns
    (`Decision.recordable`); the value is the label of an option. An option that is not legal is ignored, and
    a decision that a user forces is not changed.

    Example: `return database.decisions(str(target))`.
    """
    raise NotImplementedError


@hookspec
def dlc_schedule_state() -> str:
    """Return a text that changes whenever the plugin's answers to `dlc_schedule` or `dlc_decisions` may.

    Compiled models and kernels are cached under the texts of all plugins. If a plugin answers one of the two
    and not this hook, nothing is cached while it is installed.

    Example: `return f"{database.stat().st_mtime_ns}"`.
    """
    raise NotImplementedError


@hookspec
def dlc_tuners() -> Iterable[Declaration]:
    """Tuners, which search for schedules: `tune(subject, target, **options)`. `dlc_core.tune` calls one.

    Example: `return [Deferred("npu-tuner", "dlc_npu.tuner:TUNER")]`.
    """
    raise NotImplementedError


@hookspec
def dlc_search_spaces() -> Iterable[Declaration]:
    """Search spaces of a tuner: `fits(task)`, `generate(schedule, choose, task)`; the tuner documents them.

    Example: `return [NpuTiles()]`.
    """
    raise NotImplementedError


@hookspec
def dlc_search_strategies() -> Iterable[Declaration]:
    """Search strategies of a tuner: `start(task, space, seed)`; the tuner documents them.

    Example: `return [Annealing()]`.
    """
    raise NotImplementedError


@hookspec
def dlc_measures() -> Iterable[Declaration]:
    """How the cost of a kernel on a target kind is measured, instead of by the time of its runs:
    `measure(exe, inputs, repeat) -> (costs, outputs)`. The name is that of the target kind.

    Example: `return [Measure("npu", count_cycles, unit="cycles")]` with `Measure` of the tuner.
    """
    raise NotImplementedError


@hookspec
def dlc_records() -> Iterable[Declaration]:
    """Records of a tuner that a package ships: `path` is a file of JSON lines.

    Example: `return [RecordFile("npu-zoo", Path(__file__).with_name("records.jsonl"))]`.
    """
    raise NotImplementedError


@hookspec
def dlc_tensor_intrins() -> Iterable[Declaration]:
    """Tensor intrinsics, which schedules name in `tensorize`: description, implementation, reference.

    Example: `return [TensorIntrin("npu.mma16", desc, impl, reference)]`.
    """
    raise NotImplementedError


@hookspec
def dlc_foreign_functions() -> Iterable[Declaration]:
    """Functions outside of dlc that programs call by name: C symbols, Python callables, texts in a language.

    Example: `return [ForeignFunction("npu.reset", "(int64 slot)", [CSymbol("libnpu.so.1", "npu_reset")])]`
    of `dlc_core.foreign`.
    """
    raise NotImplementedError


@hookspec
def dlc_partitioners() -> Iterable[Declaration]:
    """External code generators: patterns and predicates of the regions that they take, and their compiler.

    This hook is called when a model is compiled, so it may import the modules that patterns need.

    Example: `return [Partitioner("npu-blas", "npu", patterns=[matmul_bias], compile=compile_region)]`.
    """
    raise NotImplementedError


@hookspec
def dlc_watchers() -> Iterable[Declaration]:
    """Observers of passes: called before and after each one.

    Example: `return [CountNodes()]`.
    """
    raise NotImplementedError


@hookspec
def dlc_commands() -> Iterable[Command]:
    """Commands for the command line.

    Example: `return [Command("npu-info", "dlc_backend_npu.cli:info", "Show the attached devices.")]`.
    """
    raise NotImplementedError


@hookspec
def dlc_knobs() -> Iterable[Declaration]:
    """Configuration: `dlc_core.config.Knob` values, read from `DLC_<NAME>` and listed by `dlc config`.

    Example: `return [Knob("npu_slots", int, 4, "Slots of the command queue.")]`.
    """
    raise NotImplementedError


@hookspec
def dlc_namespaces() -> Iterable[Declaration]:
    """Modules that `dlc_core` has as attributes: `dlc_core.NAME` is the object.

    Example: `return [Namespace("npu", "dlc_npu.api")]`.
    """
    raise NotImplementedError


@hookspec
def dlc_trusted_keys() -> Iterable[Declaration]:
    """Public keys whose holders may sign artefacts that `dlc.open` accepts.

    Example: `return [TrustedKey("releases", "ed25519:...")]`; `dlc keys new` prints such a key.
    """
    raise NotImplementedError


@hookspec
def dlc_expectations() -> Iterable[Declaration]:
    """Exemptions from the conformance kit, each with a reason: unsupported, or expected to fail.

    Example: `return [Unsupported("npu: float64", reason="the device has no double precision")]`.
    """
    raise NotImplementedError


@hookspec
def dlc_models() -> Iterable[Declaration]:
    """Models with inputs and expected outputs, which the conformance kit runs on every target.

    Example: `return [Models("npu-zoo", load_cases)]` of `dlc_core.testing.models`.
    """
    raise NotImplementedError


__all__ = [
    "API_VERSION",
    "PROJECT",
    "Command",
    "Declaration",
    "Deferred",
    "Frontend",
    "Namespace",
    "TrustedKey",
    "hookimpl",
    "hookspec",
]
