"""The name of a known mistake does not depend on which random problems were drawn."""

import pytest

from mha_course.exercises import Exercise, Mistake, find, names
from tests.check.corpus import Try
from tests.check.stability import accepted, quick, raising, unstable

pytestmark = pytest.mark.unchecked  # wrong answers pass wrong arguments
SETS = range(20)


def double(x):
    return 2 * x


def drawn(rng):
    yield (rng.normal(2, 3),)
    yield (rng.normal(rng.primes(1)[0]),)


def made(*variants, of=()):
    """An exercise with one known mistake, of these functions."""
    mistakes = {"m": Mistake("Your function returns something else.", "1 A step", variants, of)}
    return Exercise(double, "00_start_here", "1 A step", 1, drawn, mistakes)


def cut_in_two(x):
    """Raises an error on the sets where the last size is odd."""
    return x if len(x) == 2 else x.view(2, -1)


def typed(source):
    return Try("00_x", 0, "double", False, "", f"def double(x):\n    return {source}\n")


def test_a_mistake_that_returns_the_result_of_the_solution_is_refused():
    assert list(accepted(made(lambda x: x), SETS)) == []
    [line] = accepted(made(lambda x: x, lambda x: x + x), SETS)
    assert line.startswith("m: on 20 of 20 sets")
    # Of two mistakes at once, one form may cancel out.
    assert list(accepted(made(lambda x: x, lambda x: x + x, of=("a", "b")), SETS)) == []
    assert len(list(accepted(made(lambda x: x + x, of=("a", "b")), SETS))) == 1


def test_a_mistake_that_raises_an_error_on_some_sets_only_is_refused():
    assert list(raising(made(lambda x: x, lambda x: x.nothing), SETS)) == []
    [line] = raising(made(lambda x: x, cut_in_two), SETS)
    assert line.startswith("m: its function 2 raises an error on ")


def test_a_try_that_is_named_on_some_sets_only_is_listed():
    exercise = made(lambda x: x)
    assert list(unstable(exercise, [typed("1 * x")], SETS)) == []
    [line] = unstable(exercise, [typed("x if len(x) < 5 else x[:5]")], SETS)
    assert line == "00_x-0-double: its name depends on the set of problems: {'wrong-shape': 8, 'm': 12}"


def test_fewer_than_twelve_tries_are_said():
    right = [typed("x")] * 12
    assert quick(made(lambda x: x), right) == []
    assert quick(made(lambda x: x), right[:11]) == [
        "write more first tries: there are 11, and at least 12 are needed"
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", names())
def test_no_known_mistake_is_right_or_raises_by_luck(name):
    assert [*accepted(find(name), SETS), *raising(find(name), SETS)] == []
