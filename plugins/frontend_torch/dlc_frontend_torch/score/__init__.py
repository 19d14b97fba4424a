"""How many of PyTorch's own operator samples (OpInfo) dlc computes right.

    python -m dlc_frontend_torch.score --json score.jsonl        all operators, forward
    python -m dlc_frontend_torch.score add sort --dtypes int64   some of them
    python -m dlc_frontend_torch.score --gradients               through torch.compile, with backward

A sample is *right* if all results have the dtype, the shape and, within tolerance, the values of eager torch.
It is *wrong* if one differs. It is *refused* if dlc says by an UnsupportedError that it cannot run it, and
*crashed* if anything else fails. Operators that draw random numbers run in torch; their samples are *random*
and count in no share.

With --gradients, results and gradients are compared, and a sample of which an operator runs in torch is a
*fallback*: it is not right, though its numbers are. Shares are given of all samples, of those whose
forward is made of Core ATen operators alone, and of those whose forward calls one. The last share is judged.
"""
