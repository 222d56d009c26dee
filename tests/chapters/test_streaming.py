"""The cache that keeps the first tokens: against a mask, against the kept tokens alone, and its size."""

import pytest
import torch

from mha_course.chapters import story_model
from mha_course.chapters.streaming import attend_in_stream
from mha_lab import MultiHeadAttention, causal_mask
from mha_lab.masks import SlidingWindow, sliding_window_mask
from mha_lab.positions import Rotary
from mha_lab.scores import AlibiScore, QueryKeyNorm, SoftcappedScore
from tests.references import assert_close, layer_with

BATCH, N, D_MODEL, HEADS = 2, 13, 12, 6
OPTIONS = {
    "plain": {},
    "grouped": {"num_kv_heads": 3},
    "sinks and gate": {"sinks": True, "gate": True},
    "norm": {"transform": QueryKeyNorm(2)},
    "cap": {"score": SoftcappedScore(2.0)},
}
POSITIONS = {
    "rotary": {"transform": Rotary()},
    "slower": {"transform": Rotary(frequencies=torch.tensor([0.3]))},
    "alibi": {"score": AlibiScore(HEADS)},
}
SIZES = [(1, 4), (3, 2), (0, 5), (2, 1), (1, 30)]


def text():
    return torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)


@torch.no_grad()
def made(**options):
    layer = layer_with(D_MODEL, HEADS, **options).double()
    for p in layer.parameters():
        p.normal_(std=0.6)
    return layer


@torch.no_grad()
def stream(layer, x, first, recent):
    """The outputs token by token, and the cache after each token."""
    outputs, caches = [], [None]
    for token in x.split(1, dim=1):
        output, cache = attend_in_stream(layer, token, caches[-1], first=first, recent=recent)
        outputs.append(output)
        caches.append(cache)
    return torch.cat(outputs, dim=1), caches[1:]


def mask_by_loop(first, recent):
    rows = [[j <= i and (j < first or j > i - recent) for j in range(N)] for i in range(N)]
    return torch.tensor(rows)


@pytest.mark.parametrize(("first", "recent"), SIZES)
@pytest.mark.parametrize("kind", OPTIONS)
@torch.no_grad()
def test_token_by_token_is_the_whole_text_under_the_mask(kind, first, recent):
    layer, x = made(**OPTIONS[kind]), text()
    outputs, _ = stream(layer, x, first, recent)
    assert_close(outputs, layer(x, mask=mask_by_loop(first, recent))[0], 1e-12)


@pytest.mark.parametrize(("first", "recent"), SIZES)
@pytest.mark.parametrize("kind", OPTIONS | POSITIONS)
@torch.no_grad()
def test_each_output_is_that_of_the_kept_tokens_alone(kind, first, recent):
    """With positions, too: they are counted inside the cache, as if the tokens between did not exist."""
    layer, x = made(**(OPTIONS | POSITIONS)[kind]), text()
    outputs, _ = stream(layer, x, first, recent)
    for i in range(N):
        kept = x[:, mask_by_loop(first, recent)[i]]
        alone = layer(kept, mask=causal_mask(kept.shape[1]))[0]
        assert_close(outputs[:, i], alone[:, -1], 1e-12)


@pytest.mark.parametrize(("first", "recent"), SIZES)
@torch.no_grad()
def test_the_kept_tokens_are_those_of_the_authors_cache(first, recent):
    """The rule of ``evict_for_space(past, 1)`` in mit-han-lab/streaming-llm (commit d729b3f), on a list."""
    layer, x, kept = made(), text(), []
    _, key, value = layer.project(x, x, x)
    for i, cache in enumerate(stream(layer, x, first, recent)[1]):
        if len(kept) + 1 > first + recent:
            kept = kept[:first] + kept[len(kept) - recent + 1 :]
        kept = [*kept, i]
        assert_close(cache.key, key[..., kept, :], 1e-12)
        assert_close(cache.value, value[..., kept, :], 1e-12)


@pytest.mark.parametrize("kind", POSITIONS)
@torch.no_grad()
def test_positions_in_the_cache_are_not_those_of_the_text(kind):
    layer, x = made(**POSITIONS[kind]), text()
    outputs, _ = stream(layer, x, 1, 4)
    whole = layer(x, mask=mask_by_loop(1, 4))[0]
    assert_close(outputs[:, :5], whole[:, :5], 1e-12)  # nothing has left yet
    assert not torch.isclose(outputs[:, 5:], whole[:, 5:]).all(dim=-1).any()


def test_without_first_tokens_it_is_the_cache_of_a_window():
    layer, x = made(), text()
    outputs, caches = stream(layer, x, 0, 4)
    layer.mask = SlidingWindow(4)
    with torch.no_grad():
        rolling, cache = layer.extend(x)
    assert_close(outputs, rolling, 1e-12)
    assert_close(caches[-1].key, cache.key, 1e-12)


@pytest.mark.parametrize(("first", "recent"), SIZES)
def test_the_cache_keeps_the_right_tokens_and_stops_growing(first, recent):
    layer, x = made(num_kv_heads=3), text()
    _, key, value = layer.project(x, x, x)
    _, caches = stream(layer, x, first, recent)
    for i, cache in enumerate(caches):
        seen = mask_by_loop(first, recent)[i]
        assert cache.length == i + 1
        assert cache.key.shape[-2] == min(i + 1, first + recent)
        assert_close(cache.key, key[..., seen, :], 1e-12)
        assert_close(cache.value, value[..., seen, :], 1e-12)
        assert cache.key.nbytes == BATCH * 3 * seen.sum() * 2 * 8  # num_kv_heads, d_k, 8 bytes


@torch.no_grad()
def test_the_shipped_model_token_by_token_is_the_mask_of_chapter_13():
    model, tokens = story_model.load(), story_model.sample(7, seed=7)[0][:, :-1]
    n, table = tokens.shape[1], model.position_embedding.weight
    mask = sliding_window_mask(n, window=7)
    mask[:, 0] = True
    whole = model.token_embedding.weight[tokens] + table[:n]
    caches, outputs = [None] * len(model.blocks), []
    for t in range(n):
        x = model.token_embedding.weight[tokens[:, t : t + 1]] + table[t]
        for i, block in enumerate(model.blocks):
            new, caches[i] = attend_in_stream(block.attention, block.norm_1(x), caches[i], recent=7)
            x = x + new
            x = x + block.network(block.norm_2(x))
        outputs.append(x)
    for block in model.blocks:
        whole = whole + block.attention(block.norm_1(whole), mask=mask)[0]
        whole = whole + block.network(block.norm_2(whole))
    assert_close(torch.cat(outputs, dim=1), whole, 1e-4)
    assert {cache.key.shape[-2] for cache in caches} == {8}


# What is refused

LAYER, X = MultiHeadAttention(12, 4, num_kv_heads=2), torch.randn(1, 1, 12)


def kept(**changes):
    """A cache that LAYER made, with other parts."""
    return attend_in_stream(LAYER, X, first=1, recent=3)[1]._replace(**changes)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"x": X.tolist()}, TypeError, "x: expected a torch.Tensor"),
        ({"x": X[0, 0]}, ValueError, "x: expected a tensor of shape"),
        ({"x": X.long()}, TypeError, "x: expected a floating-point"),
        ({"x": X.double()}, TypeError, "x: expected the dtype of q_proj.weight"),
        ({"x": X[..., :5]}, ValueError, "x: expected a last axis of qdim = 12"),
        ({"x": X.expand(1, 2, 12)}, ValueError, r"x: expected one new token, got 2.+x\.split"),
        ({"x": X.expand(2, 1, 12)}, ValueError, r"cache: expected shapes \(2, .+ this batch"),
        ({"first": -1}, ValueError, "first: expected at least 0"),
        ({"recent": 0}, ValueError, "recent: expected at least 1"),
        ({"recent": 4}, ValueError, "cache: expected first = 1 and recent = 4, got .+ = 3"),
        ({"first": 2}, ValueError, "cache: expected first = 2 and recent = 3, got first = 1"),
        ({"cache": kept()[:2]}, TypeError, "cache: expected the StreamCache .+, got tuple"),
        (
            {"cache": LAYER.extend(X)[1]},
            TypeError,
            "cache: expected the StreamCache .+, got Cache",
        ),
        (
            {"cache": kept(key=torch.zeros(1, 2, 1, 3).double())},
            TypeError,
            "cache.key: expected the dtype of x",
        ),
        ({"layer": MultiHeadAttention(12, 4, num_kv_heads=2)}, ValueError, "cache: .+, got one of another"),
        ({"layer": torch.nn.Linear(12, 12)}, TypeError, "layer: expected a MultiHeadAttention, got Linear"),
        (
            {"layer": MultiHeadAttention(12, 4, num_kv_heads=2, mask=SlidingWindow(3))},
            ValueError,
            r"layer\.mask: expected None, got SlidingWindow\(window=3\)",
        ),
    ],
)
def test_what_is_refused_before_anything_is_computed(changes, error, says, monkeypatch):
    arguments = {"layer": LAYER, "x": X, "cache": kept(), "first": 1, "recent": 3} | changes
    monkeypatch.setattr(MultiHeadAttention, "project", lambda *_: pytest.fail("something was computed"))
    with pytest.raises(error, match="^" + says):
        attend_in_stream(**arguments)


@torch.no_grad()
def test_a_call_does_not_change_the_cache_that_it_gets():
    layer, x = made(), text()
    _, caches = stream(layer, x, 1, 3)
    before = [part.clone() for part in caches[-1][:2]]
    one, two = (attend_in_stream(layer, x[:, :1], caches[-1], first=1, recent=3)[0] for _ in range(2))
    assert torch.equal(one, two)
    assert all(map(torch.equal, before, caches[-1][:2]))
