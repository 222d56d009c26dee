"""Reasons of chapter 03, each tried with the smallest experiment that could refute it."""

import itertools

import pytest
import torch

import mha_lab
from mha_lab import scaled_dot_product_attention, toy

SWAPPED = [0, 4, 2, 3, 1]  # a cat saw a dog


def test_the_heads_cannot_say_who_saw_whom_because_no_number_says_where_a_word_is():
    """With any matrices, *saw* fetches the same from both sentences; one column of positions is enough."""
    x = toy.embeddings()
    place = torch.arange(5.0)[:, None]
    for numbers, same in (([], True), ([place], False)):
        matrices = torch.randn(3, 4 + len(numbers), 2)
        outputs = []
        for tokens in (x, x[SWAPPED]):
            q, k, v = torch.cat([tokens, *numbers], dim=1) @ matrices
            outputs.append(scaled_dot_product_attention(q, k, v)[0][2])
        assert torch.allclose(*outputs, atol=1e-6) == same


def test_a_query_of_zeros_gives_all_keys_the_same_weight():
    """And a query that is not 0 does not."""
    keys = torch.randn(5, 3)
    for query, equal in ((torch.zeros(1, 3), True), (torch.ones(1, 3), False)):
        weights = scaled_dot_product_attention(query, keys, keys)[1]
        assert torch.allclose(weights, torch.full((1, 5), 0.2)) == equal


def test_view_moves_nothing_and_fails_only_where_one_stride_is_not_enough():
    """A transpose with one stride for the joined axis can be viewed; reshape copies only if it must."""
    six = torch.arange(6).view(2, 3)
    assert six.view(3, 2).data_ptr() == six.T.data_ptr() == six.data_ptr()
    assert six.reshape(6).data_ptr() == six.data_ptr()
    with pytest.raises(RuntimeError, match="stride"):
        six.T.view(6)
    copied = six.T.reshape(6)
    assert copied.data_ptr() != six.data_ptr()
    assert copied.tolist() == six.T.contiguous().view(6).tolist() == [0, 3, 1, 4, 2, 5]
    assert six[:1].T.view(3).data_ptr() == six.data_ptr()  # transposed, but every jump is +1


def test_the_merge_needs_a_copy_because_the_numbers_of_a_token_are_apart():
    """Stored token by token, the same axes can be joined without one."""
    by_token = torch.arange(12).view(3, 2, 2).transpose(0, 1)  # (num_heads, n, d_k)
    assert by_token.transpose(0, 1).view(3, 4).tolist() == torch.arange(12).view(3, 4).tolist()
    with pytest.raises(RuntimeError, match="stride"):
        by_token.contiguous().transpose(0, 1).view(3, 4)


@pytest.mark.parametrize(
    ("n", "num_heads", "d_k"), list(itertools.product((1, 2, 3, 4), (1, 2, 3), (1, 2, 3)))
)
def test_a_bare_view_is_right_only_for_one_head_or_one_token(n, num_heads, d_k):
    x = torch.arange(n * num_heads * d_k).view(n, num_heads * d_k)
    bare = x.view(num_heads, n, d_k)
    assert torch.equal(bare, mha_lab.split_heads(x, num_heads)) == (num_heads == 1 or n == 1)


@pytest.mark.parametrize(("n", "num_heads"), [(3, 3), (3, 2), (2, 3)])
def test_as_many_heads_as_tokens_keep_the_tokens_apart(n, num_heads):
    """Then, and only then, head h of the bare view is token h; a split without its transpose is this view."""
    x = torch.arange(n * num_heads * 2).view(n, num_heads * 2)
    bare = x.view(num_heads, n, 2)
    apart = bool((bare // (num_heads * 2) == torch.arange(num_heads)[:, None, None]).all())
    assert apart == (n == num_heads)
    if n == num_heads:
        assert torch.equal(bare, x.view(n, num_heads, 2))


def test_different_sizes_show_two_swapped_axes():
    """With two equal sizes, a swap of these two has the right shape."""
    for sizes, seen in (((2, 5, 3, 7), True), ((2, 3, 3, 7), False)):
        swapped = torch.empty(sizes).transpose(1, 2).shape
        assert (swapped != torch.Size(sizes)) == seen


def test_columns_side_by_side_are_the_wide_matrix():
    x, w = torch.randn(5, 6), torch.randn(6, 6)
    heads = torch.stack([x @ w[:, 2 * h : 2 * h + 2] for h in range(3)])
    torch.testing.assert_close(mha_lab.split_heads(x @ w, 3), heads)


def test_our_function_stores_its_output_head_by_head_and_pytorchs_need_not():
    """So where the output comes from decides whether the merge needs a copy."""
    heads = mha_lab.split_heads(torch.randn(2, 5, 6), 3)
    ours = scaled_dot_product_attention(heads, heads, heads)[0]
    assert ours.is_contiguous()
    with pytest.raises(RuntimeError, match="stride"):
        ours.transpose(1, 2).view(2, 5, 6)
    theirs = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    torch.testing.assert_close(theirs, ours)
    merged = theirs.transpose(1, 2)
    assert merged.is_contiguous()
    torch.testing.assert_close(merged.view(2, 5, 6), mha_lab.merge_heads(ours))


def test_a_longer_query_leaves_the_other_words_nothing():
    """Head 0 fetches 0.93 of *noun* in step 1; with ten times the query, all of it."""
    keys, is_noun = torch.tensor([[0.0], [2.0], [0.0], [0.0], [2.0]]), torch.tensor([0.0, 1, 0, 0, 1])
    for times, exact in ((1, False), (10, True)):
        weights = torch.softmax(keys @ torch.tensor([2.0 * times]) / 2**0.5, dim=-1)
        assert (weights @ is_noun > 0.9999).item() == exact


@pytest.mark.parametrize(("n", "num_heads", "sees"), [(5, 3, [2]), (3, 5, [3, 4]), (4, 4, [3])])
def test_a_view_reads_on_where_the_row_ended_so_few_heads_see_the_last_token(n, num_heads, sees):
    """Which heads have a piece of the last token; the right split gives one to each, in the last row."""
    tokens = torch.arange(n)[:, None].expand(n, num_heads * 7)
    bare = tokens.reshape(num_heads, n, 7)
    assert torch.equal(bare.flatten(), tokens.flatten())
    assert (bare == n - 1).any(dim=-1).any(dim=-1).nonzero().flatten().tolist() == sees
    right = mha_lab.split_heads(tokens, num_heads) == n - 1
    assert right[:, -1].all()
    assert not right[:, :-1].any()


def test_without_the_copy_a_view_cannot_read_the_heads_in_their_order():
    """So the error is missing only because the heads were stored one after the other."""
    split = mha_lab.split_heads(torch.arange(12).view(3, 4), 2)
    with pytest.raises(RuntimeError, match="view"):
        split.view(3, 4)
    assert torch.equal(split.reshape(3, 4), split.contiguous().view(3, 4))


@pytest.mark.parametrize("front", [(), (2,), (2, 3), (2, 1, 3)])
def test_the_last_two_axes_are_split_and_attended_whatever_stands_in_front(front):
    x = torch.randn(*front, 5, 21)
    split = x.view(*x.shape[:-1], 3, 7).transpose(-3, -2)
    for places in itertools.product(*map(range, front)):
        assert torch.equal(split[places], mha_lab.split_heads(x[places], 3))
        for all_at_once, one in zip(
            scaled_dot_product_attention(split, split, split),
            scaled_dot_product_attention(*[split[places]] * 3),
            strict=True,
        ):
            torch.testing.assert_close(all_at_once[places], one)
