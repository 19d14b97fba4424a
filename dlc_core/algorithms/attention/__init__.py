"""Attention in one kernel, whose scores stay in registers or in a cache (FlashAttention).

Attention that a model writes as single operations becomes one node (`matcher.py`, `masks.py`).  Then the
graph pass chooses how the kernel of the node computes it: a *plan* (`plan.py`), chosen by the description of
the machine (`choice.py`).  The lowering and the schedule rule follow the plan:

    Tiled     all scores of a tile of queries, then their softmax; for cores    tiled.py, cpu_rule.py
    TwoPass   scores computed twice and stored nowhere; for groups of threads   two_pass.py, gpu_rule.py
    Online    online softmax by matrix units; for groups of threads             online.py, gpu_matrix_rule.py

Attention in float64, of symbolic head sizes on machines with thread axes, and without room for a tile in
their shared memory has no plan; nor has attention of few queries there.  It becomes GEMMs and a softmax.

Sources: arXiv:1706.03762 (attention), arXiv:1805.02867 (online softmax), arXiv:2205.14135 (FlashAttention).
"""
