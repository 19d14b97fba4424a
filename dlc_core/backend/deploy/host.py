"""Host programs in C: models whose regions run on devices, for exports that need no Python.

    host = HostProgram(exe, "net")
    host.source(weights="net_weights")      the C text of the program
    host.files()                            the headers, and the sources of the devices' runtimes
    host.signature, host.weights            those of the exported model

A code generator whose export contains host programs sets `exports_programs = True`, and has entry points with
the packed signature (`packed`). The program is one more such entry point, `<name>_host__entry`. It calls the
native segments, which are entry points too, and the runtimes of the devices (`c/dlc_device.h`). So the rest
of an export, which calls the entry point of a model, does not change. Weights of regions follow those of the
model. The workspace contains the values on the host and the scratch memory of segments. Memory of devices
belongs to the program: `<name>_close` releases it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlc_core.backend.deploy.dims import matched
from dlc_core.backend.deploy.memory import ALIGN
from dlc_core.backend.deploy.plan import plan_of
from dlc_core.backend.deploy.table import shared_table
from dlc_core.backend.deploy.text import StepsText
from dlc_core.backend.packed import ENTRY_SUFFIX
from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.runtime.artefact.compiled import SAVE_HINT
from dlc_core.runtime.interface.signature import Signature
from dlc_core.runtime.library import DEVICE_FAILED
from dlc_core.runtime.memory.host import NDArray, aligned_bytes
from dlc_core.target.device_runtime import DeviceRuntime
from dlc_core.target.source.tokens import commented, folded, quoted

if TYPE_CHECKING:
    from dlc_core.runtime.artefact.compiled import CompiledModel

_FOLDER = Path(__file__).parent / "c"
HEADERS = (_FOLDER / "dlc_device.h", _FOLDER / "dlc_host.h", _FOLDER / "dlc_launches.h")
"""The headers of exported models and of runtimes: the interface of devices, what host programs share, and a
reader of lists of launches."""


class HostProgram:
    """The host program of a model, as C.

    Raises UnsupportedError, with all reasons, if parts of the model need Python, if a device has no C runtime,
    or if sizes are known only at run time.
    """

    def __init__(self, model: CompiledModel, name: str, failed: str = str(DEVICE_FAILED)) -> None:
        """`name` is the prefix of its functions, `failed` the result of `<name>_open` and of the model if a
        device fails, as C.
        """
        assert model.program is not None
        self.name = name
        self._failed = failed
        self._model = model
        _check_runtimes(model)
        self.devices: list[tuple[DeviceRuntime, str]] = list(
            dict.fromkeys((_runtime(region), str(region.target)) for region in model.regions.values())
        )
        """The devices, each with its target."""
        numbers = {
            region_name: self.devices.index((_runtime(region), str(region.target)))
            for region_name, region in model.regions.items()
        }
        self._numbers = numbers
        self._plan = plan_of(model, numbers)
        function = model.program.function(model.weights)
        types = zip((p.tensor_type for p in function.params), (v.type for v in model.signature.inputs))
        self._text = StepsText(name, self._plan, model.signature, matched(types))
        self.signature: Signature = replace(
            model.signature, arena_size=self._text.workspace, sites=tuple(self._plan.sites)
        )
        """The signature of the model; its scratch memory is the workspace of the program."""
        self.entry = f"{name}_host"
        """The name of its entry point."""

    @property
    def runtimes(self) -> tuple[DeviceRuntime, ...]:
        """The runtimes of its devices."""
        return tuple(dict.fromkeys(runtime for runtime, _ in self.devices))

    @cached_property
    def weights(self) -> NDArray:
        """The weights of the model, followed by those of its regions."""
        offsets, end = self._weight_offsets
        if end == self._model.weights.nbytes:
            return self._model.weights
        made = aligned_bytes(end)
        made[:] = 0
        made[: self._model.weights.nbytes] = np.frombuffer(self._model.weights, np.uint8)
        for region_name, region in self._model.regions.items():
            at = offsets[region_name]
            made[at : at + region.weights.nbytes] = np.frombuffer(region.weights, np.uint8)
        return made

    @cached_property
    def _weight_offsets(self) -> tuple[dict[str, int], int]:
        """The offsets of the regions' weights, and the end of the last."""
        end, found = self._model.weights.nbytes, {}
        for region_name, region in self._model.regions.items():
            found[region_name] = _aligned(end) if region.weights.nbytes else 0
            end = found[region_name] + region.weights.nbytes if region.weights.nbytes else end
        return found, end

    @cached_property
    def code(self) -> bytes:
        """The code of all regions. Raises the errors of the runtimes' `code`."""
        made = bytearray()
        for data in self._codes.values():
            made += bytes(-len(made) % ALIGN) + data
        return bytes(made)

    @cached_property
    def _codes(self) -> dict[str, bytes]:
        found = {}
        for region_name, region in self._model.regions.items():
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

    # Text

    def source(self, *, weights: str = "", code: bool = True, bare: bool = False, shared: bool = False) -> str:
        """The C text of the program.

        `weights` is the array with the weights, for the function `<name>_open`; if it is empty, the caller of
        that function passes them. With `code` the text contains the code of the regions; else the array
        `code_symbol` is defined elsewhere. A `bare` program gets runtimes and the weights of regions from
        the runtime that opens it. A `shared` one has the table that such a runtime reads.
        """
        parts = [
            "/* The host program: it calls native segments, and regions on devices. */",
            self._text.sizes_function(),
            '#include "dlc_host.h"\n',
            *self._declared(bare),
            self._code_array() if code else self._declared_code(),
            self._tables(bare),
            f"static DLC_HOST_LOCAL char {self.name}_text[DLC_HOST_TEXT];\n",
            self._text.steps_function(),
            self._entry(),
            "" if bare else self._functions(weights),
            shared_table(self.name, *self._open_counts(bare)) if shared else "",
        ]
        return "\n".join(part for part in parts if part)

    def declarations(self, *, weights: bool = False) -> str:
        """The declarations of the functions that programs call, for a header. `weights` says that the caller
        passes the weights.
        """
        name = self.name
        devices = ", ".join(f"{runtime.name} ({commented(target)})" for runtime, target in self.devices)
        return f"""\
/* Parts of the model run on devices: {devices}.
   The first call opens them, and loads code and constants, unless {name}_open has done it.  Several threads
   may call the model: they share the devices, and each call has memory of its own there.  {name}_close
   releases everything; no call may be running, and later calls open the devices again.  If a function
   returns {self._failed}, a device failed, and {name}_error returns the reason of the last failure in this
   thread. */
int {name}_open({"const void *weights" if weights else "void"});
void {name}_close(void);
const char *{name}_error(void);
"""

    def _open_counts(self, bare: bool) -> tuple[int, int]:
        """How many devices and regions the runtime that opens a library sets."""
        return (len(self.devices), len(self._model.regions)) if bare else (0, 0)

    def _declared(self, bare: bool) -> list[str]:
        segments = [] if self._model.program is None else list(self._model.program.segments)
        lines = [
            f"int32_t {s}{ENTRY_SUFFIX}(void *const *buffers, const int64_t *scalars, int32_t threads);"
            for s in segments
        ]
        if not bare:
            lines += [f"const dlc_device_api *{r.symbol}(void);" for r in self.runtimes]
        return [*lines, ""]

    def _declared_code(self) -> str:
        return f"extern const uint8_t {self.code_symbol}[];\n"

    def _code_array(self) -> str:
        rows = [self.code[i : i + 24] for i in range(0, len(self.code), 24)]
        lines = "\n".join(f"    {', '.join(map(str, row))}," for row in rows) or "    0,"
        return (
            f"static const uint8_t {self.code_symbol}[] __attribute__((aligned({ALIGN}))) = {{\n{lines}\n}};\n"
        )

    def _tables(self, bare: bool) -> str:
        """The devices, regions and constants."""
        offsets, _ = self._weight_offsets
        devices = [
            f"{quoted(r.name)}, {quoted(target)}, {'NULL' if bare else r.symbol}, NULL, NULL"
            for r, target in self.devices
        ]
        regions, at = [], 0
        for region_name, region in self._model.regions.items():
            data = self._codes[region_name]
            at = _aligned(at)
            words = map(quoted, (region_name, f"{region_name}/weights", region.artifact.format, region.entry))
            place = 0 if bare else offsets[region_name]
            numbers = (self._numbers[region_name], at, len(data), place, region.weights.nbytes)
            regions.append(f"{', '.join([*words, *map(str, numbers)])}, NULL, NULL, NULL, 0")
            at += len(data)
        constants = [f"{device}, {offset}, {size}, 0" for device, offset, size in self._plan.constants]
        slots = ", ".join(map(str, self._plan.frame)) or "0"
        name = self.name
        counts = ", ".join(map(str, (len(devices), len(regions), len(constants), len(self._plan.frame))))
        return "\n".join(
            [
                _array("struct dlc_host_device", f"{name}_devices", devices),
                _array("struct dlc_host_region", f"{name}_regions", regions),
                _array("struct dlc_host_constant", f"{name}_constants", constants),
                *folded(f"static const int32_t {name}_slots[] = {{{slots}}};"),
                f"static struct dlc_host {name}_host = {{",
                f"    DLC_HOST_UNLOCKED 0, {self.code_symbol}, {name}_devices, {name}_regions,",
                f"    {name}_constants, {name}_slots, {counts}, NULL}};",
                *([self._fingerprint()] if bare else []),
                "",
            ]
        )

    def _fingerprint(self) -> str:
        """A text that differs between models whose constants on devices differ, because libraries with the
        same code are loaded once.
        """
        found = hashlib.sha256(self.weights.tobytes()).hexdigest()
        return f'__attribute__((used)) static const char {self.name}_fingerprint[] = "{found}";'

    def _entry(self) -> str:
        name = self.name
        weights = len(self.signature.inputs) + len(self.signature.outputs)
        head = f"int32_t {name}_host{ENTRY_SUFFIX}(void *const *buffers, const int64_t *scalars, int32_t threads)"
        return "\n".join(
            [
                f"static int {name}_opened(const void *weights)",
                "{",
                f"    return dlc_host_open(&{name}_host, weights, {name}_text);",
                "}",
                "",
                f"{head};",
                head,
                "{",
                "    struct dlc_host_frame *frame;",
                f"    int status = {name}_opened(buffers[{weights}]);",
                "    if (status) return status;",
                f"    frame = dlc_host_take(&{name}_host, {name}_text);",
                "    if (!frame) return DLC_HOST_DEVICE_FAILED;",
                f"    status = {name}_steps(buffers, scalars, threads, frame);",
                f"    return dlc_host_end(&{name}_host, frame, status, {name}_text);",
                "}",
                "",
            ]
        )

    def _functions(self, weights: str) -> str:
        name = self.name
        given, params = (weights, "void") if weights else ("weights", "const void *weights")
        return f"""\
DLC_HOST_PUBLIC int {name}_open({params});
int {name}_open({params})
{{
    return {name}_opened({given}) ? {self._failed} : DLC_HOST_OK;
}}

DLC_HOST_PUBLIC void {name}_close(void);
void {name}_close(void)
{{
    dlc_host_close(&{name}_host);
}}

DLC_HOST_PUBLIC const char *{name}_error(void);
const char *{name}_error(void)
{{
    return {name}_text;
}}
"""


def _runtime(region: CompiledModel) -> DeviceRuntime:
    found = region.target.kind.runtime
    assert found is not None
    return found


def _check_runtimes(model: CompiledModel) -> None:
    """Raise UnsupportedError if a device has no C runtime, or a region cannot be called from C."""
    found = []
    for name, region in model.regions.items():
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


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _array(type_: str, name: str, rows: list[str]) -> str:
    """A static array of structs. C has no empty arrays, so an empty one has a row of zeros."""
    body = "\n".join(f"    {{{row}}}," for row in rows or ["0"])
    return f"static {type_} {name}[] = {{\n{body}\n}};"


__all__ = ["HEADERS", "HostProgram"]
