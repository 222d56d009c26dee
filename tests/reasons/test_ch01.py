"""Reasons of chapter 01, each tried with the smallest experiment that could refute it."""

import pytest
import torch

KEYS, VALUES = torch.tensor([[4.0, 0.0], [0.0, 4.0]]), torch.tensor([[10.0], [20.0]])


def products(d_k, trials=4000, n_k=16, seed=0, alike=0.0):
    """Dot products ``(trials, n_k)`` of random queries and keys; ``alike`` of query and key 0 is common."""
    source = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(trials, n, d_k, generator=source) for n in (1, n_k))
    query = (1 - alike**2) ** 0.5 * query + alike * key[:, :1]
    return (query @ key.mT)[:, 0], key


def test_small_steps_find_a_better_query_only_if_the_lookup_is_soft():
    """The same search for the value 15, with the best match alone and with all matches."""

    def hard(query):
        return VALUES[(KEYS @ query).argmax()] + 0 * query.sum()

    def soft(query):
        return torch.softmax(KEYS @ query / 2**0.5, dim=-1) @ VALUES

    found = {}
    for lookup in (hard, soft):
        query = torch.tensor([0.5, 0.1], requires_grad=True)
        optimiser = torch.optim.SGD([query], lr=0.002)
        for _ in range(200):
            optimiser.zero_grad()
            (lookup(query) - 15).square().sum().backward()
            optimiser.step()
        found[lookup] = lookup(query).item()
    assert found[hard] == 10
    assert found[soft] == pytest.approx(15, abs=0.1)


@pytest.mark.parametrize("d_k", [4, 64, 1024])
def test_the_variances_add_up_because_the_terms_are_independent(d_k):
    """With one and the same sign for all terms of a product, they do not: the spread grows like d_k."""
    independent, _ = products(d_k)
    assert independent.std().item() == pytest.approx(d_k**0.5, rel=0.05)
    assert (independent / d_k**0.5).std().item() == pytest.approx(1, rel=0.05)
    source = torch.Generator().manual_seed(1)
    same = torch.randn(4000, 1, generator=source) * torch.randn(4000, 1, generator=source)
    assert same.expand(4000, d_k).sum(dim=-1).std().item() == pytest.approx(d_k, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_what_the_three_divisors_do_to_random_queries_and_keys(seed):
    """Not divided: one key takes nearly all. By d_k: all get nearly the same, whatever the query asks for."""
    drawn, _ = products(512, seed=seed)
    not_divided, by_root, by_d_k = (torch.softmax(drawn / by, dim=-1) for by in (1, 512**0.5, 512))
    assert (not_divided.amax(dim=-1) > 0.9).float().mean() > 0.8
    assert 0.1 < by_root.amax(dim=-1).median() < 0.5
    assert (by_d_k - 1 / 16).abs().max() < 0.02
    values = torch.randn(16, generator=torch.Generator().manual_seed(seed))
    spread = [(weights @ values).std().item() for weights in (not_divided, by_root, by_d_k)]
    assert spread[0] > spread[1] > 10 * spread[2]


def test_divided_by_d_k_the_scores_vanish_only_if_queries_and_keys_are_independent():
    """A query that shares half of its variance with a key keeps its score of 0.7, at any width."""
    for d_k in (64, 1024):
        drawn, _ = products(d_k, alike=0.5**0.5)
        assert (drawn[:, 0] / d_k).mean().item() == pytest.approx(0.5**0.5, rel=0.05)
        assert (drawn[:, 1] / d_k).std().item() == pytest.approx(d_k**-0.5, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("d_k", "smaller"), [(64, 0.37), (512, 0.66)])
def test_small_gradients_alone_do_not_explain_the_division(d_k, smaller, seed):
    """The share of queries whose gradient with respect to the query is smaller without the division."""
    drawn, key = products(d_k, seed=seed)
    sizes = []
    for by in (1.0, d_k**0.5):
        weights = torch.softmax(drawn / by, dim=-1)
        jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None]
        sizes.append((jacobian @ key / by).flatten(1).norm(dim=-1))
    assert (sizes[0] < sizes[1]).float().mean().item() == pytest.approx(smaller, abs=0.03)
    assert (torch.softmax(drawn, dim=-1).amax(dim=-1) > 0.5).float().mean() > 0.9


def test_the_gradient_with_respect_to_the_query_is_the_product_of_two_tables():
    """The chain rule: the gradient with respect to the scores, times the keys."""
    query, key = torch.randn(8), torch.randn(16, 8)
    scores = key @ query / 8**0.5
    by_scores = torch.func.jacrev(lambda s: torch.softmax(s, dim=-1))(scores)
    by_query = torch.func.jacrev(lambda q: torch.softmax(key @ q / 8**0.5, dim=-1))(query)
    torch.testing.assert_close(by_query, by_scores @ key / 8**0.5)


def test_a_module_without_a_place_for_its_parts_cannot_learn():
    """A plain attribute may come before the call that makes this place."""
    linear = torch.nn.Linear(4, 3, bias=False)

    class Late(torch.nn.Module):
        def __init__(self):
            self.part = linear

    class Right(torch.nn.Module):
        def __init__(self):
            self.width = 4
            super().__init__()
            self.part = linear

    with pytest.raises(AttributeError, match="before Module"):
        Late()
    assert len(list(Right().parameters())) == 1
    assert not hasattr(lambda x: linear(x), "parameters")


def test_a_small_change_has_no_effect_where_the_weight_is_nearly_1_and_not_where_the_score_is_large():
    for first, second, moves in (
        (8.0, 0.0, False),
        (108.0, 100.0, False),
        (1.0, 0.0, True),
        (108.0, 107.0, True),
    ):
        before, after = (torch.softmax(torch.tensor([first + more, second]), dim=-1)[0] for more in (0, 0.1))
        assert (after - before > 0.01).item() == moves


def test_a_score_of_0_gets_a_weight_because_exp_0_is_1():
    """It gets none if its exp is left out of the sum."""
    scores = torch.tensor([5.0, 3.0, 0.0, 0.0, 0.0]) / 3**0.5
    assert torch.softmax(scores, dim=-1)[2:].tolist() == pytest.approx([0.04] * 3, abs=0.005)
    left_out = scores.masked_fill(scores == 0, -torch.inf)
    assert torch.softmax(left_out, dim=-1)[2:].tolist() == [0, 0, 0]


def test_over_the_queries_a_key_that_nobody_asks_for_gets_one_fifth():
    """Because its scores are equal: if one query asks for it, the others give it less."""
    for asked, shares in ((0.0, [0.2] * 5), (3.0, [0.83, 0.04, 0.04, 0.04, 0.04])):
        column = torch.tensor([asked, 0, 0, 0, 0])
        assert torch.softmax(column, dim=0).tolist() == pytest.approx(shares, abs=0.005)


def test_in_a_new_layer_fewer_queries_have_one_key_than_with_random_queries():
    """PyTorch starts with matrices that make queries and keys of variance 1/2."""
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(512, 8)
    x = torch.nn.functional.layer_norm(torch.randn(32, 16, 512), (512,))
    query, key = (
        (x @ matrix.mT).unflatten(-1, (8, 64)).transpose(1, 2)
        for matrix in layer.in_proj_weight[:1024].chunk(2)
    )
    started = query @ key.mT
    random, _ = products(64)
    for scores, low, high in ((started, 0.6, 0.85), (random, 0.9, 1.0)):
        share = (torch.softmax(scores, dim=-1).amax(dim=-1) > 0.5).float().mean()
        assert low < share < high
