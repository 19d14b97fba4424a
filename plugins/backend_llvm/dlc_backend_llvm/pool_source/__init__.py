"""The thread pool in C, and the LLVM IR that `tools/make_pool_ir.py` makes of it for each architecture."""
