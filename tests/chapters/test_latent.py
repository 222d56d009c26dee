"""Latent attention against transformers' DeepSeek-V3 and the paper's equations; its two forms; its cache."""

import gc
import math

import pytest
import torch

from mha_course.chapters.latent import LatentAttention, attend_with_latent_cache, cache_numbers
from mha_lab import MultiHeadAttention, causal_mask, padding_mask
from tests.references import TOLERANCE, Shapes, assert_close

BATCH, N, D_MODEL, HEADS = 2, 9, 17, 3
SIZES = {"kv_rank": 11, "q_rank": 13, "d_nope": 7, "d_rope": 10, "d_v": 5}


@torch.no_grad()
def randomised(module):
    """Nothing is 0 or 1: a lost bias, or a norm's weight, is noticed."""
    for p in module.parameters():
        p.normal_(std=0.4)
    return module


def made(dtype=torch.float64, **changes):
    return randomised(LatentAttention(D_MODEL, HEADS, **SIZES | changes).to(dtype))


def tokens(dtype=torch.float64):
    return torch.randn(BATCH, N, D_MODEL, dtype=dtype)


@pytest.mark.parametrize("changes", [{}, {"q_rank": None, "layout": "halves", "base": 50}], ids=["q", "no q"])
@torch.no_grad()
def test_equal_to_the_equations_of_the_paper(changes):
    """DeepSeek-V2, appendix C, equations 37 to 47, head by head; a pair of numbers is one complex number."""
    layer, x, d_rope = made(**changes), tokens(), SIZES["d_rope"]
    w = {name.removesuffix(".weight"): p.mT if p.ndim == 2 else p for name, p in layer.named_parameters()}
    frequency = layer.base ** (torch.arange(0, d_rope, 2).double() / -d_rope)
    angle = torch.arange(N)[:, None] * frequency

    def norm(name, c):
        return c / (c.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() * w[name]

    def rope(r):
        a, b = (r[..., ::2], r[..., 1::2]) if layer.layout == "pairs" else r.chunk(2, dim=-1)
        return torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle)

    c_q = x if layer.q_rank is None else norm("q_norm", x @ w["q_down_proj"])
    c_kv, k_r = norm("kv_norm", x @ w["kv_down_proj"]), rope(x @ w["k_rope_proj"])
    heads, rows = [], []
    for i in range(HEADS):
        nope, turned, val = (slice(i * d, (i + 1) * d) for d in (SIZES["d_nope"], d_rope, SIZES["d_v"]))
        scores = (c_q @ w["q_nope_proj"][:, nope]) @ (c_kv @ w["k_nope_proj"][:, nope]).mT
        scores = scores + (rope(c_q @ w["q_rope_proj"][:, turned]) @ k_r.mH).real
        row = (scores / math.sqrt(SIZES["d_nope"] + d_rope)).exp().tril()
        rows.append(row / row.sum(dim=-1, keepdim=True))
        heads.append(rows[-1] @ (c_kv @ w["v_proj"][:, val]))
    expected = torch.cat(heads, dim=-1) @ w["out_proj"], torch.stack(rows, dim=1)
    for absorbed in (False, True):
        for ours, theirs in zip(layer(x, causal_mask(N), absorbed=absorbed), expected, strict=True):
            assert_close(ours, theirs, 1e-10)
        for ours, theirs in zip(layer(x[1], causal_mask(N), absorbed=absorbed), expected, strict=True):
            assert_close(ours, theirs[1], 1e-10)  # without a batch axis


@pytest.mark.parametrize("mask", [None, causal_mask(N), padding_mask([4, 7], N) & causal_mask(N)])
@pytest.mark.parametrize("changes", [{}, {"q_rank": None, "d_v": None, "bias": True}])
def test_the_absorbed_form_is_the_other_form_with_gradients_too(changes, mask):
    layer, found = made(**changes), []
    x, upstream = tokens().requires_grad_(), tokens()
    for absorbed in (False, True):
        output, weights = layer(x, mask, absorbed=absorbed)
        gradients = torch.autograd.grad((output * upstream).sum(), [x, *layer.parameters()])
        found.append([output, weights, *gradients])
    assert len(found[0]) == 3 + len(list(layer.parameters()))
    for one, other in zip(*found, strict=True):
        assert_close(one, other, 1e-10)


@pytest.mark.parametrize("absorbed", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@torch.no_grad()
def test_piece_by_piece_equals_the_whole_and_the_cache_stays_as_it_was(dtype, absorbed):
    layer, x = made(dtype), tokens(dtype)
    whole, _ = layer(x, causal_mask(N))
    for pieces in ([1] * N, [N], [4, 5], [6, 1, 2]):
        outputs, cache = [], None
        for piece in x.split(pieces, dim=1):
            before = None if cache is None else [part.clone() for part in cache[:2]]
            output, longer = attend_with_latent_cache(layer, piece, cache, absorbed=absorbed)
            assert cache is None or all(map(torch.equal, before, cache[:2]))
            outputs.append(output)
            cache = longer
        assert_close(torch.cat(outputs, dim=1), whole, TOLERANCE[dtype])
        for part, expected in zip(cache[:2], layer.compress(x)[:2], strict=True):
            assert_close(part, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("absorbed", [True, False])
def test_a_cache_computes_no_weights(absorbed):
    layer, x = made(), tokens()
    _, cache = attend_with_latent_cache(layer, x[:, :2])
    with Shapes() as shapes:
        attend_with_latent_cache(layer, x[:, 2:], cache, absorbed=absorbed)
    assert not shapes.weights(N - 2, N)
    with Shapes() as shapes:
        layer(x, absorbed=absorbed)
    assert shapes.weights(N, N)


def test_the_numbers_that_are_kept():
    d_head, n = 5, 4
    counted = cache_numbers(6, d_head, num_groups=2, kv_rank=11, d_rope=10)
    latent = LatentAttention(30, 6, kv_rank=11, d_nope=d_head, d_rope=10)
    _, ours = attend_with_latent_cache(latent, torch.randn(1, n, 30))
    kept = [sum(part.numel() for part in ours[:2]) // n]
    for heads in (1, 2, 6):
        layer = MultiHeadAttention(6 * d_head, 6, num_kv_heads=heads)
        _, cache = layer.extend(torch.randn(1, n, 6 * d_head))
        kept.append((cache.key.numel() + cache.value.numel()) // n)
    assert list(counted) == kept[::-1]
    # DeepSeek-V2: "equal to GQA with only 2.25 groups"
    v2 = cache_numbers(128, 128, num_groups=1, kv_rank=512, d_rope=64)
    assert v2.latent / v2.grouped_query == 2.25


def deepseek(**changes):
    """transformers' layer, the angles of its positions, and its configuration."""
    pytest.importorskip("transformers")
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as theirs

    sizes = {
        "hidden_size": D_MODEL, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "kv_lora_rank": 11, "q_lora_rank": 13, "qk_nope_head_dim": 7, "qk_rope_head_dim": 10, "v_head_dim": 5,
        "max_position_embeddings": 31,
    }  # fmt: skip
    config = theirs.DeepseekV3Config(attn_implementation="eager", **sizes | changes)
    module = randomised(theirs.DeepseekV3Attention(config, 0)).eval()
    module.kv_a_layernorm.variance_epsilon = 0.02
    if module.q_a_layernorm is not None:
        module.q_a_layernorm.variance_epsilon = 0.03
    return module, theirs.DeepseekV3RotaryEmbedding(config)


CHANGES = [
    {},
    {"rope_interleave": False, "attention_bias": True},
    {"q_lora_rank": None, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
]
NAMES = ["as published", "halves and biases", "queries not compressed"]


# In float64, transformers' norms, softmax and angles are still computed in float32.
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 3e-6)])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("changes", CHANGES, ids=NAMES)
@torch.no_grad()
def test_outputs_and_weights_are_those_of_deepseek_v3(changes, padded, dtype, most, request):
    module, rotary = deepseek(**changes)
    module, x = module.to(dtype), tokens(dtype)
    mask = causal_mask(N) & padding_mask([4, 7] if padded else [N, N], N)
    additive = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
    theirs = module(x, rotary(x, torch.arange(N)[None]), additive)
    layer = LatentAttention.from_transformers(module)
    for absorbed in (False, True):
        ours = layer(x, mask, absorbed=absorbed)
        largest = max((a - b).abs().max().item() for a, b in zip(ours, theirs[:2], strict=True))
        request.node.user_properties.append((f"largest difference from DeepSeek-V3's, {dtype}", largest))
        assert largest < most
    assert not layer.training


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("changes", CHANGES, ids=NAMES)
@torch.no_grad()
def test_there_and_back_again(changes, dtype):
    """Written into a second original, the weights are those of the first; nothing is shared."""
    (theirs, rotary), (other, _) = deepseek(**changes), deepseek(**changes)
    theirs, other = theirs.to(dtype), other.to(dtype)
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    x = tokens(dtype)
    positions, mask = rotary(x, torch.arange(N)[None]), torch.zeros(1, 1, N, N, dtype=dtype)
    expected = theirs(x, positions, mask)[0]
    assert not torch.equal(other(x, positions, mask)[0], expected)
    ours = LatentAttention.from_transformers(theirs)
    ours.to_transformers(other)
    for parameter in [*ours.parameters(), *theirs.parameters()]:
        parameter.zero_()
    assert {name for name, value in other.state_dict().items() if torch.equal(value, before[name])} == set(
        before
    )
    assert_close(other(x, positions, mask)[0], expected, 1e-6)
    assert LatentAttention.from_transformers(other).state_dict().keys() == ours.state_dict().keys()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("layout", {"rope_interleave": False}),
        ("bias", {"attention_bias": True}),
        ("q_rank", {"q_lora_rank": None}),
        ("base", {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}),
        ("d_nope", {"qk_nope_head_dim": 5, "v_head_dim": 7}),  # packed as wide as before
    ],
)
def test_weights_are_not_written_into_a_layer_that_computes_something_else(name, changes):
    ours, (other, _) = LatentAttention.from_transformers(deepseek()[0]), deepseek(**changes)
    before = {key: value.clone() for key, value in other.state_dict().items()}
    with pytest.raises(ValueError, match=f"^module: expected a layer with {name} = "):
        ours.to_transformers(other)
    assert all(torch.equal(value, before[key]) for key, value in other.state_dict().items())


def test_what_is_no_such_layer_is_refused():
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    for changes, says in (
        ({"rope_parameters": yarn}, "rope_type 'default', got 'yarn'"),
        ({"attention_dropout": 0.1}, "attention_dropout = 0"),
    ):
        with pytest.raises(ValueError, match=says):
            LatentAttention.from_transformers(deepseek(**changes)[0])
    with pytest.raises(TypeError, match="DeepseekV3Attention, got MultiHeadAttention"):
        LatentAttention.from_transformers(MultiHeadAttention(6, 3))
    with pytest.raises(TypeError, match="DeepseekV3Attention, got MultiHeadAttention"):
        made().to_transformers(MultiHeadAttention(6, 3))
    for kept, says in (("kv_a_layernorm", "kv_norm.eps"), ("q_a_layernorm", "q_norm.eps")):
        module, _ = deepseek()
        ours = LatentAttention.from_transformers(module)
        getattr(module, kept).variance_epsilon = 0.5
        with pytest.raises(ValueError, match=f"a layer with {says} = 0.0[23], got 0.5"):
            ours.to_transformers(module)


def extend(layer=None, x=None, cache=None):
    return attend_with_latent_cache(layer or made(), tokens() if x is None else x, cache)


def extend_another(batch=None, dtype=torch.float64):
    """The layer's own cache, and new tokens of another batch or dtype."""
    layer = made()
    cache = layer.compress(tokens()[:batch])
    return extend(layer.to(dtype), tokens(dtype), cache)


def test_a_cache_of_another_layer_is_refused_and_does_not_keep_its_layer_alive():
    one, other = made(), made()
    _, cache = extend(one)
    with pytest.raises(ValueError, match="cache: expected a cache of this layer, got one of another layer"):
        extend(other, cache=cache)
    del one
    gc.collect()
    assert cache.layer() is None


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: made(d_rope=5), ValueError, "d_rope: expected an even number"),
        (lambda: made(q_rank=2.0), TypeError, "q_rank"),
        (lambda: made(layout="neighbours"), ValueError, "layout"),
        (lambda: made()(tokens()[..., 1:]), ValueError, "d_model = 17"),
        (lambda: made()(tokens(torch.float32)), TypeError, "kv_down_proj.weight"),
        (lambda: made()(tokens(), causal_mask(N - 1)), ValueError, "mask"),
        (lambda: extend(x=tokens()[0]), ValueError, "Is an axis missing"),
        (lambda: extend(MultiHeadAttention(6, 3)), TypeError, "a LatentAttention"),
        (lambda: extend(cache=(1, 2)), TypeError, "got tuple"),
        (lambda: extend_another(batch=1), ValueError, "this batch"),
        (lambda: extend_another(dtype=torch.float32), TypeError, "cache.latent"),
        (lambda: cache_numbers(6, 5, num_groups=4, kv_rank=3, d_rope=2), ValueError, "num_groups"),
    ],
)
def test_wrong_arguments_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
