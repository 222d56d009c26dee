"""Trainings to scrub through: what is shown is what was recorded, at every step of every seed."""

import json
import textwrap
from dataclasses import replace
from itertools import combinations

import matplotlib.pyplot as plt
import nbformat
import pytest
import torch
from matplotlib.axes import Axes

from bench import examples
from bench.browser import PHONE, finger, needs_chromium, show, state
from mha_course import explore
from mha_course.chapters import recall
from mha_course.explore import _training as training
from mha_course.explore._widget import START
from tests.notebooks.chapters import FOLDER

CLOSE = {"atol": 1e-6, "rtol": 1e-6}
BYTE = {"atol": 0.5 / 255 + 1e-7, "rtol": 0}
MAX_STORED = 40_000  # bytes


def value(page, name):
    return page.evaluate("(name) => model.get(name)", name)


def random(seed):
    """Recordings of three models and two seeds with random numbers; every axis has another size."""
    torch.manual_seed(seed)
    names, contents = torch.randperm(26)[:7], torch.randperm(256)[:7]
    asked = torch.stack([torch.randperm(7)[:3] for _ in range(5)])
    problems = recall.RecallBatch(names.expand(5, 7), contents.expand(5, 7), names[asked])

    def one(heads):
        return recall.Recording(
            steps=torch.tensor([0, 3, 5, 40]),
            losses=torch.rand(4).double() * 3,
            right=torch.rand(4).double(),
            looked=torch.rand(4, heads, 3).double(),
            weights=torch.randn(4, heads, 5, 7).double().softmax(-1),
            answers=torch.randint(256, (4, 5, 3)),
            sure=torch.rand(4, 5, 3).double(),
        )

    return problems, {s: [one(heads) for heads in (1, 2, 1)] for s in (3, 11)}


PARTS = ("weights", "looked", "answers", "sure")


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("seed", range(5))
def test_the_browser_and_python_show_what_was_recorded(shown, seed):
    """To the nearest byte; and both the same to 1e-6."""
    page, (problems, recordings) = shown(examples.training()), random(seed)
    picture = explore.training(problems, recordings)
    for s, runs in recordings.items():
        for moment, step in enumerate((0, 3, 5, 40)):
            picture.seed, picture.step = s, step
            asked = {name.removeprefix("_"): each for name, each in state(picture).items()}
            found = page.evaluate(
                "(asked) => module.compute({ ...asked, data: module.bytes(asked.frames) })", asked
            )
            for part, here in zip(PARTS, picture._frame(), strict=True):
                recorded = torch.cat([getattr(run, part)[moment] for run in runs]).view(here.shape)
                torch.testing.assert_close(here.double(), recorded.double(), **BYTE)
                torch.testing.assert_close(torch.tensor(found[part]).float(), here.float(), **CLOSE)
            for part in ("losses", "right"):
                recorded = torch.stack([getattr(run, part)[moment] for run in runs]).float()
                torch.testing.assert_close(getattr(picture, part), recorded, atol=6e-5, rtol=0)
                torch.testing.assert_close(torch.tensor(found[part]), getattr(picture, part), **CLOSE)


def test_the_state_is_tensors_and_goes_both_ways():
    problems, recordings = examples.recorded()
    picture = examples.training()
    assert (picture.seed, picture.step) == (0, 0)
    picture._seed, picture._step = 1, 40  # what the slider sends
    assert (picture.seed, picture.step) == (1, 40)
    assert [tuple(each.shape) for each in picture.weights] == [(1, 5, 6), (2, 5, 6)]
    for mine, run in zip(picture.weights, recordings[1], strict=True):
        torch.testing.assert_close(mine.double(), run.weights[4], **BYTE)
    assert [tuple(each.shape) for each in picture.looked] == [(1, 2), (2, 2)]
    assert torch.equal(picture.answers[1], recordings[1][1].answers[4])
    picture.step = 100
    assert torch.equal(picture.answers[1], problems.answers)  # two heads have learned it, one has not
    assert not torch.equal(picture.answers[0], problems.answers)
    assert picture.losses[0] > 0.5 > 0.1 > picture.losses[1]
    assert picture.describe().startswith("Seed 1, step 100 of 100. one head: loss 0.")
    assert "F, A: 2, 5; one head: " in picture.describe()


def test_chapter_07_stores_at_most_40_kb_and_shows_the_recordings_of_its_seeds():
    notebook = nbformat.read(FOLDER / "07_why_more_heads.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (stored,) = (
        output.data[START]
        for output in outputs
        if output.get("data", {}).get(START, {}).get("module") == "training"
    )
    assert len(textwrap.indent(json.dumps(stored, indent=1), " " * 7)) < MAX_STORED
    assert (stored["state"]["_seeds"], len(stored["state"]["_steps"])) == ([0, 1, 2], 31)
    assert set(examples.recorded()[1][0][0].steps.tolist()) <= set(stored["state"]["_steps"])
    again, names = examples.training(), ("_asked", "_truth", "_records", "_heads", "_names")
    assert {name: getattr(again, name) for name in names} == {name: stored["state"][name] for name in names}
    picture = explore.training(*examples.recorded())
    picture._frames, picture._steps, picture._seeds = (
        stored["state"][name] for name in ("_frames", "_steps", "_seeds")
    )
    for seed in (0, 1):  # the same trainings, run again here
        for step in (0, 40, 100):
            again._seed = picture._seed = seed
            again._step = picture._step = step
            for mine, theirs in zip(again.weights, picture.weights, strict=True):
                torch.testing.assert_close(mine, theirs, atol=1.01 / 255, rtol=0)
            assert torch.equal(again.answers, picture.answers)


def test_small_losses_are_stored_with_three_significant_digits():
    problems, recordings = examples.recorded(seeds=(0,), steps=(0, 100))
    tiny = replace(recordings[0][1], losses=torch.tensor([2.30259, 0.0000123456]))
    picture = explore.training(problems, {0: [recordings[0][0], tiny]})
    assert picture._losses[0][1] == [2.3026, 1.23e-5]


def test_in_chapter_07_both_heads_first_prefer_the_same_record_with_seeds_1_and_2_only():
    """So the first goal can be met there, at several steps, but not with the seed that is shown first."""
    notebook = nbformat.read(FOLDER / "07_why_more_heads.ipynb", as_version=4)
    (stored,) = (
        output.data[START]["state"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.get("data", {}).get(START, {}).get("module") == "training"
    )
    picture, met = examples.training(), {}
    picture._frames, picture._steps, picture._seeds = (
        stored[name] for name in ("_frames", "_steps", "_seeds")
    )
    for seed in picture._seeds:
        for step in picture._steps:
            picture._seed, picture._step = seed, step
            lead = [round(100 * first) - round(100 * second) for first, second in picture.looked[1].tolist()]
            met.setdefault(seed, []).append(min(lead) >= 2 or max(lead) <= -2)
    assert not any(met[0])
    assert min(sum(met[1]), sum(met[2])) >= 3


problems, recordings = examples.recorded(steps=(0, 10))
one, two = recordings[0]


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "words"),
    {
        "training('ab', recordings)": "problems: expected a RecallBatch, got str",
        "training(problems, {})": "recordings: expected a list of recordings for each seed",
        "training(problems, {0: [1]})": "recordings: expected a list of recordings for each seed",
        "training(problems, {-1: [one]})": "seed: expected at least 0",
        "training(problems, {0: [one, two], 1: [one]})": "recordings: expected the same models and steps",
        "training(problems, {0: [one], 1: [two]})": "recordings: expected the same models and steps",
        "training(problems, {0: [one], 1: [replace(one, steps=one.steps + 1)]})": "recordings: expected",
        "training(problems, {0: [replace(one, losses=one.losses / 0)]})": "losses: expected finite numbers",
        "training(problems, {0: [replace(one, weights=one.weights[..., 1:])]})": "recordings: expected",
        "training(problems, {0: [one] * 4})": "the picture: expected 1 to 3 models, got 4",
        "training(problems, {s: [one] for s in range(6)})": "the picture: expected 1 to 5 seeds, got 6",
        "training(problems, {0: [two] * 3})": "the picture: expected 1 to 4 heads, got 6",
        "training(others, recordings)": "problems: expected the same records in all of them",
        "training(larger, recordings)": "problems: expected names from 0 to 25",
        "training(problems, recordings, names=['a'])": "names: expected 2 labels, got 1",
        "training(problems, recordings, names='ab')": "names: expected a list of labels",
        "setattr(training(problems, recordings), 'step', 5)": "step: expected one of 0, 10, got 5",
        "setattr(training(problems, recordings), 'seed', 2)": "seed: expected one of 0, 1, got 2",
        "training(problems, {0: [long]})": "recordings: expected 24000 numbers, got",
    }.items(),
)
def test_what_makes_no_sense_is_refused(call, words):
    long = {name: getattr(one, name)[:1].expand(500, *getattr(one, name).shape[1:]) for name in vars(one)}
    space = {"training": explore.training, "replace": replace, "one": one, "two": two, "problems": problems}
    space |= {"recordings": recordings, "long": recall.Recording(**long)}
    space["others"] = replace(
        problems, contents=torch.stack([problems.contents[0].roll(i) for i in range(5)])
    )
    space["larger"] = replace(problems, names=problems.names + 20, asked=problems.asked + 20)
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(call, space)
    assert str(caught.value).startswith(words)


pages = [pytest.mark.browser, needs_chromium]
SMALL = [2.302, 0.693, 0.01, 0.0099, 0.001, 0.0000123, 0.0]
PATHS = """(all) => all.slice(0, 2).map((one) =>
  one.getAttribute("d").slice(1).split("L").map((at) => at.split(" ").map(Number)))"""
WORDS = """(all) => all.map((one) =>
  [one.textContent, +one.getAttribute("x"), +one.getAttribute("y"), one.getAttribute("text-anchor")])"""
SPOTS = "(all) => all.map((one) => ['cx', 'cy'].map((name) => Number(one.getAttribute(name))))"
FRAMES = "(all) => all.map((one) => getComputedStyle(one).borderTopStyle + one.className)"


def told(page):
    return page.locator(".model span").all_inner_texts()


def slider(page):
    return page.get_by_role("slider", name="step")


class TestPage:
    pytestmark = pages

    def test_the_words_the_maps_and_the_answers_are_those_of_the_step(self, shown):
        page, picture = shown(examples.training(), dead=True), examples.training()
        for seed, step in ((0, 0), (0, 30), (1, 40), (1, 100)):
            page.get_by_label(str(seed), exact=True).check()
            page.evaluate("(step) => model.set('_step', step)", step)
            picture.seed, picture.step = seed, step
            assert told(page) == picture._told()
            cells = [float(text) for text in page.locator(".map tbody td").all_inner_texts()]
            expected = torch.cat(picture.weights).flatten().tolist()
            assert cells == pytest.approx(expected, abs=0.00501)
            means = page.locator(".map caption span").all_inner_texts()
            assert means == [
                f"mean weight in the test problems: asked first {first:.2f}, second {second:.2f}"
                for first, second in torch.cat(picture.looked).tolist()
            ]
            rows = page.locator(".given tbody tr").all()
            for row, (question, truth, *given) in zip(rows, picture._given(), strict=True):
                texts = row.locator("th, td").all_inner_texts()
                assert texts[:2] == [question, truth]
                assert [" ".join(text.split()) for text in texts[2:]] == [
                    text.replace(",", "") for text in given
                ]

    def test_frames_are_around_the_records_asked_for(self, shown):
        page, asked = shown(examples.training()), examples.recorded()[0].asked
        rows = page.locator(".map").last.locator("tbody tr").all()
        columns = page.locator(".map").last.locator("thead th").all_inner_texts()
        for row, (first, second) in zip(rows, asked.tolist(), strict=True):
            looks = row.locator("td").evaluate_all(FRAMES)
            letters = {look: columns[j][0] for j, look in enumerate(looks) if "asked" in look}
            assert letters == {"solidasked0": "ABCDEFGH"[first], "dashedasked1": "ABCDEFGH"[second]}

    def test_curves_are_to_scale_and_the_marker_is_on_them(self, shown):
        page, picture = shown(examples.training()), examples.training()
        page.evaluate("model.set('_seed', 1), model.set('_step', 60)")
        paths = page.locator("svg > path[d^=M]").evaluate_all(PATHS)
        numbers = page.locator("svg text").evaluate_all(WORDS)
        heights = {
            float(text): y - 4 for text, _, y, anchor in numbers if anchor == "end" and text[0].isdigit()
        }
        places = {int(text): x for text, x, _, anchor in numbers if anchor == "middle" and text.isdigit()}
        assert set(heights) >= {0.0, 0.5, 1.0, 1.5, 2.0}
        assert set(places) >= {0, 100}
        spots = page.locator("svg > circle").evaluate_all(SPOTS)
        for line, path, spot in zip(picture._losses[1], paths, spots, strict=True):
            for (x, y), step, loss in zip(path, picture._steps, line, strict=True):
                assert x == pytest.approx(places[0] + (places[100] - places[0]) * step / 100, abs=0.1)
                assert y == pytest.approx(heights[0] + (heights[1] - heights[0]) * loss, abs=0.1)
            assert spot == pytest.approx(path[6], abs=0.1)
        box, thumb = page.locator("svg").first.bounding_box(), slider(page).bounding_box()
        middle = thumb["x"] + 8 + (thumb["width"] - 16) * 0.6  # the thumb is below the marker
        assert middle == pytest.approx(box["x"] + spots[0][0], abs=1)

    def test_keys_go_from_one_recorded_step_to_the_next_and_are_spoken(self, shown):
        page = shown(examples.training(), dead=True)
        page.evaluate("document.addEventListener('keydown', (event) => { window.heard = event.key; })")
        slider(page).focus()
        keys = {"ArrowRight": 10, "ArrowUp": 20, "PageUp": 70, "ArrowLeft": 60, "End": 100, "Home": 0}
        keys |= {"ArrowDown": 0}
        for key, step in keys.items():
            page.keyboard.press(key)
            assert value(page, "_step") == step
            assert slider(page).get_attribute("aria-valuetext") == f"step {step}"
            spoken = page.get_by_role("status").inner_text()
            assert spoken == f"Seed 0, Step {step}. {'. '.join(told(page))}."
        assert page.evaluate("window.heard") is None  # JupyterLab would move to another cell
        for _ in range(3):
            page.get_by_role("button", name="Next").click()
        page.get_by_role("button", name="Back").press("Enter")
        assert value(page, "_step") == 20
        page.get_by_label("0", exact=True).press("ArrowRight")
        assert (value(page, "_seed"), value(page, "_step")) == (1, 20)

    def test_the_marker_is_dragged_with_a_mouse_and_only_its_end_counts_as_a_goal(self, shown):
        page = shown(examples.training())
        page.evaluate("model.set('_seed', 1)")
        box, start = page.locator("svg").first.bounding_box(), 0
        at = lambda step: box["x"] + 44 + (box["width"] - 56) * step / 100  # noqa: E731
        for step in (42, 61, 98):
            page.mouse.move(at(start) + 15, box["y"] + 60)  # beside the marker: it does not jump
            page.mouse.down()
            assert value(page, "_step") == start
            page.mouse.move(at(80) + 15, box["y"] + 60, steps=3)
            assert value(page, "_step") == 80
            page.mouse.move(at(step) + 15, box["y"] + 90, steps=3)
            page.mouse.up()
            start = round(step, -1)
            assert value(page, "_step") == start
            assert f"Step {start}." in page.get_by_role("status").inner_text()
            assert page.locator(".goals .done").count() == (2 if step == 98 else 1)
            if step == 42:
                assert "prefer the record asked for first" in page.locator(".goals .done").inner_text()
        page.mouse.move(at(10), box["y"] + 60)  # let go: it stays
        assert value(page, "_step") == 100

    @pytest.mark.parametrize("over", ["svg", ".over input"])
    def test_a_mouse_may_begin_anywhere_on_the_chart_and_on_the_slider(self, shown, over):
        """On the numbers of the axis too, which the mouse would select."""
        page = shown(examples.training())
        box = page.locator(over).first.bounding_box()
        for start, end in ((0.3, 0.7), (0.9, 0.2), (0.5, 0.95)):
            y = box["y"] + box["height"] - 12
            page.mouse.move(box["x"] + start * box["width"], y)
            page.mouse.down()
            first = value(page, "_step")
            page.mouse.move(box["x"] + end * box["width"], y, steps=5)
            page.mouse.up()
            assert first == pytest.approx(100 * start, abs=10)
            assert value(page, "_step") == pytest.approx(100 * end, abs=10)
            assert page.evaluate("String(getSelection())") == ""

    def test_it_plays_to_the_end_and_stops_when_something_is_touched(self, shown):
        page = shown(examples.training())
        button = page.get_by_role("button", name="Play")
        for _ in range(3):
            button.click()
            page.wait_for_function("model.get('_step') >= 10")
            page.get_by_role("button", name="Pause").click()
            step = value(page, "_step")
            page.wait_for_timeout(900)
            assert value(page, "_step") == step < 100
            page.evaluate("model.set('_step', 90)")
            button.click()
            page.wait_for_function("model.get('_step') === 100")
            button.wait_for()
            button.click()  # from the beginning again
            assert value(page, "_step") < 100
            page.get_by_role("button", name="Reset").click()
            page.wait_for_timeout(900)
            assert (value(page, "_step"), button.count()) == (0, 1)
        button.click()
        slider(page).press("Home")
        page.wait_for_timeout(900)
        assert value(page, "_step") == 0

    def test_nothing_plays_for_those_who_want_no_motion(self, browser):
        context = browser.new_context(reduced_motion="reduce", viewport={"width": 1000, "height": 900})
        context_page = type("Page", (), {"new_page": lambda _, **__: context.new_page()})()
        page = show(context_page, examples.training())
        for _ in range(3):
            page.get_by_role("button", name="Go to the end").click()
            assert value(page, "_step") == 100
            page.get_by_role("button", name="Go to the start").click()
            assert value(page, "_step") == 0
        page.get_by_role("button", name="Next").click()
        page.get_by_role("button", name="Go to the end").click()
        assert (value(page, "_step"), page.errors) == (100, [])
        context.close()

    def test_all_steps_play_in_about_eight_seconds(self, shown):
        page = shown(examples.training())
        page.clock.install()
        page.get_by_role("button", name="Play").click()
        page.clock.run_for(3900)
        assert value(page, "_step") in (40, 50, 60)
        page.clock.run_for(4100)
        assert value(page, "_step") == 100

    @pytest.mark.parametrize("over", [0, 1])  # the chart, the slider
    def test_a_finger_drags_the_marker_and_the_thumb_and_a_swipe_changes_nothing(self, shown, over):
        page = shown(examples.training(), device=PHONE)
        handle = page.locator(".handle").nth(over)
        box, chart = handle.bounding_box(), page.locator("svg").first.bounding_box()
        assert min(box["width"], box["height"]) >= 44
        x, y = box["x"] + 22, box["y"] + box["height"] / 2
        page.evaluate(
            "window.seen = []; model.on('change:_step', () => window.seen.push(model.get('_step'))); 0"
        )
        far = (chart["width"] - 56) * 0.8
        finger(page, x, y, far, 0)
        page.wait_for_function("model.get('_step') === 80")
        x = handle.bounding_box()["x"] + 22
        assert x == pytest.approx(chart["x"] + 44 + far, abs=1)
        page.evaluate("window.seen = []; 0")
        finger(page, x, y, 10, -120)
        page.wait_for_function("scrollY > 20")
        assert (value(page, "_step"), page.evaluate("window.seen")) == (80, [])

    def test_a_tap_on_the_chart_or_beside_the_thumb_goes_there_and_the_slider_stays_in_sight(self, shown):
        page = shown(examples.training(), device=PHONE)
        box, track = page.locator("svg").first.bounding_box(), slider(page).bounding_box()
        for step, y in ((50, box["y"] + 80), (90, track["y"] + 22), (10, track["y"] + 22)):
            page.touchscreen.tap(box["x"] + 44 + (box["width"] - 56) * step / 100, y)
            assert value(page, "_step") == step
        page.locator(".given").scroll_into_view_if_needed()
        assert slider(page).bounding_box()["y"] >= 0
        assert slider(page).is_visible()

    def test_small_losses_keep_two_significant_digits(self, shown):
        page = shown(examples.training())
        found = page.evaluate(f"{SMALL}.map((loss) => module.written(loss))")
        assert found == [training._written(loss) for loss in SMALL]
        assert found == ["2.30", "0.69", "0.01", "0.0099", "0.0010", "0.000012", "0.00"]

    def test_the_dotted_line_is_explained_outside_the_curves(self, shown):
        page = shown(examples.training(), device={"viewport": {"width": 320, "height": 667}})
        assert "ln" not in " ".join(page.locator("svg text").all_text_contents())
        told = page.locator(".half").inner_text()
        assert told.startswith("ln 2 = 0.69: the loss of a model that gives the probability 1/2")

    def test_no_caption_is_cut_and_a_number_stays_with_its_percent_sign(self, shown):
        page = shown(examples.training(), device={"viewport": {"width": 320, "height": 667}})
        assert all("\u00a0% of the test problems" in text for text in told(page))
        wide = page.locator(".mha caption span").evaluate_all(
            "(all) => all.map((a) => [a.getBoundingClientRect().right, a.scrollWidth - a.clientWidth])"
        )
        assert len(wide) == 4
        assert all(right <= 320 and more <= 0 for right, more in wide)

    def test_the_ring_of_the_focus_is_inside_the_slider(self, shown):
        page = shown(examples.training())
        page.keyboard.press("Tab")
        slider(page).press("ArrowRight")
        ring = slider(page).evaluate(
            "(one) => [getComputedStyle(one).outlineStyle, parseFloat(getComputedStyle(one).outlineOffset)]"
        )
        assert ring[0] == "solid"
        assert ring[1] <= -3

    def test_the_words_say_what_a_record_a_seed_and_the_percentages_are(self, shown):
        page = shown(examples.training())
        words = page.locator(".training > p").inner_text()
        assert "Each seed is another training." in words
        assert "“C:7” is a record with the name C and the content 7." in words
        assert "from other problems, kept for testing" in words
        assert "5 example problems" in words

    def test_names_are_text_and_no_text_is_small(self, shown):
        for device in ({"viewport": {"width": 1000, "height": 900}}, PHONE):
            page = shown(examples.training(examples.NASTY), device=device)
            for name in examples.NASTY[:2]:
                assert name in page.locator(".mha").inner_text()
            assert page.locator(".mha img, .mha script").count() == 0
            sizes = page.locator(".mha :is(td, th, p, span, text, li, button, label)").evaluate_all(
                "(all) => all.map((one) => parseFloat(getComputedStyle(one).fontSize))"
            )
            assert min(sizes) >= 11
            assert page.evaluate("document.documentElement.scrollWidth") <= device["viewport"]["width"]


def test_no_title_of_the_still_covers_another_one():
    figure = examples.training().still()
    figure.canvas.draw()
    boxes = [ax.title.get_window_extent() for ax in figure.findobj(Axes) if ax.get_title()]
    assert len(boxes) == 4  # the losses, one head, two heads
    assert not [1 for one, other in combinations(boxes, 2) if one.overlaps(other)]
    plt.close(figure)
