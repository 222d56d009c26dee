"""One rule for all exercises: tensors are returned, and no argument is changed."""

import inspect

import numpy as np
import pytest
import torch
from torch import Tensor

from mha_course.checker import runner
from mha_course.checker.report import make
from mha_course.exercises import CHANGEABLE, Rng, find, names
from tests.check.corpus import diagnosis_of, named

pytestmark = [pytest.mark.unchecked, pytest.mark.filterwarnings("ignore")]

MADE = {  # in place of a tensor
    "a NumPy array": lambda tensor: tensor.detach().numpy(),
    "a list": lambda tensor: tensor.tolist(),
    "float16": lambda tensor: tensor.half() if tensor.is_floating_point() else tensor,
    "float64": lambda tensor: tensor.double() if tensor.is_floating_point() else tensor,
}


def each(value, make):
    """The result with every tensor in it made into something else."""
    if isinstance(value, Tensor):
        return make(value)
    return type(value)(each(item, make) for item in value) if isinstance(value, tuple | list) else value


def returning(name, make):
    answer = find(name).answer
    return named(lambda *arguments: each(answer(*arguments), make), name)


def said(name, answer):
    """The name of the mistake, and the report's first sentence."""
    found = diagnosis_of(name, answer, refused=[])
    return found.name, found.seen


def expected(name):
    """What the solution returns on the first problem: its tensors."""
    exercise, found = find(name), []
    problem = next(iter(exercise.problems(Rng(0))))
    each(exercise.answer(*problem[: len(inspect.signature(exercise.answer).parameters)]), found.append)
    return found


COMPUTED = [name for name in names() if inspect.signature(find(name).answer).parameters]
BY_HAND = [name for name in names() if name not in COMPUTED]
OF_NUMBERS = [n for n in COMPUTED if any(t.is_floating_point() or t.dtype == torch.bool for t in expected(n))]


def test_most_exercises_ask_for_a_computed_tensor():
    assert len(OF_NUMBERS) > 45
    assert {"split_heads", "causal_mask", "query_for_key", "masked_softmax", "fix_cache"} <= set(OF_NUMBERS)
    assert len(BY_HAND) > 8


@pytest.mark.parametrize(
    ("what", "name"),
    [("a NumPy array", name) for name in OF_NUMBERS]
    + [("a list", name) for name in OF_NUMBERS if any(tensor.ndim for tensor in expected(name))],
)
def test_right_numbers_in_an_array_or_a_list_are_right_where_no_gradient_is_asked_for(what, name):
    found = diagnosis_of(name, returning(name, MADE[what]), refused=[])
    if name in ("masked_softmax", "next_token_loss"):
        assert found.name == "no-gradient"
    else:
        assert found.name is None
        assert found.note in str(make(find(name), found))
        cannot = "masked_fill" if expected(name)[0].dtype == torch.bool else "gradient"
        assert what in found.note
        assert cannot in found.note


def test_a_remark_is_true_and_a_tensor_gets_none():
    with pytest.raises(TypeError):
        torch.zeros(2, 2).masked_fill(np.ones((2, 2), bool), 0.0)
    with pytest.raises(TypeError):
        torch.zeros(2, 2).masked_fill([[True, False], [True, True]], 0.0)
    assert diagnosis_of("causal_mask", returning("causal_mask", torch.clone), refused=[]).note == ""


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_half_precision_is_not_enough_and_double_precision_is_right(name):
    floats = any(tensor.is_floating_point() for tensor in expected(name))
    mistake, _ = said(name, returning(name, MADE["float16"]))
    assert mistake == (None if not floats else "lengths-changed" if name == "rotate_pairs" else "wrong-dtype")
    assert said(name, returning(name, MADE["float64"]))[0] is None


@pytest.mark.parametrize("name", [n for n in names() if n not in OF_NUMBERS])
@pytest.mark.parametrize("what", ["a NumPy array", "a list"])
def test_numbers_typed_by_hand_and_places_may_be_in_a_list(name, what):
    assert said(name, returning(name, MADE[what]))[0] is None


def changing(name, i):
    """The solution, which then changes its argument ``i``."""

    def answer(*arguments):
        result = each(find(name).answer(*arguments), torch.clone)
        given = arguments[i] if i < len(arguments) else None  # the mask of some problems
        if isinstance(given, list):
            given.append(1)
        elif given is not None:
            with torch.no_grad():
                given.copy_(~given if given.dtype == torch.bool else given + 1)
        return result

    return named(answer, name)


CHANGED = [
    (name, i)
    for name in COMPUTED
    for i, (argument, _) in enumerate(
        zip(
            next(iter(find(name).problems(Rng(0)))),
            inspect.signature(find(name).answer).parameters,
            strict=False,
        )
    )
    if isinstance(argument, CHANGEABLE)
]


@pytest.mark.parametrize(("name", "i"), CHANGED)
def test_no_argument_may_be_changed_in_any_exercise(name, i):
    mistake, sentence = said(name, changing(name, i))
    assert mistake == "changes-its-input"
    assert f"`{list(inspect.signature(find(name).answer).parameters)[i]}`" in sentence


def test_the_source_of_numbers_survives_the_way_from_the_child():
    for value in (np.ones(3), [1.0] * 9):
        sent = runner.decode(runner.encode(value))
        assert sent.source in MADE
    assert runner.decode(runner.encode(torch.ones(3))).source == ""
