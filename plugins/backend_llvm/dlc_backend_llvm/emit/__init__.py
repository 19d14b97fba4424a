"""From PrimFuncs to LLVM IR text."""
