"""The whole extension surface: what a plugin may give, as pluggy hook specifications.

A plugin is a module or an object that an installed distribution names in the entry-point group `dlc`:

    [project.entry-points.dlc]
    npu = "dlc_backend_npu.plugin"

Its hooks *return declarations*: values with a `name`.  Importing a plugin registers nothing, a hook is called
at most once per session and never on a hot path, so it should build small values and leave heavy imports to
their use.  Where even the declaration's module takes time to import, `Deferred` stands for it:

    from dlc_core.hooks import Deferred, hookimpl

    DLC_API = "0.1"  # the interface it was written for; another one is a clear error

    @hookimpl
    def dlc_targets():
        return [NPU_KIND]

    @hookimpl
    def dlc_devices():
        return [Deferred("npu", "dlc_backend_npu.device:DEVICE")]

The order of a plugin's declarations is kept; between plugins the core comes first, then the others by
name.  A name given twice in one category is an error that names every claimant, raised when the name is asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

import pluggy

API_VERSION = (0, 1)
"""Version of this interface: below 1.0 a minor version is compatible with itself alone, later a major one."""

PROJECT = "dlc"
"""The entry-point group and the pluggy project name."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Declaration(Protocol):
    """What every hook returns: anything with a name that is unique in its category."""

    @property
    def name(self) -> str: ...


class Frontend(Declaration, Protocol):
    """A reader of models: `load` takes a path, bytes or an in-memory model and gives an `IRModule`.

    `suffixes` are the file endings it answers to, with the dot and in lower case.  A frontend that takes more
    than `context["shapes"]` names what it takes in an attribute `options`: "importers" (see
    `dlc_importers`), "taps" (names of nodes or values that become outputs too, behind the others).
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
        """The function itself; raises whatever importing its module raises."""
        function: Callable[..., Any] = find_object(self.entry)
        return function


@dataclass(frozen=True)
class Deferred:
    """A declaration by name alone: where it lies is imported when somebody asks for it.

    Any hook may return it in the declaration's place.  `entry` is `"package.module:attribute"`, and what it
    names has the same name.  Whoever uses another backend then never imports this one.  `known` holds
    attributes that are compared before one of several declarations is chosen, as `host_rank` is for targets:
    those who choose read them here.

    >>> Deferred("npu", "dlc_backend_npu.kind:KIND", {"host_rank": 0}).name
    'npu'
    """

    name: str
    entry: str
    known: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def load(self) -> Any:
        """What lies there; raises whatever importing its module raises."""
        return find_object(self.entry)


def find_object(entry: str) -> Any:
    """What `"package.module:attribute.attribute"` names, or the module where no attribute is named."""
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
    """Pass classes; a class attribute says at which place of the pipeline it stands.

    Example: `return [PackForNpu]`.
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
    """Importers of operators that a frontend does not know by itself; the frontend says how they are made.

    Example: `return [swish]` with `swish` a function under the frontend's own `@operator("com.npu::Swish")`.
    """
    raise NotImplementedError


@hookspec
def dlc_targets() -> Iterable[Declaration]:
    """Target kinds: option schema and description record.  Making one never touches hardware.

    Example: `return [TargetKind("npu", codegen="npu", device="npu")]`.
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

    Example: `return [NpuDevice()]`; a device opens its hardware on first use, not here.
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
    """A tuner's answer for one kernel: a Trace of schedule primitives (or its JSON), or None to leave it to
    the next plugin or the rules.  One that a primitive refuses is left to the rules too, and the reason kept.

    Example: `return database.get((structural_hash(kernel), str(target)))`.
    """


@hookspec
def dlc_tensor_intrins() -> Iterable[Declaration]:
    """Tensor intrinsics, which schedules name in `tensorize`: description, implementation, reference.

    Example: `return [TensorIntrin("npu.mma16", desc, impl, reference)]`.
    """
    raise NotImplementedError


@hookspec
def dlc_partitioners() -> Iterable[Declaration]:
    """External code generation: the patterns and predicates of the regions it takes, and their compiler.

    Asked when something is compiled, so this is the place for imports that patterns need.

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
def dlc_expectations() -> Iterable[Declaration]:
    """Exemptions from the conformance kit, each with its reason: unsupported for good, or expected to fail.

    Example: `return [Unsupported("npu: float64", reason="the device has no double precision")]`.
    """
    raise NotImplementedError


@hookspec
def dlc_models() -> Iterable[Declaration]:
    """Models with inputs and what must come out, which the conformance kit tries on every target.

    Example: `return [Models("npu-zoo", load_cases)]` of `dlc_core.testing.models`.
    """
    raise NotImplementedError


__all__ = ["API_VERSION", "PROJECT", "Command", "Declaration", "Deferred", "Frontend", "hookimpl", "hookspec"]
