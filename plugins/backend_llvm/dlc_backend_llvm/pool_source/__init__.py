"""The thread pool in C, and its LLVM IR for each architecture, made by `tools/make_pool_ir.py`."""
