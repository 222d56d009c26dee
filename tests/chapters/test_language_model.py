"""The decoder against a loop, itself with and without a cache, and numbers worked out by hand."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import nn

from mha_lab import AdditiveScore, MultiHeadAttention, RelativePositionBias, causal_mask, mask_to_blocked
from mha_lab.chapters.language_model import (
    Block,
    Decoder,
    ablate_head,
    attend_with_cache,
    generate,
    previous_token_score,
    sample,
)
from mha_lab.exercises.predict_cache import predict_cache
from mha_lab.positions import Rotary
from mha_lab.scores import AlibiScore, RotaryScore
from tests.references import TOLERANCE, assert_close, looped_attention

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


def normed(x, norm):
    """Layer normalisation of one token, in Python floats."""
    mean = sum(x) / len(x)
    spread = math.sqrt(sum((value - mean) ** 2 for value in x) / len(x) + norm.eps)
    pairs = zip(norm.weight.tolist(), norm.bias.tolist(), strict=True)
    return [w * (value - mean) / spread + b for value, (w, b) in zip(x, pairs, strict=True)]


def linear(x, layer):
    rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
    return [sum(a * b for a, b in zip(row, x, strict=True)) + bias for row, bias in rows]


def looped_block(rows, block):
    """A block on one text, ``n`` lists of ``d_model`` numbers: loops over tokens, heads and numbers."""
    layer, inner = block.attention, [normed(x, block.norm_1) for x in rows]
    q, k, v = (
        torch.tensor([linear(x, projection) for x in inner], dtype=torch.float64)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    mask = torch.tensor([[j <= i for j in range(len(rows))] for i in range(len(rows))])
    columns = [slice(h * layer.d_k, (h + 1) * layer.d_k) for h in range(layer.num_heads)]
    heads = [looped_attention(q[:, own], k[:, own], v[:, own], mask)[0] for own in columns]
    out = []
    for x, got in zip(rows, torch.cat(heads, dim=1).tolist(), strict=True):
        x = [a + b for a, b in zip(x, linear(got, layer.out_proj), strict=True)]
        hidden = linear(normed(x, block.norm_2), block.network[0])
        hidden = [0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in hidden]  # GELU
        out.append([a + b for a, b in zip(x, linear(hidden, block.network[2]), strict=True)])
    return out


def test_equal_to_loops_over_single_numbers():
    model, tokens = small(), text(7)
    embedding, places = model.token_embedding.weight, model.position_embedding.weight
    for sample_tokens, logits in zip(tokens, model(tokens)[0], strict=True):
        rows = [(embedding[t] + places[i]).tolist() for i, t in enumerate(sample_tokens)]
        for block in model.blocks:
            rows = looped_block(rows, block)
        normal = [normed(x, model.norm) for x in rows]
        expected = [[sum(map(math.prod, zip(x, e, strict=True))) for e in embedding.tolist()] for x in normal]
        assert_close(logits, torch.tensor(expected, dtype=torch.float64), 1e-10)


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


def test_weights_come_layer_by_layer_and_change_nothing():
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
        assert (moved[:at] == 0).all()
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


def test_saved_and_loaded_bit_by_bit():
    model, again, tokens = small(torch.float32), small(torch.float32), text()
    again.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(again(tokens)[0], model(tokens)[0])


# The cache


POSITIONS = {
    "none": dict,
    "additive": lambda: {"score": AdditiveScore(D_K, 5)},
    "relative": lambda: {"score": RelativePositionBias(HEADS, 2)},
    "alibi": lambda: {"score": AlibiScore(HEADS)},
    "rotary score": lambda: {"score": RotaryScore()},
    "rotary": lambda: {"transform": Rotary()},
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
            output, cache = attend_with_cache(layer, piece, cache)
            scores, caches = model.extend(new, caches)
            outputs.append(output)
            logits.append(scores)
        assert_close(torch.cat(outputs, dim=1), whole, TOLERANCE[dtype])
        for kept, expected in zip(cache, (keys, values), strict=True):
            assert_close(kept, expected, TOLERANCE[dtype])
        assert_close(torch.cat(logits, dim=1), model(tokens)[0], TOLERANCE[dtype])


def test_a_cache_that_is_passed_in_stays_as_it_was():
    """So that two continuations can start from one."""
    model, tokens = small(), text()
    _, caches = model.extend(tokens[:, :5])
    before = [[kept.clone() for kept in cache] for cache in caches]
    one, two = (model.extend(tokens[:, 5:6], caches)[0] for _ in range(2))
    assert torch.equal(one, two)
    for old, kept in zip(before, caches, strict=True):
        assert all(map(torch.equal, old, kept))


def test_the_cache_holds_as_many_numbers_as_the_exercise_says():
    model = Decoder(2, d_model=20, num_heads=5, num_layers=3, max_length=7)
    _, caches = model.extend(torch.zeros(1, 7, dtype=torch.long))
    assert sum(kept.numel() for cache in caches for kept in cache) == predict_cache(3, 5, 7, 20)


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
    model, tokens = small(), text(2)
    written = generate(model, tokens, 5, temperature=0)
    for i in range(2, 7):
        assert torch.equal(written[:, i], model(written[:, :i])[0][:, -1].argmax(-1))
    graded = []
    model.register_forward_hook(lambda *_: graded.append(torch.is_grad_enabled()))
    generate(model, tokens, 2, use_cache=False)
    assert graded == [False, False]


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


# Heads


def test_the_previous_token_score():
    by_hand = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.3, 0.1, 0.6]])
    assert previous_token_score(by_hand).item() == pytest.approx((0.5 + 0.1) / 2)
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


# What is refused


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Decoder(0), "vocab_size"),
        (lambda: Decoder(5, num_layers=0), "num_layers"),
        (lambda: Decoder(5, max_length=0), "max_length"),
        (lambda: Decoder(5, d_model=10, num_heads=4), "num_heads"),
        (lambda: small()(torch.full((1, 3), VOCAB)), "vocab_size - 1 = 12"),
        (lambda: small()(torch.full((1, 3), -1)), "vocab_size - 1 = 12"),
        (lambda: small()(torch.zeros(1, 0, dtype=torch.long)), "at least one token"),
        (lambda: small().extend(text(3), small(layers=1).extend(text(2))[1]), "one for each of 2 layers"),
        (lambda: small().extend(text(3), small().extend(text(2, 5))[1]), "this layer and this batch"),
        (lambda: sample(torch.zeros(2, 3), -1), "at least 0"),
        (lambda: generate(small(), text(1), 0), "count"),
        (lambda: previous_token_score(torch.zeros(3, 1, 1)), "n >= 2"),
        (lambda: ablate_head(small(), 2, 0), "layer: expected at most 1"),
        (lambda: ablate_head(small(), 0, 3), "head: expected at most 2"),
    ],
)
def test_wrong_values_are_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Decoder(5.0), TypeError, "vocab_size"),
        (lambda: Block(6, 2.0), TypeError, "num_heads"),
        (lambda: small()(torch.zeros(2, 3)), TypeError, "whole numbers"),
        (lambda: small()(text()[0]), ValueError, "Is an axis missing"),
        (lambda: sample(torch.zeros(2, 3).long(), 1), TypeError, "floating-point"),
        (lambda: sample(torch.zeros(2, 3), "hot"), TypeError, "temperature"),
        (lambda: sample(torch.zeros(3), 1), ValueError, "Is an axis missing"),
        (lambda: generate(small(), text(1), 2.5), TypeError, "count"),
        (lambda: ablate_head(small(), 0, "first"), TypeError, "head"),
    ],
)
def test_wrong_types_and_ranks_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
