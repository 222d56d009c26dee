"""The two modules against loops, against PyTorch's layer, and against themselves."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mha_lab import (
    AdditiveScore,
    MultiHeadAttention,
    RelativePositionBias,
    SingleHeadAttention,
    _expect,
    causal_mask,
    mask_to_blocked,
    padding_mask,
)
from mha_lab._convert import weights_and_biases
from mha_lab.masks import SlidingWindow
from mha_lab.positions import Rotary, alibi_slopes, apply_rotary
from mha_lab.scores import AlibiScore
from tests.references import (
    MASKS,
    TOLERANCE,
    Shapes,
    assert_close,
    chunks,
    layer_with,
    looped_attention,
    mask_of_kind,
)

BATCH, N_Q, N_K, D_K, KDIM, VDIM = 2, 5, 7, 11, 13, 17
SOURCES = ("self", "cross", "cross, own widths")
DTYPES = (torch.float64, torch.float32)


def inputs(source, d_model, dtype=torch.float64):
    """``(query, key, value)`` as ``MultiHeadAttention`` takes them; ``None`` where it has a default."""
    query = torch.randn(BATCH, N_Q, d_model, dtype=dtype)
    if source == "self":
        return query, None, None
    if source == "cross":
        return query, torch.randn(BATCH, N_K, d_model, dtype=dtype), None
    return query, torch.randn(BATCH, N_K, KDIM, dtype=dtype), torch.randn(BATCH, N_K, VDIM, dtype=dtype)


def pair(heads, source="self", bias=True, batch_first=True, dtype=torch.float64, dropout=0.0):
    """PyTorch's layer, its biases moved off 0, and ours with the same numbers."""
    own = {"kdim": KDIM, "vdim": VDIM} if source == "cross, own widths" else {}
    theirs = nn.MultiheadAttention(
        heads * D_K, heads, bias=bias, batch_first=batch_first, dtype=dtype, dropout=dropout, **own
    )
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
    return MultiHeadAttention.from_torch(theirs), theirs


def torch_masks(mask, kind, heads, n_q, n_k):
    """PyTorch's own way to say the same: its argument for padding, or a mask for each head."""
    if mask is None:
        return {}
    mask = mask_to_blocked(mask)
    if kind == "padding":
        return {"key_padding_mask": mask[:, 0, 0]}
    return {"attn_mask": mask if kind == "causal" else mask.expand(BATCH, heads, n_q, n_k).flatten(0, 1)}


def gradients(module):
    """Gradients of ours or of PyTorch's packed parameters, under one set of names."""
    if isinstance(module, MultiHeadAttention):
        return {name: parameter.grad for name, parameter in module.named_parameters()}
    names = [f"{name}_proj.{kind}" for kind in ("weight", "bias") for name in ("q", "k", "v", "out")]
    return dict(zip(names, weights_and_biases(module, lambda parameter: parameter.grad), strict=False))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.integers(1, 3),
    st.sampled_from(SOURCES),
    st.sampled_from(MASKS),
    *[st.booleans()] * 3,
)
def test_equal_to_pytorchs_layer(dtype, heads, source, kind, bias, batch_first, need_weights):
    """Output, weights, and the gradients of every parameter and every input."""
    tolerance = TOLERANCE[dtype]
    ours, theirs = pair(heads, source, bias, batch_first, dtype)
    mine = inputs(source, heads * D_K, dtype)
    if not batch_first:
        mine = [None if x is None else x.transpose(0, 1).contiguous() for x in mine]
    mine = [None if x is None else x.requires_grad_() for x in mine]
    query, key, value = other = [None if x is None else x.detach().clone().requires_grad_() for x in mine]
    key = query if key is None else key
    value = key if value is None else value
    n_k = N_Q if source == "self" else N_K
    mask = mask_of_kind(kind, BATCH, heads, N_Q, n_k)
    masks = torch_masks(mask, kind, heads, N_Q, n_k)

    output, weights = ours(*mine, mask, need_weights=need_weights)
    found = theirs(query, key, value, need_weights=need_weights, average_attn_weights=False, **masks)
    assert_close(output, found[0], tolerance)
    assert (weights is None) == (not need_weights)
    upstream = torch.randn_like(output)
    losses = [(output * upstream).sum(), (found[0] * upstream).sum()]
    if need_weights:
        assert_close(weights, found[1], tolerance)
        upstream = torch.randn_like(weights)
        losses = [losses[0] + (weights * upstream).sum(), losses[1] + (found[1] * upstream).sum()]
    for loss in losses:
        loss.backward()
    # A gradient is a sum of many terms: compared relative to the largest of them, where that is above 1.
    found, expected = gradients(ours), gradients(theirs)
    assert found.keys() == expected.keys()
    scale = max(1.0, *(grad.abs().max().item() for grad in expected.values()))
    found |= {f"input {i}": x.grad for i, x in enumerate(mine) if x is not None}
    expected |= {f"input {i}": x.grad for i, x in enumerate(other) if x is not None}
    for name, gradient in found.items():
        assert_close(gradient / scale, expected[name] / scale, tolerance)


@pytest.mark.parametrize("need_weights", [True, False])
def test_equal_to_pytorchs_layer_in_evaluation(need_weights):
    """There PyTorch's layer takes a fast path of its own."""
    ours, theirs = pair(3, dropout=0.5)
    query, _, _ = inputs("self", 3 * D_K)
    mask = padding_mask([5, 2])
    with torch.no_grad():
        output, _ = ours.eval()(query, mask=mask, need_weights=need_weights)
        expected, _ = theirs.eval()(query, query, query, ~mask[:, 0, 0], need_weights=need_weights)
    assert_close(output, expected, 1e-10)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    ("heads", "given"), [(3, {}), (3, {"d_k": 5}), (3, {"d_v": 5}), (4, {"d_k": 3, "d_v": 5})]
)
def test_every_head_equals_the_loops(heads, given, need_weights, gradient):
    """A reference that shares nothing with PyTorch's layer: one head of one sample at a time."""
    layer = MultiHeadAttention(6, heads, qdim=5, kdim=7, vdim=11, **given).double()
    query, key, value = (torch.randn(2, n, d).double() for n, d in ((3, 5), (4, 7), (4, 11)))
    mask = torch.rand(2, heads, 3, 4) > 0.4
    mask[0, 1, 2] = False
    with torch.set_grad_enabled(gradient):
        output, weights = layer(query, key, value, mask, need_weights=need_weights)
    projected = layer.q_proj(query), layer.k_proj(key), layer.v_proj(value)
    split = [x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in projected]
    found, expected = looped_attention(*split, mask)
    assert_close(weights, expected if need_weights else None, 1e-12)
    assert_close(output, layer.out_proj(found.transpose(1, 2).flatten(2)), 1e-12)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("d_k", "d_v"), [(None, None), (3, None), (3, 5)])
def test_single_head_equals_the_loops(d_k, d_v, bias):
    layer = SingleHeadAttention(7, d_k, d_v, bias=bias).double()
    x, context = torch.randn(2, 3, 7).double(), torch.randn(2, 5, 7).double()
    mask = torch.rand(2, 3, 5) > 0.4
    mask[1, 2] = False
    output, weights = layer(x, context, mask)
    assert output.shape == (2, 3, d_v or d_k or 7)
    expected = looped_attention(layer.q_proj(x), layer.k_proj(context), layer.v_proj(context), mask)
    assert_close(output, expected[0], 1e-12)
    assert_close(weights, expected[1], 1e-12)
    assert len(list(layer.parameters())) == (6 if bias else 3)


def test_one_input_alone_is_self_attention_and_value_is_key():
    x, y = torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    one, layer = SingleHeadAttention(6), MultiHeadAttention(6, 2)
    assert_close(one(x)[0], one(x, x)[0], 1e-6)
    assert_close(layer(x)[0], layer(x, x, x)[0], 1e-6)
    assert_close(layer(x, y)[0], layer(x, y, y)[0], 1e-6)


def test_single_head_takes_the_mask_of_many():
    layer = SingleHeadAttention(7)
    x, mask = torch.randn(2, 5, 7), padding_mask([5, 2])
    assert_close(layer(x, mask=mask)[1], layer(x, mask=mask[:, 0])[1], 1e-6)
    assert_close(layer(x[1], mask=mask[1])[1], layer(x[1], mask=mask[1, 0])[1], 1e-6)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_without_a_batch(batch_first, need_weights):
    layer = MultiHeadAttention(6, 2, batch_first=batch_first)
    x, y, mask = torch.randn(5, 6), torch.randn(7, 6), torch.rand(2, 5, 7) > 0.3
    axis = 0 if batch_first else 1
    output, weights = layer(x, y, mask=mask, need_weights=need_weights)
    batched = layer(x.unsqueeze(axis), y.unsqueeze(axis), mask=mask, need_weights=need_weights)
    assert_close(output, batched[0].squeeze(axis), 1e-6)
    if need_weights:
        assert_close(weights, batched[1][0], 1e-6)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_sample_of_padding_only_gives_the_bias_and_finite_gradients(dtype, need_weights):
    layer = MultiHeadAttention(6, 3).to(dtype)
    nn.init.normal_(layer.out_proj.bias)
    x = torch.randn(2, 5, 6, dtype=dtype, requires_grad=True)
    output, weights = layer(x, mask=padding_mask([0, 3], max_length=5), need_weights=need_weights)
    assert torch.equal(output[0], layer.out_proj.bias.expand(5, 6))
    assert not torch.equal(output[1], layer.out_proj.bias.expand(5, 6))
    if need_weights:
        assert (weights[0] == 0).all()
    output.square().sum().backward()
    for tensor in (x, *layer.parameters()):
        assert tensor.grad.isfinite().all()
    assert (x.grad[0] == 0).all()
    assert (x.grad[1] != 0).any()


def cosine(query, key):
    return nn.functional.normalize(query, dim=-1) @ nn.functional.normalize(key, dim=-1).mT


SCORES = [AdditiveScore(3, 5), RelativePositionBias(2, 3)]


@pytest.mark.parametrize("score", [*SCORES, cosine])
def test_a_score_decides_the_weights(score):
    layer = MultiHeadAttention(6, 2, score=score)
    x, y = torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    mask = torch.rand(5, 7) > 0.3
    mask[2] = False
    output, weights = layer(x, y, mask=mask)
    q, k, v = layer.q_proj(x), layer.k_proj(y), layer.v_proj(y)
    q, k, v = (z.view(2, -1, 2, 3).transpose(1, 2) for z in (q, k, v))
    expected = score(q, k).masked_fill(~mask, float("-inf")).softmax(dim=-1).nan_to_num()
    assert_close(weights, expected, 1e-6)
    assert_close(output, layer.out_proj((expected @ v).transpose(1, 2).flatten(-2)), 1e-6)
    fused_output, nothing = layer(x, y, mask=mask, need_weights=False)
    assert nothing is None
    assert_close(fused_output, output, 1e-6)


@pytest.mark.parametrize("score", SCORES)
def test_a_score_with_parameters_is_trained_and_saved_with_the_layer(score):
    layer = MultiHeadAttention(6, 2, score=score)
    assert any(name.startswith("score.") for name in layer.state_dict())
    layer(torch.randn(2, 5, 6))[0].square().sum().backward()
    for parameter in score.parameters():
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("grad", [True, False])
def test_scores_that_the_caller_keeps_stay_as_they_were(grad):
    kept = torch.randn(2, 2, 5, 5)
    before = kept.clone()
    layer = MultiHeadAttention(6, 2, score=lambda query, key: kept)
    with torch.set_grad_enabled(grad):
        layer(torch.randn(2, 5, 6), mask=torch.rand(5, 5) > 0.3)
    assert torch.equal(kept, before)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("score", [None, cosine, RelativePositionBias(2, 3)])
def test_no_input_is_changed(score, need_weights, grad):
    layer = MultiHeadAttention(6, 2, kdim=7, vdim=11, dropout=0.3, score=score)
    given = [torch.randn(2, 5, 6), torch.randn(2, 3, 7), torch.randn(2, 3, 11), torch.rand(2, 1, 5, 3) > 0.5]
    before = [x.clone() for x in given]
    state = copy.deepcopy(layer.state_dict())
    with torch.set_grad_enabled(grad):
        layer(*given, need_weights=need_weights)
    for now, then in zip(given, before, strict=True):
        assert torch.equal(now, then)
    for name, tensor in layer.state_dict().items():
        assert torch.equal(tensor, state[name])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("score", [None, cosine])
def test_dropout_in_training_only(score, need_weights):
    layer = MultiHeadAttention(6, 2, dropout=0.5, score=score)
    x = torch.randn(2, 5, 6)
    assert not torch.equal(*(layer(x, need_weights=need_weights)[0] for _ in range(2)))
    plain = MultiHeadAttention(6, 2, score=score)
    plain.load_state_dict(layer.state_dict())
    assert_close(layer.eval()(x, need_weights=need_weights)[0], plain(x, need_weights=need_weights)[0], 1e-6)


def test_dropout_draws_what_pytorchs_layer_draws():
    ours, theirs = pair(3, dropout=0.4)
    x, _, _ = inputs("self", 3 * D_K)
    torch.manual_seed(5)
    output, weights = ours(x)
    torch.manual_seed(5)
    expected, expected_weights = theirs(x, x, x, average_attn_weights=False)
    assert (weights == 0).any()
    assert_close(weights, expected_weights, 1e-10)
    assert_close(output, expected, 1e-10)


@pytest.mark.parametrize("layer", [MultiHeadAttention(6, 2, score=SCORES[0]), SingleHeadAttention(6)])
def test_copies_are_whole_and_apart(layer):
    other = pickle.loads(pickle.dumps(layer))
    x = torch.randn(2, 5, 6)
    assert_close(other(x)[0], layer(x)[0], 1e-6)
    with torch.no_grad():
        other.q_proj.weight.zero_()
    assert (other(x)[0] - layer(x)[0]).abs().max() > 1e-3


@pytest.mark.parametrize("score", [None, AlibiScore(3)])
@pytest.mark.parametrize("mask", [None, torch.ones(N_Q, N_Q).tril().bool()])
@pytest.mark.parametrize("gradient", [True, False])
def test_a_transformation_reaches_every_path(gradient, mask, score):
    """Rotated by hand before a layer without projections: with weights, fused, and with a score."""
    heads, width = 3, 4
    layer = MultiHeadAttention(heads * width, heads, transform=Rotary(), score=score, bias=False).double()
    with torch.no_grad():
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
            projection.weight.copy_(torch.eye(heads * width))
    x = torch.randn(BATCH, N_Q, heads * width, dtype=torch.float64)
    with torch.set_grad_enabled(gradient):
        output, weights = layer(x, mask=mask)
        fused, none = layer(x, mask=mask, need_weights=False)
    assert none is None
    assert_close(fused, output, 1e-10)
    turned = apply_rotary(x.unflatten(-1, (heads, width)).transpose(1, 2))
    scores = turned @ turned.mT / width**0.5
    if score is not None:
        distance = (torch.arange(N_Q)[:, None] - torch.arange(N_Q)).abs()
        scores = scores - alibi_slopes(heads)[:, None, None] * distance
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    assert_close(weights, scores.softmax(-1), 1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("source", ["self", "cross, own widths"])
def test_there_and_back_again_as_copies(source, batch_first, bias, dtype):
    ours, theirs = pair(2, source, bias, batch_first, dtype, dropout=0.25)
    layer, before = MultiHeadAttention.from_torch(theirs.eval()), copy.deepcopy(theirs.state_dict())
    again = layer.to_torch()
    assert (again.training, again.dropout, again.batch_first) == (False, 0.25, batch_first)
    assert again.state_dict().keys() == before.keys()
    for name, tensor in MultiHeadAttention.from_torch(ours.to_torch()).state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[name])
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    for name, tensor in before.items():
        assert torch.equal(again.state_dict()[name], tensor)
        assert torch.equal(theirs.state_dict()[name], tensor)


WIDTH = 23  # of what comes in; every other axis has another size
CACHED = {
    "plain": {},
    "sequence first": {"batch_first": False},
    "groups": {"num_kv_heads": 3},
    "a window": {"window": 3, "num_kv_heads": 2},
    "a mask": {"mask": chunks},
    "positions": {"transform": Rotary(), "num_kv_heads": 3},
    "a score": {"score": AlibiScore(6)},
    "sinks and a gate": {"sinks": True, "gate": True, "num_kv_heads": 2},
    "no bias": {"bias": False},
}


def cached(**options):
    layer = layer_with(13, 6, d_k=4, d_v=5, qdim=WIDTH, kdim=WIDTH, vdim=WIDTH, **options).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("pieces", [[1] * 11, [11], [4, 7], [6, 1, 1, 3]])
@pytest.mark.parametrize("options", CACHED.values(), ids=CACHED)
def test_piece_by_piece_equals_the_whole_and_so_do_the_gradients(options, pieces, batch):
    sizes = (7, 11) if options.get("batch_first", True) else (11, 7)
    sizes = sizes if batch else (11,)
    layer, axis = cached(**options), sizes.index(11)
    x = torch.randn(*sizes, WIDTH, dtype=torch.float64, requires_grad=True)
    expected, _ = layer(x, mask=causal_mask(11))
    outputs, cache = [], None
    for piece in x.split(pieces, dim=axis):
        output, cache = layer.extend(piece, cache)
        outputs.append(output)
    found = torch.cat(outputs, dim=axis)
    assert_close(found, expected, 1e-12)
    upstream = torch.randn_like(expected)
    gradients = (torch.autograd.grad(y, [x, *layer.parameters()], upstream) for y in (found, expected))
    for mine, other in zip(*gradients, strict=True):
        assert_close(mine, other, 1e-10)
    kept = min(11, options.get("window", 11))
    sizes = *((7,) if batch else ()), options.get("num_kv_heads", 6), kept
    assert (cache.key.shape, cache.value.shape, cache.length) == ((*sizes, 4), (*sizes, 5), 11)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(("n_kept", "n_new"), [(0, 11), (11, 7), (11, 1)])
@pytest.mark.parametrize("options", [o for o in CACHED.values() if not {"window", "score"} & set(o)])
def test_a_cache_computes_no_weights(options, n_kept, n_new, gradient):
    """The whole pass does: that is what would be seen."""
    layer, x = cached(**options), torch.randn(n_kept + n_new, WIDTH, dtype=torch.float64)
    columns = n_kept + n_new + options.get("sinks", False)
    with torch.set_grad_enabled(gradient):
        cache = layer.extend(x[:n_kept])[1] if n_kept else None
        with Shapes() as shapes:
            layer.extend(x[n_kept:], cache)
        assert not shapes.weights(n_new, columns)
        with Shapes() as shapes:
            layer(x[n_kept:], x)
        assert shapes.weights(n_new, columns)


def test_a_cache_needs_keys_and_values_as_wide_as_queries():
    with pytest.raises(ValueError, match=r"^key: expected a last axis of kdim = 7, got 6"):
        MultiHeadAttention(6, 3, kdim=7).extend(torch.randn(2, 5, 6))


@pytest.mark.parametrize("window", [None, 4])
def test_a_cache_holds_as_many_tokens_as_it_says(window):
    layer = layer_with(6, 3, window=window)
    _, cache = layer.extend(torch.randn(2, 5, 6))
    cut = cache._replace(key=cache.key[..., 1:, :], value=cache.value[..., 1:, :])
    n = window or 5
    with pytest.raises(
        ValueError, match=rf"^cache: expected shapes \(2, 3, {n}, 2\).* got \(2, 3, {n - 1}, 2\)"
    ):
        layer.extend(torch.randn(2, 1, 6), cut)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("place", [chunks, SlidingWindow(3), causal_mask])
def test_a_query_sees_what_the_layer_and_the_call_both_allow(place, gradient, need_weights):
    torch.manual_seed(0)
    plain, x = MultiHeadAttention(6, 2), torch.randn(3, 11, 6)
    layer = MultiHeadAttention(6, 2, mask=place)
    layer.load_state_dict(plain.state_dict())
    rows, own = torch.rand(11, 11) > 0.4, place(11, 11)
    with torch.set_grad_enabled(gradient):
        for given, is_causal in ((None, False), (None, True), (rows, False), (rows, True)):
            found, _ = layer(x, mask=given, is_causal=is_causal, need_weights=need_weights)
            seen = own if given is None else own & given
            assert_close(found, plain(x, mask=seen & causal_mask(11) if is_causal else seen)[0], 1e-6)
        assert not torch.allclose(found, plain(x)[0], atol=1e-3)


@pytest.mark.parametrize(("count", "times"), [(1, 1), (2, 2), (3, 3)])
def test_each_input_is_checked_once(count, times, monkeypatch):
    """Self-attention has one input, whether it is passed once or three times."""
    layer, given = MultiHeadAttention(6, 2), [torch.randn(2, 5, 6) for _ in range(count)]
    calls = []
    for name in ("tensor", "floating", "sequence"):
        check = getattr(_expect, name)
        monkeypatch.setattr(
            _expect, name, lambda *args, check=check, **how: (calls.append(args), check(*args, **how))[1]
        )
    layer(*given)
    assert len(calls) == 3 * times
    calls.clear()
    layer(*given[:1] * 3)
    assert len(calls) == 3


def test_it_starts_as_pytorchs_layer_does():
    """Same distribution: Xavier-uniform for one projection, whose bound is sqrt(6 / (in + out))."""
    layer = MultiHeadAttention(64, 2, kdim=32)
    for projection, width in ((layer.q_proj, 64), (layer.k_proj, 32), (layer.v_proj, 64)):
        bound = (6 / (width + 64)) ** 0.5
        assert 0.95 * bound < projection.weight.abs().max() <= bound
        assert not projection.bias.any()
    assert not layer.out_proj.bias.any()
    reference = nn.MultiheadAttention(64, 2, kdim=32, vdim=64)
    assert layer.q_proj.weight.std().item() == pytest.approx(reference.q_proj_weight.std().item(), rel=0.05)


def test_printing_shows_the_sizes():
    assert "d_model=6, num_heads=2, d_k=3, dropout=0.0" in repr(MultiHeadAttention(6, 2))
    assert "d_k=3, d_v=5" in repr(MultiHeadAttention(6, 4, d_k=3, d_v=5))


def test_what_is_left_out_of_one_head_and_what_is_asked_of_sinks():
    assert set(SingleHeadAttention(4).state_dict()) == {"q_proj.weight", "k_proj.weight", "v_proj.weight"}
    layer = layer_with(8, 2, sinks=True, gate=True, device="meta", dtype=torch.float64)
    assert {(p.device.type, p.dtype) for p in layer.parameters()} == {("meta", torch.float64)}
