"""GEMM by Strassen's algorithm: seven products of submatrices instead of eight, on one level or two.

It applies to float32 GEMMs with a constant right-hand side and many rows, and to 1 × 1 convolutions, under
the precision "fast".  It does not apply to machines with thread axes, to memory-bound GEMMs, and to weights
that are not finite.  Rows and columns are scaled first (`scaled_rows.py`); rows that are not finite are
computed by definition (`product_rows.py`).

Source: Strassen, Gaussian Elimination is not Optimal, 1969.
"""
