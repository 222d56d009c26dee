"""Five shapes of one layer: the same outputs, the same gradients, and what each cannot do."""

from itertools import pairwise
from operator import attrgetter

import pytest
import torch
from torch import nn

from mha_lab import AdditiveScore, MultiHeadAttention, causal_mask, mask_to_blocked, padding_mask
from mha_lab.chapters import variants
from mha_lab.chapters.variants import copy_weights, parts

BATCH, N, HEADS, D_K = 2, 5, 3, 7
D_MODEL = HEADS * D_K
MOST = 1e-10


def made(seed=0, *, bias=True):
    """One of each that takes these sizes, in float64, all with the weights of the first."""
    torch.manual_seed(seed)
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
    names = list(layers)
    for name, following in pairwise(names):  # from one to the next
        copy_weights(layers[name], layers[following])
    return layers


def call(name, layer, x, mask=None, real=None):
    """The output, batch first, whatever the layer's habits are; ``mask`` or ``real`` where it takes one."""
    if name == "fused":
        whole = None if mask is None else mask.expand(len(x), HEADS, x.shape[1], x.shape[1])
        return layer(x, whole)
    if name == "sized":
        return layer(x, x, x, real)
    if name == "sequence":
        turned = None if mask is None else mask.squeeze(1).movedim(0, -1)
        return layer(*[x.transpose(0, 1)] * 3, turned).transpose(0, 1)
    if name == "torch":
        blocked = None if mask is None else mask_to_blocked(mask).expand(len(x), HEADS, *[x.shape[1]] * 2)
        return layer(x, x, x, attn_mask=None if blocked is None else blocked.flatten(0, 1))[0]
    if name == "bare":
        return layer(x, x, x)[0]
    return layer(x, x, x, mask)[0]


def masks(kind):
    """A mask ``(batch or 1, 1, n or 1, n)`` and, where a row of real tokens can say it, that row."""
    lengths = torch.tensor([4, 2])
    real = torch.arange(N) < lengths[:, None]
    if kind == "none":
        return None, None
    if kind == "causal":
        return causal_mask(N)[None, None], None
    if kind == "padding":
        return padding_mask(lengths, N).expand(BATCH, 1, N, N), real
    return causal_mask(N) & padding_mask(lengths, N), None


def takes(name, kind):
    """Whether a layer can be asked for this mask at all."""
    return kind == "none" or name not in ("bare", "sized") or (name == "sized" and kind == "padding")


@pytest.mark.parametrize("kind", ["none", "causal", "padding", "both"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_all_agree_in_outputs_and_gradients(kind, bias, seed, request):
    layers = made(seed, bias=bias)
    x = torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)
    wanted = torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)
    mask, real = masks(kind)
    found, largest = {}, 0.0
    for name, layer in layers.items():
        if takes(name, kind):
            one = x.clone().requires_grad_()
            output = call(name, layer, one, mask, real)
            (output * wanted).sum().backward()
            found[name] = [output.detach(), one.grad, *parts(layer, attrgetter("grad"))]
    assert len(found) >= (5 if kind == "padding" else 4)
    for name, tensors in found.items():
        assert len(tensors) == (10 if bias else 6), name
        for ours, theirs in zip(found["ours"], tensors, strict=True):
            largest = max(largest, (ours - theirs).abs().max().item())
    request.node.user_properties.append(("largest difference between the five shapes", largest))
    assert largest < MOST


def test_carrying_there_and_back_changes_nothing():
    layers = made()
    before = [p.clone() for p in parts(layers["ours"])]
    for name in ("fused", "sequence", "torch", "three", "ours"):
        copy_weights(layers["ours"], layers[name])
        copy_weights(layers[name], layers["ours"])
    assert all(torch.equal(a, b) for a, b in zip(before, parts(layers["ours"]), strict=True))


def test_what_cannot_be_carried_is_refused():
    layer = made()["ours"]
    with pytest.raises(ValueError, match="one without"):
        copy_weights(layer, variants.BareAttention(D_MODEL, HEADS).double())
    with pytest.raises(ValueError, match="matrices of shapes"):
        copy_weights(layer, variants.PackedAttention(D_MODEL + HEADS, HEADS))
    with torch.no_grad():
        for bias in parts(layer)[4:]:
            bias.zero_()
    bare = variants.BareAttention(D_MODEL, HEADS).double()
    copy_weights(layer, bare)
    copy_weights(bare, layers := variants.PackedAttention(D_MODEL, HEADS).double())
    assert not any(bias.any() for bias in parts(layers)[4:])
    assert torch.equal(parts(layers)[2], parts(layer)[2])


def test_inputs_of_three_widths():
    torch.manual_seed(0)
    ours = MultiHeadAttention(256, 4, qdim=64, kdim=128, vdim=256).double()
    sized = variants.SizedAttention(64, 128, 256, 256, num_heads=4, bias=True).double()
    copy_weights(ours, sized)
    query, key, value = (torch.randn(2, n, w, dtype=torch.float64) for n, w in ((3, 64), (5, 128), (5, 256)))
    real = torch.tensor([[True] * 4 + [False], [True] + [False] * 4])
    expected, _ = ours(query, key, value, real[:, None, None])
    assert (sized(query, key, value, real) - expected).abs().max() < MOST


def test_an_additive_score_is_the_one_of_the_package():
    torch.manual_seed(0)
    score = AdditiveScore(D_K, 11).double()
    ours = MultiHeadAttention(D_MODEL, HEADS, score=score).double()
    sized = variants.SizedAttention(
        D_MODEL, D_MODEL, D_MODEL, D_MODEL, HEADS, bias=True, score=score
    ).double()
    copy_weights(ours, sized)
    x = torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)
    real = torch.arange(N) < torch.tensor([[4], [2]])
    expected, _ = ours(x, mask=real[:, None, None])
    assert (sized(x, x, x, real) - expected).abs().max() < MOST


def test_an_empty_row():
    """The fused shape answers NaN; the others answer the bias."""
    layers = made()
    x = torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)
    mask = torch.ones(BATCH, 1, N, N, dtype=torch.bool)
    mask[0, :, 1] = False
    assert call("fused", layers["fused"], x, mask)[0, 1].isnan().all()
    for name in ("three", "sequence", "ours"):
        output = call(name, layers[name], x, mask)
        torch.testing.assert_close(output[0, 1], parts(layers[name])[7])
    x.requires_grad_()
    for name in ("three", "sequence", "ours"):
        (gradient,) = torch.autograd.grad(call(name, layers[name], x, mask).sum(), x)
        assert gradient.isfinite().all()
    x = x.detach()
    nothing = torch.zeros(BATCH, N, dtype=torch.bool)
    torch.testing.assert_close(layers["sized"](x, x, x, nothing)[0, 1], parts(layers["sized"])[7])


def test_dropout_drops_weights_and_only_in_training():
    torch.manual_seed(0)
    layer = variants.PackedAttention(D_MODEL, HEADS, dropout=0.5).double()
    x = torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    same = MultiHeadAttention(D_MODEL, HEADS).double()
    copy_weights(layer, same)
    assert (layer(x) - same(x)[0]).abs().max() < MOST


def test_sizes_are_told_in_order():
    told = []
    x = torch.randn(BATCH, N, D_MODEL)
    variants.BareAttention(D_MODEL, HEADS)(x, x, x, log=told.append)
    assert told == [
        f"split    {(BATCH, HEADS, N, D_K)}",
        f"scores   {(BATCH, HEADS, N, N)}",
        f"output   {(BATCH, HEADS, N, D_K)}",
        f"grouped  {(BATCH, N, D_MODEL)}",
    ]


def test_a_mask_of_the_sequence_first_layer_is_broadcast_and_checked():
    layers = made()
    layer = layers["sequence"]
    x = torch.randn(N, BATCH, D_MODEL, dtype=torch.float64)
    causal = causal_mask(N)
    real = torch.arange(N) < torch.tensor([[4], [2]])
    whole = (causal[:, :, None] & real.mT[None]).contiguous()
    torch.testing.assert_close(
        layer(x, x, x, causal[:, :, None]), layer(x, x, x, causal[:, :, None].expand(-1, -1, BATCH))
    )
    torch.testing.assert_close(layer(x, x, x, real.mT[None]), layer(x, x, x, real.mT[None].expand(N, -1, -1)))
    expected, weights = layers["ours"](x.transpose(0, 1), mask=(causal & real[:, None])[:, None])
    assert (layer(x, x, x, whole).transpose(0, 1) - expected).abs().max() < MOST
    assert (layer.weights.permute(2, 3, 0, 1) - weights).abs().max() < MOST
    assert not layer.weights.requires_grad
    for wrong in (causal, causal[None], whole.movedim(-1, 0), whole[:, :1], whole[:3]):
        with pytest.raises(ValueError, match="Is the batch first"):
            layer(x, x, x, wrong)


def test_another_score_by_overriding():
    class Nearest(variants.SequenceFirstAttention):
        def get_scores(self, query, key):
            return (
                super().get_scores(query, key) * 0
                - 100
                * torch.cdist(
                    torch.arange(len(query))[:, None].double(), torch.arange(len(key))[:, None].double()
                )[:, :, None, None]
            )

    layer = Nearest(D_MODEL, HEADS).double()
    x = torch.randn(N, BATCH, D_MODEL, dtype=torch.float64)
    layer(x, x, x)
    torch.testing.assert_close(layer.weights[:, :, 1, 2], torch.eye(N, dtype=torch.float64))


@pytest.mark.parametrize(
    "name", ["PackedAttention", "ThreeProjections", "BareAttention", "SequenceFirstAttention"]
)
def test_heads_must_divide(name):
    with pytest.raises(ValueError, match="num_heads"):
        getattr(variants, name)(7, 3)


def test_the_scale_is_the_heads_own():
    """One head of 4 and scores by hand: (2, 0, 0, 0)·(3, 0, 0, 0) / sqrt(4) = 3."""
    layer = variants.SequenceFirstAttention(4, 1).double()
    query = torch.tensor([2.0, 0, 0, 0], dtype=torch.float64).view(1, 1, 1, 4)
    key = torch.tensor([3.0, 0, 0, 0], dtype=torch.float64).view(1, 1, 1, 4)
    assert layer.get_scores(query, key).item() == 3
