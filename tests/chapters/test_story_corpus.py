"""The stories: the same everywhere, probabilities worked out by hand, and a floor that is one."""

import math
from collections import Counter

import pytest

from mha_lab.chapters import story_corpus
from mha_lab.chapters.story_corpus import END, HE, SHE, sample, surprisals

NAME, COLOUR, THING = math.log(12), math.log(7), math.log(16)


def costs(text):
    """Surprisals above 0, by the letters at which they arise."""
    return [(i, text[i], cost) for i, cost in enumerate(surprisals(text)) if cost > 1e-12]


def test_a_text_is_stories_between_line_breaks():
    text = sample(50, seed=2)
    lines = text.split("\n")
    assert (lines[0], lines[-1], len(lines)) == ("", "", 52)
    assert all(line.endswith(".") and line.count(" has a ") == 2 for line in lines[1:-1])
    assert "  " not in text
    assert " \n" not in text


def test_the_same_seed_tells_the_same_stories_and_another_seed_others():
    assert sample(7, seed=3) == sample(7, seed=3)
    assert sample(9, seed=3).startswith(sample(7, seed=3))
    assert sample(7, seed=3) != sample(7, seed=4)
    assert sample(1, seed=1) == "\nCleo has a white pen. Gita has a pink drum. who has the drum? Gita.\n"


def test_surprisals_by_hand():
    """12 names, 7 colours, 16 things; then 11 names and 15 things."""
    text = "\nAda has a red kite. Ben has a red hat. who"
    found = surprisals(text)
    assert len(found) == len(text)
    expected = {
        "A": NAME,  # one name of 12 begins so
        "r": COLOUR,
        "k": math.log(16 / 2),  # key and kite
        "i": math.log(2),
        "B": math.log(11),
        "r again": COLOUR,
        "h": math.log(15 / 1),
        "w": -math.log(0.3),
    }
    assert [cost for _, _, cost in costs(text)] == pytest.approx(list(expected.values()))


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ("Ada has a red kite. Ben has a blue hat. who has the kite? ", "Ada."),
        ("Ada has a red kite. Ben has a blue hat. Ada gives the kite to ", "Ben."),
        ("Ada has a red kite. Ben has a blue hat. Ada gives the kite to Ben. who has the kite? ", "Ben."),
        ("Ada has a red kite. Ben has a blue hat. the kite is ", "red."),
        ("Ada has a red kite. Ben has a blue hat. Ada ran home and ", "she "),
        ("Ada has a red kite. Ben has a blue hat. Ben ran home and ", "he "),
        ("Ada has a red kite. Ben has a blue hat. Ada gives the ", "kite "),
        ("Ada has a red kite. Ben has a blue hat. Ada gives the kite to Ben. Ada ", "ran "),
    ],
)
def test_words_that_the_past_decides_cost_nothing(before, word):
    found = surprisals("\n" + before + word)
    assert found[-len(word) :] == pytest.approx([0.0] * len(word), abs=1e-12)


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ("Ada has a red kite. Ben has a blue hat. who has the kite? ", "Ben."),
        ("Ada has a red kite. Ben has a blue hat. Ada gives the ", "hat "),
        ("Ada has a red kite. Ben has a blue hat. the kite is ", "blue."),
        ("Ada has a red kite. Ben has a blue hat. Ada ran home and ", "he "),
        ("Ada has a red kite. ", "Ada "),
        ("Ada has a red kite. Ben has a blue k", "ite."),
    ],
)
def test_what_cannot_be_said_costs_infinity_from_there_on(before, word):
    found = surprisals("\n" + before + word + " and more")
    assert all(math.isfinite(cost) for cost in found[: len(before) + 1])
    assert found[len(before) + 1 :] == [math.inf] * (len(word) + 9)


def test_animals_and_verbs_agree():
    """One of the cats is many, and the animal in between does not matter."""
    start = "\nAda has a red kite. Ben has a blue hat. the "
    assert math.isfinite(surprisals(start + "cats near the dog nap.")[-1])
    assert math.isfinite(surprisals(start + "cat near the dogs naps.")[-1])
    for wrong in ("cats near the dog naps.", "cat near the dogs nap."):
        assert surprisals(start + wrong)[-1] == math.inf


def test_a_choice_within_a_word_is_shared_out_among_its_letters():
    """bell and black: the first letter leaves both, the second decides."""
    start = "\nAda has a "
    one, two = surprisals(start + "black")[-5:-3], surprisals(start + "blue")[-4:]
    assert one == pytest.approx([math.log(7 / 2), 0.0])
    assert two == pytest.approx([math.log(7 / 2), 0.0, math.log(2), 0.0])


def test_every_told_story_is_possible_and_every_cut_one_too():
    text = sample(200, seed=5)
    found = surprisals(text)
    assert all(math.isfinite(cost) and cost >= 0 for cost in found)
    for cut in (1, 17, 230, 999):
        assert surprisals(text[:cut]) == found[:cut]


@pytest.mark.slow
def test_frequencies_are_the_probabilities():
    """First names of 2000 stories, and how they end, against what surprisals say."""
    text = sample(2000, seed=6)
    first = Counter(line.split(" ")[0] for line in text.split("\n")[1:-1])
    assert set(first) == {*SHE, *HE}
    for name, count in first.items():
        expected = 2000 * math.exp(-surprisals("\n" + name)[1])
        assert abs(count - expected) < 5 * math.sqrt(expected)
    events = sum(line.count(".") - 2 for line in text.split("\n")[1:-1])
    assert abs(2000 / events - END) < 0.02


@pytest.mark.slow
def test_the_mean_surprisal_is_the_same_for_other_stories():
    """It is a property of the grammar: two long texts agree."""
    means = [sum(surprisals(text)) / len(text) for text in (sample(300, seed=7), sample(300, seed=8))]
    assert means[0] == pytest.approx(means[1], abs=0.01)
    assert 0.15 < means[0] < 0.3


def test_what_is_refused():
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            sample(wrong)
    with pytest.raises(ValueError, match="line break"):
        surprisals("Ada has")
    assert story_corpus.surprisals("\n") == [0.0]


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "call", [lambda: sample(1.5), lambda: sample(2, seed="a"), lambda: surprisals(["\n"])]
)
def test_wrong_types_are_named(call):
    with pytest.raises(TypeError, match="expected"):
        call()
