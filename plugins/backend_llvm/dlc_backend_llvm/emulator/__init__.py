"""The target `emulated`: code for any Linux machine, run here by QEMU's user emulation.

    dlc.compile(model, "emulated -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")(x)

It is for trying what is compiled for machines that are not at hand: the code and the thread pool are those of
`llvm` with the same options, as a library of the foreign machine, and speed means nothing.

    qemu.py      which emulator shows which processor, and what must be installed
    server.py    the foreign process: memory, libraries and calls through a pipe
    device.py    the device `emulator`
"""
