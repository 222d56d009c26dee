"""The task of chapter 07: its answers by a plain loop, what one head and two learn, and a control."""

import math

import pytest
import torch
import torch.nn.functional as F

from mha_lab import scaled_dot_product_attention
from mha_lab.chapters.recall import RecallBatch, RecallModel, is_correct, sample_problems, train
from tests.references import assert_close

SEEDS, STEPS = 5, 300


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def looked_up(problems):
    """The answers, one dictionary a problem."""
    answers = []
    for names, contents, asked in zip(
        problems.names.tolist(), problems.contents.tolist(), problems.asked.tolist(), strict=True
    ):
        shelf = dict(zip(names, contents, strict=True))
        answers.append([shelf[name] for name in asked])
    return answers


@pytest.mark.parametrize(("num_lookups", "n", "num_names", "num_contents"), [(2, 5, 7, 11), (3, 7, 11, 13)])
def test_the_answers_are_those_of_a_plain_loop(num_lookups, n, num_names, num_contents):
    problems = sample_problems(
        97, num_lookups, n=n, num_names=num_names, num_contents=num_contents, generator=source()
    )
    assert problems.names.shape == problems.contents.shape == (97, n)
    assert problems.asked.shape == problems.answers.shape == (97, num_lookups)
    assert problems.answers.tolist() == looked_up(problems)


def test_a_question_by_hand():
    names, contents = torch.tensor([[4, 1, 6], [6, 4, 1]]), torch.tensor([[9, 7, 8], [9, 7, 8]])
    asked = torch.tensor([[6, 4], [6, 4]])
    assert RecallBatch(names, contents, asked).answers.tolist() == [[8, 9], [9, 7]]


def test_a_problem_holds_nothing_twice():
    problems = sample_problems(1000, 3, generator=source())
    for part in (problems.names, problems.contents, problems.asked):
        assert all(len(set(row)) == len(row) for row in part.tolist())


def test_every_name_content_and_place_is_as_frequent_as_any_other():
    problems = sample_problems(20000, generator=source())
    place = (problems.asked[:, :, None] == problems.names[:, None, :]).long().argmax(dim=-1)
    for values, kinds in ((problems.names, 8), (problems.contents, 10), (problems.asked, 8), (place, 6)):
        for column in values.unbind(dim=1):
            share = torch.bincount(column, minlength=kinds) / len(column)
            # The standard error of a share is below sqrt(1/6 * 5/6 / 20000) = 0.0026.
            assert (share - 1 / kinds).abs().max() < 0.015
            assert len(share) == kinds


def test_the_same_generator_gives_the_same_problems_and_moves_on():
    one, other = (sample_problems(13, generator=source(5)) for _ in range(2))
    assert torch.equal(one.names, other.names)
    assert torch.equal(one.contents, other.contents)
    assert torch.equal(one.asked, other.asked)
    generator = source(5)
    first, second = (sample_problems(13, generator=generator) for _ in range(2))
    assert torch.equal(first.names, one.names)
    assert not torch.equal(first.names, second.names)


def test_pytorchs_own_seed_is_neither_used_nor_moved():
    model = RecallModel(6, 2)
    before = torch.get_rng_state()
    list(train(model, 2, generator=source(), batch=3))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("num_heads", [1, 2, 3])
def test_the_model_is_a_loop_over_problems_and_heads(num_heads):
    model = RecallModel(6, num_heads, 3, num_names=7, num_contents=11).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=source(1))
    problems = sample_problems(5, 3, n=7, num_names=7, num_contents=11, generator=source())
    logits, weights = model(problems)
    layer = model.attention
    for b in range(5):
        query = sum(model.ask[place, name] for place, name in enumerate(problems.asked[b].tolist()))
        key, value = model.name.weight[problems.names[b]], model.content.weight[problems.contents[b]]
        heads = []
        for h in range(num_heads):
            columns = slice(h * layer.d_k, (h + 1) * layer.d_k)
            q, k, v = (
                x @ projection.weight[columns].mT + projection.bias[columns]
                for x, projection in (
                    (query[None], layer.q_proj),
                    (key, layer.k_proj),
                    (value, layer.v_proj),
                )
            )
            head, head_weights = scaled_dot_product_attention(q, k, v)
            heads.append(head)
            assert_close(weights[b, h], head_weights, 1e-12)
        output = torch.cat(heads, dim=1) @ layer.out_proj.weight.mT + layer.out_proj.bias
        expected = output @ model.readout.weight.mT + model.readout.bias
        assert_close(logits[b].flatten(), expected[0], 1e-10)


def test_neither_the_parameters_nor_their_start_depend_on_the_number_of_heads():
    starts = []
    for num_heads in (1, 2, 4, 8, 16):
        torch.manual_seed(3)
        starts.append(dict(RecallModel(16, num_heads).named_parameters()))
    for start in starts[1:]:
        assert start.keys() == starts[0].keys()
        assert all(torch.equal(start[name], starts[0][name]) for name in start)
    # 4 projections with biases; 2 tables of 8 questions; 8 names; 10 contents; a readout of 2 * 10 logits.
    by_hand = 4 * (16 * 16 + 16) + 2 * 8 * 16 + 8 * 16 + 10 * 16 + 20 * (16 + 1)
    assert sum(parameter.numel() for parameter in starts[0].values()) == by_hand


def test_at_first_every_head_looks_at_all_records():
    """Otherwise both heads may stay with the same lookup: in 6 of 20 trainings, at ten times the start."""
    for seed in range(5):
        torch.manual_seed(seed)
        _, weights = RecallModel(16, 2)(sample_problems(97, generator=source()))
        assert (weights - 1 / 6).abs().max() < 0.05


def test_answers_are_right_where_the_logit_of_the_content_asked_for_is_highest():
    model = RecallModel(6, 2, num_names=7, num_contents=5)
    problems = sample_problems(11, n=3, num_names=7, num_contents=5, generator=source())
    logits, _ = model(problems)
    expected = [
        [
            max(range(5), key=lambda c, row=row: row[c]) == answer
            for row, answer in zip(rows, right, strict=True)
        ]
        for rows, right in zip(logits.tolist(), looked_up(problems), strict=True)
    ]
    assert is_correct(model, problems).tolist() == expected
    assert {True, False} == {right for row in expected for right in row}


def test_a_step_is_adam_on_the_mean_cross_entropy():
    torch.manual_seed(1)
    model = RecallModel(6, 2, num_names=7, num_contents=11)
    torch.manual_seed(1)
    other = RecallModel(6, 2, num_names=7, num_contents=11)
    losses = list(train(model, 3, generator=source(), batch=5, lr=0.02, n=3))
    generator, optimizer = source(), torch.optim.Adam(other.parameters(), lr=0.02)
    for loss in losses:
        problems = sample_problems(5, n=3, num_names=7, num_contents=11, generator=generator)
        probabilities = other(problems)[0].softmax(dim=-1)
        expected = -sum(
            probabilities[b, place, answer].log()
            for b, answers in enumerate(looked_up(problems))
            for place, answer in enumerate(answers)
        ) / (5 * 2)
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        optimizer.zero_grad()
        F.cross_entropy(other(problems)[0].transpose(1, 2), problems.answers).backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        # A bias of the keys shifts all scores of a query alike: its gradient is rounding, magnified by Adam.
        if name != "attention.k_proj.bias":
            assert_close(parameter, dict(other.named_parameters())[name], 1e-5)


def test_nothing_is_trained_before_a_loss_is_asked_for():
    model = RecallModel(6, 2)
    before = model.readout.weight.clone()
    losses = train(model, 2, generator=source())
    assert torch.equal(model.readout.weight, before)
    next(losses)
    assert not torch.equal(model.readout.weight, before)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: sample_problems(0, generator=source()), ValueError, "count: expected at least 1"),
        (
            lambda: sample_problems(3, 7, generator=source()),
            ValueError,
            "num_lookups: expected at most n = 6",
        ),
        (
            lambda: sample_problems(3, n=9, generator=source()),
            ValueError,
            "n: expected at most num_names = 8",
        ),
        (
            lambda: sample_problems(3, n=7, num_contents=5, generator=source()),
            ValueError,
            "n: expected at most num_contents = 5",
        ),
        (
            lambda: RecallModel(6, 2, 3)(sample_problems(5, generator=source())),
            ValueError,
            "asked: expected 3 names in each question, got 2",
        ),
        (lambda: RecallModel(6, 4), ValueError, "num_heads: expected a number that divides d_model = 6"),
        (lambda: RecallModel(6, 2, 0), ValueError, "num_lookups: expected at least 1"),
        (lambda: train(RecallModel(6, 2), 0, generator=source()), ValueError, "steps: expected at least 1"),
        (
            lambda: train(RecallModel(6, 2), 1, generator=source(), lr=0.0),
            ValueError,
            "lr: expected a learning rate above 0",
        ),
        (
            lambda: (
                RecallBatch(torch.tensor([[1, 2]]), torch.tensor([[3, 4]]), torch.tensor([[2, 5]])).answers
            ),
            ValueError,
            "asked: expected only names of the problem's own records",
        ),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_computed(call, error, says):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(says)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "call", [sample_problems, lambda _, generator: train(RecallModel(6, 2), 1, generator=generator)]
)
def test_a_seed_is_no_generator(call):
    with pytest.raises(TypeError, match=r"generator: .+, got int\. Did you mean .+manual_seed"):
        call(3, generator=0)


# What the chapter claims. One training takes about half a second, so the results are shared.


@pytest.fixture(scope="module")
def shares():
    """``{(num_lookups, num_heads): (SEEDS,)}``: how often all answers are right, on problems of their own."""
    threads, found = torch.get_num_threads(), {}
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    for num_lookups in (2, 1):
        problems = sample_problems(2000, num_lookups, generator=source(10**6))
        for num_heads in (1, 2):
            found[num_lookups, num_heads] = torch.empty(SEEDS)
            for seed in range(SEEDS):
                torch.manual_seed(seed)
                model = RecallModel(16, num_heads, num_lookups)
                for _ in train(model, STEPS, generator=source(seed)):
                    pass
                right = is_correct(model, problems).all(dim=1).float().mean()
                found[num_lookups, num_heads][seed] = right
    torch.set_num_threads(threads)
    return found


def interval(differences):
    """The 95 % interval of the mean: Student's t with 4 degrees of freedom is 2.776."""
    assert len(differences) == 5
    mean = sum(differences) / 5
    spread = math.sqrt(sum((difference - mean) ** 2 for difference in differences) / 4)
    half = 2.776 * spread / math.sqrt(5)
    return mean - half, mean + half


@pytest.mark.slow
def test_two_lookups_one_head_fails_and_two_succeed_at_equal_parameters(shares):
    """The gap between both being right with two heads and with one, over five seeds.

    Tolerance: in 40 trainings with other seeds, one head had both answers right in 0.08 to 0.24 of the
    problems, two heads in all of them, with a loss below 0.05 after at most 139 of the 300 steps. So the gap
    lies near 0.85, and 0.5 is farther away than another machine's rounding can bring it. A training in which
    two heads fail takes the gap of its seed to about 0, and turns this test red.
    """
    gap = (shares[2, 2] - shares[2, 1]).tolist()
    assert max(shares[2, 1]) < 0.5
    assert min(shares[2, 2]) > 0.95
    assert min(gap) > 0.5
    low, high = interval(gap)
    assert low > 0.5
    assert high <= 1.0


@pytest.mark.slow
def test_one_lookup_one_head_does_as_well_as_two(shares):
    """The control: the same layer, training and measure. Nothing is left for a second head to gain.

    Tolerance: 0.01 is 20 of 2000 problems. In 30 trainings of each kind every answer was right.
    """
    gap = (shares[1, 2] - shares[1, 1]).tolist()
    assert min(shares[1, 1]) > 0.99
    low, high = interval(gap)
    assert -0.01 < low <= high < 0.01


def test_the_interval_by_hand():
    # mean 3, squared deviations 4 + 1 + 0 + 1 + 4 = 10, variance 2.5, half-width 2.776 * sqrt(0.5).
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((3 - 1.96293, 3 + 1.96293), abs=1e-4)
