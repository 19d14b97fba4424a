"""Names of usual microcontrollers and of emulated boards, as targets of the kind `c`."""

from __future__ import annotations

from dlc_backend_c.boards import BOARDS
from dlc_core.target import TargetTag


def _chip(name: str, cpu: str, doc: str) -> TargetTag:
    words = f"c -mcpu={cpu} -keys=arm_cpu,micro -model={name.partition('/')[2]}"
    return TargetTag(name, words, doc)


TAGS = (
    _chip("stm32/f103", "cortex-m3", "STM32F103: Cortex-M3 without floating point"),
    _chip("stm32/f407", "cortex-m4", "STM32F407: Cortex-M4"),
    _chip("stm32/l4r5", "cortex-m4", "STM32L4R5: Cortex-M4"),
    _chip("stm32/f746", "cortex-m7", "STM32F746: Cortex-M7"),
    _chip("stm32/h743", "cortex-m7", "STM32H743: Cortex-M7"),
    _chip("stm32/u585", "cortex-m33", "STM32U585: Cortex-M33"),
    _chip("nordic/nrf52840", "cortex-m4", "nRF52840: Cortex-M4"),
    _chip("nordic/nrf5340", "cortex-m33", "nRF5340: Cortex-M33"),
    _chip("raspberry-pi/pico", "cortex-m0", "RP2040: Cortex-M0+ without floating point"),
    _chip("raspberry-pi/pico-2", "cortex-m33", "RP2350: Cortex-M33"),
    *(_chip(f"qemu/{each.name}", each.cpu, "a board that QEMU emulates") for each in BOARDS.values()),
)

__all__ = ["TAGS"]
