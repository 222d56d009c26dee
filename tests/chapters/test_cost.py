"""The counts against numbers worked out by hand, PyTorch's own counter, and tensors that were made."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mha_lab import MultiHeadAttention
from mha_lab.chapters.cost import attention_bytes, attention_flops

BATCH, N_Q, N_K, HEADS, D_K = 3, 5, 7, 2, 11
D_MODEL = HEADS * D_K


def counted(run):
    """What PyTorch's counter sees while ``run`` runs."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def test_flops_by_hand():
    # 2 tokens, 3 wide: four products (2, 3) @ (3, 3) of 2 * 2 * 3 * 3 = 36; scores (2, 3) @ (3, 2): 24.
    assert attention_flops(2, 3) == (144, 24, 24)
    # 1 query, 2 keys: two products of 18 and two of 36; scores (1, 3) @ (3, 2): 12. Five samples.
    assert attention_flops(1, 3, n_key=2, batch=5) == (540, 60, 60)


def test_bytes_by_hand():
    assert attention_bytes(5, 6, 3) == (5 * 6 * 4, 3 * 5 * 5 * 4)
    assert attention_bytes(5, 6, 3, n_key=7, batch=2, dtype=torch.float16) == (2 * 12 * 6 * 2, 2 * 3 * 35 * 2)


@pytest.mark.parametrize("heads", [1, 2, 11])
@pytest.mark.parametrize("source", ["self", "cross"])
def test_flops_are_those_that_pytorch_counts(source, heads):
    layer = MultiHeadAttention(D_MODEL, heads)
    query, context = torch.randn(BATCH, N_Q, D_MODEL), torch.randn(BATCH, N_K, D_MODEL)
    if source == "self":
        found, expected = counted(lambda: layer(query)), attention_flops(N_Q, D_MODEL, batch=BATCH)
    else:
        found = counted(lambda: layer(query, context))
        expected = attention_flops(N_Q, D_MODEL, n_key=N_K, batch=BATCH)
    assert found == sum(expected)


def test_each_part_is_what_pytorch_counts_for_it():
    query, key = torch.randn(BATCH, HEADS, N_Q, D_K), torch.randn(BATCH, HEADS, N_K, D_K)
    flops = attention_flops(N_Q, D_MODEL, n_key=N_K, batch=BATCH)
    assert counted(lambda: query @ key.mT) == flops.scores
    weights = torch.randn(BATCH, HEADS, N_Q, N_K)
    assert counted(lambda: weights @ key) == flops.weighted_sum
    layer = MultiHeadAttention(D_MODEL, HEADS)
    x, context = torch.randn(BATCH, N_Q, D_MODEL), torch.randn(BATCH, N_K, D_MODEL)
    wide = [(layer.q_proj, x), (layer.k_proj, context), (layer.v_proj, context), (layer.out_proj, x)]
    assert counted(lambda: [projection(tokens) for projection, tokens in wide]) == flops.projections


def test_forward_and_backward_are_three_times_the_forward():
    layer = MultiHeadAttention(D_MODEL, HEADS)
    x = torch.randn(BATCH, N_Q, D_MODEL, requires_grad=True)
    found = counted(lambda: layer(x)[0].sum().backward())
    assert found == 3 * sum(attention_flops(N_Q, D_MODEL, batch=BATCH))


@pytest.mark.parametrize("d_model", [2, 4, 46])
def test_scores_and_weighted_sum_overtake_the_projections_at_twice_the_width(d_model):
    before, there, after = (
        attention_flops(n, d_model) for n in (2 * d_model - 1, 2 * d_model, 2 * d_model + 1)
    )
    assert before.scores + before.weighted_sum < before.projections
    assert there.scores + there.weighted_sum == there.projections
    assert after.scores + after.weighted_sum > after.projections


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("source", ["self", "cross"])
def test_bytes_are_those_of_real_tensors(source, dtype):
    layer = MultiHeadAttention(D_MODEL, HEADS).to(dtype)
    x, context = (torch.randn(BATCH, n, D_MODEL, dtype=dtype) for n in (N_Q, N_K))
    if source == "self":
        _, weights = layer(x)
        counts = attention_bytes(N_Q, D_MODEL, HEADS, batch=BATCH, dtype=dtype)
        assert counts == (x.nbytes, weights.nbytes)
    else:
        _, weights = layer(x, context)
        counts = attention_bytes(N_Q, D_MODEL, HEADS, n_key=N_K, batch=BATCH, dtype=dtype)
        assert counts == (x.nbytes + context.nbytes, weights.nbytes)


BAD = {
    "n_query": ((0, 4, 2), ValueError),
    "d_model": ((5, -1, 2), ValueError),
    "num_heads": ((5, 4, 3), ValueError),
}


@pytest.mark.unchecked
@pytest.mark.parametrize("name", BAD)
def test_sizes_that_cannot_be_are_refused_by_name(name):
    arguments, error = BAD[name]
    with pytest.raises(error, match=f"^{name}: expected .+, got "):
        attention_bytes(*arguments)
    if name != "num_heads":
        with pytest.raises(error, match=f"^{name}: expected .+, got "):
            attention_flops(*arguments[:2])


@pytest.mark.unchecked
@pytest.mark.parametrize("name", ["n_key", "batch"])
@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (2.0, TypeError), (True, TypeError)])
def test_options_that_cannot_be_are_refused_by_name(name, value, error):
    for count in (lambda **o: attention_flops(5, 4, **o), lambda **o: attention_bytes(5, 4, 2, **o)):
        with pytest.raises(error, match=f"^{name}: expected .+, got "):
            count(**{name: value})


@pytest.mark.unchecked
def test_a_dtype_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r"^dtype: expected a torch.dtype, got 'float32'\."):
        attention_bytes(5, 4, 2, dtype="float32")
