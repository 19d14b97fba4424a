"""The target `emulated`: code for any Linux machine, which QEMU's user emulation runs on this one.

    dlc.compile(model, "emulated -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")(x)

It tests code for machines that are not available. The code and the thread pool are those of the target `llvm`
with the same options, linked to a library for the other machine. Run times do not predict those of a real
machine.

    qemu.py      the emulator for a processor, and the packages that it needs
    server.py    the emulated process: memory, libraries and calls, by requests through a pipe
    device.py    the device `emulator`
"""
