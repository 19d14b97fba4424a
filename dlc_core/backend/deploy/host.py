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

from dlc_core.backend.deploy.memory import ALIGN
from dlc_core.backend.deploy.parts import HEADERS, ProgramParts, aligned
from dlc_core.backend.deploy.table import shared_table
from dlc_core.backend.packed import ENTRY_SUFFIX
from dlc_core.target.source.tokens import commented, folded, quoted


class HostProgram(ProgramParts):
    """The host program of a model, as C.

    Raises UnsupportedError, with all reasons, if parts of the model need Python, if a device has no C
    runtime, or if sizes are known only at run time.
    """

    def source(
        self, *, weights: str = "", code: bool = True, bare: bool = False, shared: bool = False
    ) -> str:
        """The C text of the program.

        `weights` is the array with the weights, for the function `<name>_open`; if it is empty, the caller of
        that function passes them. With `code` the text contains the code of the regions; else the array
        `code_symbol` is defined elsewhere. A `bare` program gets runtimes and the weights of regions from
        the runtime that opens it. A `shared` one has the table that such a runtime reads.
        """
        parts = [
            "/* The host program: it calls native segments, and regions on devices. */",
            self.text.sizes_function(),
            '#include "dlc_host.h"\n',
            *self._declared(bare),
            self._code_array() if code else self._declared_code(),
            self._tables(bare),
            f"static DLC_HOST_LOCAL char {self.name}_text[DLC_HOST_TEXT];\n",
            self.text.steps_function(),
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
   returns {self.failed}, a device failed, and {name}_error returns the reason of the last failure in this
   thread. */
int {name}_open({"const void *weights" if weights else "void"});
void {name}_close(void);
const char *{name}_error(void);
"""

    def _open_counts(self, bare: bool) -> tuple[int, int]:
        """How many devices and regions the runtime that opens a library sets."""
        return (len(self.devices), len(self.model.regions)) if bare else (0, 0)

    def _declared(self, bare: bool) -> list[str]:
        lines = [
            f"int32_t {s}{ENTRY_SUFFIX}(void *const *buffers, const int64_t *scalars, int32_t threads);"
            for s in self.segments
        ]
        if not bare:
            lines += [f"const dlc_device_api *{r.symbol}(void);" for r in self.runtimes]
        return [*lines, ""]

    def _declared_code(self) -> str:
        return f"extern const uint8_t {self.code_symbol}[];\n"

    def _code_array(self) -> str:
        rows = [self.code[i : i + 24] for i in range(0, len(self.code), 24)]
        lines = "\n".join(f"    {', '.join(map(str, row))}," for row in rows) or "    0,"
        head = f"static const uint8_t {self.code_symbol}[] __attribute__((aligned({ALIGN})))"
        return f"{head} = {{\n{lines}\n}};\n"

    def _tables(self, bare: bool) -> str:
        """The devices, regions and constants."""
        offsets, _ = self.weight_offsets
        devices = [
            f"{quoted(r.name)}, {quoted(target)}, {'NULL' if bare else r.symbol}, NULL, NULL"
            for r, target in self.devices
        ]
        regions, at = [], 0
        for region_name, region in self.model.regions.items():
            data = self.codes[region_name]
            at = aligned(at)
            words = map(quoted, (region_name, f"{region_name}/weights", region.artifact.format, region.entry))
            place = 0 if bare else offsets[region_name]
            numbers = (self.numbers[region_name], at, len(data), place, region.weights.nbytes)
            regions.append(f"{', '.join([*words, *map(str, numbers)])}, NULL, NULL, NULL, 0")
            at += len(data)
        constants = [f"{device}, {offset}, {size}, 0" for device, offset, size in self.plan.constants]
        slots = ", ".join(map(str, self.plan.frame)) or "0"
        name = self.name
        counts = ", ".join(map(str, (len(devices), len(regions), len(constants), len(self.plan.frame))))
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
        params = "void *const *buffers, const int64_t *scalars, int32_t threads"
        head = f"int32_t {name}_host{ENTRY_SUFFIX}({params})"
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
    return {name}_opened({given}) ? {self.failed} : DLC_HOST_OK;
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


def _array(type_: str, name: str, rows: list[str]) -> str:
    """A static array of structs. C has no empty arrays, so an empty one has a row of zeros."""
    body = "\n".join(f"    {{{row}}}," for row in rows or ["0"])
    return f"static {type_} {name}[] = {{\n{body}\n}};"


__all__ = ["HEADERS", "HostProgram"]
