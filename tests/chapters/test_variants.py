"""Five shapes of one layer: the same outputs, the same gradients, and what each cannot do."""

from itertools import pairwise
from operator import attrgetter

import pytest
import torch
from torch import nn

from mha_course.chapters import variants
from mha_course.chapters.variants import copy_weights, parts
from mha_lab import AdditiveScore, MultiHeadAttention, causal_mask, mask_to_blocked, padding_mask

BATCH, N, HEADS, D_K = 2, 5, 3, 7
D_MODEL = HEADS * D_K
TOLERANCE = 1e-10
LENGTHS = torch.tensor([4, 2])
REAL = torch.arange(N) < LENGTHS[:, None]
CAUSAL, PADDING = causal_mask(N)[None, None], padding_mask(LENGTHS, N)
MASKS = {"none": None, "causal": CAUSAL, "padding": PADDING.expand(BATCH, 1, N, N), "both": CAUSAL & PADDING}


def tokens(*shape):
    return torch.randn(*(shape or (BATCH, N, D_MODEL)), dtype=torch.float64)


def made(*, bias=True):
    """One of each that takes these sizes, in float64, all with the weights of the first."""
    layers = {
        "ours": MultiHeadAttention(D_MODEL, HEADS, bias=bias),
        "torch": nn.MultiheadAttention(D_MODEL, HEADS, bias=bias, batch_first=True),
        "fused": variants.PackedAttention(D_MODEL, HEADS, bias=bias),
        "three": variants.ThreeProjections(D_MODEL, HEADS, bias=bias),
        "sized": variants.SizedAttention(D_MODEL, D_MODEL, D_MODEL, D_MODEL, HEADS, bias=bias),
        "sequence": variants.SequenceFirstAttention(D_MODEL, HEADS, bias=bias),
    }
    if not bias:
        layers["bare"] = variants.BareAttention(D_MODEL, HEADS)
    layers = {name: layer.double() for name, layer in layers.items()}
    with torch.no_grad():
        for p in layers["ours"].parameters():
            p.normal_(std=0.4)
    for one, following in pairwise(layers.values()):
        copy_weights(one, following)
    return layers


def call(name, layer, x, mask=None):
    """The output, batch first, whatever the layer's habits are."""
    if name == "fused":
        return layer(x, None if mask is None else mask.expand(len(x), HEADS, N, N))
    if name == "sized":
        return layer(x, x, x, None if mask is None else REAL)
    if name == "sequence":
        turned = None if mask is None else mask.squeeze(1).movedim(0, -1)
        return layer(*[x.transpose(0, 1)] * 3, turned).transpose(0, 1)
    if name == "torch":
        blocked = None if mask is None else mask_to_blocked(mask).expand(len(x), HEADS, N, N).flatten(0, 1)
        return layer(x, x, x, attn_mask=blocked)[0]
    return layer(x, x, x)[0] if name == "bare" else layer(x, x, x, mask)[0]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("bias", [True, False])
def test_all_agree_in_outputs_and_gradients(kind, bias, request):
    layers, x, upstream, found = made(bias=bias), tokens(), tokens(), {}
    if kind != "none":
        layers.pop("bare", None)  # it takes no mask
    if kind in ("causal", "both"):
        del layers["sized"]  # it takes real tokens only
    for name, layer in layers.items():
        one = x.clone().requires_grad_()
        output = call(name, layer, one, MASKS[kind])
        (output * upstream).sum().backward()
        found[name] = [output.detach(), one.grad, *parts(layer, attrgetter("grad"))]
        assert len(found[name]) == (10 if bias else 6), name
    pairs = [pair for tensors in found.values() for pair in zip(found["ours"], tensors, strict=True)]
    largest = max((ours - theirs).abs().max().item() for ours, theirs in pairs)
    request.node.user_properties.append(("largest difference between the five shapes", largest))
    assert largest < TOLERANCE


def test_carrying_there_and_back_changes_nothing():
    layers = made()
    before = [p.clone() for p in parts(layers["ours"])]
    for name in ("fused", "sequence", "torch", "three", "ours"):
        copy_weights(layers[name], layers["ours"])
        assert all(map(torch.equal, before, parts(layers["ours"])))


def test_what_cannot_be_carried_is_refused():
    layer, bare = made()["ours"], variants.BareAttention(D_MODEL, HEADS).double()
    with pytest.raises(ValueError, match="one without"):
        copy_weights(layer, bare)
    with pytest.raises(ValueError, match="matrices of shapes"):
        copy_weights(layer, variants.PackedAttention(D_MODEL + HEADS, HEADS))
    with torch.no_grad():
        for bias in parts(layer)[4:]:
            bias.zero_()
    copy_weights(layer, bare)
    copy_weights(bare, packed := variants.PackedAttention(D_MODEL, HEADS).double())
    assert not any(bias.any() for bias in parts(packed)[4:])
    assert torch.equal(parts(packed)[2], parts(layer)[2])


@pytest.mark.parametrize("score", [None, AdditiveScore(2, 11).double()])
def test_inputs_of_three_widths_with_any_score(score):
    ours = MultiHeadAttention(6, 3, qdim=5, kdim=7, vdim=11, score=score).double()
    sized = variants.SizedAttention(5, 7, 11, 6, 3, bias=True, score=score).double()
    copy_weights(ours, sized)
    query, key, value = tokens(2, 3, 5), tokens(2, 5, 7), tokens(2, 5, 11)
    expected, _ = ours(query, key, value, REAL[:, None, None])
    assert (sized(query, key, value, REAL) - expected).abs().max() < TOLERANCE


def test_an_empty_row():
    """The fused shape answers NaN; the others answer the bias, with finite gradients."""
    layers, x, mask = made(), tokens().requires_grad_(), torch.ones(BATCH, 1, N, N, dtype=torch.bool)
    mask[0, :, 1] = False
    assert call("fused", layers["fused"], x, mask)[0, 1].isnan().all()
    nothing = torch.zeros(BATCH, N, dtype=torch.bool)
    outputs = {name: call(name, layers[name], x, mask) for name in ("three", "sequence", "ours")}
    for name, output in (outputs | {"sized": layers["sized"](x, x, x, nothing)}).items():
        torch.testing.assert_close(output[0, 1], parts(layers[name])[7])
        assert torch.autograd.grad(output.sum(), x)[0].isfinite().all()


def test_dropout_drops_weights_and_only_in_training():
    layer, x = variants.PackedAttention(D_MODEL, HEADS, dropout=0.5).double(), tokens()
    same = MultiHeadAttention(D_MODEL, HEADS).double()
    copy_weights(layer, same)
    assert not torch.equal(layer(x), layer(x))
    assert (layer.eval()(x) - same(x)[0]).abs().max() < TOLERANCE


def test_a_mask_of_the_sequence_first_layer_is_broadcast_and_checked():
    layers, x = made(), tokens(N, BATCH, D_MODEL)
    layer, causal, real = layers["sequence"], causal_mask(N)[:, :, None], REAL.mT[None]
    for mask in (causal, real, causal & real):
        expected, weights = layers["ours"](x.transpose(0, 1), mask=mask.movedim(-1, 0)[:, None])
        assert (layer(x, x, x, mask).transpose(0, 1) - expected).abs().max() < TOLERANCE
        assert (layer.weights.permute(2, 3, 0, 1) - weights).abs().max() < TOLERANCE
    assert not layer.weights.requires_grad
    whole = causal & real
    for wrong in (causal_mask(N), causal_mask(N)[None], whole.movedim(-1, 0), whole[:, :1], whole[:3]):
        with pytest.raises(ValueError, match="Is the batch axis first"):
            layer(x, x, x, wrong)


def test_another_score_by_overriding():
    class Nearest(variants.SequenceFirstAttention):
        def get_scores(self, query, key):
            return 1000 * torch.eye(N)[:, :, None, None].expand(N, N, BATCH, HEADS).to(query)

    layer, x = Nearest(D_MODEL, HEADS).double(), tokens(N, BATCH, D_MODEL)
    layer(x, x, x)
    torch.testing.assert_close(layer.weights[:, :, 1, 2], torch.eye(N, dtype=torch.float64))


@pytest.mark.parametrize("name", ["Packed", "ThreeProjections", "Bare", "SequenceFirst", "Sized"])
def test_heads_must_divide(name):
    make = getattr(variants, name if name == "ThreeProjections" else f"{name}Attention")
    with pytest.raises(ValueError, match="num_heads"):
        make(*(3, 6, 9) * (name == "Sized"), 7, 3)
