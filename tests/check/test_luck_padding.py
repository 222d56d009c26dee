"""``sees_padding`` is earned by no luck, and a right test does not lose it by bad luck."""

import inspect

import pytest
import torch

from mha_course.exercises import Rng, find
from mha_course.exercises import _padding as padding
from mha_course.exercises._results import plain
from mha_course.exercises.sees_padding import INPUTS, PAIRS

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]  # wrong answers pass wrong arguments

EXERCISE = find("sees_padding")


def draw(seed):
    """The problems on which an answer is judged by what it says, and not by what it was seen to do."""
    problems = [problem for problem in EXERCISE.problems(Rng(seed)) if len(problem) == 3]
    # Any order gives the same verdict; in this one an error is found soon.
    problems.sort(key=lambda p: padding.LEAKS.index(p[0]) if p[0] in padding.LEAKS else len(padding.LEAKS))
    return problems


def passes(answer, seed):
    """What ``check`` would say, in this process."""
    return all(EXERCISE.accepts(plain(answer(*problem)), *problem) is None for problem in draw(seed))


def differs(attention, real, x, changed):
    return not torch.allclose(attention(x, real)[real], attention(changed, real)[real], atol=1e-5)


def one_random_input(attention, real, d_model):
    x = torch.randn(len(real), d_model)
    return differs(attention, real, x, torch.where(real[:, None], x, torch.randn(len(real), d_model)))


def one_fixed_input(attention, real, d_model):
    x = torch.arange(1.0, 1 + len(real) * d_model).reshape(len(real), d_model).sin()
    return differs(attention, real, x, x.masked_fill(~real[:, None], 7.0))


def the_last_padded_token(attention, real, d_model):
    """More inputs than five would not help: what it misses comes from other places."""
    last = max(i for i, token in enumerate(real.tolist()) if not token)
    step = torch.eye(len(real))[last][:, None] * torch.randn(d_model)
    return any(differs(attention, real, x, x + step) for x in torch.randn(5, len(real), d_model))


def all_of_the_padding(attention, real, d_model):
    return any(one_random_input(attention, real, d_model) for _ in range(INPUTS))


@pytest.mark.parametrize("answer", [one_random_input, one_fixed_input, the_last_padded_token])
def test_a_test_that_needs_luck_has_none(answer):
    """One random input finds all leaks less than once in a million draws."""
    assert 0.5 ** (2 * PAIRS) < 1e-6
    assert not any(passes(answer, seed) for seed in range(1000))


def test_a_right_test_passes():
    """Each of the ``2 * PAIRS`` is missed by ``INPUTS`` inputs once in 2 ** INPUTS."""
    assert 2 * PAIRS * 0.5**INPUTS < 1e-3
    assert all(passes(all_of_the_padding, seed) for seed in range(100))


def halves(seed):
    """Pairs of attentions of which one sees the padding where the other does not."""
    found = {}
    for attention, real, d_model, *_ in EXERCISE.problems(Rng(seed)):
        if attention.__name__ == "for_half_of_all_inputs":
            cells = [cell.cell_contents for cell in inspect.unwrap(attention).__closure__]
            key = tuple(real.tolist()), d_model, *(c for c in cells if not isinstance(c, bool))
            found.setdefault(key, []).append(attention)
    return found


@pytest.mark.parametrize("numbers", [torch.randn, torch.rand])
def test_for_each_input_one_of_a_pair_leaks(numbers):
    shares = []
    for (real, d_model, *_), attentions in halves(0).items():
        real = torch.tensor(real)
        for _ in range(50):
            x = numbers(len(real), d_model)
            changed = torch.where(real[:, None], x, numbers(len(real), d_model))
            leaks = [differs(attention, real, x, changed) for attention in attentions]
            assert sum(leaks) * 2 == len(leaks)
            shares.append(leaks[0])
    assert len(shares) >= 50
    assert 0.4 < sum(shares) / len(shares) < 0.6


def test_leaks_from_one_place_to_one_token():
    """What each is called is what it does."""
    real = torch.tensor([True, False, False, True, False, True])
    tokens = {"first": 0, "last": 5, "between": 3}
    expected = {
        padding.first_place_only: {1: ["last"], 2: [], 4: []},
        padding.one_number_only: {1: [], 2: ["first"], 4: []},
        padding.last_place_only: {1: [], 2: [], 4: list(tokens)},
        padding.tiny: {1: [], 2: [], 4: list(tokens)},
        padding.after_a_norm: {place: list(tokens) for place in (1, 2, 4)},
        padding.added_and_taken: {place: ["first", "last"] for place in (1, 2, 4)},
        padding.added_and_taken_within: {1: [], 2: [], 4: list(tokens)},
        padding.counted: {place: list(tokens) for place in (1, 2, 4)},
        padding.unmasked: {place: list(tokens) for place in (1, 2, 4)},
        padding.with_nan: {1: [], 2: [], 4: list(tokens)},
    }
    assert set(expected) == set(padding.LEAKS)
    for attention, places in expected.items():
        for place, seen in places.items():
            x = torch.randn(6, 3)
            x[place] = -torch.rand(3)  # every sign changes
            changed = x.clone()
            changed[place] = torch.rand(3)
            rows = (attention(x, real) != attention(changed, real)).any(1)
            assert [name for name, token in tokens.items() if rows[token]] == seen, attention


@pytest.mark.parametrize("attention", set(padding.IN_ORDER) - {padding.only_rounds})
def test_an_attention_in_order_gives_real_tokens_the_same_numbers_to_the_last_bit(attention):
    real = torch.tensor([False, True, True, False, True])
    for offset in range(8):
        x = torch.randn(64)[offset : offset + 15].reshape(5, 3)
        changed = torch.where(real[:, None], x, torch.randn(5, 3))
        before, after = attention(x, real), attention(changed, real)
        assert torch.equal(before[real], after[real])
        assert torch.equal(before, after) != attention.follows
        poisoned = attention(x.masked_fill(~real[:, None], torch.nan), real)[real]
        assert bool(poisoned.isnan().any()) == attention.spreads


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rounding_is_seen_without_a_tolerance_and_stays_below_a_millionth(scale):
    for padded in (1, 2, 3):
        real, seen = torch.arange(5) >= padded, 0
        for _ in range(100):
            x = torch.randn(5, 3)
            changed = torch.where(real[:, None], x, scale * torch.randn(5, 3))
            before, after = (padding.only_rounds(y, real)[real] for y in (x, changed))
            seen += not torch.allclose(before, after)
            assert (before - after).abs().max() < 1e-6
        assert seen > 75  # so that 20 inputs miss it less than once in 10 ** 12


@pytest.mark.parametrize(("attention", "sign"), [(padding.WHERE_NEGATIVE, -1), (padding.WHERE_POSITIVE, 1)])
def test_a_leak_for_one_sign_is_not_there_for_the_other(attention, sign):
    real = torch.tensor([False, True, False, True])
    for number in (0.5, -0.5):
        x = torch.ones(4, 3)
        x[1, 0] = number
        assert differs(attention, real, x, torch.where(real[:, None], x, 7.0)) == (number * sign > 0)
