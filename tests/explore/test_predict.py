"""Questions: nothing tells the truth before the learner commits, and what is said after that is so."""

import base64
import random
import re

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe

from bench import examples
from bench.browser import PHONE, THEMES, finger, needs_chromium
from mha_course import explore

KINDS = ("choice", "number", "cell", "bars")
SECRET = "This sentence comes after."
FIRST, SECOND = "The first wrong idea.", "The second wrong idea."
ROWS, COLUMNS = ["r0", "r1", "r2"], ["c0", "c1", "c2", "c3"]


def question(kind):
    """A question of this kind, with two wrong ideas."""
    truth, first, second, labels = {
        "choice": ("pear", "plum", "fig", None),
        "number": (0.4321, 0.25, -8, None),
        "cell": ((1, 2), (2, 1), (0, 0), (ROWS, COLUMNS)),
        "bars": ([0.75, 0.25], [0.25, 0.75], torch.tensor([0.5, 0.5]), ["left", "right"]),
    }[kind]
    return explore.predict(
        "What is it?", truth, {FIRST: first, SECOND: second}, labels=labels, because=SECRET
    )


# For each kind: what a browser sends, what ``.answer`` makes of it, and which of the ideas it is.
GUESSES = {
    "choice": [("pear", "pear", True), ("plum", "plum", FIRST), ("fig", "fig", SECOND)],
    "number": [(0.43, 0.43, True), (0.25, 0.25, FIRST), (-8, -8.0, SECOND), (-7, -7.0, None)],
    "cell": [
        ([1, 2], (1, 2), True),
        ([2, 1], (2, 1), FIRST),
        ([0, 0], (0, 0), SECOND),
        ([1, 1], (1, 1), None),
    ],
    "bars": [
        ([0.65, 0.35], torch.tensor([0.65, 0.35]), True),
        ([0.3, 0.7], torch.tensor([0.3, 0.7]), FIRST),
        ([0.55, 0.5], torch.tensor([0.55, 0.5]), SECOND),
        ([1, 0], torch.tensor([1.0, 0.0]), None),
        ([1, 1], torch.tensor([1.0, 1.0]), None),
        ([0.35, 0.35], torch.tensor([0.35, 0.35]), None),  # nearest to the second idea, but not near
    ],
}
ALL = [(kind, *each) for kind in KINDS for each in GUESSES[kind]]


def outcome(idea):
    return {True: "Right.", None: "Not this one."}.get(idea, f"Not this one. {idea}")


@pytest.mark.parametrize(("kind", "guess", "answer", "idea"), ALL)
def test_python_gets_the_answer_and_the_verdict(kind, guess, answer, idea):
    asked = question(kind)
    assert (asked.answer, asked.right) == (None, None)
    asked._guess = guess  # what the browser sends
    assert type(asked.answer) is type(answer)
    assert torch.equal(asked.answer, answer) if kind == "bars" else asked.answer == answer
    assert asked.right is (idea is True)
    told = asked.describe()
    assert f"{outcome(idea)} {SECRET}" in told
    assert "The truth: " in told
    asked._guess = None
    assert (asked.answer, asked.right) == (None, None)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_tells_the_truth_before(kind):
    """Two questions that differ only in what is right look the same."""
    asked = question(kind)
    other = {
        "choice": lambda: explore.predict("What is it?", "fig", {FIRST: "pear", SECOND: "plum"}),
        "number": lambda: explore.predict("What is it?", 77),
        "cell": lambda: explore.predict("What is it?", (0, 3), labels=(ROWS, COLUMNS)),
        "bars": lambda: explore.predict("What is it?", [0.1, 0.2], labels=["left", "right"]),
    }[kind]()
    (one, one_alt), (two, two_alt) = asked._repr_mimebundle_(), other._repr_mimebundle_()
    for what in ("image/png", "text/plain"):
        assert one[what] == two[what]
    assert one_alt["image/png"]["alt"] == two_alt["image/png"]["alt"] == asked.describe()
    start, other_start = asked.start()["state"], other.start()["state"]
    hidden = start.pop("_truth")
    assert other_start.pop("_truth") != hidden
    assert start == other_start
    for words in (SECRET, FIRST, "0.43", "truth"):
        assert words not in hidden
        assert words not in asked.describe()
    assert SECRET in base64.b64decode(hidden).decode()


def test_the_order_is_fixed_and_does_not_tell():
    options = ["kiwi", "pear", "plum", "fig", "lime"]
    orders = [
        explore.predict("Which?", truth, {f"Not {o}.": o for o in options if o != truth})._labels
        for truth in options
    ]
    assert all(order == orders[0] for order in orders)
    assert sorted(orders[0]) == sorted(options)
    others = {f"Not {o}.": o for o in options if o != "fig"}
    assert (
        explore.predict("And which now?", "fig", others)._labels == orders[0]
    )  # no word of a question decides
    assert explore.predict("?", "10", {"A.": "9", "B.": "-1"})._labels == ["-1", "9", "10"]


@pytest.mark.parametrize(
    ("truth", "right", "wrong"),
    [
        (7, [7, 7.4], [6, 8, 7.6]),
        (1000, [1000], [1008, 999]),  # a count is exact
        (1000.0, [1000, 1009.9, 990.1], [1011, 989]),
        (0.0873, [0.09, 0.0873, 0.083], [0.093, 0.08]),
        (0.0023, [0.002, 0.0027], [0.003, 0]),
        (0.0, [0, 0.005, -0.005], [0.006]),
        (-0.5, [-0.5, -0.505], [0.5, -0.51]),
    ],
)
def test_a_number_is_right_within_its_last_digit_or_one_percent(truth, right, wrong):
    asked = explore.predict("How many?", truth)
    for expected, guesses in ((True, right), (False, wrong)):
        for guess in guesses:
            asked._guess = guess
            assert asked.right is expected, guess


SUMS = {  # for the truth 0.2, 0.1, 0.3
    (0.2, 0.1, 0.3): True,
    (0.25, 0.1, 0.35): True,
    (0.1, 0.05, 0.4): True,
    (0.2, 0.2, 0.2): False,  # each is off by 0.1 at most
    (0.3, 0.1, 0.2): False,
    (0.1, 0.0, 0.2): False,  # the sum is half as large
    (0.3, 0.2, 0.4): False,
}


@pytest.mark.parametrize(("guess", "right"), SUMS.items())
def test_bars_keep_their_order_and_their_sum(guess, right):
    asked = explore.predict("How long?", [0.2, 0.1, 0.3], labels=["a", "b", "c"])
    asked._guess = list(guess)
    assert asked.right is right


@pytest.mark.parametrize(
    ("guess", "named"), [(0.0277, "B."), (0.028, "B."), (0.03, None), (0.0175, "A."), (0.0141, None)]
)
def test_a_small_number_is_a_wrong_idea_only_within_its_second_digit(guess, named):
    asked = explore.predict("How far?", 0.0393, {"A.": 0.0176, "B.": 0.0277})
    asked._guess = guess
    assert asked._judged()[1] == f"Not this one. {named or ''}".strip()


CELLS = {
    ("head 1", "row 2"): "head 1, row 2",
    ("query", "head 1"): "query, head 1",
    ("chased", "dog"): "row chased, column dog",
    ("0", "3"): "row 0, column 3",
    ("2 dog", "5 it"): "row 2 dog, column 5 it",
}


@pytest.mark.parametrize(("names", "told"), CELLS.items())
def test_a_cell_in_words(names, told):
    rows, columns = ([name, "other"] for name in names)
    asked = explore.predict("Where?", (0, 0), labels=(rows, columns))
    asked._guess = [0, 0]
    assert f"Your answer: {told}." in asked.describe()
    assert f"The truth: {told}." in asked.describe()


# From before the question.
KEYS = {
    "choice": (["Tab", "ArrowDown", "ArrowUp", "Tab", "Enter"], None),
    "number": (["Tab", "0", ".", "2", "5", "Enter"], 0.25),
    "cell": (["Tab", *["ArrowDown"] * 3, "ArrowRight", "Space", "Tab", "Space"], [2, 1]),
    "bars": (["Tab", *["ArrowRight"] * 5, "Tab", "End", *["ArrowLeft"] * 5, "Tab", "Enter"], [0.25, 0.75]),
}


def visible(page):
    """What can be seen or heard: text without style, and the names for screen readers."""
    return page.locator(".mha").evaluate(
        "(root) => root.innerText + [...root.querySelectorAll('*')].flatMap((e) =>"
        " [e.getAttribute('aria-label'), e.getAttribute('title'), e.getAttribute('class')]).join(' ')"
    )


def set_up(page, kind, guess):
    """With the pointer, as a learner does it."""
    if kind == "choice":
        page.get_by_label(guess, exact=True).click()
    elif kind == "number":
        page.get_by_label("Your number").fill(str(guess))
    elif kind == "cell":
        page.locator(".place").nth(len(COLUMNS) * guess[0] + guess[1]).click()
    else:
        for i, value in enumerate(guess):
            box = page.get_by_role("slider").nth(i).bounding_box()
            y = box["y"] + box["height"] / 2
            page.mouse.move(box["x"] + 22, y)
            page.mouse.down()
            page.mouse.move(box["x"] + 22 + value * (box["width"] - 44), y, steps=4)
            page.mouse.up()


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def guessed(page):
    return page.evaluate("model.get('_guess')")


class TestInABrowser:
    pytestmark = [pytest.mark.browser, needs_chromium]  # noqa: RUF012

    @pytest.mark.parametrize("kind", KINDS)
    def test_right_wrong_and_again(self, shown, kind):
        """Each guess in turn, without a kernel: the fourth is the third try again."""
        page = shown(question(kind), dead=True)
        before = visible(page)
        assert not re.search(r"truth|Right|Not this|idea|0\.43", before)
        for guess, _, idea in (GUESSES[kind] * 2)[:4]:
            set_up(page, kind, guess)
            press(page, "Commit")
            assert guessed(page) == pytest.approx(guess) if kind == "bars" else guessed(page) == guess
            text = page.locator(".mha").inner_text()
            assert f"\n{outcome(idea)}\n" in text.replace("\n\n", "\n")
            assert SECRET in text
            for shape, word in {"○": "you", "◆": "truth"}.items():
                assert re.search(f"{shape} (the |your )?{word}", text), (shape, text)
            heard = page.get_by_role("status").inner_text()
            assert heard.startswith(outcome(idea))
            assert SECRET in heard
            assert page.evaluate("document.activeElement.textContent") == "Try again"
            assert page.get_by_role("button", name="Commit").count() == 0
            press(page, "Try again")
            assert guessed(page) is None
            assert visible(page) == before

    def test_both_marks_stand_beside_their_answers(self, shown):
        pages = {kind: shown(question(kind)) for kind in ("choice", "cell", "bars")}
        for kind, page in pages.items():
            set_up(page, kind, GUESSES[kind][1][0])
            press(page, "Commit")
        lines = pages["choice"].locator("label").all_inner_texts()
        marked = {line.split()[0]: line.split()[1:] for line in lines}
        assert marked == {"pear": ["◆", "the", "truth"], "plum": ["○", "your", "answer"], "fig": []}
        cells = pages["cell"].locator(".place").all_inner_texts()
        assert {i: text for i, text in enumerate(cells) if text} == {6: "◆ truth", 9: "○ you"}
        names = [cell.get_attribute("aria-label") for cell in pages["cell"].locator(".place").all()]
        assert (names[6], names[9]) == ("r1, c2, the truth", "r2, c1, your answer")
        bars = pages["bars"].locator(".one").all_inner_texts()
        bars = [" ".join(bar.split()) for bar in bars]
        assert bars == ["left ○ you 0.30 ◆ truth 0.75", "right ○ you 0.70 ◆ truth 0.25"]
        for row, truth in zip(pages["bars"].locator(".one").all(), (0.75, 0.25), strict=True):
            rail, mark = (row.locator(part).bounding_box() for part in (".rail", ".there"))
            middle = mark["x"] + mark["width"] / 2 - rail["x"]
            assert middle == pytest.approx(22 + truth * (rail["width"] - 44), abs=1)

    @pytest.mark.parametrize("kind", KINDS)
    def test_nothing_is_committed_by_mistake(self, shown, kind):
        page = shown(question(kind))
        press(page, "Commit")
        assert guessed(page) is None
        hint = page.get_by_role("status").inner_text()
        assert re.fullmatch("(Pick|Type) .* first.*|All bars are at 0. .*", hint)
        assert page.get_by_text(hint).count() == 2  # heard and seen
        set_up(page, kind, GUESSES[kind][0][0])
        assert page.get_by_text(hint).count() == 1  # what was missing is there
        assert guessed(page) is None  # a draft is not an answer
        page.get_by_role("button", name="Commit").dblclick()
        assert page.get_by_role("button", name="Try again").is_visible()

    @pytest.mark.parametrize(
        ("typed", "kept"), [("0,25", 0.25), (" 0.25 ", 0.25), ("\u22128", -8), ("8/4", None), ("", None)]
    )
    def test_a_decimal_comma_is_read_and_what_is_no_number_is_refused(self, shown, typed, kept):
        page = shown(question("number"))
        page.get_by_label("Your number").fill(typed)
        press(page, "Commit")
        assert guessed(page) == kept
        assert (page.get_by_text("Type a number first").count() > 0) == (kept is None)

    def test_untouched_bars_are_an_answer_at_the_second_press_but_not_at_a_double_click(self, shown):
        page = shown(question("bars"))
        page.get_by_role("button", name="Commit").dblclick()
        assert guessed(page) is None
        press(page, "Commit")
        assert guessed(page) == [0, 0]

    @pytest.mark.parametrize("kind", KINDS)
    def test_with_the_keyboard_alone(self, shown, kind):
        asked = question(kind)
        page = shown(asked)
        page.evaluate("window.left = 0; document.addEventListener('keydown', () => { left += 1; })")
        keys, guess = KEYS[kind]
        for _ in range(2):
            page.evaluate("document.activeElement.blur()")
            page.locator("h1").click()
            for key in keys:
                page.keyboard.press(key)
            assert guessed(page) == (guess or asked._labels[0])
            page.keyboard.press("Enter")  # the focus is on Try again
            assert guessed(page) is None
            assert page.evaluate("document.querySelector('.mha').contains(document.activeElement)")
        assert page.evaluate("left") <= 2  # the first Tab; no key of a question moves a notebook

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_key_held_down_answers_once(self, shown, kind):
        page = shown(question(kind))
        set_up(page, kind, GUESSES[kind][0][0])
        page.get_by_role("button", name="Commit").focus()
        for _ in range(4):
            page.keyboard.down("Enter")
        page.keyboard.up("Enter")
        assert guessed(page) is not None

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_fits_a_narrow_screen_and_fingers(self, shown, kind):
        page = shown(examples.ALL[f"predict_{kind}"](), dead=True)
        page.set_viewport_size({"width": 320, "height": 700})
        for _ in range(2):
            assert page.evaluate("document.documentElement.scrollWidth") <= 320
            wide = page.locator(".wide").all()
            assert all(box.evaluate("(box) => box.scrollWidth <= box.clientWidth") for box in wide)
            sizes = page.locator(".mha").evaluate(
                "(root) => [...root.querySelectorAll('button, input:not([type=radio]), label')]"
                ".map((e) => e.getBoundingClientRect()).filter((box) => box.width)"
                ".map((box) => [box.width, box.height])"
            )
            assert min(map(min, sizes)) >= 44
            guess = [0.5] * 5 if kind == "bars" else GUESSES[kind][0][0]
            page.evaluate("([value]) => model.set('_guess', value)", [guess])

    @pytest.mark.parametrize("theme", THEMES)
    @pytest.mark.parametrize("kind", KINDS)
    def test_axe_finds_no_violation_afterwards(self, shown, kind, theme):
        page = shown(question(kind), theme)
        page.evaluate("([value]) => model.set('_guess', value)", [GUESSES[kind][1][0]])  # from Python
        assert page.get_by_role("button", name="Try again").is_visible()
        found = Axe().run(page).response["violations"]
        assert [(rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in found] == []

    @pytest.mark.parametrize("kind", KINDS)
    def test_labels_are_text(self, shown, kind):
        nasty = examples.NASTY
        truth, wrong, guess, labels = {
            "choice": (nasty[1], nasty[3], nasty[3], None),
            "number": (1, 2, 2, None),
            "cell": ((0, 0), (1, 1), [1, 1], (nasty, nasty)),
            "bars": ([0.5] * 5, [0] * 5, [0] * 5, nasty),
        }[kind]
        page = shown(explore.predict(nasty[0], truth, {nasty[2]: wrong}, labels=labels, because=nasty[4]))
        page.evaluate("([value]) => model.set('_guess', value)", [guess])
        text = page.locator(".mha").evaluate("(root) => root.textContent")
        assert all(label in text for label in (nasty if labels else (nasty[0], nasty[2], nasty[4])))
        assert page.locator(".mha img, .mha script").count() == 0

    def test_a_swipe_over_a_bar_scrolls_and_changes_no_answer(self, shown):
        page = shown(question("bars"), device=PHONE)
        page.evaluate("document.body.style.height = '3000px'")
        box = page.get_by_role("slider").first.bounding_box()
        finger(page, box["x"] + box["width"] * 0.7, box["y"] + 22, 5, -150)
        page.wait_for_function("scrollY > 60")
        assert [bar.input_value() for bar in page.get_by_role("slider").all()] == ["0", "0"]

    def test_a_cell_has_the_same_words_as_in_python(self, shown):
        page = shown(question("cell"))
        found = page.evaluate("(all) => all.map((names) => module.place(...names))", [*map(list, CELLS)])
        assert found == [*CELLS.values()]

    def test_python_and_javascript_agree(self, shown):
        chance, page = random.Random(0), shown(question("number"))
        call = "(asked) => module.compute({ ...asked, known: module.decode(asked.truth) })"
        for kind in KINDS:
            asked, seen = question(kind), set()
            for _ in range(200):
                asked._guess = {
                    "choice": chance.choice(["pear", "plum", "fig"]),
                    "number": round(chance.choice([0.4321, 0.25, -8]) * chance.uniform(0.97, 1.03), 4),
                    "cell": [chance.randrange(3), chance.randrange(4)],
                    "bars": [chance.randrange(21) / 20, chance.randrange(21) / 20],
                }[kind]
                found = page.evaluate(call, {"kind": kind, "guess": asked._guess, "truth": asked._truth})
                assert found == {"right": asked.right, "verdict": asked._judged()[1]}, asked._guess
                seen.add(found["verdict"])
            assert len(seen) >= 3


@pytest.mark.browser
@needs_chromium
def test_two_cells_with_the_same_names_are_told_apart(shown):
    page = shown(examples.predict_cell())  # "a" is there twice
    page.locator(".place").nth(3).click()
    page.get_by_role("button", name="Commit").click()
    said = page.locator(".mha").inner_text()
    assert "your answer: row a (index 0), column a (index 3)" in said
    assert "the truth: row a (index 0), column a (index 0)" in said
    assert page.locator(".place").nth(1).get_attribute("aria-label") == "a (index 0), dog"
