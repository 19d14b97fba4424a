"""The run-time part of dlc: devices, arrays, executables, artefacts.

It needs no compiler and names no device.

    executable      compiled models, called like functions; library: libraries that `exe.export` wrote
    measure         times, profiles, explanations, and the memory of calls
    artefact        compiled models as data and as files
    host_program    graphs whose control flow runs on the host, between native segments
    call            the call paths to a device
    reference       the device of the target `reference`
    interface       the signature of a compiled model: names, types, sizes
    guard           run-time failures, and guard mode, which separates values by protected pages
    device          the protocols that a vendor implements
    memory          host memory, and arrays of other libraries
    machine         cores, free memory and caches of this machine

Each part imports only parts below it.
"""
