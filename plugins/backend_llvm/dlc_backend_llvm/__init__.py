"""Native code for CPUs through LLVM, for the dlc compiler."""
