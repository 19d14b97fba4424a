"""The run half: devices, arrays, executables, artefacts.  Needs no compiler and names no device."""
