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


def gelu(value):
    return 0.5 * value * (1 + math.erf(value / math.sqrt(2)))


def looped_block(rows, block):
    """A block on one text, ``n`` lists of ``d_model`` numbers: loops over tokens, heads and numbers."""
    inner = [normed(x, block.norm_1) for x in rows]
    layer = block.attention
    q, k, v = (
        torch.tensor([linear(x, projection) for x in inner], dtype=torch.float64)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    mask = torch.tensor([[j <= i for j in range(len(rows))] for i in range(len(rows))])
    parts = []
    for h in range(layer.num_heads):
        own = slice(h * layer.d_k, (h + 1) * layer.d_k)
        parts.append(looped_attention(q[:, own], k[:, own], v[:, own], mask)[0])
    fetched = torch.cat(parts, dim=1).tolist()
    out = []
    for x, got in zip(rows, fetched, strict=True):
        x = [a + b for a, b in zip(x, linear(got, layer.out_proj), strict=True)]
        hidden = [gelu(value) for value in linear(normed(x, block.norm_2), block.network[0])]
        out.append([a + b for a, b in zip(x, linear(hidden, block.network[2]), strict=True)])
    return out


def test_equal_to_loops_over_single_numbers():
    model, tokens = small(), text(7)
    logits, _ = model(tokens)
    for b in range(BATCH):
        embedded = [
            model.token_embedding.weight[t] + model.position_embedding.weight[i]
            for i, t in enumerate(tokens[b])
        ]
        rows = [x.tolist() for x in embedded]
        for block in model.blocks:
            rows = looped_block(rows, block)
        readout = model.token_embedding.weight.tolist()
        expected = [
            [sum(a * c for a, c in zip(normed(x, model.norm), row, strict=True)) for row in readout]
            for x in rows
        ]
        assert_close(logits[b], torch.tensor(expected, dtype=torch.float64), 1e-10)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_block_is_pytorchs_layer(dtype, causal):
    block = small(dtype).blocks[0]
    theirs = nn.TransformerEncoderLayer(
        D_MODEL, HEADS, 4 * D_MODEL, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).to(dtype)
    theirs.self_attn.load_state_dict(block.attention.to_torch().state_dict())
    for part, source in (
        (theirs.linear1, block.network[0]),
        (theirs.linear2, block.network[2]),
        (theirs.norm1, block.norm_1),
        (theirs.norm2, block.norm_2),
    ):
        part.load_state_dict(source.state_dict())
    x = torch.randn(BATCH, 7, D_MODEL, dtype=dtype)
    mask = mask_to_blocked(causal_mask(7)) if causal else None
    output, weights = block(x, causal=causal)
    assert_close(output, theirs(x, src_mask=mask), TOLERANCE[dtype])
    assert weights.shape == (BATCH, HEADS, 7, 7)
    assert_close(block(x, causal=causal, need_weights=False)[0], output, TOLERANCE[dtype])


def test_weights_come_layer_by_layer_and_change_nothing():
    model, tokens = small(), text()
    logits, weights = model(tokens, need_weights=True)
    assert weights.shape == (LAYERS, BATCH, HEADS, LENGTH, LENGTH)
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), 1e-12)
    fused, nothing = model(tokens)
    assert nothing is None
    assert_close(fused, logits, 1e-10)
    x = model.token_embedding(tokens) + model.position_embedding.weight[:LENGTH]
    for block, kept in zip(model.blocks, weights, strict=True):
        x, expected = block(x)
        assert_close(kept, expected, 1e-12)


def test_no_token_sees_its_future():
    """By perturbation: a changed token moves its own logits and later ones, and no earlier one."""
    model, tokens = small(), text()
    for at in range(LENGTH):
        changed = tokens.clone()
        changed[:, at] = (changed[:, at] + 1) % VOCAB
        moved = (model(changed)[0] - model(tokens)[0]).abs().amax(dim=(0, 2))
        assert (moved[:at] == 0).all()
        assert (moved[at:] > 1e-9).all()
        open_ = (model(changed, causal=False)[0] - model(tokens, causal=False)[0]).abs().amax(dim=(0, 2))
        assert (open_ > 1e-9).all()


def test_embedding_and_readout_are_one_matrix():
    """One parameter, one gradient with both parts in it, one tensor in the file."""
    model, tokens = small(), text(3)
    assert [name for name, p in model.named_parameters() if VOCAB in p.shape] == ["token_embedding.weight"]
    absent = next(t for t in range(VOCAB) if t not in tokens)
    model(tokens)[0][..., absent].sum().backward()
    gradient = model.token_embedding.weight.grad
    assert (gradient[absent] != 0).any()  # as readout
    assert (gradient[tokens[0, 0]] != 0).any()  # as embedding
    with torch.no_grad():
        before = model(tokens)[0]
        model.token_embedding.weight[absent] += 1
        moved = (model(tokens)[0] - before).abs().amax(dim=(0, 1))
    assert moved.nonzero().flatten().tolist() == [absent]


def test_parameters_by_hand():
    """For width 12: 13 tokens, 11 positions, two blocks, one norm."""
    attention = 4 * (12 * 12 + 12)
    network = (12 * 48 + 48) + (48 * 12 + 12)
    norms = 2 * (12 + 12)
    expected = 13 * 12 + 11 * 12 + 2 * (attention + network + norms) + 24
    assert sum(p.numel() for p in small().parameters()) == expected == 4080


def test_a_fresh_model_knows_nothing_and_starts_calm():
    tokens = text(LENGTH, 50)
    model = Decoder(VOCAB, d_model=D_MODEL, num_heads=HEADS, max_length=LENGTH)
    loss = F.cross_entropy(model(tokens[:, :-1])[0].flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(VOCAB), abs=0.3)


def test_training_lowers_the_loss():
    model = Decoder(VOCAB, d_model=D_MODEL, num_heads=HEADS, max_length=LENGTH)
    optimizer, tokens, losses = torch.optim.AdamW(model.parameters(), lr=0.01), text(LENGTH, 5), []
    for _ in range(3):
        loss = F.cross_entropy(model(tokens[:, :-1])[0].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > losses[1] > losses[2]


def test_saved_and_loaded_bit_by_bit():
    model, tokens = small(torch.float32), text()
    again = small(torch.float32)
    again.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(again(tokens)[0], model(tokens)[0])


# The cache


@pytest.mark.parametrize("pieces", [[1] * 7, [7], [3, 4], [5, 1, 1], [1, 2, 3, 1]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_attention_with_a_cache_equals_attention_to_the_whole(dtype, pieces):
    layer = small(dtype).blocks[0].attention
    x = torch.randn(BATCH, 7, D_MODEL, dtype=dtype)
    expected, _ = layer(x, mask=causal_mask(7))
    outputs, cache, seen = [], None, 0
    for piece in x.split(pieces, dim=1):
        output, cache = attend_with_cache(layer, piece, cache)
        outputs.append(output)
        seen += piece.shape[1]
        assert [kept.shape for kept in cache] == [(BATCH, HEADS, seen, D_K)] * 2
    assert_close(torch.cat(outputs, dim=1), expected, TOLERANCE[dtype])
    for kept, projection in zip(cache, (layer.k_proj, layer.v_proj), strict=True):
        assert_close(kept, projection(x).view(BATCH, 7, HEADS, D_K).transpose(1, 2), TOLERANCE[dtype])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("pieces", [[1] * LENGTH, [LENGTH], [4, 7], [6, 1, 1, 3]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_model_with_a_cache_equals_the_model_without(dtype, pieces, seed):
    """Positions included: they count from the start of the text, and not from the new token."""
    torch.manual_seed(seed)
    model, tokens = small(dtype), text()
    logits, caches = [], None
    for piece in tokens.split(pieces, dim=1):
        new, caches = model.extend(piece, caches)
        logits.append(new)
    assert_close(torch.cat(logits, dim=1), model(tokens)[0], TOLERANCE[dtype])
    assert len(caches) == LAYERS


def test_a_cache_that_is_passed_in_stays_as_it_was():
    """So that two continuations can start from one."""
    model, tokens = small(), text()
    _, caches = model.extend(tokens[:, :5])
    before = [[kept.clone() for kept in cache] for cache in caches]
    one, _ = model.extend(tokens[:, 5:6], caches)
    two, _ = model.extend(tokens[:, 5:6], caches)
    assert torch.equal(one, two)
    for old, kept in zip(before, caches, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(old, kept, strict=True))


# Writing


@pytest.mark.parametrize("temperature", [0, 0.7, 1, 2.5])
def test_the_cache_changes_nothing_in_what_is_written(temperature):
    model, start = small(), text(3)
    texts = [
        generate(
            model,
            start,
            8,
            temperature=temperature,
            use_cache=use,
            generator=torch.Generator().manual_seed(1),
        )
        for use in (True, False)
    ]
    assert torch.equal(*texts)
    assert texts[0].shape == (BATCH, 11)
    assert torch.equal(texts[0][:, :3], start)


def test_greedy_takes_the_largest_logit_each_time():
    model, tokens = small(), text(2)
    written = generate(model, tokens, 5, temperature=0)
    for i in range(2, 7):
        assert torch.equal(written[:, i], model(written[:, :i])[0][:, -1].argmax(-1))


def test_as_many_tokens_as_there_are_positions_and_one_more():
    """The last token is written and never read."""
    model = small()
    assert generate(model, text(1), LENGTH).shape == (BATCH, LENGTH + 1)
    for use_cache in (True, False):
        with pytest.raises(ValueError, match="at most max_length = 11"):
            generate(model, text(1), LENGTH + 1, use_cache=use_cache)


def test_no_gradient_is_kept_while_writing():
    assert not generate(small(), text(1), 3).requires_grad


def frequencies(logits, temperature, count=20000):
    drawn = sample(logits.expand(count, -1), temperature, torch.Generator().manual_seed(0))
    return torch.bincount(drawn, minlength=logits.shape[-1]) / count


def test_sampling_by_hand():
    """Logits log 1, log 2, log 5: probabilities 1/8, 2/8, 5/8; squared at temperature 1/2."""
    logits = torch.tensor([[1.0, 2.0, 5.0]], dtype=torch.float64).log()
    assert_close(frequencies(logits, 1).double(), torch.tensor([1, 2, 5]).double() / 8, 0.02)
    assert_close(frequencies(logits, 0.5).double(), torch.tensor([1, 4, 25]).double() / 30, 0.02)
    assert_close(frequencies(logits, 1e9).double(), torch.ones(3).double() / 3, 0.02)


@pytest.mark.parametrize("temperature", [0, 1e-300, 1e-3])
def test_very_cold_is_the_largest(temperature):
    logits = torch.tensor([[0.0, 900.0, 899.0], [3.0, -5.0, 2.0]])
    assert sample(logits, temperature).tolist() == [1, 0]


def test_the_generator_decides():
    logits = torch.zeros(50, 7)
    one, same, other = (sample(logits, 1, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


# Heads


def test_the_previous_token_score_by_hand():
    weights = torch.tensor(
        [
            [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],  # always the one before
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],  # always itself
            [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.3, 0.1, 0.6]],
        ]
    )
    assert_close(previous_token_score(weights), torch.tensor([1.0, 0.0, 0.3]), 1e-6)
    n = 5
    even = causal_mask(n).double() / torch.arange(1, n + 1)[:, None]
    assert previous_token_score(even).item() == pytest.approx((1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 4)


def test_the_previous_token_score_is_one_for_each_head():
    weights = torch.softmax(torch.randn(2, 3, 5, 7, 7), dim=-1)
    score = previous_token_score(weights)
    assert score.shape == (2, 3, 5)
    expected = sum(weights[1, 2, 4, i, i - 1] for i in range(1, 7)) / 6
    assert_close(score[1, 2, 4], expected, 1e-6)


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("head", range(HEADS))
def test_without_a_head_the_others_write_as_before(layer, head):
    model, tokens = small(), text()
    before = copy.deepcopy(model.state_dict())
    changed = ablate_head(model, layer, head)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    x = torch.randn(BATCH, 5, D_MODEL, dtype=torch.float64)
    attention = model.blocks[layer].attention
    _, weights = attention(x)
    value = attention.v_proj(x).view(BATCH, 5, HEADS, D_K).transpose(1, 2)
    expected = attention.out_proj.bias.clone()
    for h in range(HEADS):
        if h != head:
            expected = (
                expected
                + (weights[:, h] @ value[:, h]) @ attention.out_proj.weight[:, h * D_K : (h + 1) * D_K].mT
            )
    assert_close(changed.blocks[layer].attention(x)[0], expected, 1e-10)
    assert not torch.equal(changed(tokens)[0], model(tokens)[0])


# What is refused


POSITIONS = {
    "additive": {"score": AdditiveScore(2, 5)},
    "relative": {"score": RelativePositionBias(3, 2)},
    "alibi": {"score": AlibiScore(3)},
    "rotary score": {"score": RotaryScore()},
    "rotary": {"transform": Rotary()},
    "both": {"transform": Rotary(layout="halves"), "score": AlibiScore(3)},
}


@pytest.mark.parametrize("given", POSITIONS.values(), ids=POSITIONS)
def test_the_cache_works_with_every_score_and_position(given):
    """Token by token gives what the whole text gives, and so the same text is written."""
    layer = MultiHeadAttention(6, 3, **given).double()
    if "relative" in str(type(layer.score)).lower():
        torch.nn.init.normal_(layer.score.bias)
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    whole, _ = layer(x, mask=causal_mask(7))
    found, cache = [], None
    for part in x.split([4, 1, 2], dim=1):
        output, cache = attend_with_cache(layer, part, cache)
        found.append(output)
    assert_close(torch.cat(found, dim=1), whole, 1e-10)

    model = Decoder(11, d_model=6, num_heads=3, max_length=9)
    for block in model.blocks:
        block.attention.score, block.attention.transform = given.get("score"), given.get("transform")
    start = torch.tensor([[3], [5]])
    with_cache, without = (
        generate(model.double(), start, 8, temperature=0, use_cache=use) for use in (True, False)
    )
    assert torch.equal(with_cache, without)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Decoder(0), "vocab_size"),
        (lambda: Decoder(5, num_layers=0), "num_layers"),
        (lambda: Decoder(5, d_model=10, num_heads=4), "num_heads"),
        (lambda: small()(text(LENGTH + 1)), "at most max_length = 11"),
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
    ("call", "says"),
    [
        (lambda: Decoder(5.0), "vocab_size"),
        (lambda: small()(torch.zeros(2, 3)), "whole numbers"),
        (lambda: sample(torch.zeros(2, 3, dtype=torch.long), 1), "floating-point"),
        (lambda: sample(torch.zeros(2, 3), "hot"), "temperature"),
        (lambda: generate(small(), text(1), 2.5), "count"),
        (lambda: ablate_head(small(), 0, "first"), "head"),
        (lambda: Block(6, 2.0), "num_heads"),
    ],
)
def test_wrong_types_are_named(call, says):
    with pytest.raises(TypeError, match=says):
        call()


@pytest.mark.unchecked
@pytest.mark.parametrize("call", [lambda: small()(text()[0]), lambda: sample(torch.zeros(3), 1)])
def test_wrong_ranks_are_named(call):
    with pytest.raises(ValueError, match="Is an axis missing"):
        call()


@pytest.mark.parametrize(
    ("num_layers", "num_heads", "n", "d_model"), [(2, 4, 9, 16), (3, 5, 7, 20), (1, 3, 2, 6)]
)
def test_the_cache_holds_as_many_numbers_as_the_exercise_says(num_layers, num_heads, n, d_model):
    model = Decoder(2, d_model=d_model, num_heads=num_heads, num_layers=num_layers, max_length=n)
    with torch.no_grad():
        _, caches = model.extend(torch.zeros(1, n, dtype=torch.long))
    counted = sum(kept.numel() for cache in caches for kept in cache)
    assert predict_cache(num_layers, num_heads, n, d_model) == counted
