"""The decoder against PyTorch's layer, itself with and without a cache, and numbers worked out by hand."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mha_course.chapters.language_model import (
    Decoder,
    ablate_head,
    generate,
    next_token_loss,
    previous_token_score,
    sample,
)
from mha_course.chapters.modern import ModernAttention
from mha_course.chapters.story_model import load
from mha_course.chapters.story_model import sample as sample_stories
from mha_course.exercises.predict_cache import predict_cache
from mha_lab import AdditiveScore, MultiHeadAttention, RelativePositionBias, causal_mask, mask_to_blocked
from mha_lab.masks import SlidingWindow
from mha_lab.positions import Rotary
from mha_lab.scores import AlibiScore, RotaryScore
from tests.references import TOLERANCE, assert_close

BATCH, VOCAB, HEADS, D_K, LAYERS, LENGTH = 2, 13, 3, 4, 2, 11
D_MODEL = HEADS * D_K


def small(dtype=torch.float64, layers=LAYERS):
    """A decoder whose every parameter, biases and norms included, is random."""
    model = Decoder(VOCAB, d_model=D_MODEL, num_heads=HEADS, num_layers=layers, max_length=LENGTH).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model


def text(n=LENGTH, batch=BATCH):
    return torch.randint(VOCAB, (batch, n))


# The forward pass


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_block_is_pytorchs_layer(dtype, causal):
    block = small(dtype).blocks[0]
    theirs = nn.TransformerEncoderLayer(
        D_MODEL, HEADS, 4 * D_MODEL, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).to(dtype)
    theirs.self_attn.load_state_dict(block.attention.to_torch().state_dict())
    parts = (theirs.linear1, theirs.linear2, theirs.norm1, theirs.norm2)
    sources = (block.network[0], block.network[2], block.norm_1, block.norm_2)
    for part, source in zip(parts, sources, strict=True):
        part.load_state_dict(source.state_dict())
    x = torch.randn(BATCH, 7, D_MODEL, dtype=dtype)
    expected = theirs(x, src_mask=mask_to_blocked(causal_mask(7)) if causal else None)
    for need_weights in (True, False):
        assert_close(block(x, causal=causal, need_weights=need_weights)[0], expected, TOLERANCE[dtype])


def test_the_model_is_its_blocks_between_embedding_and_readout_and_weights_come_layer_by_layer():
    model, tokens = small(), text()
    logits, weights = model(tokens, need_weights=True)
    assert weights.shape == (LAYERS, BATCH, HEADS, LENGTH, LENGTH)
    fused, nothing = model(tokens)
    assert nothing is None
    assert_close(fused, logits, 1e-10)
    x = model.token_embedding(tokens) + model.position_embedding.weight
    for block, kept in zip(model.blocks, weights, strict=True):
        x, expected = block(x)
        assert_close(kept, expected, 1e-12)
    assert_close(
        logits, F.layer_norm(x, [D_MODEL], *model.norm.parameters()) @ model.token_embedding.weight.mT, 1e-10
    )


def test_without_a_network_a_block_adds_only_what_its_heads_write():
    model, tokens = Decoder(VOCAB, d_model=D_MODEL, num_heads=HEADS, network=False).double(), text(7)
    assert sum(p.numel() for block in model.blocks for p in block.parameters()) == LAYERS * (
        4 * (D_MODEL + 1) * D_MODEL + 2 * D_MODEL
    )
    x = model.token_embedding(tokens) + model.position_embedding.weight[:7]
    for block in model.blocks:
        normal = F.layer_norm(x, [D_MODEL], *block.norm_1.parameters())
        written, _ = block.attention.to_torch()(
            normal, normal, normal, attn_mask=mask_to_blocked(causal_mask(7)), need_weights=False
        )
        x = x + written
    expected = F.layer_norm(x, [D_MODEL]) @ model.token_embedding.weight.mT
    assert_close(model(tokens)[0], expected, 1e-10)
    first, caches = model.extend(tokens[:, :3])
    assert_close(torch.cat([first, model.extend(tokens[:, 3:], caches)[0]], dim=1), expected, 1e-10)


def test_no_token_sees_its_future():
    """By perturbation: a changed token moves its own logits and later ones, and no earlier one."""
    model, tokens = small(), text()
    for at in range(LENGTH):
        changed = tokens.clone()
        changed[:, at] = (changed[:, at] + 1) % VOCAB
        moved, open_ = (
            (model(changed, causal=causal)[0] - model(tokens, causal=causal)[0]).abs().amax(dim=(0, 2))
            for causal in (True, False)
        )
        assert (moved[:at] < 1e-12).all()
        assert (moved[at:] > 1e-9).all()
        assert (open_ > 1e-9).all()


def test_a_fresh_model_knows_nothing_and_learns():
    model, tokens = Decoder(VOCAB, d_model=D_MODEL, num_heads=HEADS, max_length=LENGTH), text(batch=50)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for _ in range(3):
        loss = F.cross_entropy(model(tokens[:, :-1])[0].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(VOCAB), abs=0.3)
    assert losses[0] > losses[1] > losses[2]


def test_the_readout_trains_the_embedding():
    model, tokens = small(), text(3)
    absent = next(t for t in range(VOCAB) if t not in tokens)
    model(tokens)[0][..., absent].sum().backward()
    gradient = model.token_embedding.weight.grad
    assert gradient[absent].any()  # as readout
    assert gradient[tokens[0, 0]].any()  # as embedding


# The cache


POSITIONS = {
    "none": dict,
    "additive": lambda: {"score": AdditiveScore(D_K, 5)},
    "relative": lambda: {"score": RelativePositionBias(HEADS, 2)},
    "alibi": lambda: {"score": AlibiScore(HEADS)},
    "rotary score": lambda: {"score": RotaryScore()},
    "rotary": lambda: {"transform": Rotary()},
    "partial": lambda: {"transform": Rotary(frequencies=torch.tensor([0.7]), attention_factor=1.2)},
    "both": lambda: {"transform": Rotary(layout="halves"), "score": AlibiScore(HEADS)},
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("make", POSITIONS.values(), ids=POSITIONS)
def test_piece_by_piece_equals_the_whole_with_every_score_and_position(make, dtype):
    """In one layer, and in the model, whose own positions count from the start of the text."""
    model, tokens = small(dtype), text()
    for block in model.blocks:
        block.attention = MultiHeadAttention(D_MODEL, HEADS, **make()).to(dtype)
        for parameter in block.attention.parameters():
            nn.init.normal_(parameter, std=0.4)
    layer, x = model.blocks[0].attention, torch.randn(BATCH, LENGTH, D_MODEL, dtype=dtype)
    whole, _ = layer(x, mask=causal_mask(LENGTH))
    keys, values = (
        p(x).view(BATCH, LENGTH, HEADS, D_K).mT.movedim(-1, 1) for p in (layer.k_proj, layer.v_proj)
    )
    for pieces in ([1] * LENGTH, [LENGTH], [4, 7], [6, 1, 1, 3]):
        outputs, logits, cache, caches = [], [], None, None
        for piece, new in zip(x.split(pieces, dim=1), tokens.split(pieces, dim=1), strict=True):
            output, cache = layer.extend(piece, cache)
            scores, caches = model.extend(new, caches)
            outputs.append(output)
            logits.append(scores)
        assert_close(torch.cat(outputs, dim=1), whole, TOLERANCE[dtype])
        assert cache.length == LENGTH
        for kept, expected in zip(cache[:2], (keys, values), strict=True):
            assert_close(kept, expected, TOLERANCE[dtype])
        assert_close(torch.cat(logits, dim=1), model(tokens)[0], TOLERANCE[dtype])


def test_a_cache_that_is_passed_in_stays_as_it_was():
    """So that two continuations can start from one."""
    model, tokens = small(), text()
    _, caches = model.extend(tokens[:, :5])
    before = [[kept.clone() for kept in cache[:2]] for cache in caches]
    one, two = (model.extend(tokens[:, 5:6], caches)[0] for _ in range(2))
    assert torch.equal(one, two)
    for old, kept in zip(before, caches, strict=True):
        assert all(map(torch.equal, old, kept[:2]))
        assert kept.length == 5


def test_the_cache_holds_as_many_numbers_as_the_exercise_says():
    model = Decoder(2, d_model=20, num_heads=5, num_layers=3, max_length=7)
    _, caches = model.extend(torch.zeros(1, 7, dtype=torch.long))
    assert sum(kept.numel() for cache in caches for kept in cache[:2]) == predict_cache(3, 5, 7, 20)


# Writing


@pytest.mark.parametrize("temperature", [0, 0.7, 1, 2.5])
def test_the_cache_changes_nothing_in_what_is_written(temperature):
    model, start = small(), text(3)
    cached, whole = (
        generate(model, start, 8, temperature=temperature, use_cache=use, generator=torch.Generator())
        for use in (True, False)
    )
    assert torch.equal(cached, whole)
    assert cached.shape == (BATCH, 11)
    assert torch.equal(cached[:, :3], start)


def test_greedy_takes_the_largest_logit_each_time_without_a_gradient():
    model, graded = small(), []
    model.norm.register_forward_hook(lambda *_: graded.append(torch.is_grad_enabled()))
    written = generate(model, text(2), 5, temperature=0)
    assert graded == [False] * 5
    for i in range(2, 7):
        assert torch.equal(written[:, i], model(written[:, :i])[0][:, -1].argmax(-1))


def test_as_many_tokens_as_there_are_positions_and_one_more():
    """The last token is written and never read."""
    model = small()
    for use_cache in (True, False):
        assert generate(model, text(1), LENGTH, use_cache=use_cache).shape == (BATCH, LENGTH + 1)
        with pytest.raises(ValueError, match="at most max_length = 11"):
            generate(model, text(1), LENGTH + 1, use_cache=use_cache)


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(1, [1 / 8, 2 / 8, 5 / 8]), (0.5, [1 / 30, 4 / 30, 25 / 30]), (1e9, [1 / 3] * 3)],
)
def test_sampling_by_hand(temperature, expected):
    """Logits log 1, log 2, log 5: probabilities 1/8, 2/8, 5/8; squared at temperature 1/2."""
    logits = torch.tensor([[1.0, 2.0, 5.0]]).log().expand(20000, -1)
    drawn = sample(logits, temperature, torch.Generator().manual_seed(0))
    assert_close(torch.bincount(drawn, minlength=3) / 20000, torch.tensor(expected), 0.02)


@pytest.mark.parametrize("temperature", [0, 1e-300, 1e-3])
def test_very_cold_is_the_largest(temperature):
    logits = torch.tensor([[0.0, 900.0, 899.0], [3.0, -5.0, 2.0]])
    assert sample(logits, temperature).tolist() == [1, 0]


def test_the_loss_of_the_next_token():
    logits, tokens = torch.randn(BATCH, 5, VOCAB, dtype=torch.float64), text(5)
    log_p = torch.log_softmax(logits, dim=-1)
    each = [-log_p[b, i, tokens[b, i + 1]] for b in range(BATCH) for i in range(4)]
    assert_close(next_token_loss(logits, tokens), sum(each) / len(each), 1e-10)


# Heads


def test_the_previous_token_score():
    weights = torch.softmax(torch.randn(2, 3, 5, 7, 7), dim=-1)
    expected = sum(weights[..., i, i - 1] for i in range(1, 7)) / 6
    assert_close(previous_token_score(weights), expected, 1e-6)


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("head", range(HEADS))
def test_without_a_head_the_others_write_as_before(layer, head):
    model, own = small(), slice(head * D_K, (head + 1) * D_K)
    before = copy.deepcopy(model.state_dict())
    changed = ablate_head(model, layer, head)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    x, attention = torch.randn(BATCH, 5, D_MODEL, dtype=torch.float64), model.blocks[layer].attention
    output, weights = attention(x)
    written = weights[:, head] @ attention.v_proj(x)[..., own] @ attention.out_proj.weight[:, own].mT
    assert_close(changed.blocks[layer].attention(x)[0], output - written, 1e-10)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gate", [True, False])
def test_mean_ablation_writes_the_mean_of_what_the_head_wrote(bias, gate):
    """By the values before the projection, with other texts for the mean than for the test."""
    model, layer, head, own = small(), 1, 2, slice(2 * D_K, 3 * D_K)
    for block in model.blocks:
        block.attention = ModernAttention(D_MODEL, HEADS, bias=bias, gate=gate).double()
        for parameter in block.attention.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    texts, tokens, inputs = text(7, batch=5), text(), []
    attention = model.blocks[layer].attention
    with attention.out_proj.register_forward_hook(lambda _, given, __: inputs.append(given[0])):
        model(texts)
    mean = inputs[0][..., own].flatten(0, 1).mean(dim=0)

    def replaced(_, given):
        heads = given[0].clone()
        heads[..., own] = mean
        return (heads,)

    changed = ablate_head(model, layer, head, texts)
    with attention.out_proj.register_forward_pre_hook(replaced):
        expected, _ = model(tokens)
    assert_close(changed(tokens)[0], expected, 1e-10)
    assert (attention.out_proj.bias is None) == (not bias)
    assert (model(tokens)[0] - expected).abs().max() > 1e-4
    assert (ablate_head(model, layer, head)(tokens)[0] - expected).abs().max() > 1e-4


# What is refused


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (
            lambda caches: caches[::-1],
            ValueError,
            r"caches\[0\]: expected a cache of layer 0, with window = None, got one of layer 1, .+ = 5\.",
        ),
        (lambda caches: [caches[0]] * 2, ValueError, r"caches\[1\]: .+ of layer 1, .+ of layer 0"),
        (lambda caches: [None, caches[1]], TypeError, r"caches\[0\]: .+, got NoneType"),
        (lambda caches: [cache[:2] for cache in caches], TypeError, r"caches\[0\]: .+, got tuple"),
        (lambda caches: caches[0], TypeError, "caches: expected a list of caches, .+, got Cache"),
        (
            lambda caches: [caches[0], caches[1]._replace(length=3)],
            ValueError,
            r"caches\[1\]: expected as many tokens as caches\[0\], 4, got 3",
        ),
    ],
)
def test_the_caches_of_other_layers_are_refused_before_anything_is_computed(change, error, says, monkeypatch):
    """The layers are alike, and the window is longer than the text: only the name of the layer differs."""
    model, tokens = small(), text()
    model.blocks[1].attention.mask = SlidingWindow(5)
    _, caches = model.extend(tokens[:, :4])
    monkeypatch.setattr(nn.Linear, "forward", lambda *_: pytest.fail("something was computed"))
    with pytest.raises(error, match="^" + says):
        model.extend(tokens[:, 4:], change(caches))


def test_the_caches_of_another_batch_or_dtype_are_refused():
    model, tokens = small(), text()
    _, caches = model.extend(tokens[:, :4])
    with pytest.raises(ValueError, match=r"^cache: expected shapes .+ this batch"):
        model.extend(text(3, batch=5), caches)
    with pytest.raises(
        TypeError, match=r"^cache\.key: expected the dtype of x, torch.float32, got torch.float64"
    ):
        model.float().extend(tokens[:, 4:], caches)


def test_the_shipped_models_caches_in_the_other_order_are_refused():
    model, tokens = load(), sample_stories(2)[0]
    _, caches = model.extend(tokens[:, :15])
    with pytest.raises(ValueError, match="Are the caches in the order of the layers"):
        model.extend(tokens[:, 15:], caches[::-1])


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Decoder(5, num_layers=0), ValueError, "num_layers"),
        (lambda: Decoder(5, max_length=0), ValueError, "max_length"),
        (lambda: Decoder(5, d_model=10, num_heads=4), ValueError, "num_heads"),
        (lambda: small()(torch.full((1, 3), VOCAB)), ValueError, "vocab_size - 1 = 12"),
        (lambda: small()(torch.full((1, 3), -1)), ValueError, "vocab_size - 1 = 12"),
        (lambda: small()(torch.zeros(1, 0, dtype=torch.long)), ValueError, "at least one token"),
        (
            lambda: small().extend(text(3), small(layers=1).extend(text(2))[1]),
            ValueError,
            "one for each of 2 layers",
        ),
        (
            lambda: small().extend(text(3), small().extend(text(2))[1]),
            ValueError,
            "another model, or by a copy",
        ),
        (lambda: sample(torch.zeros(2, 3), -1), ValueError, "at least 0"),
        (lambda: generate(small(), text(1), 0), ValueError, "count"),
        (lambda: previous_token_score(torch.zeros(3, 1, 1)), ValueError, "n >= 2"),
        (lambda: next_token_loss(torch.zeros(2, 1, VOCAB), text(1)), ValueError, "n >= 2"),
        (lambda: ablate_head(small(), 2, 0), ValueError, "layer: expected at most 1"),
        (lambda: ablate_head(small(), 0, 3), ValueError, "head: expected at most 2"),
        (lambda: ablate_head(small(), 0, 0, text(LENGTH + 1)), ValueError, "at most max_length = 11"),
        (lambda: Decoder(5.0), TypeError, "vocab_size"),
        (lambda: Decoder(5, num_heads=2.0), TypeError, "num_heads"),
        (lambda: small()(torch.zeros(2, 3)), TypeError, "whole numbers"),
        (lambda: small()(text()[0]), ValueError, "Is an axis missing"),
        (lambda: sample(torch.zeros(2, 3).long(), 1), TypeError, "floating-point"),
        (lambda: sample(torch.zeros(2, 3), "hot"), TypeError, "temperature"),
        (lambda: sample(torch.zeros(3), 1), ValueError, "Is an axis missing"),
        (lambda: generate(small(), text(1), 2.5), TypeError, "count"),
        (lambda: next_token_loss(torch.zeros(2, 4, VOCAB), text(5)), ValueError, "logits"),
        (lambda: ablate_head(small(), 0, "first"), TypeError, "head"),
    ],
)
def test_what_cannot_be_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
