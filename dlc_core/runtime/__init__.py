"""The run half: devices, arrays, executables, artefacts.  Needs no compiler and names no device.

    executable      a compiled model that is called; library: one that `exe.export` wrote
    measure         times, profiles, explanations, and the memory of calls
    artefact        compiled models as data and as files
    host_program    graphs whose control flow runs on the host, between native segments
    call            the ways of a call to a device
    reference       the device of the target `reference`
    interface       the signature of a compiled model: names, types, sizes
    guard           run-time failures, and values that lie apart so that a wrong access is seen
    device          the protocols that a vendor fulfils
    memory          host memory, and arrays of other libraries
    machine         cores, free memory and caches of this machine

Each part imports only parts below it.
"""
