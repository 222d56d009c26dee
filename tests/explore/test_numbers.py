"""The browser's numbers and the package's, over random problems."""

import json
import math
from functools import partial
from itertools import combinations

import pytest
import torch

import mha_lab
from bench import examples
from bench.browser import needs_chromium, show
from mha_course import explore
from mha_lab import plot, toy
from mha_lab.heads import split_heads

pytestmark = [pytest.mark.browser, needs_chromium]
CLOSE = {"atol": 1e-6, "rtol": 1e-6}


@pytest.fixture(scope="module")
def pages(browser):
    """A page for each explorable, whose functions the tests call."""
    return {name: show(browser, make()) for name, make in examples.ALL.items()}


real = partial(torch.tensor, dtype=torch.float64)  # what came from the browser, unrounded


def numbers(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3


@pytest.mark.parametrize("seed", range(10))
def test_a_query(pages, seed):
    n_k, d_v = 2 + seed % 5, 1 + seed % 3
    keys, values, query = numbers(seed, n_k, 2), numbers(seed + 100, n_k, d_v), numbers(seed + 200, 2)
    scale = [1.0, 2**-0.5, 0.5][seed % 3]
    problem = {"query": query.tolist(), "keys": keys.tolist(), "values": values.tolist(), "scale": scale}
    found = pages["query"].evaluate("(problem) => module.compute(problem)", problem)
    picture = explore.query(keys, values, query=query, scale=scale)
    scores = mha_lab.scaled_dot_product_scores(query[None], keys, scale=scale)[0]
    expected = {"scores": scores, "weights": picture.weights, "output": picture.output}
    torch.testing.assert_close({name: real(found[name]) for name in expected}, expected, **CLOSE)


AIM = "([keys, chosen, scale, reach, labels]) => module.aim({ keys, chosen, scale, reach, labels })"


def aim(pages, keys, chosen, scale=1.0, reach=1e6):
    """The query that the picture goes to, or what it says instead."""
    labels = [f"key {i}" for i in range(len(keys))]
    found = pages["query"].evaluate(AIM, [keys, chosen, scale, reach, labels])
    return real(found["query"]) if "query" in found else found["why"]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [1.0, 2**-0.5, -0.5])
def test_a_query_is_sent_to_one_key_or_between_two(pages, seed, scale):
    """For any keys: over 0.99 on one key, or on two in equal parts, or the reason why not."""
    keys = numbers(seed, 2 + seed % 6, 2)
    turn = torch.linspace(0, 2 * math.pi, 50_001, dtype=torch.float64)
    first = (torch.stack([turn.cos(), turn.sin()], 1) @ keys.T * scale).argmax(1)  # of each direction
    changes = first[:-1] != first[1:]
    pairs = {tuple(sorted(pair)) for pair in torch.stack([first[:-1], first[1:]], 1)[changes].tolist()}
    for chosen in [*([i] for i in range(len(keys))), *map(list, combinations(range(len(keys)), 2))]:
        found = aim(pages, keys.tolist(), chosen, scale)
        possible = chosen[0] in first.tolist() if len(chosen) == 1 else tuple(chosen) in pairs
        assert isinstance(found, torch.Tensor) == possible, (chosen, found)
        if possible:
            weights = torch.softmax(keys @ found * scale, 0)
            assert weights[chosen].sum() > 0.99
            torch.testing.assert_close(weights[chosen], weights[chosen].flip(0), **CLOSE)
        else:
            assert f"key {chosen[0]}" in found


@pytest.mark.parametrize("scale", [1.0, 2**-0.5, 0.5])
@pytest.mark.parametrize("pair", [[0, 1], [0, 2], [1, 2]])
def test_two_keys_of_chapter_01_share_equally_at_every_scale(pages, pair, scale):
    keys, reach = toy.plane_keys(torch.float64), 1.25 * 18**0.5
    found = aim(pages, keys.tolist(), pair, scale, reach)
    assert found.abs().max() == pytest.approx(reach)  # as far as the plane goes
    weights = torch.softmax(scale * keys @ found, 0)[pair]
    torch.testing.assert_close(weights, real([0.5, 0.5]), atol=5e-4, rtol=0)
    if pair == [1, 2]:
        torch.testing.assert_close(found, real([-5.30, 2.27]), atol=0.005, rtol=0)


SAME = "key 0 and key 1 are the same vector, so they always get the same weight."
AMONG = "For every query, some other key has at least the score of key 3."
BETWEEN = "Where key 0 and key {} have equal scores, key {} has at least as much."
CASES = [
    ([[2, 0], [-2, 0], [0, -1]], [0, 1], None),  # opposite keys
    ([[1, 1], [1, 1], [0, 2]], [0, 1], None),  # equal keys
    ([[1, 1], [1, 1], [0, 2]], [0], SAME),
    ([[1, 1], [1, 1], [0, 2]], [0, 2], BETWEEN.format(2, 1)),
    ([[3, 0], [0, 3], [1, 1]], [0, 1], None),
    ([[3, 0], [0, 3], [-3, -3], [0, 0.5]], [3], AMONG),
    ([[4, 0], [0, 4], [2, 2]], [0, 1], BETWEEN.format(1, 2)),  # in line
]


@pytest.mark.parametrize(("keys", "chosen", "why"), CASES)
def test_where_keys_are_equal_opposite_or_in_line(pages, keys, chosen, why):
    found = aim(pages, keys, chosen)
    if why:
        assert found == why
    else:
        weights = torch.softmax(real(keys) @ found, 0)
        torch.testing.assert_close(weights, real([0.5, 0.5, 0]), atol=0.005, rtol=0)


TICKS = {5.303: [-4, -2, 2, 4], 5: [-4, -2, 2, 4], 4: [-3, -2, -1, 1, 2, 3], 0.11: [-0.1, -0.05, 0.05, 0.1]}


@pytest.mark.parametrize(("reach", "ticks"), TICKS.items())
def test_the_axes_have_round_numbers(pages, reach, ticks):
    assert pages["query"].evaluate("(reach) => module.ticks(reach)", reach) == ticks


@pytest.mark.parametrize("seed", range(10))
def test_a_mask_with_rows_that_see_nothing(pages, seed):
    n_q, n_k = 2 + seed % 4, 3 + seed % 5
    scores = numbers(seed, n_q, n_k) * [1, 300][seed % 2]
    mask = numbers(seed + 100, n_q, n_k) > 0
    mask[seed % n_q] = False
    problem = {"scores": scores.tolist(), "mask": mask.tolist()}
    found = pages["mask"].evaluate("(problem) => module.compute(problem)", problem)
    expected = explore.mask(scores, mask).weights
    torch.testing.assert_close(real(found), expected, **CLOSE)
    assert not expected[seed % n_q].any()


@pytest.mark.parametrize(("n_q", "n_k"), [(5, 5), (3, 7), (1, 4)])
def test_the_masks_behind_the_buttons(pages, n_q, n_k):
    def preset(name):
        call = "([name, n_q, n_k]) => module.preset(name, n_q, n_k, 3, 2)"
        return torch.tensor(pages["mask"].evaluate(call, [name, n_q, n_k]))

    causal, padding = mha_lab.causal_mask(n_q, n_k), mha_lab.padding_mask([3], n_k)[0, 0].expand(n_q, n_k)
    assert preset("all").all()
    window = mha_lab.masks.sliding_window_mask(n_q, n_k, window=2)
    masks = {"causal": causal, "padding": padding, "both": causal & padding, "window": window}
    for name, mask in masks.items():
        assert torch.equal(preset(name), mask), name


def test_the_code_is_the_same_mask_in_three_conventions(pages):
    mask = mha_lab.causal_mask(3, 4) & torch.tensor([True, False, True, True])
    back = {"blocked": mha_lab.mask_from_blocked, "additive": mha_lab.mask_from_additive}
    for convention in ("boolean", *back):
        space = {"torch": torch}
        exec(pages["mask"].evaluate("(asked) => module.code(...asked)", [mask.tolist(), convention]), space)
        assert torch.equal(back.get(convention, torch.clone)(space["mask"]), mask), convention


@pytest.mark.parametrize("seed", range(4))
def test_heads(pages, seed):
    shape = (2 + seed, 3, 5)
    weights = numbers(seed, *shape).softmax(-1).float()
    picture = explore.heads(weights, list("abc"), list("vwxyz"))
    chosen = {"row": seed % 3, "picked": [0, 1 + seed % 2], "averaged": bool(seed % 2)}
    picture.row, picture.picked, picture.averaged = chosen.values()
    problem = {"weights": weights.flatten().tolist(), "shape": list(shape)} | chosen
    found = pages["heads"].evaluate("(problem) => module.compute(problem)", problem)
    torch.testing.assert_close(real(found), picture.weights.double(), **CLOSE)
    values = numbers(seed + 100, 5, 1 + seed % 3)
    picture = explore.heads(weights.double(), list("abc"), list("vwxyz"), values=values, row=chosen["row"])
    given = [picture.weights.tolist(), values.tolist()]
    call = "([rows, values]) => rows.map((row) => module.output(row, values))"
    fetched = pages["heads"].evaluate(call, given)
    torch.testing.assert_close(real(fetched), picture.output, **CLOSE)


@pytest.mark.parametrize(("n", "num_heads", "d_k"), [(3, 2, 3), (2, 3, 1), (5, 1, 4), (6, 4, 2)])
def test_places_of_a_split(pages, n, num_heads, d_k):
    sizes = {"n": n, "num_heads": num_heads, "d_k": d_k}
    x = torch.arange(n * num_heads * d_k).view(n, -1)
    results = {"memory": x[None], "merge": x[None], "view": x.view(n, num_heads, d_k)}
    results |= {"transpose": split_heads(x, num_heads), "bare": x.view(num_heads, n, d_k)}
    for step, result in results.items():
        places = pages["split"].evaluate("(asked) => module.place(...asked)", [step, sizes])
        assert [result[tuple(place)].item() for place in places] == x.flatten().tolist(), step
        said = pages["split"].evaluate("(asked) => module.explain(...asked)", [step, sizes])
        shape = x.shape if step in ("memory", "merge") else result.shape
        assert json.dumps(list(shape))[1:-1] in said
    off = pages["split"].evaluate("(sizes) => module.misplaced(sizes)", sizes)
    wrong = plot.memory_map_data(n, num_heads, d_k)
    assert [wrong.wrong[wrong.misplaced].tolist().count(i) == 1 for i in range(x.numel())] == off
