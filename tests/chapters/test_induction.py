"""The texts, the scores and the training of the chapter on induction heads, and its five seeds."""

from functools import cache

import pytest
import torch

from mha_course.chapters.induction import induction_score, predictable_loss, repeated, train
from mha_course.chapters.language_model import Decoder, ablate_head, previous_token_score
from tests.references import assert_close

# One seed among the slow tests; `make test-trainings` tries the other four.
SEEDS = [pytest.param(seed, marks=pytest.mark.training if seed else pytest.mark.slow) for seed in range(5)]
trained = cache(train)


def test_the_end_of_a_text_repeats_what_stands_before_it():
    tokens, predictable = repeated(2000, seed=5)
    assert tokens.shape == predictable.shape == (2000, 48)
    lengths = (predictable.sum(dim=1) + 1).tolist()
    assert set(lengths) == set(range(8, 25))
    for text, known, length in zip(tokens, predictable, lengths, strict=True):
        assert torch.equal(text[-length:], text[-2 * length : -length])
        assert known.tolist() == [False] * (49 - length) + [True] * (length - 1)
    share = torch.bincount(tokens.flatten(), minlength=64) / tokens.numel()
    assert len(share) == 64
    assert (share - 1 / 64).abs().max() < 0.002
    assert torch.equal(repeated(2000, seed=5)[0], tokens)
    assert not torch.equal(repeated(2000, seed=6)[0], tokens)


def test_the_loss_is_a_loop_over_the_tokens_that_count():
    model, tokens, counts = Decoder(13, d_model=12), torch.randint(13, (3, 7)), torch.rand(3, 7) < 0.5
    log_p = torch.log_softmax(model(tokens)[0], dim=-1)
    each = [-log_p[b, i - 1, tokens[b, i]] for b in range(3) for i in range(1, 7) if counts[b, i]]
    assert 0 < len(each) < 18
    assert_close(predictable_loss(model, tokens, counts), sum(each) / len(each), 1e-6)


def test_the_induction_score_is_a_loop_over_earlier_occurrences():
    """Tokens of three kinds: several earlier occurrences, and texts whose first tokens have none."""
    tokens, weights = torch.randint(3, (5, 11)), torch.randn(2, 5, 7, 11, 11).softmax(dim=-1)
    total, count = torch.zeros(2, 7), 0
    for b in range(5):
        for i in range(11):
            found = [j for j in range(i) if tokens[b, j] == tokens[b, i]]
            count += bool(found)
            total += sum(weights[:, b, :, i, j + 1] for j in found)
    assert_close(induction_score(weights, tokens), total / count, 1e-6)
    assert_close(induction_score(weights[0], tokens), total[0] / count, 1e-6)


def test_a_step_is_adamw_with_another_rate_for_the_biases_of_distances():
    before, seen = torch.get_rng_state(), []
    one = train(
        seed=3, progress=lambda steps: steps[:1], watch=lambda step, model: seen.append(copied(model))
    )
    none = train(seed=3, progress=lambda steps: seen.append(steps) or [])
    assert torch.equal(torch.get_rng_state(), before)
    start, steps = seen
    assert list(steps) == list(range(1000))
    assert all(torch.equal(value, start[name]) for name, value in none.state_dict().items())
    moved = {name: value - start[name] for name, value in one.state_dict().items()}
    # Adam's first step is the rate times the sign of the gradient; OneCycleLR starts at 1/25 of the largest.
    assert moved["blocks.0.attention.score.bias"].abs().max() == pytest.approx(0.15 / 25, rel=1e-2)
    assert moved["token_embedding.weight"].abs().max() == pytest.approx(0.005 / 25, rel=1e-2)
    assert not any("network" in name or "position" in name for name in moved)
    assert [block.attention.score is None for block in one.blocks] == [False, True]


def copied(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: repeated(0), ValueError, "count: expected at least 1"),
        (lambda: repeated(1, seed=-1), ValueError, "seed: expected at least 0"),
        (lambda: train(steps=0), ValueError, "steps: expected at least 1"),
        (lambda: train(seed=1.5), TypeError, "seed"),
        (lambda: train(num_layers=0), ValueError, "num_layers"),
        (
            lambda: predictable_loss(Decoder(64), *repeated(2)[:1], torch.zeros(2, 48, dtype=torch.bool)),
            ValueError,
            "with True somewhere after",
        ),
        (
            lambda: predictable_loss(Decoder(64), repeated(2)[0], repeated(3)[1]),
            ValueError,
            r"shape \(2, 48\)",
        ),
        (lambda: predictable_loss(Decoder(64), *[repeated(2)[0]] * 2), TypeError, "predictable"),
        (lambda: induction_score(torch.rand(3, 2, 5, 5), torch.zeros(4, 5).long()), ValueError, "texts = 4"),
        (lambda: induction_score(torch.rand(1, 2, 5, 5), torch.arange(5)[None]), ValueError, "occurs twice"),
        (lambda: induction_score(torch.rand(3, 5, 5), torch.zeros(3, 5).long()), ValueError, "weights"),
        (lambda: train(progress=3), TypeError, "progress"),
        (lambda: train(watch=3), TypeError, "watch"),
    ],
)
def test_what_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


# What the chapter says of five trainings. Measured: loss 0.08 to 0.09, and 3.79 to 3.80 with one layer;
# scores 0.97 to 0.99 (induction) and 0.74 to 0.81 (previous token).


@torch.no_grad()
def measured(model):
    """Loss, induction scores of the last layer, previous-token scores of the first, on 500 other texts."""
    tokens, predictable = repeated(500, seed=9)
    _, weights = model(tokens, need_weights=True)
    found = induction_score(weights[-1], tokens), previous_token_score(weights[0]).mean(dim=0)
    return predictable_loss(model, tokens, predictable).item(), *found


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
def test_two_layers_learn_an_induction_head_that_needs_the_previous_token_head(seed):
    model = trained(seed)
    loss, induction, previous = measured(model)
    assert loss < 0.15
    assert induction.min() > 0.9
    assert previous.max() > 0.65
    assert previous.min() < 0.5
    for tokens in (None, repeated(200, seed=8)[0]):  # zero and mean ablation
        without, score, _ = measured(ablate_head(model, 0, previous.argmax().item(), tokens))
        assert without > 4.16  # more than log(64): the model is sure of wrong tokens
        assert score.max() < 0.35
        one, two = (ablate_head(model, 1, head, tokens) for head in range(2))
        assert max(measured(one)[0], measured(two)[0]) < 0.6
        assert measured(ablate_head(one, 1, 1, tokens))[0] > 4.16


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
def test_one_layer_does_not(seed):
    loss, induction, _ = measured(train(seed, num_layers=1))
    assert loss > 3.5
    assert induction.max() < 0.1
