"""State that graphs change: KV caches, running statistics, optimizers; and generation of text."""

import dlc_frontend_torch.dynamo.part as part_of
import pytest
import torch
from dlc_frontend_torch.dynamo.graph import CompiledGraph
from dlc_frontend_torch.dynamo.options import Options
from torch.fx.experimental.proxy_tensor import make_fx

import dlc_core as dlc
from benchmarks import torch_generation
from benchmarks.corpus.exporting import stand_in_operators
from dlc_core.runtime.executable import Executable

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    dlc.torch.reset()
    torch.manual_seed(0)


@pytest.fixture
def in_place(monkeypatch):
    """For each write of a call to an argument: whether the new value is in its memory."""
    found: list[bool] = []
    same = part_of._is_same
    monkeypatch.setattr(part_of, "_is_same", lambda a, b: found.append(same(a, b)) or found[-1])
    return found


def check(function, arguments, state, rtol=1e-5):
    """A compiled function returns what eager does, and leaves the same state, in three calls."""
    own = [tensor.clone() for tensor in state]
    compiled = torch.compile(function, backend="dlc")
    before = [tensor.data_ptr() for tensor in own]
    for step in range(3):
        expected = function(*(a(step) if callable(a) else a for a in arguments), *state)
        found = compiled(*(a(step) if callable(a) else a for a in arguments), *own)
        torch.testing.assert_close(found, expected, rtol=rtol, atol=1e-5)
        torch.testing.assert_close(own, list(state), rtol=rtol, atol=1e-5)
    assert [tensor.data_ptr() for tensor in own] == before
    return found


def index_copy(at, row, cache):
    cache.index_copy_(2, at, row)
    return cache.sum(2)


def index_put(at, row, cache):
    cache[:, :, at] = row
    return cache.amax((1, 2))


def slice_scatter(at, row, cache):
    cache[:, :, 3:4] = row
    return cache + at


def scatter(at, row, cache):
    cache.scatter_(2, at.view(1, 1, 1, 1).expand_as(row).contiguous(), row)
    return cache[0]


def accumulate(at, row, cache):
    cache.index_add_(2, at, row)
    return cache * 2


@pytest.mark.parametrize("update", [index_copy, index_put, slice_scatter, scatter, accumulate])
def test_caches_are_written_in_place(update, in_place):
    row = torch.randn(2, 3, 1, 4)
    check(update, (lambda step: torch.tensor([step + 2]), row), [torch.zeros(2, 3, 8, 4)])
    assert in_place == [True] * 3


def test_caches_of_graphs_with_operators_of_torch_are_written_in_place(in_place):
    def attend(at, row, cache):
        cache.index_copy_(2, at, row)
        return torch.linalg.svdvals(cache[0].sum(0)) + row.sum()

    row = torch.randn(2, 3, 1, 4)
    check(attend, (lambda step: torch.tensor([step + 2]), row), [torch.randn(2, 3, 8, 4)])
    assert in_place == [True] * 3
    assert [each.op for each in dlc.torch.report().fallbacks] == ["aten._linalg_svd.default"]


@pytest.mark.parametrize("late", ["input", "view"])
def test_inputs_that_later_parts_read_keep_their_values_until_then(late, in_place):
    def f(state):
        new = state + 1
        view = state.t()
        norms = torch.linalg.svdvals(new)
        made = (view if late == "view" else state) * norms
        state.copy_(new)
        return made

    module = make_fx(f, tracing_mode="fake")(torch.zeros(4, 4))
    own, other = (torch.arange(16.0).reshape(4, 4) for _ in range(2))
    found = CompiledGraph(module, "inference", (), Options())(own)
    torch.testing.assert_close(found, f(other), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(own, other)
    assert not in_place


def old_and_new(x, state):
    before = state * x
    state.add_(x)
    return before, state.flip(0), state.clone()


def swap(x, one, other):
    old = one.clone()
    one.copy_(other + x)
    other.copy_(old)
    return one - other


def transposed(x, state):
    state.t().add_(x)
    return state @ x


def twice(x, state):
    state[0] = x[0]
    total = state.sum()
    state[1] = total
    state.mul_(x)
    return total


@pytest.mark.parametrize(("update", "states"), [(old_and_new, 1), (swap, 2), (transposed, 1), (twice, 1)])
def test_values_under_aliasing(update, states, in_place):
    kept = check(update, (torch.randn(4, 4),), [torch.randn(4, 4) for _ in range(states)])
    del kept
    assert all(in_place)


def test_results_do_not_change_with_the_state():
    def step(x, state):
        state.add_(x)
        return state.clone()

    compiled = torch.compile(step, backend="dlc")
    state = torch.zeros(3)
    first = compiled(torch.ones(3), state)
    compiled(torch.ones(3), state)
    assert first.tolist() == [1, 1, 1]
    assert state.tolist() == [2, 2, 2]


def test_states_of_other_strides_are_copied_back():
    def step(x, state):
        state.add_(x)
        return state.sum()

    state = torch.zeros(4, 6)[:, ::2]
    assert torch.compile(step, backend="dlc")(torch.ones(4, 3), state) == 12
    assert state.sum() == 12


def test_running_statistics(in_place):
    def network():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())

    eager, compiled = network(), network()
    run = torch.compile(compiled, backend="dlc")
    for _ in range(3):
        x = torch.randn(2, 3, 6, 6)
        with torch.no_grad():
            torch.testing.assert_close(run(x), eager(x), rtol=1e-4, atol=1e-5)
    for one, other in zip(compiled.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert len(in_place) == 9
    assert all(in_place)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # of torch itself
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_optimizer_steps(kind, in_place):
    options = {"lr": 0.1, "momentum": 0.9} if kind == "SGD" else {"lr": torch.tensor(0.1)}
    weights = [[torch.nn.Parameter(torch.full((4, 3), 0.5)) for _ in range(2)] for _ in range(2)]
    optimizers = [getattr(torch.optim, kind)(own, **options) for own in weights]
    compiled = torch.compile(optimizers[1].step, backend="dlc")
    for _ in range(3):
        gradients = [torch.randn(4, 3) for _ in range(2)]
        for own in weights:
            for weight, gradient in zip(own, gradients, strict=True):
                weight.grad = gradient.clone()
        optimizers[0].step()
        compiled()
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert not dlc.torch.report().fallbacks
    assert in_place
    assert all(in_place)


def tiny(family):
    transformers = pytest.importorskip("transformers", reason="generation needs transformers")
    stand_in_operators()
    sizes = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64,
    }  # fmt: skip
    if family == "GPT2":
        sizes = {"n_layer": 1, "n_embd": 32, "n_head": 4, "vocab_size": 96, "n_positions": 64}
    config = getattr(transformers, f"{family}Config")(
        **sizes, bos_token_id=1, eos_token_id=None, pad_token_id=0
    )
    name = f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    return getattr(transformers, name)(config).eval()


def generated(model, prompt, **options):
    torch.manual_seed(7)
    return model.generate(prompt, max_new_tokens=9, **{"do_sample": False, **options})


def prompts():
    return [torch.randint(2, 96, shape) for shape in ((1, 5), (1, 8), (3, 6), (3, 4))]


def check_generation(model, given, in_place, **options):
    """Greedy and sampled tokens are those of eager; later calls of known sizes compile nothing."""
    eager = [(generated(model, x), generated(model, x, do_sample=True, top_k=20)) for x in given]
    if not options:
        model.forward = torch.compile(model.forward, backend="dlc")
    options = {"cache_implementation": "static", **options}
    for prompt, (greedy, sampled) in zip(given, eager, strict=True):
        assert torch.equal(generated(model, prompt, **options), greedy)
        count = len(dlc.torch.report().graphs)
        assert torch.equal(generated(model, prompt, do_sample=True, top_k=20, **options), sampled)
        assert len(dlc.torch.report().graphs) == count > 0
    assert not dlc.torch.report().fallbacks
    assert in_place
    assert all(in_place)


@pytest.mark.parametrize("family", ["Llama"])
def test_generate(family, in_place):
    check_generation(tiny(family), prompts()[:1], in_place)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Llama", "GPT2", "Qwen2"])
def test_generate_with_other_prompts_and_batches(family, in_place):
    check_generation(tiny(family), prompts(), in_place)
    # prefill and decode: the first sizes, then dynamic lengths, then dynamic batches
    assert len(dlc.torch.report().graphs) <= 8


@pytest.mark.slow
def test_generate_compiles_the_decode_step_by_itself(in_place):
    model = tiny("Llama")
    transformers = pytest.importorskip("transformers.generation", reason="generation needs transformers")
    config = transformers.CompileConfig(backend="dlc", mode=None, fullgraph=False)
    config._compile_all_devices = True
    check_generation(model, prompts()[:3], in_place, compile_config=config)


@pytest.mark.slow
def test_tokens_a_second_are_measured(monkeypatch):
    pytest.importorskip("transformers", reason="generation needs transformers")
    for name, value in {"WIDTH": 32, "LAYERS": 1, "HEADS": 4, "ROUNDS": 1, "SIDES": ("dlc", "eager")}.items():
        monkeypatch.setattr(torch_generation, name, value)
    call = Executable.__call__
    found = torch_generation.compare("gpt2", 1, 4, 5)
    assert Executable.__call__ is call
    assert found["right"]
    assert all(found[kind][side] > 0 for kind in ("prompt", "step") for side in ("dlc", "eager"))
    assert 0 < found["own"] < found["step"]["dlc"] + found["prompt"]["dlc"]
