"""The parts of a host program in C: its devices, its steps, its constants and the code of its regions."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlc_core.backend.deploy.dims import matched
from dlc_core.backend.deploy.memory import ALIGN
from dlc_core.backend.deploy.plan import plan_of
from dlc_core.backend.deploy.text import StepsText
from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.foreign.needed import check_exported
from dlc_core.runtime.artefact.compiled import SAVE_HINT
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.library import DEVICE_FAILED
from dlc_core.runtime.memory.host import NDArray, aligned_bytes
from dlc_core.target.device_runtime import DeviceRuntime

if TYPE_CHECKING:
    from dlc_core.runtime.artefact.compiled import CompiledModel

_FOLDER = Path(__file__).parent / "c"
HEADERS = (_FOLDER / "dlc_device.h", _FOLDER / "dlc_host.h", _FOLDER / "dlc_launches.h")
"""The headers of exported models and of runtimes: the interface of devices, what host programs share, and a
reader of lists of launches."""


class ProgramParts:
    """The host program of a model, as data.

    Raises UnsupportedError, with all reasons, if parts of the model need Python, if a device has no C
    runtime, or if sizes are known only at run time.
    """

    def __init__(self, model: CompiledModel, name: str, failed: str = str(DEVICE_FAILED)) -> None:
        """`name` is the prefix of its functions, `failed` the result of `<name>_open` and of the model if a
        device fails, as C.
        """
        assert model.program is not None
        self.name = name
        self.failed = failed
        self.model = model
        _check_runtimes(model)
        self.devices: list[tuple[DeviceRuntime, str]] = list(
            dict.fromkeys((_runtime(region), str(region.target)) for region in model.regions.values())
        )
        """The devices, each with its target."""
        self.numbers = {
            region_name: self.devices.index((_runtime(region), str(region.target)))
            for region_name, region in model.regions.items()
        }
        function = model.program.function(model.weights)
        self.plan = plan_of(model, function, self.numbers)
        types = zip((p.tensor_type for p in function.params), (v.type for v in model.signature.inputs))
        self.text = StepsText(name, self.plan, model.signature, matched(types))
        self.signature: Signature = replace(
            model.signature, arena_size=self.text.workspace, sites=tuple(self.plan.sites)
        )
        """The signature of the model; its scratch memory is the workspace of the program."""
        self.entry = f"{name}_host"
        """The name of its entry point."""

    @property
    def segments(self) -> tuple[str, ...]:
        """The native segments that it calls."""
        return () if self.model.program is None else tuple(self.model.program.segments)

    @property
    def runtimes(self) -> tuple[DeviceRuntime, ...]:
        """The runtimes of its devices."""
        return tuple(dict.fromkeys(runtime for runtime, _ in self.devices))

    @cached_property
    def weights(self) -> NDArray:
        """The weights of the model, followed by those of its regions."""
        offsets, end = self.weight_offsets
        if end == self.model.weights.nbytes:
            return self.model.weights
        made = aligned_bytes(end)
        made[:] = 0
        made[: self.model.weights.nbytes] = np.frombuffer(self.model.weights, np.uint8)
        for region_name, region in self.model.regions.items():
            at = offsets[region_name]
            made[at : at + region.weights.nbytes] = np.frombuffer(region.weights, np.uint8)
        return made

    @cached_property
    def weight_offsets(self) -> tuple[dict[str, int], int]:
        """The offsets of the regions' weights, and the end of the last."""
        end, found = self.model.weights.nbytes, {}
        for region_name, region in self.model.regions.items():
            found[region_name] = aligned(end) if region.weights.nbytes else 0
            end = found[region_name] + region.weights.nbytes if region.weights.nbytes else end
        return found, end

    @cached_property
    def code(self) -> bytes:
        """The code of all regions. Raises the errors of the runtimes' `code`."""
        made = bytearray()
        for data in self.codes.values():
            made += bytes(-len(made) % ALIGN) + data
        return bytes(made)

    @cached_property
    def codes(self) -> dict[str, bytes]:
        found = {}
        for region_name, region in self.model.regions.items():
            try:
                found[region_name] = bytes(_runtime(region).code(region.artifact))
            except DlcError as error:
                error.details += (f"in {region_name} for {region.target}, which is exported",)
                raise
        return found

    @property
    def code_symbol(self) -> str:
        """The array with the code of all regions."""
        return f"{self.name}_device_code"

    def files(self) -> dict[str, bytes]:
        """The files that `source` includes, and the sources of runtimes, by name. Raises UnsupportedError for
        two files with one name.
        """
        paths = [*HEADERS]
        for runtime in self.runtimes:
            paths += [*runtime.headers, *runtime.sources]
        found: dict[str, bytes] = {}
        for path in dict.fromkeys(map(Path, paths)):
            data = _read(path)
            if found.setdefault(path.name, data) != data:
                raise UnsupportedError(
                    f"two files of device runtimes have the name {path.name}",
                    hint="give the files of a runtime names that begin with the name of the device",
                )
        return found

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of the files that must be compiled besides the program."""
        return tuple(dict.fromkeys(Path(s).name for r in self.runtimes for s in r.sources))

    @property
    def libraries(self) -> tuple[str, ...]:
        """The names of the libraries that must be linked."""
        return tuple(dict.fromkeys(name for runtime in self.runtimes for name in runtime.libraries))


def _runtime(region: CompiledModel) -> DeviceRuntime:
    found = region.target.kind.runtime
    assert found is not None
    return found


def _check_runtimes(model: CompiledModel) -> None:
    """Raise UnsupportedError if a device has no C runtime, or a region cannot be called from C."""
    found = []
    for name, region in model.regions.items():
        check_exported(region.artifact.metadata)
        kind = region.target.kind
        if kind.runtime is None:
            found.append(f"{name} runs on {region.target}, and its target kind declares no C runtime")
        elif region.program is not None:
            found.append(f"{name} for {region.target} has parts that run on the host")
    if found:
        raise UnsupportedError(
            "regions of this model cannot be exported",
            details=found,
            hint=f"a kind declares its runtime by TargetKind(runtime=DeviceRuntime(...)); {SAVE_HINT}",
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnsupportedError(
            f"the file {path.name} of a device's runtime cannot be read", why=str(error)
        ) from None


def aligned(size: int) -> int:
    """The number of bytes up to the next aligned offset."""
    return -(-size // ALIGN) * ALIGN


__all__ = ["HEADERS", "ProgramParts", "aligned"]
