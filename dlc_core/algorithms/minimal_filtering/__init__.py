"""Common parts of convolutions by minimal filtering: the matrices, checked tiles and the measure of errors.

This is no slice: `winograd` and `row_filter` are, and both build on it.
"""
