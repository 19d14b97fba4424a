"""The LLVM backend of dlc: native code for CPUs."""
