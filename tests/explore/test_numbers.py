"""The browser's numbers and the package's, over random problems."""

import json
import math
from functools import partial
from itertools import combinations

import pytest
import torch

import mha_lab
from mha_lab import explore
from mha_lab.heads import split_heads
from tools import examples
from tools.browser import needs_chromium, open_chromium, show

pytestmark = [pytest.mark.browser, needs_chromium]
CLOSE = {"atol": 1e-6, "rtol": 1e-6}


@pytest.fixture(scope="module")
def pages():
    """A page for each explorable, whose functions the tests call."""
    with open_chromium() as browser:
        yield {name: show(browser, make()) for name, make in examples.ALL.items()}


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


AIM = "([keys, chosen, scale]) => module.aim(keys, chosen, scale, 1e9)"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [1.0, 2**-0.5, -0.5])
def test_the_presets_do_what_they_say(pages, seed, scale):
    """For any keys: over 0.99 on one key, or on two in equal parts, where some query does that; else none."""
    keys = numbers(seed, 2 + seed % 6, 2)
    turn = torch.linspace(0, 2 * math.pi, 50_001, dtype=torch.float64)
    first = (torch.stack([turn.cos(), turn.sin()], 1) @ keys.T * scale).argmax(1)  # of each direction
    changes = first[:-1] != first[1:]
    pairs = {tuple(sorted(pair)) for pair in torch.stack([first[:-1], first[1:]], 1)[changes].tolist()}
    for chosen in [*([i] for i in range(len(keys))), *map(list, combinations(range(len(keys)), 2))]:
        found = pages["query"].evaluate(AIM, [keys.tolist(), chosen, scale])
        possible = chosen[0] in first.tolist() if len(chosen) == 1 else tuple(chosen) in pairs
        assert (found is not None) == possible, chosen
        if found is not None:
            weights = torch.softmax(keys @ real(found) * scale, 0)
            assert weights[chosen].sum() > 0.99
            torch.testing.assert_close(weights[chosen], weights[chosen].flip(0), **CLOSE)


CASES = [
    ([[2, 0], [-2, 0], [0, -1]], [0, 1], True),  # opposite keys
    ([[1, 1], [1, 1], [0, 2]], [0, 1], True),  # equal keys
    ([[1, 1], [1, 1], [0, 2]], [0], False),
    ([[1, 1], [1, 1], [0, 2]], [0, 2], False),
    ([[3, 0], [0, 3], [1, 1]], [0, 1], True),
    ([[3, 0], [0, 3], [-3, -3], [0, 0.5]], [3], False),  # among the others
    ([[4, 0], [0, 4], [2, 2]], [0, 1], False),  # a third one on the line between them
]


@pytest.mark.parametrize(("keys", "chosen", "possible"), CASES)
def test_the_presets_where_keys_are_equal_opposite_or_in_line(pages, keys, chosen, possible):
    found = pages["query"].evaluate(AIM, [keys, chosen, 1.0])
    assert (found is not None) == possible
    if possible:
        weights = torch.softmax(real(keys) @ real(found), 0)
        torch.testing.assert_close(weights, real([0.5, 0.5, 0]), atol=0.005, rtol=0)


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
    far = (torch.arange(n_k) - torch.arange(n_q)[:, None] - (n_k - n_q)).abs()
    assert preset("all").all()
    masks = {"causal": causal, "padding": padding, "both": causal & padding, "window": far < 2}
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
