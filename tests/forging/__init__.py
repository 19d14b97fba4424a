"""Forged files with right checksums, each opened and called in a worker.

    python -m tests.forging --runs 100000 --seed 0 [--target llvm] [--contract] [--portable]

`mutations` changes JSON data, `files` writes files with right checksums, `models` has the models, `workers`
runs the cases. Compiled files have a changed header and are opened with `trust=True`. `--contract` makes the
contract right, too, as if the author of the code had lied about it. Portable files have a changed graph or
header, and are opened without trust, compiled and called.
"""
