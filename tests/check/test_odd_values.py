"""Whatever an answer returns, its report is there, and nobody has to scroll through it."""

import numpy as np
import pytest
import torch

from mha_course.checker.diagnosis import diagnose
from mha_course.checker.report import make
from mha_course.checker.runner import attempt, read
from mha_course.exercises import Rng, find, names

MAX_LINES, MAX_WIDTH = 12, 300
# One with expected results, and all that accept several results: each of these looks at them in its own way.
NAMES = ["split_heads", *(name for name in names() if find(name).accepts)]
ODD = {
    "no entries": torch.tensor([]),
    "no rows": torch.zeros(0, 3),
    "no columns": torch.zeros(2, 0),
    "one number": torch.tensor(3),
    "nan": torch.tensor([float("nan"), 1.0]),
    "infinite": torch.tensor([[float("inf"), 2.0], [1.0, 2.0]]),
    "large": torch.tensor([2**62, 1]),
    "below 0": [-1, 2],
    "many": list(range(100_000)),
    "many pairs": torch.randint(9, (50_000, 2)),
    "many equal": [1] * 100_000,
    "lists of two lengths": [[1, 2], [3]],
    "lists in lists": [[[[[1]]]]],
    "digits": 10**5000,
    "many texts": ["x" * 1000] * 1000,
    "a long text": "x" * 10**6,
    "a dictionary": {i: i for i in range(10**5)},
    "complex": torch.tensor([1j]),
    "texts in an array": np.array(["x" * 10**5]),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "nothing in a tuple": (None, torch.tensor([]), ()),
    "nothing": (),
    # Of this one, a report would show 50,000 characters.
    "tuples in tuples": ((((torch.rand(30),) * 8,) * 8),) * 8,
}


@pytest.fixture(scope="module")
def outcomes():
    return {what: read(attempt(lambda *_, value=value: value, None, ())) for what, value in ODD.items()}


@pytest.mark.unchecked
@pytest.mark.parametrize("name", NAMES)
def test_an_odd_value_has_a_short_report(name, outcomes):
    exercise = find(name)
    problems = list(exercise.problems(Rng(0)))[:1]
    for what, outcome in outcomes.items():
        trials = exercise.trials(problems, [outcome] * len(problems))
        report = make(exercise, diagnose(exercise, trials))
        lines = str(report).splitlines()
        assert len(lines) <= MAX_LINES, what
        most = 3100 if what == "tuples in tuples" else MAX_WIDTH
        assert max(map(len, lines)) <= most, what
