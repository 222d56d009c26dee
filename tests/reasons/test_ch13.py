"""Reasons of chapter 13, each tried with the smallest experiment that could refute it."""

import math
from functools import cache

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import mha_lab
from bench import rope
from mha_course.chapters import story_model
from mha_course.chapters.cost import kept_for_backward, measure_memory
from mha_course.chapters.modern import ModernAttention
from mha_course.chapters.streaming import attend_in_stream
from mha_lab import MultiHeadAttention, positions
from mha_lab.positions import Rotary, apply_rotary
from mha_lab.scores import QueryKeyNorm, RelativePositionBias
from tests.chapters.test_five_trainings import SEEDS
from tests.references import layer_with


def test_a_head_is_fainter_because_of_its_sink():
    """The sums of the rows change places with the sinks, and are 1 without them."""
    layer, x = ModernAttention(8, 2, sinks=True), torch.randn(5, 8)
    layer.requires_grad_(False)
    sums = []
    for sinks in ([0.0, 2.0], [2.0, 0.0], [-torch.inf, -torch.inf]):
        layer.sinks.copy_(torch.tensor(sinks))
        sums.append(layer(x)[1].sum(dim=-1).mean(dim=-1))
    assert sums[0][1] < sums[0][0] < 1
    assert sums[1][0] < sums[1][1] < 1
    torch.testing.assert_close(sums[2], torch.ones(2))


def test_the_root_mean_square_in_float16_would_overflow_and_epsilon_keeps_zeros():
    x = torch.tensor([[[400.0, 300.0]]])
    assert x.half().square().isinf().any()
    normed = QueryKeyNorm(2).half()(x.half(), x.half())[0]
    torch.testing.assert_close(normed.float(), x / x.square().mean().sqrt(), atol=1e-3, rtol=0)
    zeros = torch.zeros(1, 1, 2)
    assert torch.equal(QueryKeyNorm(2)(zeros, zeros)[0], zeros)
    assert (zeros / zeros.square().mean().sqrt()).isnan().all()


def test_a_gain_makes_the_bound_larger():
    norm = QueryKeyNorm(64)
    x = torch.randn(1, 1, 64)
    scores = []
    for gain in (1.0, 2.0):
        torch.nn.init.constant_(norm.query_norm.weight, gain)
        scores.append(mha_lab.scaled_dot_product_scores(*norm(x, x)).item())
    assert scores == pytest.approx([8, 16], rel=1e-3)


def test_a_key_whose_value_is_zero_lets_a_head_output_zero_and_low_scores_do_not():
    value = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    for low in (-1.0, -100.0):
        assert (torch.full((2,), low).softmax(dim=0) @ value).tolist() == [0.5, 0.5]
    padded = torch.cat([value, torch.zeros(1, 2)])
    assert (torch.tensor([0.0, 0.0, 100.0]).softmax(dim=0) @ padded).abs().max() < 1e-6


def test_a_transform_that_counts_from_0_is_right_for_whole_texts_and_wrong_for_new_tokens():
    query, key = torch.randn(2, 8, 4)
    right = apply_rotary(query) @ apply_rotary(key).mT
    turned = apply_rotary(key)
    assert torch.allclose(apply_rotary(query[6:], torch.arange(6, 8)) @ turned.mT, right[6:], atol=1e-5)
    assert not torch.allclose(apply_rotary(query[6:]) @ turned.mT, right[6:], atol=1e-2)


def test_what_interpolation_does_to_neighbours_and_to_the_longest_distance():
    theta = positions.rotary_frequencies(4)
    slower = positions.rotary_frequencies(4, factor=4)
    torch.testing.assert_close(124 * slower, 31 * theta)
    seen = torch.arange(32)[:, None] * theta % (2 * math.pi)
    gaps = (seen[:, 0] - slower[0]).abs()
    assert slower[0] == 0.25
    assert gaps.min() > 0.02  # no distance from 0 to 31 gave pair 0 this angle to a neighbour
    assert seen[1, 0] == 1


def test_why_the_lines_of_appendix_12_fall_as_they_do():
    """Slow pairs hardly move the mean near distance 0. Among fast pairs, pair 0 is not enough."""
    plain = positions.rotary_frequencies(16)
    rules = {
        "plain": plain,
        "NTK-aware": positions.rotary_frequencies(16, base=10000 * 4 ** (16 / 14)),
        "YaRN": positions.yarn_frequencies(16, factor=4, length=32),
        "partial": torch.nn.functional.pad(positions.rotary_frequencies(4), (0, 6)),
    }
    fall = {name: 1 - positions.mean_rotary_score(theta, 2)[1].item() for name, theta in rules.items()}
    assert max(fall.values()) < 1.2 * min(fall.values())
    for theta in rules.values():
        assert theta[0] == 1
        without = theta.clone()
        without[0] = 0
        assert 1 - positions.mean_rotary_score(without, 2)[1] < 0.15 * max(fall.values())
    fast = positions.rotary_frequencies(16, base=2)
    assert fast[0] == 1
    assert 1 - positions.mean_rotary_score(fast, 2)[1] > 3 * max(fall.values())
    stretched = positions.mean_rotary_score(plain / 4, 125)[::4]
    torch.testing.assert_close(stretched, positions.mean_rotary_score(plain, 32))
    turns = 32 * rules["YaRN"][:2] / (2 * math.pi)
    assert turns.tolist() == pytest.approx([5.1, 1.0], abs=0.05)


def test_a_pair_has_the_same_angle_again_after_a_full_turn():
    turn, x = Rotary(frequencies=torch.tensor([2 * math.pi / 5])), torch.randn(1, 1, 2).expand(1, 7, 2)
    turned = turn(x, x)[0][0]
    torch.testing.assert_close(turned[1], turned[6], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(turned[1], turned[5], atol=1e-2)


def test_the_model_cannot_read_beyond_its_table():
    model = story_model.load()
    with pytest.raises(ValueError, match="30"):
        model(torch.zeros(1, 31, dtype=torch.long))


def test_only_a_score_that_becomes_plus_infinity_gives_nan():
    """A score that becomes minus infinity overflows, too: its key gets nothing, which is right."""
    query, rest = torch.tensor([[400.0, 0.0]]).half(), torch.tensor([[0.0, 400.0], [0.0, 4.0]]).half()
    for first, spoilt in ((400.0, True), (-400.0, False)):
        key = torch.cat([torch.tensor([[first, 0.0]]).half(), rest])
        scores = mha_lab.scaled_dot_product_scores(query, key)
        assert scores.isinf().tolist() == [[True, False, False]]
        weights = torch.softmax(scores, dim=-1)
        assert weights.isnan().all() if spoilt else weights.tolist() == [[0, 0.5, 0.5]]


def test_the_angles_at_distance_40_are_new_because_keys_are_earlier_than_their_query():
    """Where later keys are seen, too, pair 1 had nearly the angle of distance 40: that of distance -23."""
    for theta, new_without_a_mask in ((0.1, False), (0.01, True)):
        now = 40 * theta

        def nearest(distances, theta=theta, now=now):
            return (
                (distances * theta - now)
                .remainder(2 * math.pi)
                .minimum((now - distances * theta).remainder(2 * math.pi))
            )

        assert nearest(torch.arange(32)).min() > 5 * theta
        assert (nearest(torch.arange(-31, 32)).min() > 5 * theta) == new_without_a_mask


def test_without_its_lower_bound_yarn_would_divide_pair_0_too():
    plain = positions.rotary_frequencies(16)
    for lowest, divided in ((0, False), (-math.inf, True)):
        at = [16 * math.log(32 / (2 * math.pi * turns)) / (2 * math.log(10000)) for turns in (32, 1)]
        low, high = max(math.floor(at[0]), lowest), math.ceil(at[1])
        share = ((torch.arange(8) - low) / (high - low)).clamp(0, 1)
        theta = plain * (1 - share) + plain / 4 * share
        assert (theta[0] < plain[0]) == divided
        assert (theta[1:] < plain[1:]).all()
        assert torch.allclose(theta, positions.yarn_frequencies(16, factor=4, length=32)) != divided


def test_a_stream_projects_the_new_token_and_the_loop_of_kept_tokens_all():
    layer, cache, projected = MultiHeadAttention(8, 2), None, []
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj):
        projection.register_forward_hook(lambda _, inputs, __: projected.append(inputs[0].shape[-2]))
    x = torch.randn(1, 12, 8)
    for token in x.split(1, dim=1):
        _, cache = attend_in_stream(layer, token, cache, recent=7)
    assert projected == [1] * 36
    projected.clear()
    layer(x[:, 11:], x[:, [0, *range(5, 12)]])
    assert projected == [1, 8, 8]


def test_an_if_in_a_mask_mod_is_an_error_and_torch_where_is_none():
    def with_if(batch, head, q_idx, kv_idx):
        return kv_idx <= q_idx if q_idx > 2 else kv_idx == 0

    def with_where(batch, head, q_idx, kv_idx):
        return torch.where(q_idx > 2, kv_idx <= q_idx, kv_idx == 0)

    with pytest.raises(RuntimeError, match="control flow"):
        create_block_mask(with_if, None, None, 5, 5, device="cpu")
    create_block_mask(with_where, None, None, 5, 5, device="cpu")


def test_pytorchs_layer_can_have_a_sink_of_0_and_the_key_that_it_learns_is_none():
    """Its score differs from query to query, so it is no number for each head. Zeros are not learned."""
    theirs, x = torch.nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True), torch.randn(1, 5, 8)
    with_zero = torch.nn.MultiheadAttention(8, 2, batch_first=True, add_zero_attn=True)
    with_zero.load_state_dict(theirs.state_dict(), strict=False)
    ours = ModernAttention(8, 2, sinks=True)
    with torch.no_grad():
        for part, rows in zip(
            (ours.q_proj, ours.k_proj, ours.v_proj), torch.arange(24).split(8), strict=True
        ):
            part.weight.copy_(theirs.in_proj_weight[rows])
            part.bias.copy_(theirs.in_proj_bias[rows])
        ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
        torch.testing.assert_close(with_zero(x, x, x)[0], ours(x)[0])
        assert {name for name, _ in with_zero.named_parameters()} == set(
            dict(torch.nn.MultiheadAttention(8, 2).named_parameters())
        )
        theirs.bias_v.zero_()
        for key, a_sink in ((torch.zeros(8), True), (torch.randn(8), False)):
            theirs.bias_k.copy_(key)
            weights = theirs(x, x, x, average_attn_weights=False)[1][0]  # (2, 5, 6)
            query, keys, _ = ours.project(x, x, x)
            sums = mha_lab.scaled_dot_product_scores(query, keys)[0].logsumexp(dim=-1)
            learned = weights[..., 5].log() - (1 - weights[..., 5]).log() + sums
            assert torch.allclose(learned, learned[:, :1].expand_as(learned), atol=1e-4) == a_sink
            assert torch.allclose(theirs(x, x, x)[0], ours(x)[0], atol=1e-5) == a_sink


@pytest.mark.unchecked
def test_learned_sinks_store_no_scores_in_training_and_a_learned_bias_does():
    """What is kept for the backward pass, and the peak of both passes, if the text is twice as long."""

    def growth(**options):
        layer, kept, peaks = layer_with(32, 2, **options), [], []
        for n in (1024, 2048):
            x = torch.randn(1, n, 32)
            kept.append(kept_for_backward(lambda x=x: layer(x, need_weights=False)[0]))
            peaks.append(measure_memory(lambda x=x: layer(x, need_weights=False)[0].sum().backward()))
        return kept[1] / kept[0], peaks[1] / peaks[0]

    assert max(growth(sinks=True, gate=True, transform=QueryKeyNorm(16))) < 2.5
    assert min(growth(score=RelativePositionBias(2, 3))) > 3


@torch.no_grad()
def test_a_row_that_must_sum_to_1_moves_weight_to_words_that_were_ignored():
    """Without that rule, no other weight changes, and only what token 0 gave is missing in the output."""
    model, first = story_model.load(), story_model.load().blocks[0]
    tokens = story_model.encode("Ada amused Ben because she ate. in the lake the drum")
    n = len(tokens)
    start = first.norm_1(model.token_embedding.weight[tokens] + model.position_embedding.weight[:n])
    query, key, value = (part[2] for part in first.attention.project(start, start, start))
    scores = mha_lab.scaled_dot_product_scores(query[-1:], key)
    before, window = scores.softmax(dim=-1), torch.arange(n) >= n - 8
    after, kept = mha_lab.masked_softmax(scores, window), before * window
    assert before[0, 0] > 0.9
    assert before[0, window].sum() < 0.1
    torch.testing.assert_close(after.sum(), torch.tensor(1.0))
    assert (after - before)[0, window].max() > 0.1
    torch.testing.assert_close(kept @ value + before[:, :1] * value[:1], before @ value, atol=0.3, rtol=0)
    assert (after @ value - before @ value).norm() > 1


def test_a_gate_with_a_bias_of_minus_30_closes_a_head_and_leaves_its_weights():
    """The gate alone closes it: the same head with a bias of 0 has the same weights, and an output."""
    layer, x = ModernAttention(8, 2, gate=True).requires_grad_(False), torch.randn(5, 8)
    found = []
    for bias in (0.0, -30.0):
        layer.gate_proj.bias[:4] = bias
        heads, weights = layer.attend(*layer.project(x, x, x), None)
        gated = mha_lab.merge_heads(heads) * layer.gate_proj(x).sigmoid()
        found.append((gated[:, :4].abs().max().item() < 1e-6, gated[:, 4:].abs().max().item() > 0.01))
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 5))
        torch.testing.assert_close(layer(x)[1], weights)
    assert found == [(False, True), (True, True)]


@pytest.mark.parametrize(("window", "blocks"), [(1, 8), (2, 15), (3, 15), (129, 15), (130, 21)])
def test_the_blocks_below_the_diagonal_are_needed_for_the_first_queries_of_a_block(window, blocks):
    """A query that sees itself only needs none of them."""
    mask = create_block_mask(
        lambda b, h, q, k: (k <= q) & (q - k < window), None, None, 1024, 1024, device="cpu"
    )
    assert round((1 - mask.sparsity() / 100) * 64) == blocks


def test_a_key_that_is_not_0_adds_to_the_score_of_the_sink():
    query, key, value = torch.randn(3, 2, 5, 8)
    sinks = torch.tensor([0.5, -1.0])
    scores = mha_lab.scaled_dot_product_scores(query, key)
    ours = torch.cat([scores, sinks[:, None, None].expand(2, 5, 1)], dim=-1).softmax(dim=-1)[..., :-1] @ value
    bias = torch.nn.functional.pad(sinks[:, None, None], (5, 0))
    for last, right in ((torch.zeros(2, 1, 8), True), (torch.randn(2, 1, 8), False)):
        more = torch.cat([key, last], dim=1), torch.cat([value, torch.zeros(2, 1, 8)], dim=1)
        found = torch.nn.functional.scaled_dot_product_attention(query, *more, attn_mask=bias)
        assert torch.allclose(found, ours, atol=1e-5) == right


# Trained models


@cache
def trained(seed):
    texts = rope.stories()
    return rope.train(texts[rope.HELD_OUT :], seed), texts[:100]


class Nearer(torch.nn.Module):
    """Rotary scores in which a key that is more than 31 tokens away has the angles of distance 31."""

    def forward(self, query, key):
        (n, width), i = query.shape[-2:], torch.arange(query.shape[-2])
        whole = apply_rotary(query, i) @ apply_rotary(key, i).mT
        at_31 = apply_rotary(query, torch.full((n,), 31)) @ key.mT
        return torch.where(i[:, None] - i > 31, at_31, whole) / math.sqrt(width)


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
@torch.no_grad()
def test_known_angles_repair_the_loss_at_128_tokens_with_as_many_keys(seed):
    """Only the angles of far keys change. So the number of keys is not what makes the loss worse."""
    with torch.enable_grad():
        model, texts = trained(seed)
    plain = [rope.under(model, rope.RULES["plain"], texts[:, :n]) for n in (32, 128)]
    for block in model.blocks:
        block.attention.transform, block.attention.score = None, Nearer()
    nearer = [rope.loss(model, texts[:, :n]).item() for n in (32, 128)]
    for block in model.blocks:
        block.attention.score = None
    assert nearer[0] == pytest.approx(plain[0], abs=1e-4)
    assert plain[1] > plain[0] + 0.03
    assert nearer[1] < plain[0] + 0.01


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
@torch.no_grad()
def test_scores_are_hardly_larger_beyond_the_trained_length(seed):
    """The first 32 queries of a text are as in training. So large scores are not what long texts bring."""
    with torch.enable_grad():
        model, texts = trained(seed)
    largest = []

    def watch(layer, inputs):
        query, key = Rotary()(*layer.project(*inputs[:1] * 3)[:2])
        scores = mha_lab.scaled_dot_product_scores(query, key).tril().abs()
        largest.append((scores[..., :32, :].max().item(), scores[..., 32:, :].max().item()))

    hooks = [block.attention.register_forward_pre_hook(watch) for block in model.blocks]
    model(texts[:, :128])
    for hook in hooks:
        hook.remove()
    assert len(largest) == 2
    for short, long in largest:
        assert 0.8 * short < long < 1.3 * short


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
def test_columns_that_are_no_longer_turned_raise_the_loss_at_every_length(seed):
    """The columns that are still turned keep their frequencies."""
    model, texts = trained(seed)
    quarter = Rotary(frequencies=positions.rotary_frequencies(16)[:2])
    for n in rope.LENGTHS:
        plain = rope.under(model, rope.RULES["plain"], texts[:, :n])
        assert rope.under(model, quarter, texts[:, :n]) > plain + 0.05
