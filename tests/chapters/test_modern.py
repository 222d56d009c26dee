"""Today's layers against the originals: with weights, in the fused kernel, and with a cache."""

import copy
import gc
import importlib

import pytest
import torch

from mha_course.chapters.language_model import Decoder, attend_with_cache, generate
from mha_course.chapters.latent import LatentAttention
from mha_course.chapters.modern import (
    ModernAttention,
    align_kv_heads,
    from_transformers,
    group_kv_heads,
    to_transformers,
)
from mha_lab import MultiHeadAttention, causal_mask
from mha_lab.heads import repeat_kv
from mha_lab.masks import SlidingWindow, sliding_window_mask
from mha_lab.positions import Rotary
from mha_lab.scores import AlibiScore, QueryKeyNorm, SoftcappedScore, TransformSequence
from tests.references import assert_close, layer_with

transformers = pytest.importorskip("transformers")

BATCH, N, D_MODEL, HEADS, KV_HEADS, D_K, WINDOW = 3, 7, 18, 6, 2, 4, 3
PLAIN = {"rope_type": "default", "rope_theta": 1e3}
HALF = PLAIN | {"partial_rotary_factor": 0.5}
SLOWER = {"sliding_attention": PLAIN, "full_attention": PLAIN | {"rope_type": "linear", "factor": 8.0}}
YARN = {"rope_type": "yarn", "rope_theta": 1e3, "factor": 4.0, "original_max_position_embeddings": 100}
SCALED = {"query_pre_attn_scalar": 9}
LOCAL_AND_GLOBAL = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
ORIGINALS = {  # the file, the class, what differs from its defaults
    "Llama": ("llama", "LlamaConfig", {"attention_bias": True, "rope_parameters": PLAIN}),
    "Mistral": ("mistral", "MistralConfig", {"sliding_window": WINDOW}),
    "Gemma2": ("gemma2", "Gemma2Config", LOCAL_AND_GLOBAL | SCALED | {"attn_logit_softcapping": 2.0}),
    "Gemma3": ("gemma3", "Gemma3TextConfig", LOCAL_AND_GLOBAL | SCALED | {"rope_parameters": SLOWER}),
    "Qwen3": ("qwen3", "Qwen3Config", {"attention_bias": True, "rope_parameters": YARN}),
    "Qwen3Next": ("qwen3_next", "Qwen3NextConfig", {"attention_bias": True, "rope_parameters": HALF}),
    "GptOss": ("gpt_oss", "GptOssConfig", LOCAL_AND_GLOBAL),
}  # fmt: skip
CASES = [(name, layer) for name in ORIGINALS for layer in range(2)]


def original(name, layer, dtype=torch.float64):
    """An attention layer with random weights, and what it gets beside its input."""
    file, config, changes = ORIGINALS[name]
    module = importlib.import_module(f"transformers.models.{file}.modeling_{file}")
    config = getattr(transformers, config)(
        hidden_size=D_MODEL, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=D_K,
        num_hidden_layers=2, attn_implementation="eager", **changes,
    )  # fmt: skip
    attention = getattr(module, f"{name}Attention")(config, layer_idx=layer).to(dtype).eval()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(std=0.5)
    rotary = getattr(module, f"{name}RotaryEmbedding")(config)
    kind = (attention.layer_type,) if name == "Gemma3" else ()
    angles = rotary(torch.ones(1, dtype=dtype), torch.arange(N)[None], *kind)
    return attention, angles


def by_hand(n, window):
    """What query ``i`` sees, one pair at a time."""
    return torch.tensor([[j <= i and (window is None or i - j < window) for j in range(n)] for i in range(n)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("name", "number"), CASES)
@torch.no_grad()
def test_equal_to_the_original_in_every_path(name, number, dtype, request):
    """The originals turn queries and keys by angles in float32, so float64 does not come closer."""
    theirs, angles = original(name, number, dtype)
    ours, x = from_transformers(theirs), torch.randn(BATCH, N, D_MODEL, dtype=dtype)
    kinds = ORIGINALS[name][2].get("layer_types", ["sliding_attention" if name == "Mistral" else None] * 2)
    window = WINDOW if kinds[number] == "sliding_attention" else None
    assert ours.window == window
    additive = torch.zeros(N, N, dtype=dtype).masked_fill(~by_hand(N, window), torch.finfo(dtype).min)
    expected, expected_weights = theirs(x, angles, additive[None, None])
    output, weights = ours(x, mask=causal_mask(N))
    fused, none = ours(x, mask=causal_mask(N), need_weights=False)
    pieces, cache = [], None
    for piece in x.split([1, 3, 1, 2], dim=1):
        new, cache = ours.extend(piece, cache)
        pieces.append(new)
    assert none is None
    pairs = [(weights, expected_weights)]
    pairs += [(found, expected) for found in (output, fused, torch.cat(pieces, dim=1))]
    largest = max((found - other).abs().max().item() for found, other in pairs)
    request.node.user_properties.append((f"largest difference from {name}'s, {dtype}", largest))
    for found, other in pairs:
        assert_close(found, other, 1e-5)
    assert largest <= 1e-5
    kept = N if window is None else min(N, window)
    assert (cache.key.shape, cache.length) == ((BATCH, KV_HEADS, kept, D_K), N)


@pytest.mark.parametrize("name", ORIGINALS)
@torch.no_grad()
def test_there_and_back_again(name):
    """Written into a second original, the weights give what the first gives; nothing is shared."""
    (theirs, angles), (other, _) = original(name, 0), original(name, 0)
    ours, x = from_transformers(theirs), torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)
    before = {key: value.clone() for key, value in theirs.state_dict().items()}
    to_transformers(ours, other)
    for parameter in ours.parameters():
        parameter.zero_()
    assert_close(other(x, angles, None)[0], theirs(x, angles, None)[0], 1e-12)
    for key, value in theirs.state_dict().items():
        assert torch.equal(value, before[key])


# Each option by itself, by loops


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("repeats", [1, 2, 3, 6])
def test_a_group_of_query_heads_shares_one_key_and_value(repeats, need_weights):
    layer = MultiHeadAttention(D_MODEL, HEADS, d_k=D_K, d_v=5, num_kv_heads=HEADS // repeats).double()
    x = torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)
    q, k, v = layer.project(x, x, x)
    heads = [
        (q[:, h] @ k[:, h // repeats].mT / D_K**0.5).softmax(-1) @ v[:, h // repeats] for h in range(HEADS)
    ]
    assert_close(layer(x, need_weights=need_weights)[0], layer.out_proj(torch.cat(heads, dim=-1)), 1e-10)
    assert torch.equal(repeat_kv(k, repeats)[:, 5], k[:, 5 // repeats])


def test_grouping_takes_the_mean_of_each_group_of_heads():
    layer = MultiHeadAttention(D_MODEL, HEADS, d_k=D_K, d_v=5)
    torch.nn.init.normal_(layer.k_proj.bias)
    grouped = group_kv_heads(layer, KV_HEADS)
    for g in range(KV_HEADS):
        for c in range(D_K):
            rows = [(3 * g + h) * D_K + c for h in range(3)]
            assert_close(grouped.k_proj.weight[g * D_K + c], layer.k_proj.weight[rows].mean(0), 1e-6)
            assert_close(grouped.k_proj.bias[g * D_K + c], layer.k_proj.bias[rows].mean(), 1e-6)
    assert grouped.v_proj.weight.shape == (KV_HEADS * 5, D_MODEL)
    assert grouped(torch.randn(BATCH, N, D_MODEL))[1].shape == (BATCH, HEADS, N, N)
    assert layer.num_kv_heads == HEADS


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_two_equal_heads_in_other_coordinates_survive_the_mean_only_after_aligning(bias):
    """Aligning changes nothing that the layer computes; then nothing is lost, and without it most is."""
    layer = MultiHeadAttention(D_MODEL, 2, d_k=D_K, d_v=5, bias=bias).double()
    for projection, width in ((layer.k_proj, D_K), (layer.v_proj, 5)):
        turn, _ = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64))
        for parameter in projection.parameters():
            heads = parameter.normal_().unflatten(0, (2, -1))
            heads[1] = turn @ heads[0]
    before, x = copy.deepcopy(layer.state_dict()), torch.randn(BATCH, 50, D_MODEL, dtype=torch.float64)
    aligned, (expected, weights) = align_kv_heads(layer, 1, x), layer(x)
    assert all(torch.equal(layer.state_dict()[name], part) for name, part in before.items())
    assert_close(aligned(x)[1], weights, 1e-10)
    assert_close(aligned(x)[0], expected, 1e-10)
    assert_close(group_kv_heads(aligned, 1)(x)[0], expected, 1e-10)
    assert (group_kv_heads(layer, 1)(x)[0] - expected).norm() > 0.3 * expected.norm()


def test_heads_are_aligned_within_their_group_only():
    layer, x = MultiHeadAttention(D_MODEL, HEADS, d_k=D_K, d_v=5).double(), torch.randn(50, D_MODEL).double()
    aligned = align_kv_heads(layer, KV_HEADS, x)
    assert_close(aligned(x)[0], layer(x)[0], 1e-12)
    _, before, _ = layer.project(x, x, x)
    _, after, _ = aligned.project(x, x, x)
    for h in range(HEADS):
        first = 3 * (h // 3)
        off, was = ((keys[h] - keys[first]).norm() for keys in (after, before))
        assert torch.allclose(after[h], before[h]) if h == first else off < was, h


@pytest.mark.parametrize(("n_query", "n_key"), [(5, 5), (2, 7), (7, 2)])
@pytest.mark.parametrize("window", [1, 3, 9])
def test_a_window_counts_back_from_the_query(n_query, n_key, window):
    at = [i + n_key - n_query for i in range(n_query)]
    expected = [[p - window < j <= p for j in range(n_key)] for p in at]
    assert sliding_window_mask(n_query, n_key, window=window).tolist() == expected


@pytest.mark.parametrize("d_v", [D_K, 3])
@pytest.mark.parametrize("score", [None, AlibiScore(HEADS)])
@pytest.mark.parametrize(
    "mask",
    [None, causal_mask(N), torch.zeros(N, N, dtype=torch.bool), causal_mask(N)[:, 2:3], torch.tensor(True)],
)
def test_a_sink_takes_weight_and_gives_nothing(mask, score, d_v):
    """By the definition; with gradients, in the weights and in the fused kernel."""
    options = {"d_k": D_K, "d_v": d_v, "num_kv_heads": KV_HEADS, "score": score}
    layer = ModernAttention(D_MODEL, HEADS, sinks=True, **options).double()
    bare = MultiHeadAttention(D_MODEL, HEADS, **options).double()
    bare.load_state_dict({key: value for key, value in layer.state_dict().items() if key != "sinks"})
    torch.nn.init.normal_(layer.sinks)
    x = torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)
    q, k, _ = layer.project(x, x, x)
    k = repeat_kv(k, HEADS // KV_HEADS)
    exps = (q @ k.mT / D_K**0.5 if score is None else score(q, k)).exp()
    if mask is not None:
        exps = exps * mask
    output, weights = layer(x, mask=mask)
    assert_close(weights, exps / (exps.sum(-1, keepdim=True) + layer.sinks.exp()[:, None, None]), 1e-10)
    fused, _ = layer(x, mask=mask, need_weights=False)
    assert_close(fused, output, 1e-10)
    (by_weights,), (by_kernel,) = (
        torch.autograd.grad(y.square().sum(), [layer.sinks]) for y in (output, fused)
    )
    assert_close(by_kernel, by_weights, 1e-8)
    with torch.no_grad():
        layer.sinks.fill_(-300.0)
    assert_close(layer(x, mask=mask)[0], bare(x, mask=mask)[0], 1e-10)


def test_a_gate_multiplies_each_number_of_each_head():
    layer = ModernAttention(D_MODEL, HEADS, gate=True).double()
    x, context = torch.randn(BATCH, N, D_MODEL).double(), torch.randn(BATCH, 5, D_MODEL).double()
    heads, _ = layer.attend(*layer.project(x, context, context), None)
    gate = torch.sigmoid(x @ layer.gate_proj.weight.mT + layer.gate_proj.bias)
    expected = layer.out_proj(heads.transpose(1, 2).flatten(-2) * gate)
    assert_close(layer(x, context)[0], expected, 1e-12)


def test_normalised_queries_and_capped_scores_stay_below_their_limits():
    """In float16, where the plain scores are infinite and the plain weights are NaN."""
    query = key = 300 * torch.randn(1, 2, N, 16).half()
    assert (query @ key.mT).isinf().any()
    norm = QueryKeyNorm(16).half()
    q, k = norm(query, key)
    assert (q @ k.mT).abs().max() <= 16.1
    assert_close(q.float().square().mean(-1), torch.ones(1, 2, N), 1e-2)
    scores = SoftcappedScore(5.0)(query.float(), key.float())
    assert scores.abs().max() <= 5
    small = torch.randn(1, 2, N, 16).double() / 100
    assert_close(SoftcappedScore(50.0)(small, small), small @ small.mT / 4, 1e-6)


# In the model


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_a_model_with_other_layers_writes_the_same_with_and_without_its_cache(positions):
    """A window in layer 0, all keys in layer 1, with everything else at once; longer than the windows."""

    def attention(layer):
        return layer_with(
            12, 4, num_kv_heads=2, window=(3, None)[layer], sinks=True, gate=True,
            transform=TransformSequence(QueryKeyNorm(6), Rotary(layout="halves")), d_k=6,
        )  # fmt: skip

    model = Decoder(11, d_model=12, positions=positions, attention=attention, max_length=16).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    start = torch.randint(11, (BATCH, 5))
    one, other = (generate(model, start, 9, temperature=0, use_cache=use) for use in (True, False))
    assert torch.equal(one, other)
    _, caches = model.extend(one)
    assert [cache.key.shape[-2] for cache in caches] == [3, 14]
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert ("position_embedding.weight" in trained) == (positions == "learned")


# What is refused


def llama_3_1():
    """Its frequencies follow a rule of its own."""
    rope = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = transformers.LlamaConfig(hidden_size=12, num_attention_heads=4, rope_parameters=rope)
    return importlib.import_module("transformers.models.llama.modeling_llama").LlamaAttention(config, 0)


GROUPED = layer_with(12, 4, num_kv_heads=2, window=3)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: MultiHeadAttention(12, 4, num_kv_heads=3), ValueError, "num_kv_heads.*divides num_heads"),
        (lambda: MultiHeadAttention(12, 4, num_kv_heads=0), ValueError, "num_kv_heads: expected at least 1"),
        (lambda: layer_with(12, 4, window=0), ValueError, "window: expected at least 1"),
        (lambda: sliding_window_mask(3, window=2.0), TypeError, "window: expected an int"),
        (lambda: repeat_kv(torch.ones(2, 3), 2), ValueError, "num_kv_heads, n, width"),
        (lambda: SoftcappedScore(0.0), ValueError, "cap: expected a number above 0"),
        (lambda: group_kv_heads(GROUPED, 3), ValueError, "divides the layer's num_kv_heads = 2"),
        (lambda: align_kv_heads(GROUPED, 2, torch.ones(5, 12)), ValueError, "each head, got 2 KV heads"),
        (
            lambda: align_kv_heads(ModernAttention(12, 4, gate=True), 2, torch.ones(5, 12)),
            ValueError,
            "got a layer with gate_proj",
        ),
        (lambda: from_transformers(torch.nn.Linear(2, 3)), TypeError, "an attention layer of Llama, Mistral"),
        (lambda: from_transformers(llama_3_1()), ValueError, "rope_type 'default', 'linear', or 'yarn'"),
        (lambda: GROUPED.to_torch(), ValueError, "num_kv_heads: expected 4, the only value in"),
        (lambda: Decoder(5, positions="rotary"), ValueError, "'learned', 'sinusoidal' or 'none'"),
        (lambda: Decoder(5, attention=MultiHeadAttention), TypeError, "layer -> MultiHeadAttention"),
    ],
)  # fmt: skip
def test_what_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.unchecked
@pytest.mark.parametrize("other", [{}, {"window": 2}, {"window": None}, {"num_kv_heads": 4}])
def test_a_cache_of_another_layer_is_refused_and_nothing_changes(other):
    """Even if it has the shapes of this layer's cache; the message names both windows."""
    maker = layer_with(12, 4, **{"num_kv_heads": 2, "window": 3} | other)
    x = torch.randn(1, 5, 12)
    _, cache = maker.extend(x)
    before = [part.clone() for part in cache[:2]]
    wanted = "cache: expected a cache of this layer, with window = 3"
    with pytest.raises(
        ValueError, match=rf"^{wanted}, got one of another layer, with window = {maker.window}\."
    ):
        GROUPED.extend(x, cache)
    assert all(map(torch.equal, before, cache[:2]))


def test_a_cache_is_refused_after_its_layer_got_another_window():
    layer, x = layer_with(12, 4, window=3), torch.randn(1, 5, 12)
    _, cache = layer.extend(x)
    layer.mask = SlidingWindow(4)
    with pytest.raises(
        ValueError, match="of this layer, with window = 4, got one of this layer, with window = 3"
    ):
        layer.extend(x, cache)


@torch.no_grad()
def test_a_copy_of_a_cache_goes_on_and_a_cache_does_not_keep_its_layer_alive():
    layer, x = layer_with(12, 4, window=3), torch.randn(1, 5, 12)
    _, cache = layer.extend(x)
    one, two = (layer.extend(x, kept)[0] for kept in (cache, copy.deepcopy(cache)))
    assert torch.equal(one, two)
    del layer
    gc.collect()
    assert cache.layer() is None
    with pytest.raises(ValueError, match="got one of another layer, with window = 3"):
        GROUPED.extend(x, cache)


def of_grouped(dtype=torch.float32, batch=1):
    """A cache that GROUPED made, in another dtype or for another batch."""
    _, cache = GROUPED.extend(torch.randn(batch, 5, 12))
    return cache._replace(key=cache.key.to(dtype), value=cache.value.to(dtype))


LATENT = LatentAttention(12, 4, kv_rank=5, d_nope=4, d_rope=2)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: (GROUPED, x, LATENT.compress(x)), TypeError, "cache: expected the Cache .+ LatentCache"),
        (lambda x: (GROUPED, x, (x, x)), TypeError, "cache: expected the Cache that .+, got tuple"),
        (lambda x: (GROUPED, x, x), TypeError, "cache: expected the Cache that .+, got Tensor"),
        (lambda x: (GROUPED, x.double()), TypeError, "x: expected the dtype of q_proj.weight"),
        (lambda x: (GROUPED, x, of_grouped(torch.float64)), TypeError, "cache.key: expected the dtype of x"),
        (lambda x: (GROUPED, x, of_grouped(batch=2)), ValueError, r"cache: .+\(1, 2, 3, 3\).+ this batch\?"),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_call_is_refused_before_anything_is_computed(call, error, says, monkeypatch):
    layer, *arguments = call(torch.randn(1, 5, 12))
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda *_: pytest.fail("something was computed"))
    with pytest.raises(error, match="^" + says):
        layer.extend(*arguments)


@pytest.mark.unchecked
def test_the_name_in_the_chapters_is_the_method_of_the_layer():
    x = torch.randn(1, 5, 12)
    assert torch.equal(attend_with_cache(GROUPED, x)[0], GROUPED.extend(x)[0])
    with pytest.raises(TypeError, match=r"^layer: expected a MultiHeadAttention, got LatentAttention"):
        attend_with_cache(LATENT, x)
