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

A result that is not within torch's tolerance of eager's is compared with better references:

- Sorts of eager are stable. torch leaves the order of equal elements open; dlc's sorts are stable.
- A result may be as far from the result in float64 as eager's is. The float64 run draws the random numbers of
  the sample's dtype.
- Where the operator sums products, roundings are in proportion to the products, so the error may be in
  proportion to the largest one of eager.
- Terms of a gradient may cancel. An element of a gradient may be as far from the float64 one as it is in some
  of 32 runs of eager, in each of which all operators round to the dtype of the sample up or down at random.
"""
