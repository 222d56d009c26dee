"""The browser's numbers and the package's, over random problems."""

import json
import math
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


def real(values):
    """What came from the browser, unrounded."""
    return torch.tensor(values, dtype=torch.float64)


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
    torch.testing.assert_close(real(found["weights"]), picture.weights, **CLOSE)
    torch.testing.assert_close(real(found["output"]), picture.output, **CLOSE)
    scores = mha_lab.scaled_dot_product_scores(query[None], keys, scale=scale)[0]
    torch.testing.assert_close(real(found["scores"]), scores, **CLOSE)


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


@pytest.mark.parametrize(
    ("keys", "chosen", "weights"),
    [
        ([[2, 0], [-2, 0], [0, -1]], [0, 1], [0.5, 0.5, 0]),  # opposite keys
        ([[1, 1], [1, 1], [0, 2]], [0, 1], [0.5, 0.5, 0]),  # equal keys
        ([[1, 1], [1, 1], [0, 2]], [0], None),
        ([[1, 1], [1, 1], [0, 2]], [0, 2], None),
        ([[3, 0], [0, 3], [1, 1]], [0, 1], [0.5, 0.5, 0]),
        ([[3, 0], [0, 3], [-3, -3], [0, 0.5]], [3], None),  # among the others
        ([[4, 0], [0, 4], [2, 2]], [0, 1], None),  # a third one on the line between them
    ],
)
def test_the_presets_where_keys_are_equal_opposite_or_in_line(pages, keys, chosen, weights):
    found = pages["query"].evaluate(AIM, [keys, chosen, 1.0])
    if weights is None:
        assert found is None
    else:
        got = torch.softmax(real(keys) @ real(found), 0)
        torch.testing.assert_close(got, real(weights), atol=0.005, rtol=0)


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
    assert torch.equal(preset("causal"), causal)
    assert torch.equal(preset("padding"), padding)
    assert torch.equal(preset("both"), causal & padding)
    far = (torch.arange(n_k) - torch.arange(n_q)[:, None] - (n_k - n_q)).abs()
    assert torch.equal(preset("window"), far < 2)


def test_the_code_is_the_same_mask_in_three_conventions(pages):
    mask = mha_lab.causal_mask(3) & torch.tensor([True, False, True])
    convert = {
        "boolean": lambda m: m,
        "blocked": mha_lab.mask_from_blocked,
        "additive": mha_lab.mask_from_additive,
    }
    for convention, back in convert.items():
        call = "([mask, convention]) => module.code(mask, convention)"
        code = pages["mask"].evaluate(call, [mask.tolist(), convention])
        space = {"torch": torch}
        exec(code, space)
        assert torch.equal(back(space["mask"]), mask)


@pytest.mark.parametrize("seed", range(4))
def test_heads(pages, seed):
    shape = (2 + seed, 3, 5)
    weights = numbers(seed, *shape).softmax(-1).float()
    picture = explore.heads(weights, list("abc"), list("vwxyz"))
    picture.row, picture.picked, picture.averaged = seed % 3, [0, 1 + seed % 2], bool(seed % 2)
    problem = {
        "weights": weights.flatten().tolist(), "shape": list(shape), "row": picture.row,
        "picked": picture.picked, "averaged": picture.averaged,
    }  # fmt: skip
    found = pages["heads"].evaluate("(problem) => module.compute(problem)", problem)
    torch.testing.assert_close(real(found), picture.weights.double(), **CLOSE)


@pytest.mark.parametrize(("n", "num_heads", "d_k"), [(3, 2, 3), (2, 3, 1), (5, 1, 4), (6, 4, 2)])
def test_places_of_a_split(pages, n, num_heads, d_k):
    sizes = {"n": n, "num_heads": num_heads, "d_k": d_k}
    x = torch.arange(n * num_heads * d_k).view(n, -1)
    results = {
        "memory": x[None],
        "view": x.view(n, num_heads, d_k),
        "transpose": split_heads(x, num_heads),
        "merge": x[None],
        "bare": x.view(num_heads, n, d_k),
    }
    for step, result in results.items():
        places = pages["split"].evaluate("([step, sizes]) => module.place(step, sizes)", [step, sizes])
        assert [result[tuple(place)].item() for place in places] == x.flatten().tolist(), step
        said = pages["split"].evaluate("([step, sizes]) => module.explain(step, sizes)", [step, sizes])
        wanted = tuple(x.shape) if step in ("memory", "merge") else tuple(result.shape)
        assert json.dumps(list(wanted))[1:-1] in said
