"""The result of a compile as data: interface, code, weights, and how it was made.

It is what files contain, and what explanations and memory bounds are computed from. An `Executable` is one
that can be called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.runtime.memory.host import NDArray
from dlc_core.target import Artifact, Target
from dlc_core.target.confined import quiet

if TYPE_CHECKING:
    from dlc_core.runtime.call.checked import Caller
    from dlc_core.runtime.host_program.program import Program

SAVE_HINT = "exe.save, or `dlc compile -o NAME.dlc`, writes a file for dlc.open"

DEVICE_HINT = "compile for the device and a host whose code generator exports, in `targets`"
"""The hint for a model that is on a device as a whole."""

ENTRIES, PART = "entries", "part"
"""The key, in `about`, of the entry points by name. Each has the symbol and the signature of code of this
executable, or the name of a part; the part "" is the executable itself."""

MEMORY = "memory"
"""The key of the recorded memory of calls, as JSON data (see `CallMemory.record`)."""

IR_FORMS = ("graph", "tir")
"""The forms of `source` that are Python text."""

WORK, HOST_WORK = "work", "host_work"
"""The keys, in `about`, of the work (`target.cost.Work`) of a graph whose kernels are not known, and of the
records of the nodes that a host program computes on the host, in the order of `host_nodes`.

The record of a view is None.
"""


class CompiledModel:
    """A compiled model, as data.

    `program` is the host program, if parts of the model run on the host or on other devices. `regions` has
    the models of other devices by name, `parts` the functions that were compiled separately. If `device` is
    None, the model cannot run here, but it can be saved and exported. `about` has facts of the compile that
    files keep; `report` has those that they do not keep: seconds, the cache.
    """

    def __init__(
        self,
        signature: Signature,
        artifact: Artifact,
        weights: NDArray,
        target: Target,
        device: Any,
        *,
        codegen: Any = None,
        entry: str = "main",
        num_threads: int = 1,
        report: Mapping[str, Any] | None = None,
        about: Mapping[str, Any] | None = None,
        program: Program | None = None,
        sources: Mapping[str, Callable[[], str]] | None = None,
        regions: Mapping[str, CompiledModel] | None = None,
        parts: Mapping[str, CompiledModel] | None = None,
    ) -> None:
        self.signature = signature
        self.artifact = artifact
        self.weights = weights
        self.target = target
        self.device = device
        self.codegen = codegen
        self.entry = entry
        self.num_threads = num_threads
        self.about: Mapping[str, Any] = about or {}
        self.report: dict[str, Any] = dict(report or {})
        if MEMORY in self.about:
            self.report.setdefault(MEMORY, self.about[MEMORY])
        self.program = program
        self.regions: Mapping[str, CompiledModel] = regions or {}
        self.parts: Mapping[str, CompiledModel] = parts or {}
        self._sources = dict(sources or {})

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Names, shapes and dtypes of the inputs, in the order of a call."""
        return self.signature.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Names, shapes and dtypes of the outputs."""
        return self.signature.outputs

    @property
    def num_threads(self) -> int:
        """The number of threads of a call. It may be set at any time and applies to later calls."""
        return self._threads

    @num_threads.setter
    def num_threads(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"num_threads is {value!r}", hint="give an integer of at least 1")
        self._threads = value

    @property
    def target_text(self) -> str:
        """The targets of its parts, that of the host last."""
        others = (*self.regions.values(), *self.parts.values())
        found = dict.fromkeys(str(each.target) for each in (*others, self))
        return ", ".join(found)

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the entry points for `exe[name]`; empty if `exe` is the only one."""
        return tuple(self.about.get(ENTRIES, ()))

    def add_sources(self, sources: Mapping[str, Callable[[], str]]) -> None:
        """Add forms for `source`. They are computed on request."""
        self._sources.update(sources)

    def source(self, form: str) -> str:
        """Readable code: the code generator's forms, and forms of the compiler such as "tir" and "graph".

        Regions of other targets that have the form follow, each after a comment with its name and target.
        Raises UsageError for other forms. The error lists the available ones, and says how an artefact can
        keep more.
        """
        own = self._own_source(form)
        parts = [] if own is None else [own]
        for name, region in self.regions.items():
            if form in region.forms:
                mark = "#" if form in IR_FORMS else "//"
                parts.append(f"{mark} {name} for {region.target}\n{region.source(form)}")
        if parts:
            return "\n".join(parts)
        known = self.forms
        forms = [f for f in getattr(self.codegen, "forms", ()) if f not in known]
        kept = f'exe.save(path, sources=["{forms[0]}"]) keeps more in an artefact' if forms else ""
        have = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"no source {form!r}", hint="; ".join(filter(None, (f"this executable has: {have}", kept)))
        )

    @property
    def forms(self) -> set[str]:
        """The forms that `source` has, besides those that the code generator can derive."""
        own = {*self._sources, *self.artifact.sources}
        return own.union(*(region.forms for region in self.regions.values()))

    def _own_source(self, form: str) -> str | None:
        """The code of this executable without regions; None if it does not have the form."""
        made = self._sources.get(form) or self.artifact.sources.get(form)
        if made is not None:
            return made if isinstance(made, str) else made()
        derive = getattr(self.codegen, "source", None)
        with quiet(self.artifact):
            text = None if derive is None else derive(self.artifact, form)
        return None if text is None else str(text)


class LoadableModel(CompiledModel, ABC):
    """A compiled model whose code can be loaded into a device of this process."""

    regions: Mapping[str, LoadableModel]

    @abstractmethod
    def loaded_caller(self) -> Caller:
        """The call path. The code is loaded if it is not yet."""

    @abstractmethod
    def loaded_entry(self, symbol: str) -> Any:
        """An entry point of the loaded code. Raises ArtifactError if there is none with this name."""


def check_exportable(model: CompiledModel, programs: bool = False) -> None:
    """Raise UnsupportedError, with the reasons, unless all of a model is native code on compact tensors. With
    `programs` it may have regions on devices.
    """
    if model.parts:
        raise UnsupportedError(
            "functions of this executable are compiled separately",
            details=[f"part {name!r} runs on {part.target_text}" for name, part in model.parts.items()],
            hint=f'{SAVE_HINT}; export the functions one by one: exe["{model.entries[-1]}"].export(path)',
        )
    if model.program is not None and not (programs and model.regions):
        host = model.about.get("host", ())
        sized = host and all(each["op"] == "first_of" for each in host) and not model.regions
        raise UnsupportedError(
            "parts of this model run on the host, in Python",
            details=[
                *(f"{each['op']} ({', '.join(each['nodes'])}): {each['why']}" for each in host),
                *(f"{name} runs on {region.target}" for name, region in model.regions.items()),
            ],
            hint="compile with config={'bounded_results': True}: such results become buffers of their largest"
            " size, and the numbers of their elements further results"
            if sized
            else f"{SAVE_HINT}; to export, end the model before these nodes, or"
            " have sizes that depend on the inputs' shapes and elements",
        )
    if model.signature.donated or model.signature.updates:
        raise UnsupportedError(
            "inputs are donated, and exported code has memory of its own for each output",
            hint=f"{SAVE_HINT}; or compile without `donate`",
        )


__all__ = [
    "DEVICE_HINT",
    "ENTRIES",
    "HOST_WORK",
    "MEMORY",
    "PART",
    "SAVE_HINT",
    "WORK",
    "CompiledModel",
    "LoadableModel",
    "check_exportable",
]
