"""The two modules against loops, against PyTorch's layer, and against themselves."""

import copy
import io
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
    mask_to_blocked,
    padding_mask,
    scaled_dot_product_scores,
)
from mha_lab.positions import Rotary, alibi_slopes, apply_rotary
from mha_lab.scores import AlibiScore
from tests.references import MASKS, TOLERANCE, assert_close, looped_attention, mask_of_kind, pairwise

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
    if kind == "padding":
        return {"key_padding_mask": ~mask[:, 0, 0]}
    if kind == "causal":
        return {"attn_mask": ~mask}
    return {"attn_mask": ~mask.expand(BATCH, heads, n_q, n_k).reshape(BATCH * heads, n_q, n_k)}


def gradients(module):
    """Gradients of ours or of PyTorch's packed parameters, under one set of names."""
    if isinstance(module, MultiHeadAttention):
        return {name: parameter.grad for name, parameter in module.named_parameters()}
    found = {"out_proj.weight": module.out_proj.weight.grad}
    if module.in_proj_weight is None:
        weights = [getattr(module, f"{name}_proj_weight").grad for name in "qkv"]
    else:
        weights = module.in_proj_weight.grad.chunk(3)
    found |= {f"{name}_proj.weight": grad for name, grad in zip("qkv", weights, strict=True)}
    if module.in_proj_bias is not None:
        biases = module.in_proj_bias.grad.chunk(3)
        found |= {f"{name}_proj.bias": grad for name, grad in zip("qkv", biases, strict=True)}
        found["out_proj.bias"] = module.out_proj.bias.grad
    return found


CASES = (DTYPES, [1, 2, 3], SOURCES, MASKS, [True, False], [True, False], [True, False])


@pytest.mark.parametrize(
    ("dtype", "heads", "source", "kind", "bias", "batch_first", "need_weights"), pairwise(*CASES), ids=str
)
def test_equal_to_pytorchs_layer(dtype, heads, source, kind, bias, batch_first, need_weights):
    """Any two choices meet in one of these; the next test takes some of all 1,008 combinations."""
    compare(dtype, heads, source, kind, bias, batch_first, need_weights)


@settings(max_examples=15, deadline=None)
@given(case=st.tuples(*map(st.sampled_from, CASES)))
def test_equal_to_pytorchs_layer_in_any_case(case):
    compare(*case)


def compare(dtype, heads, source, kind, bias, batch_first, need_weights):
    """Output, weights, and the gradients of every parameter and every input."""
    tolerance = TOLERANCE[dtype]
    ours, theirs = pair(heads, source, bias, batch_first, dtype)
    all_three = inputs(source, heads * D_K, dtype)
    if not batch_first:
        all_three = [None if x is None else x.transpose(0, 1).contiguous() for x in all_three]
    mine = [None if x is None else x.clone().requires_grad_() for x in all_three]
    other = [None if x is None else x.clone().requires_grad_() for x in all_three]
    n_k = N_Q if source == "self" else N_K
    mask = mask_of_kind(kind, BATCH, heads, N_Q, n_k)

    output, weights = ours(*mine, mask, need_weights=need_weights)
    query, key, value = other
    key = query if key is None else key
    expected, expected_weights = theirs(
        query,
        key,
        key if value is None else value,
        need_weights=need_weights,
        average_attn_weights=False,
        **torch_masks(mask, kind, heads, N_Q, n_k),
    )
    assert_close(output, expected, tolerance)
    upstream = torch.randn_like(output)
    loss, expected_loss = (output * upstream).sum(), (expected * upstream).sum()
    if need_weights:
        assert weights.shape == (BATCH, heads, N_Q, n_k)
        assert_close(weights, expected_weights, tolerance)
        upstream = torch.randn_like(weights)
        loss, expected_loss = (
            loss + (weights * upstream).sum(),
            expected_loss + (expected_weights * upstream).sum(),
        )
    else:
        assert weights is None
        assert expected_weights is None
    loss.backward()
    expected_loss.backward()
    expected_gradients = gradients(theirs)
    found = gradients(ours)
    # A gradient is a sum of many terms: compared relative to the largest of them, where that is above 1.
    assert found.keys() == expected_gradients.keys()
    scale = max(1.0, *(grad.abs().max().item() for grad in expected_gradients.values()))
    for name, gradient in found.items():
        assert_close(gradient / scale, expected_gradients[name] / scale, tolerance)
    for x, y in zip(mine, other, strict=True):
        if x is not None:
            assert_close(x.grad / scale, y.grad / scale, tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
def test_equal_to_pytorchs_layer_in_evaluation(need_weights, dtype):
    """There PyTorch's layer takes a fast path of its own."""
    ours, theirs = pair(3, dtype=dtype, dropout=0.5)
    query, _, _ = inputs("self", 3 * D_K, dtype)
    mask = padding_mask([5, 2])
    with torch.no_grad():
        output, _ = ours.eval()(query, mask=mask, need_weights=need_weights)
        expected, _ = theirs.eval()(query, query, query, ~mask[:, 0, 0], need_weights=need_weights)
    assert_close(output, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("need_weights", [True, False])
def test_every_head_equals_the_loops(need_weights):
    """A reference that shares nothing with PyTorch's layer: one head of one sample at a time."""
    layer = MultiHeadAttention(6, 3, qdim=5, kdim=7, vdim=11).double()
    query, key, value = (torch.randn(2, n, d).double() for n, d in ((3, 5), (4, 7), (4, 11)))
    mask = torch.rand(2, 3, 3, 4) > 0.4
    mask[0, 1, 2] = False
    output, weights = layer(query, key, value, mask, need_weights=need_weights)
    for b in range(2):
        heads = []
        for h in range(3):
            columns = slice(2 * h, 2 * h + 2)
            q, k, v = (
                x[b] @ projection.weight[columns].mT + projection.bias[columns]
                for x, projection in ((query, layer.q_proj), (key, layer.k_proj), (value, layer.v_proj))
            )
            head, head_weights = looped_attention(q, k, v, mask[b, h])
            heads.append(head)
            if need_weights:
                assert_close(weights[b, h], head_weights, 1e-12)
        expected = torch.cat(heads, dim=1) @ layer.out_proj.weight.mT + layer.out_proj.bias
        assert_close(output[b], expected, 1e-12)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("d_k", "d_v"), [(None, None), (3, None), (3, 5)])
def test_single_head_equals_the_loops(d_k, d_v, bias):
    layer = SingleHeadAttention(7, d_k, d_v, bias=bias).double()
    x, context = torch.randn(2, 3, 7).double(), torch.randn(2, 5, 7).double()
    mask = torch.rand(2, 3, 5) > 0.4
    mask[1, 2] = False
    output, weights = layer(x, context, mask)
    assert output.shape == (2, 3, d_v or d_k or 7)
    for b in range(2):
        projected = layer.q_proj(x[b]), layer.k_proj(context[b]), layer.v_proj(context[b])
        expected = looped_attention(*projected, mask[b])
        assert_close(output[b], expected[0], 1e-12)
        assert_close(weights[b], expected[1], 1e-12)
    assert len(list(layer.parameters())) == (6 if bias else 3)


def test_single_head_attends_to_itself_without_a_context():
    layer = SingleHeadAttention(7)
    x = torch.randn(2, 3, 7)
    for one, other in zip(layer(x), layer(x, x), strict=True):
        assert torch.equal(one, other)


def test_single_head_takes_the_mask_of_many():
    layer = SingleHeadAttention(7)
    x, mask = torch.randn(2, 5, 7), padding_mask([5, 2])
    assert torch.equal(layer(x, mask=mask)[1], layer(x, mask=mask[:, 0])[1])
    assert torch.equal(layer(x[1], mask=mask[1])[1], layer(x[1], mask=mask[1, 0])[1])


def test_defaults_are_self_attention_and_value_is_key():
    layer = MultiHeadAttention(6, 2)
    x, y = torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    assert torch.equal(layer(x)[0], layer(x, x, x)[0])
    assert torch.equal(layer(x, y)[0], layer(x, y, y)[0])


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_without_a_batch(batch_first, need_weights):
    layer = MultiHeadAttention(6, 2, batch_first=batch_first)
    x, y = torch.randn(5, 6), torch.randn(7, 6)
    mask = torch.rand(2, 5, 7) > 0.3
    axis = 0 if batch_first else 1
    output, weights = layer(x, y, mask=mask, need_weights=need_weights)
    expected, expected_weights = layer(
        x.unsqueeze(axis), y.unsqueeze(axis), mask=mask, need_weights=need_weights
    )
    assert_close(output, expected.squeeze(axis), 1e-6)
    if need_weights:
        assert_close(weights, expected_weights[0], 1e-6)


def test_both_orders_of_axes_agree():
    first = MultiHeadAttention(6, 2)
    second = MultiHeadAttention(6, 2, batch_first=False)
    second.load_state_dict(first.state_dict())
    x, mask = torch.randn(3, 5, 6), padding_mask([5, 1, 2])
    output, weights = first(x, mask=mask)
    other, other_weights = second(x.transpose(0, 1), mask=mask)
    assert_close(other.transpose(0, 1), output, 1e-6)
    assert_close(other_weights, weights, 1e-6)


# A row with nothing to attend to


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


# Scores of another kind


def cosine(query, key):
    return nn.functional.normalize(query, dim=-1) @ nn.functional.normalize(key, dim=-1).mT


SCORES = {
    "AdditiveScore": lambda: AdditiveScore(3, 5),
    "RelativePositionBias": lambda: RelativePositionBias(2, 3),
    "function": lambda: cosine,
    "the default's own": lambda: scaled_dot_product_scores,
}


@pytest.mark.parametrize("score", list(SCORES.values()), ids=list(SCORES))
def test_a_score_decides_the_weights(score):
    score = score()
    layer = MultiHeadAttention(6, 2, score=score)
    x, y = torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    mask = torch.rand(5, 7) > 0.3
    mask[2] = False
    output, weights = layer(x, y, mask=mask)
    q, k, v = (
        projection(z).view(2, -1, 2, 3).transpose(1, 2)
        for projection, z in ((layer.q_proj, x), (layer.k_proj, y), (layer.v_proj, y))
    )
    expected = score(q, k).masked_fill(~mask, float("-inf")).softmax(dim=-1).nan_to_num()
    assert_close(weights, expected, 1e-6)
    assert_close(output, layer.out_proj((expected @ v).transpose(1, 2).flatten(-2)), 1e-6)
    fused_output, nothing = layer(x, y, mask=mask, need_weights=False)
    assert nothing is None
    assert_close(fused_output, output, 1e-6)


@pytest.mark.parametrize("score", [AdditiveScore(3, 5), RelativePositionBias(2, 3)])
def test_a_score_with_parameters_is_trained_and_saved_with_the_layer(score):
    layer = MultiHeadAttention(6, 2, score=score)
    assert {name for name in layer.state_dict() if name.startswith("score.")}
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


# Inputs, dropout, storing


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("score", [None, cosine, "relative"])
def test_no_input_is_changed(score, need_weights, grad):
    score = RelativePositionBias(2, 3) if score == "relative" else score
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
def test_with_and_without_gradients_gives_the_same(need_weights):
    layer = MultiHeadAttention(6, 2)
    x, mask = torch.randn(2, 5, 6), padding_mask([5, 0], max_length=5)
    expected = layer(x, mask=mask, need_weights=need_weights)[0]
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert_close(layer(x, mask=mask, need_weights=need_weights)[0], expected.detach(), 1e-6)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("score", [None, cosine])
def test_dropout_in_training_only(score, need_weights):
    layer = MultiHeadAttention(6, 2, dropout=0.5, score=score)
    x = torch.randn(2, 5, 6)
    training = [layer(x, need_weights=need_weights)[0] for _ in range(2)]
    assert not torch.equal(*training)
    layer.eval()
    evaluation = [layer(x, need_weights=need_weights)[0] for _ in range(2)]
    assert torch.equal(*evaluation)
    plain = MultiHeadAttention(6, 2, score=score)
    plain.load_state_dict(layer.state_dict())
    assert_close(evaluation[0], plain(x, need_weights=need_weights)[0], 1e-6)


def test_dropout_drops_weights_and_scales_the_rest():
    layer = MultiHeadAttention(6, 2, dropout=0.5)
    x = torch.randn(2, 5, 6)
    _, dropped = layer(x)
    _, weights = layer.eval()(x)
    gone = dropped == 0
    assert 0 < gone.sum() < gone.numel()
    assert_close(dropped[~gone], 2 * weights[~gone], 1e-6)


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


def test_state_dict_is_saved_and_loaded():
    layer = MultiHeadAttention(6, 2, kdim=5, score=RelativePositionBias(2, 3))
    nn.init.normal_(layer.score.bias)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = MultiHeadAttention(6, 2, kdim=5, score=RelativePositionBias(2, 3))
    other.load_state_dict(torch.load(file, weights_only=True))
    x, y, z = torch.randn(2, 3, 6), torch.randn(2, 7, 5), torch.randn(2, 7, 6)
    assert torch.equal(other(x, y, z)[0], layer(x, y, z)[0])


def test_names_in_the_state_dict():
    names = {f"{letter}_proj.{kind}" for letter in ("q", "k", "v", "out") for kind in ("weight", "bias")}
    assert set(MultiHeadAttention(6, 2).state_dict()) == names


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
@pytest.mark.parametrize(
    "layer", [MultiHeadAttention(6, 2, score=AdditiveScore(3, 5)), SingleHeadAttention(6)]
)
def test_copies_are_whole_and_apart(layer, copied):
    other = copied(layer)
    x = torch.randn(2, 5, 6)
    assert torch.equal(other(x)[0], layer(x)[0])
    with torch.no_grad():
        other.q_proj.weight.zero_()
    assert not torch.equal(other(x)[0], layer(x)[0])


def test_parameters_do_not_grow_with_heads():
    counts = {sum(p.numel() for p in MultiHeadAttention(12, h).parameters()) for h in (1, 2, 3, 12)}
    assert counts == {4 * (12 * 12 + 12)}


# Widths and transformations of one's own


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("gradient", [True, False])
def test_heads_of_other_widths_equal_the_loops(need_weights, gradient):
    """``d_model = 6`` is neither 2 · 3 nor 2 · 5, and 4 heads do not divide it."""
    heads, d_k, d_v = 4, 3, 5
    layer = MultiHeadAttention(6, heads, d_k=d_k, d_v=d_v).double()
    x = torch.randn(BATCH, N_Q, 6, dtype=torch.float64)
    with torch.set_grad_enabled(gradient):
        output, weights = layer(x, need_weights=need_weights)
    q, k, v = (projection(x) for projection in (layer.q_proj, layer.k_proj, layer.v_proj))
    for b in range(BATCH):
        found = []
        for h in range(heads):
            qk, vs = slice(h * d_k, (h + 1) * d_k), slice(h * d_v, (h + 1) * d_v)
            head, expected = looped_attention(q[b][:, qk], k[b][:, qk], v[b][:, vs])
            found.append(head)
            if need_weights:
                assert_close(weights[b, h], expected, 1e-10)
        assert_close(output[b], layer.out_proj(torch.cat(found, dim=1)), 1e-10)
    assert "d_k=3, d_v=5" in repr(layer)
    with pytest.raises(ValueError, match=r"d_k: expected 1, the only value in PyTorch's layer, got 3"):
        layer.to_torch()


def test_one_width_given_leaves_the_other_as_it_is():
    layer = MultiHeadAttention(6, 2, d_k=5)
    assert (layer.d_k, layer.d_v) == (5, 3)
    with pytest.raises(ValueError, match="num_heads: expected a number that divides d_model = 6"):
        MultiHeadAttention(6, 4, d_k=5)


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


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("transform", "error", "says"),
    [
        (3, TypeError, "transform: expected None or a callable"),
        (Rotary, TypeError, "Did you mean Rotary"),
        (lambda q, k: q, TypeError, r"callable that returns \(query, key\)"),
        (lambda q, k: (q, k[..., :1]), ValueError, r"of shapes \(2, 2, 5, 4\) and"),
    ],
)
def test_a_transformation_that_is_none_is_named(transform, error, says):
    with pytest.raises(error, match=says):
        MultiHeadAttention(8, 2, transform=transform)(torch.ones(2, 5, 8))


# To and from PyTorch's layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("source", ["self", "cross, own widths"])
def test_there_and_back_again(source, bias):
    ours, theirs = pair(2, source, bias, batch_first=False, dropout=0.25)
    theirs.eval()
    again = MultiHeadAttention.from_torch(theirs).to_torch()
    assert not again.training
    assert again.dropout == 0.25
    assert again.batch_first is False
    assert again.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, theirs.state_dict()[name])
    for name, tensor in MultiHeadAttention.from_torch(ours.to_torch()).state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[name])


def test_conversion_copies():
    ours, theirs = pair(2)
    before = copy.deepcopy(theirs.state_dict())
    with torch.no_grad():
        ours.q_proj.weight.zero_()
        ours.to_torch().in_proj_weight.zero_()
    assert torch.equal(theirs.in_proj_weight, before["in_proj_weight"])
    assert ours.k_proj.weight.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_conversion_keeps_the_dtype(dtype):
    ours, _ = pair(2, dtype=dtype)
    assert {parameter.dtype for parameter in ours.parameters()} == {dtype}
    assert {parameter.dtype for parameter in ours.to_torch().parameters()} == {dtype}


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


def test_a_converted_mask_means_the_same():
    ours, theirs = pair(2)
    x, _, _ = inputs("self", 2 * D_K)
    mask = padding_mask([5, 2])
    expected, _ = theirs(x, x, x, key_padding_mask=mask_to_blocked(mask)[:, 0, 0])
    assert_close(ours(x, mask=mask)[0], expected, 1e-10)


def test_printing_shows_the_sizes():
    assert "d_model=6, num_heads=2, d_k=3, dropout=0.0" in repr(MultiHeadAttention(6, 2))
