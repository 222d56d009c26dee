"""Which trial a diagnosis shows, if an answer goes wrong in several ways, and what is said of it."""

import numpy as np
import pytest
import torch

from mha_course.checker.diagnosis import diagnose
from mha_course.exercises import Exercise, deviations, find, per_head_weights
from mha_course.exercises._results import Outcome, Plain
from tests.check.corpus import diagnosis_of, named

OTHER_NUMBERS = Outcome("returned", Plain("float32", np.zeros((2, 2), np.float32)))
OTHER_SHAPE = Outcome("returned", Plain("float32", np.zeros(3, np.float32)))
AN_ERROR = Outcome("raised", "ValueError\nno")


def diagnosis(*outcomes):
    """Of an answer to an exercise that expects a square of zeros and ones."""
    exercise = find("causal_mask")
    problems = [(2,)] * len(outcomes)
    return diagnose(exercise, exercise.trials(problems, list(outcomes)))


@pytest.mark.parametrize("order", [1, -1])
def test_a_wrong_shape_is_shown_by_a_trial_that_has_it(order):
    found = diagnosis(*(OTHER_NUMBERS, OTHER_SHAPE)[::order])
    assert (found.name, found.example[2]) == ("wrong-shape", OTHER_SHAPE.value)
    assert "shape (3,)" in found.seen


@pytest.mark.parametrize("order", [1, -1])
def test_an_error_is_shown_by_a_trial_that_raised(order):
    found = diagnosis(*(OTHER_NUMBERS, AN_ERROR)[::order])
    assert (found.name, found.example) == ("raises", None)
    assert found.seen.endswith("ValueError: no")


def test_a_constant_factor_tells_nothing_about_two_causes():
    """Queries kept as well, and four bytes: or six of anything else."""
    found = diagnosis_of("predict_cache", named(lambda layers, h, n, d: 12 * layers * n * d, "predict_cache"))
    assert (found.name, found.cause) == ("off-by-a-factor", "")


def test_of_several_causes_only_those_that_fit_are_said():
    choices = {"of": {"wrong": ("It is {}.", "1 A step", {"too large": (1, 2), "too small": (-1,)})}}
    mistake = deviations(lambda of=0: lambda x: x + of, choices)["wrong"]
    assert mistake.says == "It is too large, or too small."
    assert mistake.told(lambda variant: variant(0) == 2) == "It is too large."
    assert mistake.told(lambda variant: variant(0) < 0) == "It is too small."
    assert len(mistake.variants) == 3


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda w: torch.where(torch.arange(w.shape[-1]) % 3 == 0, 0.0, 2.0 * w), "dropped-out"),
        (lambda w: w + torch.arange(1.0, w.shape[-1] + 1), "row-added"),
    ],
)
def test_what_dropout_and_a_bias_do_is_known_in_every_exercise(change, name):
    answer = per_head_weights.per_head_weights
    changed = named(lambda query, key, heads: change(answer(query, key, heads)), "per_head_weights")
    assert diagnosis_of("per_head_weights", changed, refused=[]).name == name


def test_rows_that_are_moved_by_different_numbers_are_no_bias():
    answer = per_head_weights.per_head_weights
    moved = named(lambda query, key, heads: answer(query, key, heads) + query.mean(), "per_head_weights")
    turned = named(lambda q, k, h: answer(q, k, h) + q.mean((0, 2))[:, None], "per_head_weights")
    assert diagnosis_of("per_head_weights", moved, refused=[]).name == "row-added"
    assert diagnosis_of("per_head_weights", turned, refused=[]).name != "row-added"


LEARNABLE = """
import torch
class Head(torch.nn.Module):
    def __init__(self, d_model, d_k, d_v):
        super().__init__()
        self.q_proj, self.k_proj = (torch.nn.Linear(d_model, d_k, bias={bias}) for _ in range(2))
        self.v_proj = torch.nn.Linear(d_model, d_v, bias={bias})
    def forward(self, x):
        return self.q_proj(x) @ self.k_proj(x).mT @ self.v_proj(x)
def learnable_head(d_model, d_k, d_v):
    return Head(d_model, d_k, d_v)
"""


@pytest.mark.parametrize(
    ("bias", "name", "tried"), [(True, "bias-added", False), (False, "wrong-numbers", True)]
)
def test_known_code_is_run_only_if_it_can_explain_a_module_and_makes_none(monkeypatch, bias, name, tried):
    space, run, made = {}, [], []
    exec(LEARNABLE.format(bias=bias), space)
    compute, linear = Exercise.compute, torch.nn.Linear.__init__
    monkeypatch.setattr(Exercise, "compute", lambda *given: run.append(given[1]) or compute(*given))
    monkeypatch.setattr(
        torch.nn.Linear, "__init__", lambda *given, **o: made.append(1) or linear(*given, **o)
    )
    assert diagnosis_of("learnable_head", space["learnable_head"]).name == name
    known = {v for mistake in find("learnable_head").mistakes.values() for v in mistake.variants}
    assert len(known.intersection(run)) == tried * len(known)
    # Three projections for three problems, of the answer and of the solution; and one not prepared.
    assert len(made) - tried == 2 * 3 * 3


def test_pairs_of_mistakes_are_tried_for_an_error_only_if_one_of_the_two_raises_it(monkeypatch):
    def answer(query, key, num_heads):
        raise RuntimeError("no known mistake says this")

    run, compute = [], Exercise.compute
    monkeypatch.setattr(Exercise, "compute", lambda *given: run.append(given[1]) or compute(*given))
    assert diagnosis_of("per_head_weights", named(answer, "per_head_weights"), refused=[]).name == "raises"
    mistakes = find("per_head_weights").mistakes.values()
    assert run
    assert not set(run) & {variant for m in mistakes if m.of for variant in m.variants}
