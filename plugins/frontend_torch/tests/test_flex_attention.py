"""Flex attention in torch.compile and in exported programs, against eager."""

import pytest
import torch
from dlc_frontend_torch.importer import CONVERTERS
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dlc_core as dlc

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # torch.export warns of itself
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
]
LENGTH = 12
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
DOCUMENTS = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)
NEAR = torch.linspace(-1, 1, 4 * (2 * LENGTH - 1)).reshape(4, -1)

CLOSE = {"rtol": 1e-4, "atol": 1e-5}

MASKS = {
    "causal": lambda b, h, q, k: q >= k,
    "sliding window": lambda b, h, q, k: (q >= k) & (q - k <= 3),
    "prefix": lambda b, h, q, k: (k < 4) | (q >= k),
    "documents": lambda b, h, q, k: (DOCUMENTS[q] == DOCUMENTS[k]) & (q >= k),
    "queries without keys": lambda b, h, q, k: (k > q) & (h != 2),
    "batches": lambda b, h, q, k: k < LENGTH - 3 * b,
}
BIASES = {
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "relative positions": lambda s, b, h, q, k: s + (q - k),
    "table": lambda s, b, h, q, k: NEAR[h, q - k + LENGTH - 1] + s,
    "difference": lambda s, b, h, q, k: s - SLOPES[h] * (q - k).abs(),
    "causal": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
}
OTHERS = {
    "softcap": lambda s, b, h, q, k: torch.tanh(s / 2) * 2,
    "two biases": lambda s, b, h, q, k: s + 1e20 * (h + 1) - 1e20 * (h + 1),
    "hidden, and then a bias": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")) + SLOPES[h],
    "low and not hidden": lambda s, b, h, q, k: torch.where(q >= k, s, -3.0),
    "float64": lambda s, b, h, q, k: s + SLOPES.double()[h].exp() * s,
}


class Flex(torch.nn.Module):
    def __init__(self, score=None, mask=None, batch=None, **options):
        super().__init__()
        self.score, self.options = score, options
        self.mask = create_block_mask(mask, batch, None, LENGTH, LENGTH, device="cpu") if mask else None

    def forward(self, q, k, v):
        return flex_attention(q, k, v, score_mod=self.score, block_mask=self.mask, **self.options)


def qkv(groups=4, dtype=torch.float32, size=8):
    torch.manual_seed(0)
    shapes = (2, 4, LENGTH, 8), (2, groups, LENGTH, 8), (2, groups, LENGTH, size)
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


def assert_same(found, wanted, **tolerances):
    results = [each if isinstance(each, tuple) else (each,) for each in (found, wanted)]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other, **tolerances)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


def exported(module, args, dynamic_shapes=None):
    """A program, and the names of its operators."""
    with torch.no_grad():
        program = torch.export.export(module, args, dynamic_shapes=dynamic_shapes)
    made = dlc.load(program)
    return dlc.compile(made, num_threads=1), {
        node.op.name for node in dlc.graph.post_order(made["main"].body)
    }


def compiled(module, args, **options):
    with torch.no_grad():
        return torch.compile(module, backend="dlc", options={"fallback": False}, **options)(*args)


NO_KEYS = "queries without keys"
WHOLE = [*((None, each) for each in MASKS), *((each, None) for each in BIASES), ("alibi", "causal"),
         ("causal", NO_KEYS), ("table", NO_KEYS), (None, None)]  # fmt: skip


@pytest.mark.parametrize(("bias", "mask"), WHOLE)
def test_masks_and_a_bias_are_operands_of_attention(bias, mask):
    module = Flex(BIASES.get(bias), MASKS.get(mask), batch=2 if mask == "batches" else None)
    exe, names = exported(module, qkv())
    assert "attention" in names
    assert not names & {"matmul", "softmax"}
    assert_same(exe(*qkv()), module(*qkv()), **CLOSE)


@pytest.mark.parametrize(("name", "mask"), [*((each, None) for each in OTHERS), ("softcap", NO_KEYS)])
def test_other_functions_change_stored_scores(name, mask):
    module = Flex(OTHERS[name], MASKS.get(mask))
    exe, names = exported(module, qkv())
    assert "attention" not in names
    assert_same(exe(*qkv()), module(*qkv()), **CLOSE)


@pytest.mark.parametrize(
    "module",
    [Flex(BIASES["alibi"], MASKS["documents"]), Flex(OTHERS["softcap"], MASKS["causal"])],
    ids=["one operator", "stored scores"],
)
def test_torch_compile(module):
    assert_same(compiled(module, qkv()), module(*qkv()), **CLOSE)


def attributes(made):
    return [node.attrs for node in dlc.graph.post_order(made["main"].body) if node.op.name == "attention"]


@pytest.mark.parametrize(
    ("mask", "past"),
    [(MASKS["causal"], 0), (lambda b, h, q, k: q + 2 > k, 1), (lambda b, h, q, k: q > k, None)],
    ids=["causal", "one more key", "one key less"],
)
def test_a_causal_mask_is_no_operand(mask, past):
    """Keys after the diagonal are skipped. A first query without keys needs the mask."""
    module = Flex(BIASES["alibi"], mask)
    program = torch.export.export(module, qkv())
    (found,) = attributes(dlc.load(program))
    assert (found["causal"], found["past"]) == ((True, past) if past is not None else (False, 0))
    assert_same(dlc.compile(program, num_threads=1)(*qkv()), module(*qkv()), **CLOSE)


@pytest.mark.parametrize("score", [BIASES["alibi"], OTHERS["softcap"]])
def test_heads_share_keys(score):
    module = Flex(score, MASKS["documents"], enable_gqa=True, scale=0.3)
    exe, _ = exported(module, qkv(groups=2, size=5))
    assert_same(exe(*qkv(groups=2, size=5)), module(*qkv(groups=2, size=5)), **CLOSE)


@pytest.mark.parametrize("mask", [None, NO_KEYS])
def test_logarithms_of_sums(mask):
    """They are -inf for queries that see no key."""
    module = Flex(BIASES["alibi"], MASKS.get(mask), return_lse=True)
    assert_same(exported(module, qkv())[0](*qkv()), module(*qkv()), **CLOSE)
    assert_same(compiled(module, qkv()), module(*qkv()), **CLOSE)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("score", [BIASES["relative positions"], OTHERS["softcap"]])
def test_dtypes(dtype, tolerance, score):
    """Biases count in float32 beside queries of bfloat16."""
    module, args = Flex(score, MASKS["causal"]), qkv(dtype=dtype)
    assert_same(compiled(module, args), module(*args), rtol=tolerance, atol=tolerance)


class Grown(torch.nn.Module):
    """The mask and the bias depend on inputs and on their sizes."""

    def forward(self, q, k, v, documents, slopes):
        length = k.shape[2]

        def score(s, b, h, i, j):
            return s + slopes[h] * (j - i) / length

        def same(b, h, i, j):
            return (documents[b, i] == documents[b, j]) & (i >= j)

        mask = create_block_mask(same, q.shape[0], None, q.shape[2], length, device="cpu")
        return flex_attention(q, k, v, score_mod=score, block_mask=mask)


def grown(batch, length):
    torch.manual_seed(1)
    tensors = [torch.randn(batch, 4, length, 8) for _ in range(3)]
    return (*tensors, torch.randint(0, 3, (batch, length)).sort().values, SLOPES)


def test_a_symbolic_batch():
    """torch.export of 2.13 fails for two symbolic sizes of a tensor here."""
    batch = torch.export.Dim("batch", min=2, max=8)
    exe, names = exported(Grown(), grown(2, 12), ({0: batch},) * 4 + (None,))
    assert "attention" in names
    for size in (2, 3, 7):
        assert_same(exe(*grown(size, 12)), Grown()(*grown(size, 12)), **CLOSE)


def test_symbolic_sizes_of_torch_compile():
    made = torch.compile(Grown(), backend="dlc", options={"fallback": False}, dynamic=True)
    with torch.no_grad():
        for case in ((2, 12), (3, 7), (5, 33)):
            assert_same(made(*grown(*case)), Grown()(*grown(*case)), **CLOSE)


def test_an_unknown_function_is_refused_by_name(monkeypatch):
    monkeypatch.delitem(CONVERTERS, "aten.erf.default")
    module = Flex(lambda s, b, h, q, k: torch.erf(s), MASKS["causal"])
    with pytest.raises(dlc.DlcError, match=r"aten\.erf\.default has no converter") as caught:
        exported(module, qkv())
    assert __file__ in str(caught.value)
    dlc.torch.reset()
    with torch.no_grad():
        found = torch.compile(module, backend="dlc")(*qkv())
    assert_same(found, module(*qkv()), **CLOSE)
    (graph,) = dlc.torch.report().graphs
    assert [each.op for each in graph.fallbacks] == ["higher_order.flex_attention"]
    assert graph.nodes - graph.compiled == 1


def test_random_numbers_are_refused():
    module = Flex(lambda s, b, h, q, k: s + torch.rand_like(s))
    with pytest.raises(dlc.DlcError, match=r"flex_attention: .*random operation"):
        exported(module, qkv())


def test_gradients_have_the_error_of_torch():
    q, k, v = qkv()
    made = torch.compile(Flex(BIASES["alibi"]), backend="dlc")
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        made(q.requires_grad_(), k, v)
