"""Which trial a diagnosis shows, if an answer goes wrong in several ways."""

import numpy as np
import pytest

from mha_lab.check.diagnosis import diagnose
from mha_lab.exercises import find
from mha_lab.exercises._results import Outcome, Plain

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
