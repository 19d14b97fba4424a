"""The table of a shared library by which a C runtime finds its devices (`dlc_runtime.c`)."""

from __future__ import annotations

SYMBOL = "dlc_library_devices"
"""The symbol of the table. A library without devices has none."""
ABI = 1
"""The version of the table. A runtime refuses other versions."""

_TEXT = """\
/* The table for runtimes that open this library. */
static const char *{name}_table_device(uint32_t i) {{ return {name}_devices[i].name; }}
static void {name}_table_set_device(uint32_t i, const dlc_device_api *api) {{ {name}_devices[i].api = api; }}
static const char *{name}_table_section(uint32_t i) {{ return {name}_regions[i].section; }}
static uint64_t {name}_table_size(uint32_t i) {{ return {name}_regions[i].weights_size; }}
static void {name}_table_set_weights(uint32_t i, const void *data) {{ {name}_regions[i].weights = data; }}
static int {name}_table_open(const void *weights) {{ return {name}_opened(weights); }}
static void {name}_table_close(void) {{ dlc_host_close(&{name}_host); }}
static const char *{name}_table_error(void) {{ return {name}_text; }}

extern const struct dlc_host_table {symbol};
__attribute__((weak, visibility("default"))) const struct dlc_host_table {symbol} = {{
    {abi}, {devices}, {regions}, {name}_table_device, {name}_table_set_device, {name}_table_section,
    {name}_table_size, {name}_table_set_weights, {name}_table_open, {name}_table_close, {name}_table_error}};
"""


def shared_table(name: str, devices: int, regions: int) -> str:
    """The definition of the table. The runtime sets the first `devices` devices, and the weights of the first
    `regions` regions.
    """
    return _TEXT.format(name=name, symbol=SYMBOL, abi=ABI, devices=devices, regions=regions)


__all__ = ["ABI", "SYMBOL", "shared_table"]
