"""Questions: on every set of numbers, the answers differ, and each wrong one has an idea behind it."""

import re
from dataclasses import replace

import pytest
import torch

from mha_course import quiz
from mha_course.exercises import find
from mha_course.quiz import _paper
from tests.notebooks.chapters import NAMES, code_cells, markdown, read

QUESTIONS = quiz.names()
SEEDS = [None, *range(30)]


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answers_of_a_question_differ_whatever_the_numbers_are(name):
    for seed in SEEDS:
        asked = quiz.question(name, seed)
        shown = [answer for answer, _ in asked.options()]
        assert len(set(shown)) == len(shown) >= 3, (seed, shown)
        assert [idea for _, idea in asked.options()].count("") == 1, seed
        assert {type(value) for value in asked.wrong.values()} == {type(asked.answer)}, seed


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_fixed_by_its_seed_and_leaves_the_global_one(name):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert quiz.question(name, 3) == quiz.question(name, 3)
    assert quiz.question(name) == quiz.question(name)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_asked_in_its_chapter_and_its_section_is_there(name):
    chapter = read(next(chapter for chapter in NAMES if chapter.startswith(name[2:4])))
    assert any(f'quiz.ask("{name}")' in cell.source for cell in code_cells(chapter))
    assert f"\n## {quiz.question(name).section}\n" in f"{markdown(chapter)}\n"


TESTS = [(quiz.SHORT_TEST, quiz.FORMS), (quiz.EXIT_QUIZ, quiz.EXIT_FORMS)]


@pytest.mark.parametrize(("asked", "forms"), TESTS)
def test_two_forms_of_a_test_have_the_same_questions_about_other_numbers(asked, forms):
    for name in asked:
        one, other = (quiz.question(name, seed) for seed in forms.values())
        assert one.text != other.text
        assert len(one.options()) == len(other.options())


def test_the_forms_of_the_exit_quiz_test_the_same_and_share_no_letter():
    for name in quiz.EXIT_QUIZ:
        one, other = (quiz.question(name, seed) for seed in quiz.EXIT_FORMS.values())
        assert len(one.wrong) == len(other.wrong)
        right = [[idea for _, idea in asked.options()].index("") for asked in (one, other)]
        assert right[0] != right[1], name


def test_a_row_of_weights_is_asked_with_the_same_mistakes_and_helps_with_all_of_them():
    asked = [quiz.question("ch01.row_of_weights", seed) for seed in range(20)]
    assert {tuple(one.wrong) for one in asked} == {tuple(asked[0].wrong)}
    assert len(asked[0].wrong) == 4
    for one in asked:
        products = [float(p) for p in re.search(r"keys are ([\d, ]+), and", one.text)[1].split(",")]
        helps = {float(x) for x in re.findall(r"exp\((.+?)\)", one.text)}
        assert helps == {p / by for p in products for by in (1, 2, 4)}  # d_k is 4


def test_the_short_test_asks_about_chapters_01_to_05_and_the_exit_quiz_about_the_first_lesson():
    assert {name[:4] for name in quiz.SHORT_TEST} >= {f"ch0{number}" for number in range(1, 6)}
    assert len(quiz.EXIT_QUIZ) == 5
    assert {name[:4] for name in quiz.EXIT_QUIZ} == {"ch00", "ch01", "ch02"}
    texts = [
        quiz.question(name, seed).text for asked, forms in TESTS for name in asked for seed in forms.values()
    ]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_key_has_one_right_answer_for_each_question_and_an_idea_for_each_other(seed):
    key, sheet = (make(QUESTIONS, seed) for make in (_paper.key, _paper.sheet))
    assert key.count("**Right.**") == len(QUESTIONS)
    assert len(re.findall(r"^    - \([a-z]\) ", key, re.MULTILINE)) == sheet.count("    - (")


def test_wrong_answers_come_from_the_mistakes_of_an_exercise():
    scores = torch.tensor([[1.0, 3.0], [0.0, 0.0]])
    right, wrong = quiz.from_mistakes("attention_weights", (scores,), ["softmax-over-queries"], quiz.vector)
    assert right == quiz.vector(torch.softmax(scores, dim=-1))
    says = find("attention_weights").mistakes["softmax-over-queries"].says
    assert wrong == {says: quiz.vector(torch.softmax(scores, dim=0))}
    ideas = {"softmax-over-queries": "You took the softmax of a column."}
    own = quiz.from_mistakes("attention_weights", (scores,), ideas, quiz.vector)
    assert own == (right, {ideas["softmax-over-queries"]: quiz.vector(torch.softmax(scores, dim=0))})
    # One that changes nothing is not offered.
    same = quiz.from_mistakes(
        "attention_weights", (torch.zeros(2, 2),), ["softmax-over-queries"], quiz.vector
    )
    assert same[1] == {}


def test_an_unknown_question_is_named():
    with pytest.raises(ValueError, match=r"expected the name of a question \(.*ch01.+\), got ch99\.x\."):
        quiz.question("ch99.x")


def test_no_word_of_a_question_decides_the_letters_of_its_answers():
    for name in QUESTIONS:
        asked = quiz.question(name, 3)
        reworded = quiz.reworded(asked.wrong, lambda says: f"In other words: {says}")
        other = replace(asked, text=f"{asked.text} Think first.", wrong=reworded)
        assert [shown for shown, _ in asked.options()] == [shown for shown, _ in other.options()]
