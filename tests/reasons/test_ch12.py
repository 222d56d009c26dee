"""Reasons of chapter 12, each tried with the smallest experiment that could refute it."""

import copy

import pytest
import torch

import mha_lab
from mha_course.chapters import latent, linear, story_model
from mha_course.chapters.cost import Traffic
from mha_course.chapters.language_model import Block
from mha_lab import MultiHeadAttention, causal_mask
from mha_lab.heads import repeat_kv
from mha_lab.masks import SlidingWindow, sliding_window_mask
from tests.chapters.test_five_trainings import SEEDS, train_more
from tests.chapters.test_smaller_caches import grouped, shares


def test_keys_of_old_tokens_do_not_change_under_a_causal_mask_only():
    """So they need not be computed again; without the mask, those of the second layer do."""
    blocks = [Block(MultiHeadAttention(8, 2)).double() for _ in range(2)]
    x = torch.randn(1, 6, 8).double()

    def keys(x, causal):
        deeper = blocks[0](x, causal=causal)[0]
        return blocks[1].attention.k_proj(deeper)[:, :5]

    for causal in (True, False):
        assert torch.allclose(keys(x, causal), keys(x[:, :5], causal)) == causal


def test_a_head_in_other_coordinates_has_the_same_scores():
    """Only an orthogonal matrix keeps them."""
    query, key = torch.randn(2, 5, 4).double()
    orthogonal = torch.linalg.qr(torch.randn(4, 4).double())[0]
    for matrix, same in ((orthogonal, True), (torch.randn(4, 4).double(), False)):
        assert torch.allclose(query @ matrix.mT @ (key @ matrix.mT).mT, query @ key.mT) == same


def test_the_wrong_order_is_the_right_one_after_reordering_the_queries():
    """So a model can learn to fit it; with other numbers of KV heads there is one order only."""
    query, key, value = torch.randn(1, 4, 5, 6), *torch.randn(2, 1, 2, 5, 6)

    def attend(query, key, value):
        return mha_lab.scaled_dot_product_attention(query, key, value)[0]

    right = attend(query, repeat_kv(key, 2), repeat_kv(value, 2))
    wrong = attend(query, key.repeat(1, 2, 1, 1), value.repeat(1, 2, 1, 1))
    assert not torch.allclose(right, wrong)
    order = [0, 2, 1, 3]
    fits = attend(query[:, order], key.repeat(1, 2, 1, 1), value.repeat(1, 2, 1, 1))[:, order]
    torch.testing.assert_close(fits, right)
    for heads, repeats in ((1, 4), (4, 1)):
        some = torch.randn(1, heads, 5, 6)
        assert torch.equal(some.repeat(1, repeats, 1, 1), repeat_kv(some, repeats))


def test_the_furthest_token_is_lost_if_one_token_in_between_does_not_look_back():
    """Each of the two in between can lose it; any other token cannot."""
    blocks = [Block(MultiHeadAttention(8, 2)).double() for _ in range(3)]

    def reaches(layer, blind):
        x = torch.randn(1, 12, 8, dtype=torch.float64, requires_grad=True)
        y = x
        for i, block in enumerate(blocks):
            mask = sliding_window_mask(12, window=4)
            if i == layer:
                mask[blind, :blind] = False
            y = y + block.attention(block.norm_1(y), mask=mask)[0]
            y = y + block.network(block.norm_2(y))
        return torch.autograd.grad(y[0, -1].square().sum(), x)[0][0, 2].abs().sum().item() > 0

    assert reaches(0, 0)
    for layer, blind in ((0, 5), (1, 8), (2, 11)):
        assert not reaches(layer, blind)
        assert reaches(layer, blind - 1)


def test_keys_and_values_in_another_order_give_the_same_output_only_together():
    query, key, value = torch.randn(3, 1, 5, 4)
    order = torch.tensor([3, 4, 0, 1, 2])

    def output(key, value):
        return mha_lab.scaled_dot_product_attention(query, key, value)[0]

    torch.testing.assert_close(output(key[:, order], value[:, order]), output(key, value))
    assert not torch.allclose(output(key[:, order], value), output(key, value))


def test_each_kept_key_beyond_the_window_less_one_is_seen_by_no_new_token():
    """With one more new token at a time; with several, an old key is still seen by the first of them."""
    for n_new, oldest_seen in ((1, False), (2, False)):
        mask = sliding_window_mask(4 + n_new, window=4)[4:]
        assert mask[:, 0].any().item() == oldest_seen
        assert mask[0, 1]
        assert not mask[1:, 1].any()


def test_rotary_between_query_and_matrix_depends_on_the_distance():
    """The matrix by which a query would have to be multiplied is another one for each distance."""
    up, eye = torch.randn(3, 4).double(), torch.eye(4).double()
    turned = [
        mha_lab.positions.apply_rotary(eye, torch.full((4,), distance)) @ up.mT for distance in (0, 1, 2)
    ]
    assert not torch.allclose(turned[0], turned[1])
    assert not torch.allclose(turned[1], turned[2])


def test_the_log_of_the_features_is_a_score_of_linear_attention():
    query, key = torch.randn(2, 5, 3).double()
    f_q, f_k = linear.elu_plus_one(query), linear.elu_plus_one(key)
    scores = (f_q @ f_k.mT).log().masked_fill(~causal_mask(5), -torch.inf)
    torch.testing.assert_close(scores.softmax(dim=-1), linear.linear_attention_weights(query, key))


def test_at_most_two_keys_can_get_more_than_half_with_two_features():
    """With more features there can be more; with the softmax, a long query gives any outer key nearly all."""
    angle = torch.arange(32) * torch.pi / 16
    key = 4 * torch.stack([angle.cos(), angle.sin()], dim=-1)
    features = linear.elu_plus_one(key)
    share = features / features.sum(dim=0)
    assert (share > 0.5).sum(dim=0).max() <= 1
    assert linear.largest_weights(key).max() == pytest.approx(share.max().item(), abs=1e-6)
    assert torch.softmax(100 * key @ key.mT, dim=-1).diagonal().min() > 0.99
    four = -20 * torch.ones(4, 4)
    four.fill_diagonal_(1)
    assert (linear.largest_weights(four) > 0.5).all()


def test_a_new_token_reads_a_third_only_where_keys_are_not_repeated():
    """After 1000 tokens. The layer repeats them for its weights, and then moves more than with 6 KV heads."""
    moved, kept, token = {}, {}, torch.randn(1, 1, 24)
    for num_kv_heads in (6, 2, 1):
        layer = MultiHeadAttention(24, 6, num_kv_heads=num_kv_heads).requires_grad_(False)
        _, cache = layer.extend(torch.randn(1, 1000, 24))
        kept[num_kv_heads] = cache.key.numel()
        for name, run in (
            ("extend", lambda layer, cache: layer.extend(token, cache)),
            ("weights", lambda layer, cache: layer.attend(layer.project(*[token] * 3)[0], *cache[:2], None)),
        ):
            with Traffic() as traffic:
                run(layer, cache)
            moved[name, num_kv_heads] = traffic.bytes
    for num_kv_heads, share in ((2, 1 / 3), (1, 1 / 6)):
        assert kept[num_kv_heads] / kept[6] == share
        assert moved["extend", num_kv_heads] / moved["extend", 6] == pytest.approx(share, rel=0.1)
        assert moved["weights", num_kv_heads] > moved["weights", 6]


@pytest.mark.parametrize("num_heads", range(1, 13))
def test_only_a_number_of_kv_heads_in_between_shows_the_wrong_order(num_heads):
    for kv_heads in (n for n in range(1, num_heads + 1) if num_heads % n == 0):
        key = torch.randn(1, kv_heads, 3, 2)
        group = num_heads // kv_heads
        assert torch.equal(repeat_kv(key, group), key.repeat(1, group, 1, 1)) == (kv_heads in (1, num_heads))


@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_the_loop_needs_no_mask_only_if_it_drops_before_it_looks(window):
    layer, x = MultiHeadAttention(12, 2, mask=SlidingWindow(window)).double(), torch.randn(1, 10, 12).double()
    for drops_first in (True, False):
        keys, values, outputs = [], [], []
        for new in x.split(1, dim=1):
            query, key, value = layer.project(new, new, new)
            keys, values = (
                [*keys, key][-window - (not drops_first) :],
                [*values, value][-window - (not drops_first) :],
            )
            fetched, _ = mha_lab.scaled_dot_product_attention(
                query, torch.cat(keys, -2), torch.cat(values, -2)
            )
            outputs.append(layer.out_proj(mha_lab.merge_heads(fetched)))
        assert torch.allclose(torch.cat(outputs, dim=1), layer(x)[0]) == drops_first


@torch.no_grad()
def test_latent_heads_differ_by_their_matrices_only():
    """Those of the keys or of the queries are enough to differ; with the same ones, all weights are equal."""
    layer = latent.LatentAttention(24, 6, kv_rank=5, d_nope=4, d_rope=2).double()
    x = torch.randn(7, 24).double()
    names = ("k_nope_proj", "q_nope_proj", "q_rope_proj")
    own = {name: getattr(layer, name).weight.clone() for name in names}
    for shared in (names[:1], names[1:], names):
        for name in names:
            first = own[name].chunk(6)[0].repeat(6, 1)
            getattr(layer, name).weight.copy_(first if name in shared else own[name])
        weights = layer(x, causal_mask(7))[1]
        assert torch.allclose(weights, weights[:1].expand_as(weights)) == (shared == names)


# Trained models


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
def test_shuffled_weights_do_not_learn_it_in_160_steps_and_old_ones_do(seed):
    """The same numbers in each matrix, the same training: only what was learned is gone."""
    one = grouped(story_model.load(), 1)
    shuffled = copy.deepcopy(one)
    generator = torch.Generator().manual_seed(seed)
    for parameter in shuffled.parameters():
        order = torch.randperm(parameter.numel(), generator=generator)
        parameter.data = parameter.data.flatten()[order].view_as(parameter)
    assert min(shares(train_more(one, 160))) > 0.95
    sense, pronoun = shares(train_more(shuffled, 160))
    assert sense < 0.9
    assert pronoun < 0.6


def test_heads_of_a_group_differ_by_their_queries_only():
    """With equal queries, the two heads of a group have the same weights; the other group has its own."""
    query = torch.randn(4, 3, 5)
    key, value = torch.randn(2, 2, 6, 5)
    for same in (False, True):
        if same:
            query = query[:1].expand(4, 3, 5)
        _, weights = mha_lab.scaled_dot_product_attention(query, repeat_kv(key, 2), repeat_kv(value, 2))
        assert torch.allclose(weights[0], weights[1]) == same
        assert not torch.allclose(weights[1], weights[2])


@pytest.mark.parametrize("window", [2, 3, 4])
def test_with_random_weights_the_gradient_is_0_exactly_where_a_stack_of_windows_ends(window):
    for seed in range(5):
        torch.manual_seed(seed)
        blocks = [Block(MultiHeadAttention(8, 2, mask=SlidingWindow(window))).double() for _ in range(2)]
        x = torch.randn(1, 9, 8, dtype=torch.float64, requires_grad=True)
        blocks[1](blocks[0](x)[0])[0][0, -1].square().sum().backward()
        reached = x.grad[0].abs().sum(dim=-1) > 0
        assert torch.equal(reached, torch.arange(9) >= 8 - 2 * (window - 1))
