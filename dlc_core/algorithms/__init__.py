"""Algorithms that replace the plain form of an operator: one package, a *slice*, for each.

A slice holds all that its algorithm needs:

    op.py          the ops: declaration, NumPy reference, lowering, samples
    choice.py      the cost model: a pure function of sizes and machine parameters, whose result is frozen
    graph_pass.py  the pass that replaces nodes by the ops, where the algorithm is legal and pays
    rule.py        the schedule rule for the kernels of the ops
    plugin.py      the hooks, which give ops, passes and rules to the registry

The docstring of the package says what the algorithm is, when it applies, when it does not, and its source.
Its tests lie in `tests/algorithms/<name>/`.

`SLICES` of `dlc_core/plugin/builtin.py` lists the slices of the core.  Their hooks are those of any plugin:
another distribution can give a slice of its own.  Passes over graphs do not import schedule rules; what a
pass and a rule both need is in `choice.py`.
"""
