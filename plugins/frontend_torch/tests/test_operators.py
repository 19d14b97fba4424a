"""A sample of PyTorch's operator tests: none is wrong, and nearly all run in dlc.

`python -m dlc_frontend_torch.score` runs all of them.
"""

import pytest
import torch
from dlc_frontend_torch.score.judging import Options, outcomes
from dlc_frontend_torch.score.samples import operators

GROUPS = {
    "unary": "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp exp2 expm1 floor log log10 log1p "
    "log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc nn.functional.relu "
    "nn.functional.gelu isnan isinf logical_not bitwise_not lgamma digamma erfc",
    "arithmetic": "add sub mul div.no_rounding_mode div.floor_rounding div.trunc_rounding remainder fmod pow "
    "atan2 maximum minimum fmax fmin clamp hypot lerp copysign",
    "comparison": "eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor "
    "bitwise_left_shift bitwise_right_shift where heaviside",
    "reduction": "sum mean prod amax amin max.reduction_with_dim min.reduction_with_dim argmax argmin any "
    "all var std_mean linalg.vector_norm logsumexp softmax log_softmax",
    "scan": "cumsum cumprod cummax logcumsumexp sort topk median kthvalue searchsorted histc nonzero_static",
    "shape": "cat stack permute expand squeeze unsqueeze view_as repeat flip roll tril full arange clone "
    "select slice split_with_sizes diagonal unfold as_strided constant_pad_nd",
    "index": "gather index_select __getitem__ index_put nonzero masked_select masked_scatter take",
    "write": "scatter scatter_add scatter_reduce.mean scatter_reduce.amax slice_scatter select_scatter put "
    "diagonal_scatter index_reduce.prod index_fill",
    "product": "mm bmm addmm baddbmm mv dot cdist nn.functional.pdist matmul",
}
OPTIONS = Options(("float32", "int64"), limit=2, group=32)
RIGHT = 0.97
"""The least share of samples that are right."""


@pytest.mark.parametrize("group", GROUPS)
def test_samples_of_torch(group):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    infos = operators()
    found = []
    try:
        for name in GROUPS[group].split():
            if name in infos:
                found += [(name, each) for each in outcomes(infos[name], OPTIONS, lambda dtype, index: None)]
    finally:
        torch.set_num_threads(before)
    assert len(found) >= len(GROUPS[group].split())
    bad = [(name, each.dtype, each.index, each.why) for name, each in found if each.status != "right"]
    statuses = [each.status for _, each in found]
    assert not statuses.count("wrong"), bad
    assert not statuses.count("crashed"), bad
    assert statuses.count("right") >= RIGHT * len(found), bad
