"""The stories: the same everywhere, probabilities worked out by hand, and a floor that is one."""

import math
from collections import Counter

import pytest

from mha_lab.chapters.story_corpus import END, HE, SHE, sample, surprisals

START = "\nAda has a red kite. Ben has a blue hat. "


def test_the_same_seed_tells_the_same_stories_and_another_seed_others():
    assert sample(9, seed=3).startswith(sample(7, seed=3))
    assert sample(7, seed=3) != sample(7, seed=4)
    assert sample(1, seed=1) == "\nCleo has a white pen. Gita has a pink drum. who has the drum? Gita.\n"


def test_surprisals_letter_by_letter():
    """12 names, 7 colours, 16 things; then 11 names and 15 things."""
    found = surprisals("\nAda has a red kite. Ben has a blue hat.")
    a_red_kite = {1: 12, 11: 7, 15: 16 / 2, 16: 2}  # one name with A, one colour with r; key and kite
    a_blue_hat = {21: 11, 31: 7 / 2, 33: 2, 36: 15}  # one name with B; black and blue: u decides
    expected = [math.log((a_red_kite | a_blue_hat).get(i, 1)) for i in range(40)]
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("before", "said", "probability"),
    [
        ("", "who has", 0.3),
        ("", "Ada gives", 0.25 * 0.7),
        ("", "Ben ran", 0.25 * 0.3),
        ("who has the ", "hat? Ben.", 1 / 2),
        ("the ", "kite is red.", 0.5 / 2),
        ("the ", "cats near the dog nap.", 0.5 / 12 * 1 / 12 * 1 / 4),
        ("the ", "cat near the dogs naps.", 0.5 / 12 * 1 / 12 * 1 / 4),
        ("Ada ran home and ", "she sat.", 1 / 4),
        ("Ben ran home and ", "he ", 1),
        ("Ada gives the ", "kite to Ben. who has the kite? Ben.", 0.7 * 0.3 * 1 / 2),
        ("Ada gives the kite to Ben. Ada ", "ran ", 1),
        ("the kite is red.", "\nAda ", 0.3 / 12),
    ],
)
def test_surprisals_of_words_by_hand(before, said, probability):
    assert sum(surprisals(START + before + said)[-len(said) :]) == pytest.approx(-math.log(probability))


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("who has the kite? ", "Ben."),
        ("Ada gives the ", "hat "),
        ("the kite is ", "blue."),
        ("Ada ran home and ", "he "),
        ("the cats near the dog nap", "s."),
        ("the cat near the dogs nap", "."),
        ("\nAda has a red kite. ", "Ada "),
        ("\nAda has a red kite. Ben has a blue k", "ite."),
    ],
)
def test_what_cannot_be_said_costs_infinity_from_there_on(before, said):
    before = before if before.startswith("\n") else START + before
    found = surprisals(before + said + " and more")
    assert all(map(math.isfinite, found[: len(before)]))
    assert found[len(before) :] == [math.inf] * (len(said) + 9)


def test_every_told_story_is_possible_and_every_cut_one_too():
    text = sample(100, seed=5)
    found = surprisals(text)
    assert all(math.isfinite(cost) and cost >= 0 for cost in found)
    for cut in (1, 17, 999):
        assert surprisals(text[:cut]) == found[:cut]


@pytest.mark.slow
def test_frequencies_are_the_probabilities():
    """First names of 2000 stories, and how they end, against what surprisals say."""
    lines = sample(2000, seed=6).split("\n")[1:-1]
    first = Counter(line.split(" ")[0] for line in lines)
    assert set(first) == {*SHE, *HE}
    for name, count in first.items():
        expected = 2000 * math.exp(-surprisals("\n" + name)[1])
        assert abs(count - expected) < 5 * math.sqrt(expected)
    events = sum(line.count(".") - 2 for line in lines)
    assert abs(2000 / events - END) < 0.02


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: sample(0), ValueError, "at least 1"),
        (lambda: sample(2, seed=-1), ValueError, "at least 0"),
        (lambda: surprisals("Ada has"), ValueError, "line break"),
        (lambda: sample(1.5), TypeError, "expected"),
        (lambda: sample(2, seed="a"), TypeError, "expected"),
        (lambda: surprisals(["\n"]), TypeError, "expected"),
    ],
)
def test_what_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
