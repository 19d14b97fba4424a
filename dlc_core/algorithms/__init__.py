"""Algorithms that replace the plain form of an operator: one package, a *slice*, for each.

A slice contains everything that its algorithm needs:

    op.py          the ops: declaration, NumPy reference, lowering, samples
    plan.py        the plans of kernels; for an op that exists they lower it, in place of `op.py`
    choice.py      the cost model: a pure function of sizes and machine parameters, whose result is frozen
    graph_pass.py  the pass that replaces nodes by the ops, or gives them plans, where it is legal and pays
    rule.py        the schedule rule for the kernels of the ops or plans
    plugin.py      the hooks, which give ops, plans, passes and rules to the registry

The docstring of the package says what the algorithm is, when it applies, when it does not, and its source.
Its tests are in `tests/algorithms/<name>/`.

`SLICES` of `dlc_core/plugin/builtin.py` lists the slices of the core. They use the same hooks as plugins, so
another distribution can provide a slice too. Passes over graphs do not import schedule rules; code that a
pass and a rule share is in `choice.py`.
"""
