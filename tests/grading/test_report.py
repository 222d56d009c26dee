"""The report about a class: it finds what was put in, names nobody, and shows code as text."""

import base64
import csv
import io
import math
import re
from importlib import import_module
from statistics import fmean

import numpy as np
import pytest
from bs4 import BeautifulSoup

from mha_course import quiz
from mha_course.exercises import find, names
from mha_course.grading import analysis, report, short_test
from mha_course.grading.anonymous import names_nobody, words
from mha_course.grading.course import Stop
from mha_course.grading.functions import LINES, WIDTH, answers, definitions, short
from mha_course.grading.gradebook import Row
from mha_course.grading.report import PAGE, TREATED, WITH_NAMES, ask, explorable, make, treated, used
from mha_course.quiz import SHORT_TEST, from_mistakes, question
from tests.grading import simulated, test_going_on
from tests.grading.simulated import (
    ASKED,
    BY_CHANCE,
    IDEA,
    PICKED,
    PLANTED,
    SEED,
    idea_of,
    pages,
    shown,
    simulate,
)
from tests.grading.test_round import needs_walls, run
from tests.notebooks.chapters import NAMES, read

pytestmark = pytest.mark.grading
SEEDS = [SEED, *range(10, 13)]
CHAPTER = read("03_splitting_heads")
MOST = {"split_heads": 1.0, "merge_heads": 1.0}


@pytest.fixture(scope="module")
def example():
    made = simulate(SEED)
    return made, pages(made)


def text_of(page):
    """All that a page shows, also in its picture and its descriptions."""
    soup = BeautifulSoup(page, "html.parser")
    pictures = [image["src"].partition("base64,")[2] for image in soup.find_all("img")]
    decoded = [base64.b64decode(picture).decode() for picture in pictures]
    return " ".join([soup.get_text(" "), *(image["alt"] for image in soup.find_all("img")), *decoded])


# What was put in


@pytest.mark.parametrize("seed", SEEDS)
def test_the_three_misconceptions_are_those_that_were_put_in(seed):
    made = simulate(seed)
    found = analysis.misconceptions(made.rows)[:TREATED]
    assert {one.name: len(one.students) for one in found} == PLANTED
    assert {one.name: {*one.students} for one in found} == made.planted


def test_what_was_put_in_is_on_the_page(example):
    soup = BeautifulSoup(example[1][PAGE], "html.parser")
    titles = [" ".join(title.get_text().split()) for title in soup.select("article h3")]
    assert titles == [
        f"{i}. {name}: {many} of 30 students" for i, (name, many) in enumerate(PLANTED.items(), 1)
    ]
    assert [len(article.find_all("pre")) for article in soup.select("article")] == [2, 2, 2]
    says = idea_of(question(ASKED, short_test.SEEDS["before"]), IDEA)
    (row,) = [row for row in soup.select("table:not(.exercises) tbody tr") if says in row.th.text]
    assert [cell.text for cell in row.find_all("td")][1:3] == [str(many) for many in PICKED.values()]


def test_an_exercise_solved_by_chance_does_not_separate_and_the_others_do():
    by_chance, others = [], []
    for seed in SEEDS:
        made = simulate(seed)
        for item in analysis.items(made.rows, made.most):
            (by_chance if item.name == BY_CHANCE else others).append(item.separates)
    assert abs(fmean(r for r, _ in by_chance)) < 0.2 < 0.3 < fmean(r for r, _ in others)
    assert sum(low <= 0 <= high for _, (low, high) in by_chance) >= len(SEEDS) - 1


def test_strong_and_weak_are_those_of_the_simulation(example):
    """The points, from which the exercises are judged, follow the ability that was put in."""
    made, _ = example
    points = [row.raw for row in made.rows if row.outcomes]
    ability = [made.ability[row.student] for row in made.rows if row.outcomes]
    assert np.corrcoef(points, ability)[0, 1] > 0.6


def test_the_example_in_the_docs_is_this_page(example):
    """But for the picture, whose drawing depends on the version of matplotlib."""

    def without_picture(page):
        return re.sub(r"base64,[\w+/=]+", "", page)

    stored = simulated.PAGE.read_text(encoding="utf-8")
    assert without_picture(stored) == without_picture(example[1][PAGE]), "run make class-report"


# Numbers


def row(student, **outcomes):
    return Row(student, handed_in=True, outcomes=outcomes)


def test_a_combined_mistake_counts_for_both_and_other_outcomes_for_none():
    both = next(name for name, mistake in find("split_heads").mistakes.items() if mistake.of)
    one, other = find("split_heads").mistakes[both].of
    rows = [
        row("a", split_heads=both),
        row("b", split_heads=one, merge_heads="untouched"),
        row("c", split_heads="raises"),
    ]
    found = analysis.misconceptions(rows)
    assert [(each.name, each.students) for each in found] == [(one, ["a", "b"]), (other, ["a"])]
    (hardest, _) = analysis.items(rows, {"split_heads": 1.0, "merge_heads": 1.0})
    assert (hardest.name, hardest.tried, hardest.graded) == ("merge_heads", 0, 3)
    (item,) = analysis.items(rows, {"split_heads": 1.0})
    assert (item.tried, item.right, item.unnamed, item.separates) == (3, 0, 1, None)


def test_the_intervals_are_those_of_others():
    """R's contingencytables 3.1 gives the second for the same table; the first is in Wilson's own formula."""
    low, high = analysis.wilson(8, 30)
    for p in (low, high):  # where a test of p against 8 of 30 just fails
        assert abs(8 / 30 - p) == pytest.approx(analysis.Z * math.sqrt(p * (1 - p) / 30))
    assert analysis.wilson(0, 0) == (0.0, 1.0)
    before = [True] * 59 + [False] * 6 + [True] * 16 + [False] * 80
    after = [True] * 65 + [False] * 96
    grown, interval = analysis.change(before, after)
    assert (grown, *interval) == pytest.approx((-0.0621, -0.1186, -0.0046), abs=5e-5)


def test_fisher_s_interval_holds_the_correlation_as_often_as_it_says():
    rng = np.random.default_rng(0)

    def draw(n):
        ability = rng.normal(size=n)
        rest = sum(rng.random(n) < 1 / (1 + np.exp(hard - ability)) for hard in (-1, -0.5, 0, 0.5, 1))
        return rng.random(n) < 1 / (1 + np.exp(-1.5 * ability)), rest

    true = np.corrcoef(*draw(200_000))[0, 1]
    for n in (analysis.FEW, 30):
        found = [analysis.separation(*(part.tolist() for part in draw(n))) for _ in range(1500)]
        inside = [low <= true <= high for _, (low, high) in filter(None, found)]
        assert 0.92 < fmean(inside) < 0.98
    assert analysis.separation([True, False] * 4, range(8)) is None


# The short test


def ticked(lines, tmp_path):
    file = tmp_path / short_test.FILE
    file.write_text("\n".join(["student,form,question,answer", *lines]), encoding="utf-8")
    return short_test.read(file)


def test_gains_are_those_of_the_same_students(tmp_path):
    both = [question(SHORT_TEST[6], seed) for seed in short_test.SEEDS.values()]
    says, later = (idea_of(one, IDEA) for one in both)  # each form words it with its own numbers
    assert says != later
    before, after = ([idea for _, idea in one.options()] for one in both)
    x, y, right = "abcde"[before.index(says)], "abcde"[after.index(later)], "abcde"[after.index("")]
    lines = [f"a,before,7,{x}", f"a,after,7,{right}", f"b,before,7,{x}", f"b,after,7,{y}", f"c,before,7,{x}"]
    made = ticked(lines, tmp_path)
    (found,) = short_test.gains(made)
    assert found.idea == says
    assert (found.before, found.after, found.change[0]) == (2, 1, -0.5)
    assert (short_test.right(made, "before"), short_test.right(made, "after")) == ([0, 0], [1, 0])


def test_every_misconception_that_both_forms_offer_can_be_followed(tmp_path):
    """Each is found if everybody ticks it in both forms."""
    made = simulate(SEED)
    answered = list(csv.DictReader(io.StringIO(made.test)))
    assert len(answered) == 30 * 2 * len(SHORT_TEST)
    found = set()
    for letter in "abcde":
        lines = [
            f"x,{form},{number},{letter}"
            for form in short_test.SEEDS
            for number in range(1, len(SHORT_TEST) + 1)
            if letter in short_test._ideas(short_test.SEEDS[form])[number]
        ]
        found |= {gain.idea for gain in short_test.gains(ticked(lines, tmp_path))}
    assert len(found) >= 34  # of 36; the numbers of one question have other wrong answers in each form


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a,later,1,a", "line 2: expected before or after"),
        ("a,before,13,a", "a question from 1 to 12"),
        ("a,before,1,x", "line 2: question 1 has no answer 'x'"),
        ("a,before,1,a\na,before,1,b", "line 3: a has answered question 1 twice"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line, said, tmp_path):
    with pytest.raises(Stop, match=said):
        ticked([line], tmp_path)


def test_a_file_of_a_european_spreadsheet_is_read_and_one_without_columns_is_not(tmp_path):
    file = tmp_path / short_test.FILE
    options = question(SHORT_TEST[0], short_test.SEEDS["after"]).options()
    letter = "abcde"[[idea for _, idea in options].index(short_test.RIGHT)]
    file.write_text(f"﻿student;form;question;answer\na;before;1; \na;after;1;{letter}", encoding="utf-8")
    assert short_test.read(file) == {"before": {"a": {}}, "after": {"a": {1: ""}}}
    file.write_text("name,form\n", encoding="utf-8")
    with pytest.raises(Stop, match="expected the columns student, form, question, answer"):
        short_test.read(file)


# Names


def test_the_class_page_names_nobody_and_the_other_one_everybody(example):
    made, both = example
    page, with_names = text_of(both[PAGE]), text_of(both[WITH_NAMES])
    for each in made.rows:
        for said in (each.student, each.email or "-@-"):
            assert said not in both[PAGE]
        for name in (each.first_name, each.last_name):
            assert not re.search(rf"\b{name}\b", page, re.IGNORECASE), name
    shown = [each for each in made.rows if each.reason or not each.handed_in]
    shown += [
        each for each in made.rows if {*each.outcomes.values()} - {"right", "untouched", "wrong", "raises"}
    ]
    assert all(f"{each.first_name} {each.last_name} ({each.student})" in with_names for each in shown)


STUB = "def split_heads(x, num_heads):\n    raise NotImplementedError"
VIEW = "return x.view(x.shape[0], num_heads, x.shape[1], -1)"


def submission(*cells):
    """The functions in these cells."""
    return [function for cell in cells for function in definitions(cell)]


def view(*lines):
    return "\n    ".join(["def split_heads(x, num_heads):", *lines, VIEW])


def test_an_answer_is_code_without_comments_and_with_the_functions_that_it_uses():
    made = submission(
        "%matplotlib inline\n# Anna\ndef helper(x):\n    'Anna'\n    return x",
        'def split_heads(x, num_heads):\n    """By Anna."""\n    # Anna\n'
        '    return helper(rearrange(x, "b n (h d) -> b h n d"))',
        "merge_heads = lambda x: x  # Anna",
        "def broken(:",
        STUB,
    )
    found = answers(made, submission(STUB), [*MOST, "fix_split"])
    assert found == {
        "split_heads": "def helper(x):\n    return x\n"
        "def split_heads(x, num_heads):\n    return helper(rearrange(x, 'b n (h d) -> b h n d'))",
        "merge_heads": "merge_heads = lambda x: x",
    }
    assert short("x\n" * LINES).count("x") == LINES
    assert short("x\n" * (LINES + 1)).splitlines()[-1] == "... (2 more lines)"
    assert short(f"x = {'1' * WIDTH}") == "x = ..."


def test_an_answer_with_a_word_of_the_class_list_is_not_shown():
    rows = [row(name, split_heads="view-without-transpose") for name in ("anna_12", "ben", "cy")]
    code = {"anna_12": view("anna = 1"), "ben": view("x = x", "y = 1"), "cy": view("longer = 1", "ben2 = 1")}
    for each in rows:
        each.code = shown([code[each.student]], [], MOST)
    page = make(CHAPTER, rows, MOST)[PAGE]
    assert [pre.text for pre in BeautifulSoup(page, "html.parser").find_all("pre")] == [code["ben"]]
    assert "No other answer can be shown" in page


ANNA = Row("s1", "O'Brien", "Anna")
# What an answer has somewhere, and the one in the class list whom it names; None if it names nobody.
NAMED = [
    ("anna = 1", ANNA),
    ("annasplit = 1", ANNA),  # in a word
    ("myAnnaSplit2 = 1", ANNA),
    ("an_na = 1", ANNA),
    ("OBRIEN = 1", ANNA),  # without the apostrophe
    ('by = "o\'brien"', ANNA),
    ("darc_x = 1", Row("s", "D'Arc", "Jo")),
    ("x_ni_bhriain = 1", Row("s", "Ní Bhriain", "Ú")),
    ("rene\u0301 = 1", Row("s", "Ren\u00e9", "")),  # two letters against one
    ("ren\u00e9 = 1", Row("s", "Rene\u0301", "")),
    ("rene = 1", Row("s", "Ren\u00e9", "")),
    ("mueller = 1", Row("s", "Müller", "")),
    ("müller = 1", Row("s", "Mueller", "")),
    ("oest = 1", Row("s", "Øst", "")),
    ("ostx = 1", Row("s", "Øst", "")),
    ("lukasz = 1", Row("s", "Łukasz", "")),
    ("STRASSE = 1", Row("s", "Straße", "")),  # capitals
    ("isik = 1", Row("s", "Işık", "")),
    ("by = 'An\u200bna'", ANNA),  # what is not shown
    ("by = 'An\\u200bna'", ANNA),
    ("by = 'x\\nanna'", ANNA),
    ("ａｎｎａ = 1", ANNA),  # wide letters
    ("by = '\u0410nna'", ANNA),  # a letter of another script that looks the same
    ("by = 'Анна'", ANNA),  # the same name in another script
    ("by = 'Άννα'", ANNA),
    ("by = '安娜'", ANNA),
    ("анна = 1", Row("s", "Анна", "")),
    ("leutheusser = 1", Row("s", "Leutheusser-Schnarrenberger", "")),  # double-barrelled
    ("annalena = 1", Row("s", "", "Anna-Lena")),
    ("anna_lena = 1", Row("s", "", "Annalena")),
    ("lina = 1", Row("s", "Na", "Li")),
    ("xu = 1", Row("s", "Xu", "")),
    ("evasplit = 1", Row("s", "", "Eva")),
    ("of_kim = 1", Row("s", "Kim", "")),
    ("ada_split = 1", Row("lovelaceada_4711")),
    ("lovelace = 1", Row("lovelaceada_4711")),
    ("seed = 4711815", Row("Ada_4711815", "", "")),
    ("x = 1", ANNA),
    ("x = softmax(scores.max(), dim=-1)", Row("s", "Li", "Max")),
    ("tokens, probs = array.view(1024), variance", Row("s", "Ian", "Ken")),
    ("α, σ, Δx = 1, 2, 3", ANNA),
    ("y = rearrange(x, 'b n (h d) -> b h n d')", Row("s", "Han", "Rea")),
]


@pytest.mark.parametrize(("typed", "who"), NAMED)
def test_who_is_named_in_an_answer(typed, who):
    named = NAMED.index((typed, who)) < NAMED.index(("x = 1", ANNA))
    assert names_nobody(view(typed), words([who])) != named


def test_two_answers_are_of_two_students_and_differ_and_one_student_alone_is_not_shown():
    rows = [
        row(name, split_heads="view-without-transpose", merge_heads="heads-interleaved")
        for name in ("a", "b", "c")
    ]
    code = {"a": {"split_heads": "1"}, "b": {"split_heads": "1"}, "c": {"split_heads": "333"}}
    (first, second) = treated(analysis.misconceptions(rows), code, CHAPTER, set())
    assert (first.shown, second.shown) == ([], [("split_heads", "1"), ("split_heads", "333")])
    assert treated(analysis.misconceptions(rows[:1]), code, CHAPTER, set()) == []


def test_a_script_stays_text():
    evil, name = "<script>alert(1)</script>", "<iframe>"
    code = {"a": view(f"y = '{evil}'"), "b": view("y = '</pre><img src=x onerror=alert(2)>'")}
    rows = [row(student, split_heads="view-without-transpose") for student in code]
    for each in rows:
        each.code = shown([code[each.student]], [], MOST)
    rows += [Row("c", name, name), Row("d", handed_in=True, reason=evil)]
    both = make(CHAPTER, rows, MOST)
    for page in both.values():
        soup = BeautifulSoup(page, "html.parser")
        assert (soup.script, soup.iframe) == (None, None)
        assert [image["src"][:10] for image in soup.find_all("img")] == ["data:image"] * (page == both[PAGE])
        assert soup.find("meta", {"http-equiv": "Content-Security-Policy"})["content"].startswith(
            "default-src 'none';"
        )
    on_it = [pre.text for pre in BeautifulSoup(both[PAGE], "html.parser").find_all("pre")]
    assert sorted(on_it) == sorted(code.values())
    with_names = BeautifulSoup(both[WITH_NAMES], "html.parser").get_text()
    assert f"{name} {name} (c)" in with_names
    assert evil in with_names


# The chapter


def test_the_explorable_is_that_of_the_step_or_of_a_step_beside_it():
    assert explorable(CHAPTER, "3 The bare view") == ("split", "3 The bare view")
    assert explorable(CHAPTER, "2 What view does") == ("split", "3 The bare view")
    assert explorable(CHAPTER, "6 A loop over heads equals one wide projection and a split") is None
    assert explorable(read("06_five_ways"), "1 One matrix for three projections") is None


def test_the_question_has_the_misconception_among_its_answers_or_is_about_its_step():
    asked = ask(CHAPTER, "heads-interleaved", "merge_heads", "2 What view does")
    says = idea_of(asked.question, "heads-interleaved")
    assert dict(asked.options)[asked.shows] == asked.question.shown(asked.question.wrong[says])
    assert dict(asked.options)[asked.right] == asked.question.shown(asked.question.answer)
    asked = ask(
        CHAPTER,
        "scaled-by-d_model",
        "per_head_weights",
        "6 A loop over heads equals one wide projection and a split",
    )
    assert asked.question.section.startswith("6 A loop")
    numbers = re.search(r"d_model = (\d+) .* is (\d+)\.", asked.question.text)
    d_model, product = map(int, numbers.groups())
    assert float(dict(asked.options)[asked.shows]) == pytest.approx(product / math.sqrt(d_model), abs=0.01)
    assert ask(CHAPTER, "columns-moved", "reorder_checkpoint", "4 Back again: merge the heads") is None


@pytest.mark.parametrize("name", NAMES)
def test_each_explorable_and_each_question_of_a_chapter_is_found_in_a_step(name):
    chapter = read(name)
    code = "\n".join(cell.source for cell in chapter.cells if cell.cell_type == "code")
    found = used(chapter)
    assert sum(kind == "question" for kind, *_ in found) == code.count("quiz.ask(")
    assert sum(kind == "explorable" for kind, *_ in found) == len(
        re.findall(r"explore\.(?!predict)\w+\(", code)
    )
    assert all(step for _, _, step in found)


def test_no_question_loses_the_name_of_a_mistake_when_it_words_it(monkeypatch):
    """What a mistake has computed is found by the mistake's name. (Chapter 11 asks what a bug gives.)"""
    computed, reworded = {}, 0

    def noting(*arguments, **options):
        answer, wrong = from_mistakes(*arguments, **options)
        computed.update({str(value): idea.mistake for idea, value in wrong.items()})
        return answer, wrong

    for name in (name for name in quiz.names() if not name.startswith("ch11")):
        module = import_module(f"mha_course.quiz.{name.partition('.')[0]}")
        monkeypatch.setattr(module, "from_mistakes", noting, raising=False)
        computed.clear()
        for idea, value in question.__wrapped__(name).wrong.items():
            if str(value) in computed:
                assert idea.mistake == computed[str(value)], name
                (exercise, *_) = [each for each in names() if idea.mistake in find(each).mistakes]
                reworded += idea != find(exercise).mistakes[idea.mistake].says
    assert reworded > 5


def test_a_heatmap_of_one_misconception_has_room_for_its_name():
    address, _ = report.heatmap(
        [analysis.Misconception("view-without-transpose", {"split_heads": {"a": "x"}})]
    )
    drawn = base64.b64decode(address.partition("base64,")[2]).decode()
    label = drawn.partition("<!-- view-without-transpose -->")[2].partition("</g>")[0]
    (where,) = re.findall(r'transform="([^"]+)"', label)[:1]
    assert "rotate" not in where
    assert float(re.search(r'height="([\d.]+)pt"', drawn)[1]) > 120


def test_an_empty_class_has_a_report():
    both = make(CHAPTER, [Row("a"), row("b", split_heads="right", merge_heads="untouched")], MOST)
    assert "No two students share a known misconception." in both[PAGE]
    assert "too few students" in both[PAGE]
    assert "No answer shows a known misconception." in both[PAGE]


# The whole way

course = test_going_on.course  # one exercise and four students


@needs_walls
def test_make_grade_writes_the_report_and_make_report_writes_it_again(course):
    before = run("report", course, "03")
    assert (before.returncode, before.stdout) == (2, "")
    assert "run make grade first" in before.stderr
    code = {"s1": view("# I am s1", "y = 1"), "s2": view("y = 2"), "s3": "def split_heads(x, num_heads:"}
    for student, text in code.items():
        test_going_on.submit(course, student, text)
    done = run("grade", course, "03")
    assert done.returncode == 0, done.stderr
    assert f"what to teach next: {course / PAGE}" in done.stdout
    written = {name: (course / name).read_text(encoding="utf-8") for name in (PAGE, WITH_NAMES)}
    soup = BeautifulSoup(written[PAGE], "html.parser")
    assert [" ".join(title.text.split()) for title in soup.select("article h3")] == [
        "1. view-without-transpose: 2 of 4 students"
    ]
    assert [pre.text for pre in soup.find_all("pre")] == [
        code["s1"].replace("    # I am s1\n", ""),
        code["s2"],
    ]
    assert not re.search(r"\bs[0-3]\b", text_of(written[PAGE]))
    assert "s1; s2" in written[WITH_NAMES]
    (course / PAGE).unlink()
    again = run("report", course, "03")
    assert again.returncode == 0, again.stderr
    assert {name: (course / name).read_text(encoding="utf-8") for name in written} == written
    (course / short_test.FILE).write_text("who\n")
    assert "expected the columns" in run("report", course, "03").stderr
