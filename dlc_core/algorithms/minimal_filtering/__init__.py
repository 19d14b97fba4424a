"""Common parts of convolutions by minimal filtering: the matrices, checked tiles and the measure of errors.

This is not a slice. The slices `winograd` and `row_filter` use it.
"""
