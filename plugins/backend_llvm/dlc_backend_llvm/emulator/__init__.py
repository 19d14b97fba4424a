"""The target `emulated`: code for any Linux machine, run here by QEMU's user emulation.

    dlc.compile(model, "emulated -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")(x)

It is for testing code for machines that are not available. The code and the thread pool are those of `llvm`
with the same options, as a library for the foreign machine. Its speed says nothing about the real machine.

    qemu.py      which emulator shows which processor, and what must be installed
    server.py    the foreign process: memory, libraries and calls through a pipe
    device.py    the device `emulator`
"""
