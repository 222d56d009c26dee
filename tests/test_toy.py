"""The worked examples, by hand."""

import math

import pytest
import torch

from mha_lab import merge_heads, scaled_dot_product_attention, split_heads, toy


def test_the_two_articles_are_equal_and_no_other_tokens_are():
    x = toy.embeddings()
    assert len(x) == len(toy.tokens())
    assert x.shape[1] == len(toy.features())
    pairs = [(i, j) for i in range(5) for j in range(i) if torch.equal(x[i], x[j])]
    assert pairs == [(3, 0)]


def test_the_scores_of_the_verb_by_hand():
    # query of saw (2, 0, 1); keys of dog (2, 0, 1), of saw (0, 2, 0), of cat (2, 0, -1).
    w_q, w_k, _ = toy.single_head_weights()
    x = toy.embeddings()
    assert ((x[2] @ w_q) @ (x @ w_k).mT).tolist() == [0, 5, 0, 0, 3]


def test_the_verb_looks_at_the_dog_in_head_0_and_at_the_cat_in_head_1():
    x = toy.embeddings(torch.float64)
    w_q, w_k, w_v, w_o = toy.multi_head_weights(torch.float64)
    heads, weights = scaled_dot_product_attention(*(split_heads(x @ w, 2) for w in (w_q, w_k, w_v)))
    # head 0: query (0, 2), keys dog (2, 2), cat (2, -2), others 0: scores 4, -4 and 0, over sqrt(2).
    total = math.exp(4 / math.sqrt(2)) + math.exp(-4 / math.sqrt(2)) + 3
    assert weights[0, 2, 1].item() == pytest.approx(math.exp(4 / math.sqrt(2)) / total)
    assert weights[0, 2].argmax() == 1
    assert weights[1, 2].argmax() == 4
    assert heads[0, 2, 1].item() == pytest.approx(-heads[1, 2, 1].item())
    output = merge_heads(heads) @ w_o
    assert output[2, [3, 0]].tolist() == pytest.approx([heads[0, 2, 1].item(), heads[1, 2, 1].item()])


def test_one_query_focuses_and_one_averages_and_another_scale_gives_the_published_figures():
    queries = torch.tensor([[0.0, 10.0, 0.0], [0.0, 0.0, 10.0]])
    output, _ = scaled_dot_product_attention(queries, toy.keys(), toy.values())
    torch.testing.assert_close(output, torch.tensor([[10, 0, 0], [550, 5.5, 0]]))
    output, weights = scaled_dot_product_attention(queries, toy.keys(), toy.values(), scale=1 / 8)
    assert f"{weights[0, 0].item():.4e}" == "3.7266e-06"
    assert f"{output[1, 0].item():.4f}" == "549.9979"


@pytest.mark.parametrize("make", [toy.embeddings, toy.keys, toy.values])
def test_changing_one_copy_changes_no_other(make):
    make().zero_()
    assert make().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_every_tensor_comes_in_the_dtype_asked_for(dtype):
    one = (toy.embeddings, toy.keys, toy.values, toy.plane_keys, toy.plane_values)
    tensors = [make(dtype) for make in one]
    tensors += [*toy.single_head_weights(dtype), *toy.multi_head_weights(dtype)]
    assert {t.dtype for t in tensors} == {dtype}


def test_the_plane_has_three_ways_to_fetch_20():
    keys, values = toy.plane_keys(torch.float64), toy.plane_values(torch.float64)
    queries = torch.tensor([[0.0, 0.0], [0.0, 30.0], [30.0, -70.0]], dtype=torch.float64)
    output, weights = scaled_dot_product_attention(queries, keys, values)
    expected = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0, 1, 0], [0.5, 0, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(output, torch.full((3, 1), 20.0, dtype=torch.float64))
