"""Reasons of chapter 09, each tried with the smallest experiment that could refute it."""

import itertools
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

import mha_lab
from mha_course.chapters import story_model
from mha_lab import MultiHeadAttention, positions, toy
from mha_lab.scores import AlibiScore, RotaryScore

PLAIN, BLOCKS = 0, 1  # the numbers of two kernels in torch.nn.attention.SDPBackend


def test_alibi_does_not_notice_that_a_sentence_is_reversed():
    """Another shuffle changes its distances, and then it does; rotary notices both."""
    x, shuffled, reverse = torch.randn(5, 12), torch.tensor([3, 0, 4, 1, 2]), torch.arange(5).flip(0)
    for score, notices in ((AlibiScore(2), False), (RotaryScore(), True)):
        layer = MultiHeadAttention(12, 2, score=score)
        for order, seen in ((shuffled, True), (reverse, notices)):
            assert torch.allclose(layer(x[order])[0], layer(x)[0][order], atol=1e-5) != seen


def test_alibi_finds_the_noun_on_the_left_only_because_it_is_nearer():
    """With the noun on the right at distance 1 and that on the left at 2, it prefers the right one."""
    content = torch.tensor([2.8, 0, 0, 2.8])  # noun, article, saw, noun
    row = (content + positions.alibi_bias(8, 4)[0, 2]).softmax(-1)
    assert row[3] > row[0]


def test_which_bias_makes_a_cpu_compute_the_plain_formula():
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    for bias, kernel in (
        (torch.randn(5, 5), BLOCKS),
        (torch.randn(1, 5), BLOCKS),
        (torch.randn(1, 4, 5, 5), BLOCKS),
        (torch.randn(4, 5, 5), PLAIN),
        (torch.randn(5, 5, requires_grad=True), PLAIN),
        (torch.randn(1, 4, 5, 5, requires_grad=True), PLAIN),
    ):
        assert torch._fused_sdp_choice(q, k, v, bias) == kernel


def test_each_pair_is_a_rotation_whatever_the_projections_are():
    """A score depends on positions by the distance, but for rotary before the projections."""
    alike, (any_q, any_k) = torch.randn(8).double().expand(9, 8), torch.randn(2, 8, 8).double()
    after = positions.apply_rotary(alike @ any_q) @ positions.apply_rotary(alike @ any_k).mT
    before = (positions.apply_rotary(alike) @ any_q) @ (positions.apply_rotary(alike) @ any_k).mT
    for scores, distance_only in ((after, True), (before, False)):
        assert torch.allclose(scores[1:, 1:], scores[:-1, :-1]) == distance_only


VECTORS = dict(zip(toy.tokens(), toy.embeddings(), strict=True)) | {"yes": torch.zeros(4)}
SENTENCES = ("a dog saw a cat", "a cat saw a dog", "yes a dog saw a cat")
W_Q, W_K = torch.zeros(2, 4, 2)
W_Q[2, 0] = W_K[1, 0] = 2  # the head of steps 1 to 5


def noun_of_saw(score, text, added=0.0):
    """The place of the noun that *saw* finds, seen from *saw*; both are 0 if they get the same weight."""
    words = text.split()
    x = torch.stack([VECTORS[word] for word in words]) + added
    saw = words.index("saw")
    row = score(x)[saw].softmax(-1)
    left, right = (row[saw + step].item() for step in (-1, 2))
    return 0 if abs(left - right) < 1e-6 else -1 if left > right else 2


def content(x):
    return mha_lab.scaled_dot_product_scores(x @ W_Q, x @ W_K)


def test_a_causal_mask_alone_tells_who_saw_whom_and_without_one_nothing_does():
    """Without it, the output of *saw* stays if the nouns change places, and all outputs follow a shuffle."""
    assert [noun_of_saw(content, text) for text in SENTENCES] == [0, 0, 0]

    def masked(x):
        return content(x).masked_fill(~mha_lab.causal_mask(len(x)), -torch.inf)

    assert [noun_of_saw(masked, text) for text in SENTENCES] == [-1, -1, -1]
    for mask, tells in ((None, False), (mha_lab.causal_mask(5), True)):
        layer, x = MultiHeadAttention(12, 3).double(), torch.randn(5, 12).double()
        one, other = (layer(each, mask=mask)[0][2] for each in (x, x[[0, 4, 2, 3, 1]]))
        assert torch.allclose(one, other) != tells
        for order in list(itertools.permutations(range(5)))[1:]:
            assert torch.allclose(layer(x[[*order]], mask=mask)[0], layer(x, mask=mask)[0][[*order]]) != tells


def test_only_the_size_could_tell_the_two_nouns_apart():
    """The key of chapter 01 contains the size, and then the dog wins on both sides."""
    w_q, w_k, _ = toy.single_head_weights()
    found = [
        noun_of_saw(lambda x: mha_lab.scaled_dot_product_scores(x @ w_q, x @ w_k), text) for text in SENTENCES
    ]
    assert found == [-1, 2, -1]


def test_two_of_the_four_terms_depend_on_where_the_pair_stands():
    """The distance stays -3."""
    table = positions.sinusoidal_positions(32, 8, base=100).double()
    query, key = torch.randn(2, 8).double()
    late, early = table[3:], table[:-3]
    moving = [term.std() > 1e-3 for term in ((late * early).sum(-1), early @ query, late @ key)]
    assert moving == [False, True, True]


def test_at_other_starts_the_same_head_finds_the_noun_on_the_left_half_of_the_time():
    table = positions.sinusoidal_positions(105, 4)
    found = [noun_of_saw(content, SENTENCES[0], table[start : start + 5]) for start in range(100)]
    assert 40 <= found.count(-1) <= 60


def test_row_1_of_the_table_helps_whoever_stands_at_position_1():
    """With a row for each place of the noun, the third text is right as well."""
    for row, found in ((1, [-1, -1, 0]), (2, [0, 0, -1])):
        table = torch.zeros(8, 4)
        table[row, 1] = 1
        assert [noun_of_saw(content, text, table[: len(text.split())]) for text in SENTENCES] == found


def test_an_extra_word_changes_no_score_where_only_the_distance_counts():
    """A bias for each place of a key, in place of each distance, changes them."""
    bias = mha_lab.RelativePositionBias(num_heads=1, max_distance=2)
    torch.nn.init.normal_(bias.bias)
    query, key = torch.randn(2, 1, 6, 4)
    by_place = torch.randn(6)
    for score, same in (
        (bias, True),
        (lambda q, k: mha_lab.scaled_dot_product_scores(q, k) + by_place[: k.shape[-2]], False),
    ):
        without, longer = score(query[:, 1:], key[:, 1:]), score(query, key)[:, 1:, 1:]
        assert torch.allclose(without, longer) == same


def test_rotary_finds_the_left_noun_because_its_key_is_ahead():
    """Half a radian behind the query, both nouns are equal, and 2 radians behind, the right one wins."""
    for ahead, found in ((1.0, -1), (-0.5, 0), (-2.0, 2)):
        w_k = torch.zeros(4, 2)
        w_k[1] = 2 * torch.tensor([math.cos(ahead), math.sin(ahead)])
        places = {noun_of_saw(lambda x, w_k=w_k: RotaryScore()(x @ W_Q, x @ w_k), text) for text in SENTENCES}
        assert places == {found}


def test_only_an_added_table_notices_a_shift():
    """A random table is like the sinusoids; a score of the place of the key notices it, too."""
    x, hidden, visible = torch.randn(5, 12).double(), torch.randn(3, 12).double(), torch.arange(8) >= 3
    bias, place = mha_lab.RelativePositionBias(2, 3), torch.randn(8).double()
    torch.nn.init.normal_(bias.bias)
    plain = mha_lab.scaled_dot_product_scores
    for score, table, notices in (
        (None, torch.zeros(8, 12), False),
        (None, positions.sinusoidal_positions(8, 12), True),
        (None, torch.randn(8, 12), True),
        (bias, torch.zeros(8, 12), False),
        (AlibiScore(2), torch.zeros(8, 12), False),
        (RotaryScore(), torch.zeros(8, 12), False),
        (lambda q, k: plain(q, k) + place[: k.shape[-2]], torch.zeros(8, 12), True),
    ):
        layer = MultiHeadAttention(12, 2, score=score).double()
        late = layer(torch.cat([hidden, x]) + table, mask=visible)[0][3:]
        assert torch.allclose(late, layer(x + table[:5])[0]) != notices


def test_a_shift_cancels_only_between_vectors_that_are_turned_alike():
    """A pair is a pair in both layouts if there is only one."""
    for width, half_and_half in ((2, True), (4, False), (16, False)):
        q, k, v = torch.randn(3, 5, width).double()

        def output(start, layouts, values=False, qkv=(q, k, v)):
            at = torch.arange(start, start + 5)
            turned = [
                positions.apply_rotary(x, at, layout=layout)
                for x, layout in zip(qkv, (*layouts, "pairs"), strict=True)
            ]
            return mha_lab.scaled_dot_product_attention(*turned[:2], turned[2] if values else qkv[2])[0]

        for layouts, values, same, right in (
            (("pairs", "pairs"), False, True, True),
            (("pairs", "pairs"), True, False, False),
            (("pairs", "halves"), False, half_and_half, half_and_half),
            (("halves", "halves"), False, True, half_and_half),
        ):
            here, there = (output(start, layouts, values) for start in (0, 100))
            assert torch.allclose(here, there) == same
            assert torch.allclose(here, output(0, ("pairs", "pairs"))) == right


def test_with_a_large_slope_new_distances_get_little_weight():
    """Also in a text of 1000 tokens; with a small slope they get nearly all."""
    bias = positions.alibi_bias(8, 1000)[:, -1].softmax(-1)
    shares = bias[:, :-8].sum(-1)
    assert shares[0] < 0.02
    assert shares[-1] > 0.96
    assert (shares.diff() > 0).all()
    content = 3 * torch.randn(1000, generator=torch.Generator().manual_seed(0))  # not equal any more
    assert (positions.alibi_bias(8, 1000)[0, -1] + 20 * content).softmax(-1)[:-8].sum() > 0.9


@torch.no_grad()
def test_trained_weights_move_head_by_head_and_with_their_biases():
    order = torch.cat([torch.arange(0, 6, 2), torch.arange(1, 6, 2)])
    by_head = torch.cat([order, order + 6])
    whole = torch.cat([torch.arange(0, 12, 2), torch.arange(1, 12, 2)])
    pairs, halves = (
        MultiHeadAttention(12, 2, score=RotaryScore(layout=each)) for each in ("pairs", "halves")
    )
    for parameter in pairs.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(5, 12)
    for rows, biases, right in (
        (by_head, by_head, True),
        (by_head, slice(None), False),
        (whole, whole, False),
    ):
        halves.load_state_dict(pairs.state_dict())
        for name in ("q_proj", "k_proj"):
            ours, theirs = getattr(halves, name), getattr(pairs, name)
            ours.weight.copy_(theirs.weight[rows])
            ours.bias.copy_(theirs.bias[biases])
        assert torch.allclose(halves(x)[0], pairs(x)[0], atol=1e-3) == right


# Trained


class Clamped(torch.nn.Module):
    """Rotary, but each distance above 28 counts as 28: more keys than in training, and no new distance."""

    def forward(self, query, key):
        n = key.shape[-2]
        last, first = torch.full((n,), 28), torch.zeros(n, dtype=torch.long)
        far = mha_lab.scaled_dot_product_scores(
            positions.apply_rotary(query, last), positions.apply_rotary(key, first)
        )
        distance = torch.arange(n)[:, None] - torch.arange(n)
        return torch.where(distance > 28, far, RotaryScore()(query, key))


@pytest.mark.unchecked
@pytest.mark.training
@pytest.mark.parametrize("seed", range(5))
def test_rotary_gets_worse_mostly_by_distances_that_were_never_seen(seed):
    """Stories of 60 tokens after a training on 30: with the same keys and no new distance, most is gone."""
    rotary = {"positions": "none", "attention": lambda _: MultiHeadAttention(64, 4, score=RotaryScore())}
    model, (stories, entropy) = story_model.train(seed, 400, **rotary), story_model.sample(300, 7, length=60)

    @torch.no_grad()
    def above(start, end):
        loss = cross_entropy(model(stories)[0][:, :-1].mT, stories[:, 1:], reduction="none")
        return (loss - entropy[:, 1:])[:, start:end].mean().item()

    trained, longer = above(5, 28), above(44, 59)
    for block in model.blocks:
        block.attention.score = Clamped()
    assert above(5, 28) == pytest.approx(trained, abs=1e-4)
    assert longer > 1.5 * trained
    assert above(44, 59) - trained < (longer - trained) / 2


@pytest.mark.unchecked
@pytest.mark.training
@pytest.mark.parametrize("seed", range(5))
def test_sinusoidal_gets_worse_by_positions_that_were_never_seen(seed):
    """15 tokens of a story with the same distances: only at positions from 30 on they are hard to predict."""
    model, (stories, entropy) = (
        story_model.train(seed, 300, positions="sinusoidal"),
        story_model.sample(300, 7, length=15),
    )
    table = 0.4 * positions.sinusoidal_positions(60, 64, base=100)

    @torch.no_grad()
    def above(start):
        x = model.token_embedding(stories) + table[start : start + 15]
        for block in model.blocks:
            x, _ = block(x)
        loss = cross_entropy(model._read_out(x)[:, :-1].mT, stories[:, 1:], reduction="none")
        return (loss - entropy[:, 1:])[:, 5:].mean().item()

    seen, never_seen = [above(start) for start in (0, 10, 15)], [above(start) for start in (30, 45)]
    assert min(never_seen) > 3 * max(seen)
