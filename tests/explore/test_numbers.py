"""The browser's numbers and the package's, over random problems."""

import json

import pytest
import torch

import mha_lab
from mha_lab import explore
from mha_lab.heads import split_heads
from tests.explore import examples
from tests.explore.browser import needs_chromium, open_chromium, show

pytestmark = needs_chromium
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


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [1.0, 2**-0.5, 0.5])
def test_the_presets_do_what_they_say(pages, seed, scale):
    """Where the plane is wide enough, over 0.99 on one key, or on two together in equal parts."""
    angles = torch.tensor([0.0, 2.0, 4.0]) + seed
    keys = torch.stack([angles.cos(), angles.sin()], dim=1).double() * 4
    aim = "([keys, chosen, scale]) => module.aim(keys, chosen, scale, 1e9)"
    query = real(pages["query"].evaluate(aim, [keys.tolist(), [1], scale]))
    weights = torch.softmax(keys @ query * scale, 0)
    assert weights[1] > 0.99
    query = real(pages["query"].evaluate(aim, [keys.tolist(), [0, 2], scale]))
    weights = torch.softmax(keys @ query * scale, 0)
    torch.testing.assert_close(weights[0], weights[2], **CLOSE)
    opposite = [keys[0].tolist(), (-keys[0]).tolist()]
    assert pages["query"].evaluate(aim, [opposite, [0, 1], scale]) == [0, 0]  # no query prefers both


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
