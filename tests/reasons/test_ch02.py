"""Reasons of chapter 02, each tried with the smallest experiment that could refute it."""

import itertools
import math

import pytest
import torch

from mha_lab import scaled_dot_product_attention, toy


def test_two_keys_at_a_right_angle_keep_the_output_from_the_average():
    """At 45 degrees between keys 0 and 1. Without them, or with a long query, it is the average."""
    query = torch.tensor([[1.0, 1.0, 0.0]]) / 2**0.5
    keys, values = toy.keys() / 2, toy.values()
    output, weights = scaled_dot_product_attention(query, keys, values)
    assert weights[0, 2:].tolist() == pytest.approx([0.06, 0.06], abs=0.005)
    assert output[0, 0] > 60
    average = torch.tensor([[5.5, 0.0, 0.0]])
    torch.testing.assert_close(scaled_dot_product_attention(query, keys[:2], values[:2])[0], average)
    torch.testing.assert_close(scaled_dot_product_attention(10 * query, keys, values)[0], average)


def test_a_longer_key_gets_more_weight_on_its_side_only():
    """From every query less than 90 degrees away; from the others it gets less."""
    keys, queries = torch.randn(5, 3), torch.randn(200, 3)
    before = torch.softmax(queries @ keys.T, dim=-1)[:, 0]
    longer = keys.clone()
    longer[0] *= 1.5
    more = torch.softmax(queries @ longer.T, dim=-1)[:, 0] > before
    assert torch.equal(more, queries @ keys[0] > 0)


def test_saw_finds_dog_because_it_is_a_noun():
    """Without *noun* in its key, hardly; without its size, still; and a key that is only *noun* is enough."""
    x = toy.embeddings()
    w_q, w_k, _ = toy.single_head_weights()

    def on_dog(*dropped):
        keys = x @ w_k
        keys[1, list(dropped)] = 0
        return torch.softmax((x @ w_q)[2] @ keys.T / 3**0.5, dim=-1)[1].item()

    assert on_dog() == pytest.approx(0.67, abs=0.01)
    assert on_dog(0) < 0.25
    assert on_dog(2) > 0.5
    assert on_dog(1, 2) > 0.5


def test_equal_outputs_come_from_equal_queries():
    """*dog* and *cat* have the same one because w_q drops the size, in any order of the tokens."""
    x = toy.embeddings()
    w_q, w_k, w_v = toy.single_head_weights()

    def outputs(x, w_q):
        return scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v)[0]

    keeps = w_q.clone()
    keeps[3, 2] = 1
    for order in (range(5), [4, 2, 0, 1, 3]):
        order = list(order)
        place = torch.tensor(order).argsort()
        dropped, kept = (outputs(x[order], w)[place] for w in (w_q, keeps))
        torch.testing.assert_close(dropped[1], dropped[4])
        torch.testing.assert_close(dropped[0], dropped[3])
        torch.testing.assert_close(kept[0], kept[3])
        assert not torch.allclose(kept[1], kept[4])


@pytest.mark.parametrize("seed", range(5))
def test_rounding_to_8_bits_changes_keys_less_without_their_common_part(seed):
    """And subtracting the common part alone changes no weight. Without a common part, it gains nothing."""
    source = torch.Generator().manual_seed(seed)
    own, common = (torch.randn(n, 64, generator=source) for n in (128, 1))
    query = torch.randn(1, 64, generator=source)

    def rounded(keys):
        step = keys.abs().max() / 127
        return (keys / step).round() * step

    def error(keys, used):
        weights = [torch.softmax(query @ k.T / 8, dim=-1) for k in (keys, used)]
        return (weights[0] - weights[1]).abs().sum().item()

    keys = own + 20 * common
    centred = keys - keys.mean(dim=0)
    assert error(keys, centred) < 1e-5
    assert error(keys, rounded(centred)) < 0.2 * error(keys, rounded(keys))
    alone = own - own.mean(dim=0)
    assert error(own, rounded(alone)) > 0.5 * error(own, rounded(own))


def test_the_scale_of_another_width_shows_only_in_vectors_that_are_short():
    """Of length 10, both scales give nearly all weight to the best keys; with entries of 1, they differ."""
    for length, differ in ((10.0, False), (3**0.5, True)):
        keys = torch.eye(3) * length
        right, other = (torch.softmax(keys[:1] @ keys.T * by, dim=-1)[0, 0] for by in (3**-0.5, 1 / 8))
        assert (right - other > 0.1).item() == differ
        assert (other > 0.99).item() != differ


@pytest.mark.parametrize("seed", range(5))
def test_a_query_along_a_key_fails_because_of_the_part_that_all_keys_share(seed):
    """Without this part of the query it succeeds, whatever the keys share."""
    source = torch.Generator().manual_seed(seed)
    own = torch.randn(128, 64, generator=source)
    common = 3 * torch.randn(64, generator=source)
    keys = own + common

    def found(queries):
        return (torch.softmax(20 * queries @ keys.T / math.sqrt(64), dim=-1).diagonal() > 0.99).float().mean()

    assert found(keys) < 0.8
    assert found(own) == 1
    assert found(keys - keys.mean(dim=0)) == 1


@pytest.mark.parametrize("seed", range(5))
def test_no_query_finds_one_of_two_equal_keys(seed):
    """A search for the value of key 2 alone ends at one half. If the keys differ a little, it succeeds."""
    for differ, found in ((0.0, False), (0.5, True)):
        keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0 + differ]])
        query = torch.randn(2, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        optimiser = torch.optim.Adam([query], lr=0.2)
        for _ in range(200):
            optimiser.zero_grad()
            weight = torch.softmax(keys @ query, dim=-1)[2]
            (-weight).backward()
            optimiser.step()
        assert (weight > 0.51).item() == found


def test_a_longer_query_is_a_lower_temperature():
    query, keys = torch.randn(3), torch.randn(5, 3)
    for factor in (0.5, 2, 7):
        torch.testing.assert_close(
            torch.softmax(keys @ (factor * query), dim=-1), torch.softmax(keys @ query / (1 / factor), dim=-1)
        )


def test_a_vector_added_to_all_keys_changes_no_weight():
    """Added to one key, it does, and so does a factor for all keys. Values change no weight."""
    query, keys, values = torch.randn(1, 3), torch.randn(4, 3), torch.randn(4, 3)
    added = torch.tensor([5.0, 5, 5]) + query[0]  # not at a right angle to the query
    one = keys.clone()
    one[0] += added
    before = scaled_dot_product_attention(query, keys, values)[1]
    for changed, same in (
        ((keys + added, values), True),
        ((one, values), False),
        ((2 * keys, values), False),
    ):
        assert torch.allclose(scaled_dot_product_attention(query, *changed)[1], before, atol=1e-5) == same
    output, weights = scaled_dot_product_attention(query, keys, 2 * values)
    torch.testing.assert_close(weights, before)
    torch.testing.assert_close(output, 2 * before @ values)


def test_a_line_that_changes_keys_on_purpose_fails_the_test_of_the_own_key():
    """Keys turned by their positions, as chapter 09 does: no key has moved to another token."""
    keys, values = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]]), torch.eye(3)
    angle = torch.arange(3.0)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).view(3, 2, 2)
    for used, passed in ((keys, True), ((turn @ keys[:, :, None])[..., 0], False)):
        fetched = scaled_dot_product_attention(20 * keys[[0, 2]], used, values)[0]
        assert torch.equal(fetched.argmax(dim=-1), torch.tensor([0, 2])) == passed


def test_the_length_of_a_query_changes_how_sharp_its_weights_are_and_not_the_order_of_the_keys():
    """And at one length, its direction changes the order."""
    keys, direction = torch.randn(6, 3), torch.nn.functional.normalize(torch.randn(3), dim=0)
    rows = [torch.softmax(keys @ (length * direction), dim=0) for length in (0.1, 0.5, 1.0, 2.0)]
    assert all(torch.equal(row.argsort(), rows[0].argsort()) for row in rows)
    assert all(long.max() > short.max() for short, long in itertools.pairwise(rows))
    assert not torch.equal(torch.softmax(keys @ -direction, dim=0).argsort(), rows[2].argsort())
