"""Reasons of chapter 05, each tried with the smallest experiment that could refute it."""

import pytest
import torch

from mha_lab import merge_heads, scaled_dot_product_attention, split_heads, toy

COLUMN_3 = torch.tensor([0.0, 0.0, 0.0, 1.0])


def layer(x, w_q, w_k, w_v, w_o):
    q, k, v = (split_heads(x @ w, 2) for w in (w_q, w_k, w_v))
    return merge_heads(scaled_dot_product_attention(q, k, v)[0]) @ w_o


def test_all_columns_change_because_each_is_a_sum_over_all_columns():
    """A matrix that keeps the heads apart changes only the head's own columns, as no matrix does."""
    mixing, change = torch.randn(4, 4), torch.randn(5, 4)
    change[:, :2] = 0  # only head 1 fetches something else
    for matrix, moved in (
        (mixing, [0, 1, 2, 3]),
        (torch.block_diag(mixing[:2, :2], mixing[2:, 2:]), [2, 3]),
        (torch.eye(4), [2, 3]),
    ):
        assert (change @ matrix).abs().amax(dim=0).nonzero().flatten().tolist() == moved


def test_two_sizes_in_one_column_cancel_and_only_the_other_columns_tell():
    """The noun: with two animals of size 0, no word stands out in head 0."""
    x, (*matrices, w_o) = toy.embeddings(), toy.multi_head_weights()
    apart, (medium, joined) = w_o, (x.clone(), w_o.clone())
    medium[:, 3], joined[3] = 0, COLUMN_3
    one, other = (layer(each, *matrices, joined)[2] for each in (x, medium))
    assert one[3].item() == pytest.approx(0, abs=1e-6)
    assert other[3].item() == pytest.approx(0, abs=1e-6)
    assert one[1].item() == pytest.approx(0.85, abs=0.005)
    assert other[1].item() == pytest.approx(0.40, abs=0.005)
    one, other = (layer(each, *matrices, apart)[2] for each in (x, medium))
    assert (one[3] - other[3]).item() == pytest.approx(0.84, abs=0.005)


def test_two_sizes_need_two_columns_whatever_the_factors():
    """In one column, another pair of sizes looks the same, even if the second one counts only half."""
    sizes = torch.tensor([1.0, -1.0])
    for w_o, kept in (([[1.0, 1.0]], False), ([[1.0, 0.5]], False), ([[1.0, 0.5], [0.0, 1.0]], True)):
        rows = torch.tensor(w_o)
        other = sizes + torch.tensor([-rows[0, 1], rows[0, 0]])
        assert torch.allclose(rows[0] @ sizes, rows[0] @ other)
        assert torch.allclose(rows @ sizes, rows @ other) != kept


def test_two_rows_stay_because_dog_and_cat_have_the_same_query():
    """With other matrices, the rows of the two animals swap places; no other row changes."""
    x, matrices = toy.embeddings(), toy.multi_head_weights()
    other = [w + torch.randn(4, 4) for w in matrices]
    for used, swap in ((matrices, False), (other, True)):
        before, after = (layer(x[order], *used) for order in ([0, 1, 2, 3, 4], [0, 4, 2, 3, 1]))
        assert torch.allclose(before, after, atol=1e-5) != swap
        torch.testing.assert_close(before[[0, 4, 2, 3, 1]], after)


def test_a_bias_that_is_added_for_each_head_shows_only_with_two_heads_and_a_bias():
    for num_heads, size, seen in ((1, 1.0, False), (2, 0.0, False), (2, 1.0, True)):
        heads, w_o = torch.randn(2, num_heads, 3, 4), torch.randn(num_heads * 4, 5)
        bias = size * torch.randn(5)
        parts = (heads[:, h] @ w_o[4 * h : 4 * h + 4] for h in range(num_heads))
        wrong = sum(part + bias for part in parts)
        assert torch.allclose(wrong, merge_heads(heads) @ w_o + bias, atol=1e-5) != seen


def test_what_head_1_writes_follows_its_weights_and_values():
    """The weights stay, and one value at a time changes; then two weights change places."""
    x, (w_q, w_k, w_v, w_o) = toy.embeddings(), toy.multi_head_weights()
    query, key, value = (split_heads(x @ w, 2)[1] for w in (w_q, w_k, w_v))
    weights = scaled_dot_product_attention(query, key, value)[1]
    dog, saw, cat = 1, 2, 4

    def written(token, changed=None, weights=weights):
        values = value.clone()
        if changed is not None:
            values[changed] = 0
        return (weights[token] @ values @ w_o[2:]).tolist()

    assert written(dog) == pytest.approx([0, 0, 0.81, 0], abs=0.005)
    assert written(dog, cat)[0] == -written(dog, dog)[0] == pytest.approx(0.048, abs=0.001)
    assert written(saw) == pytest.approx([-0.84, 0, 0.05, 0], abs=0.005)
    assert written(saw, cat)[0] == pytest.approx(0, abs=0.005)
    assert written(saw, saw)[2] == 0
    swapped = weights[:, [0, 4, 2, 3, 1]]
    assert written(saw, weights=swapped)[0] == -written(saw)[0]
