"""A softmax in one pass: the package's numbers after every block, with and without the bug, and the page."""

import math

import pytest
import torch

from bench import examples
from bench.browser import PHONE, finger, needs_chromium, show, state
from mha_course import explore
from mha_course.chapters.flash import flash_attention, merge_sums
from mha_course.exercises import find
from mha_lab import masked_softmax

CLOSE = {"atol": 1e-6, "rtol": 1e-6}
RESCALED = ("l and o", "o", "neither")


def value(page, name):
    return page.evaluate("(name) => model.get(name)", name)


def problem(seed):
    """Scores of which some are hidden, values and a block size; every axis has another size."""
    torch.manual_seed(seed)
    n, d_v = [(5, 2), (7, 3), (11, 1)][seed % 3]
    scores, values = 3 * torch.randn(n, dtype=torch.float64), 4 * torch.randn(n, d_v, dtype=torch.float64)
    scores[torch.rand(n) < [0, 0.4, 0.8][seed % 3]] = -torch.inf
    if seed == 5:
        scores[:] = -torch.inf
    return scores, values, 1 + seed % 4


def real(x):
    """A number or a list from the browser; JSON has no infinity, and Playwright does."""
    return torch.tensor(x, dtype=torch.float64)


def merged(scores, values, block):
    """``(m, l, o)`` after each block by the package, which merges what every block gives alone."""
    found = [(torch.full((1, 1), -torch.inf).double(), torch.zeros(1, 1).double(), 0 * values[:1])]
    for part, v in zip(scores.split(block), values.split(block), strict=True):
        m = part.max()[None, None]
        weights = torch.exp(part - m.clamp(min=-1e30))
        found.append(merge_sums(*found[-1], m, weights.sum()[None, None], weights @ v))
    return [(m[0, 0], l[0, 0], o[0]) for m, l, o in found]  # noqa: E741


def with_bug(scores, values, block, rescaled):
    """``(l, o)`` in another form: each key has the weight of its own time, with later factors or without."""
    highest = [part.max().item() for part in scores.split(block)]
    m = [max(highest[: i + 1]) for i in range(len(highest))]
    weights = [math.exp(s - m[j // block]) if s > -math.inf else 0.0 for j, s in enumerate(scores.tolist())]
    late = [w * math.exp(m[j // block] - m[-1]) if w else 0.0 for j, w in enumerate(weights)]
    for_l, for_o = (late if rescaled == "l and o" else weights), (weights if rescaled == "neither" else late)
    return real(sum(for_l)), real(for_o) @ values


@pytest.fixture(scope="module")
def page(browser):
    return show(browser, examples.online_softmax())


def in_browser(page, picture):
    asked = {name.removeprefix("_"): each for name, each in state(picture).items()}
    return page.evaluate("(asked) => module.compute(asked)", asked)


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("seed", range(12))
def test_after_every_block_the_numbers_are_those_of_the_package(page, seed):
    scores, values, block = problem(seed)
    picture = explore.online_softmax(scores, values, block=block)
    found, expected = in_browser(page, picture), merged(scores, values, block)
    assert len(found) == len(expected) == math.ceil(len(scores) / block) + 1
    for step, (there, right) in enumerate(zip(found, expected, strict=True)):
        picture.step = step
        torch.testing.assert_close((picture.m, picture.l, picture.o), right, **CLOSE)
        sums = torch.cat([right[1][None], right[2]])
        torch.testing.assert_close(real(there["m"]), right[0], **CLOSE)
        for name in ("sums", "right"):
            torch.testing.assert_close(real(there[name]), sums, **CLOSE)
        torch.testing.assert_close(real(there["kept"]) + real(there["added"]), sums, **CLOSE)
    mask = scores > -math.inf
    exact = masked_softmax(scores[None], mask[None])[0] @ values
    one, keys = torch.ones(1, 1).double(), scores.masked_fill(~mask, 0.0)[:, None]
    torch.testing.assert_close(picture.output, exact, **CLOSE)
    torch.testing.assert_close(flash_attention(one, keys, values, mask, block=block, scale=1.0)[0], exact)
    torch.testing.assert_close(
        real(page.evaluate("(s) => module.divide(s)", found[-1]["sums"])), exact, **CLOSE
    )


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("rescaled", RESCALED)
@pytest.mark.parametrize("seed", range(12))
def test_the_bug_leaves_old_sums_as_they_are(page, seed, rescaled):
    scores, values, block = problem(seed)
    picture = explore.online_softmax(scores, values, block=block, rescaled=rescaled)
    found = in_browser(page, picture)
    for step in range(1, len(found)):
        seen, l, o = step * block, *with_bug(scores[: step * block], values[: step * block], block, rescaled)  # noqa: E741
        picture.step = step
        torch.testing.assert_close((picture.l, picture.o), (l, o), **CLOSE)
        torch.testing.assert_close(real(found[step]["sums"]), torch.cat([l[None], o]), **CLOSE)
        raises = [s["factor"] < 1 for s in found[1 : step + 1] if s["before"]["m"] > -math.inf]
        harm = page.evaluate("(step) => module.off(step)", found[step])
        if not any(raises) or rescaled == "l and o":
            assert harm == 0, seen


def test_only_o_is_the_bug_of_the_exercise():
    """It reads key by key and forgets the denominator."""
    scores, values, _ = problem(0)
    scores = scores.sort().values
    broken = find("fix_online_softmax").bug(scores[None], values)[0]
    picture = explore.online_softmax(scores, values, block=1, step=len(scores), rescaled="o")
    torch.testing.assert_close(picture.output, broken)
    assert not torch.allclose(broken, torch.softmax(scores, 0) @ values)


def test_the_state_goes_both_ways():
    scores = torch.tensor([-torch.inf, 2.0, 1.0])
    picture = explore.online_softmax(scores, torch.tensor([[1.0], [2.0], [5.0]]), block=1, step=1)
    assert (picture.m.item(), picture.l.item(), picture.output.tolist()) == (-math.inf, 0, [0])
    assert torch.equal(picture.scores, scores)
    picture._hidden, picture._step = [False] * 3, 2  # what the browser sends
    assert torch.equal(picture.scores, torch.tensor([0.0, 2.0, 1.0]))
    assert (picture.step, picture.m.item(), picture.m.dtype) == (2, 2, torch.float32)
    picture.scores = torch.tensor([9.0, -torch.inf, 40.0])
    assert (picture._scores, picture._hidden) == ([9, 0, 40], [False, True, False])
    assert picture._range[1] >= 40
    picture.block = 2
    assert (picture.step, picture.m.item()) == (0, -math.inf)
    picture.step, picture.rescaled = 2, "neither"
    told = picture.describe()
    assert "Block 2 (keys 2, m 40.00, factor 3.4e-14, l 2.00, o 6.00)" in told
    assert told.endswith("2 of 2 blocks are read: o / l is 3.00, softmax @ values 5.00.")


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "words"),
    {
        "make([1.0, 2.0], x)": "scores: expected a torch.Tensor",
        "make(s[None], x)": "scores: expected a tensor of shape (n,)",
        "make(s[:1], x)": "scores: expected one score for each of the 2 values, got 1",
        "make(s * torch.nan, x)": "scores: expected finite numbers, got NaN",
        "make(s * torch.inf, x)": "scores: expected finite numbers",
        "make(s.long(), x)": "scores: expected floating-point numbers",
        "make(s, s)": "values: expected a tensor of shape (n, d_v)",
        "make(s, x * torch.inf)": "values: expected finite numbers",
        "make(s, x.double())": "values: expected the dtype of scores",
        "make(torch.ones(13), torch.ones(13, 1))": "the picture: expected 2 to 12 for keys, got 13",
        "make(s[:1], x[:1])": "the picture: expected 2 to 12 for keys, got 1",
        "make(s, torch.ones(2, 4))": "the picture: expected 1 to 3 for d_v, got 4",
        "make(s, x, block=0)": "block: expected at least 1, got 0",
        "make(s, x, block=3)": "block: expected at most 2 keys, got 3",
        "make(s, x, block=1.0)": "block: expected an int",
        "make(s, x, step=2)": "step: expected at most 1 blocks, got 2",
        "make(s, x, step=-1)": "step: expected at least 0, got -1",
        "make(s, x, rescaled='l')": "rescaled: expected one of l and o, o, neither, got 'l'",
        "setattr(make(s, x), 'scores', x)": "scores: expected a tensor of shape (n,)",
        "setattr(make(s, x), 'scores', torch.ones(3))": "scores: expected one score for each of the 2",
        "setattr(make(s, x), 'block', 3)": "block: expected at most 2 keys",
        "setattr(make(s, x), 'step', 2)": "step: expected at most 1 blocks",
    }.items(),
)
def test_what_makes_no_sense_is_refused(call, words):
    names = {"make": explore.online_softmax, "s": torch.ones(2), "x": torch.ones(2, 2), "torch": torch}
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(call, names)
    assert str(caught.value).startswith(words)


def grip(page, j):
    return page.get_by_role("slider", name=f"score of key {j}", exact=True)


def press(page, name, times=1):
    for _ in range(times):
        page.get_by_role("button", name=name, exact=True).click()


def gauge(page, title):
    """Names and numbers of a gauge's visible rows, and how long each bar is, in px."""
    node = page.locator(".gauge", has_text=title).filter(visible=True)
    return (
        node.locator(".level")
        .filter(visible=True)
        .evaluate_all("""(rows) => rows.map((row) => [
          row.children[0].textContent, row.children[1].textContent,
          row.querySelector(".fill").getBoundingClientRect().width])""")
    )


def numbers(page, title):
    return [(name, number) for name, number, _ in gauge(page, title)]


@pytest.mark.browser
@needs_chromium
class TestPage:
    def test_next_shows_before_and_after_and_the_factor(self, shown):
        page = shown(examples.online_softmax(), dead=True)
        page.emulate_media(reduced_motion="reduce")
        words, status = page.locator(".now-words"), page.get_by_role("status").first
        back, ahead = (page.get_by_role("button", name=name) for name in ("Back", "Next"))
        assert words.inner_text().startswith("No block is read yet")
        back.click(force=True)
        assert value(page, "_step") == 0
        assert (back.is_disabled(), ahead.is_disabled()) == (True, False)
        assert page.get_by_text("This is the start.").is_visible()
        press(page, "Next")
        assert (back.is_disabled(), page.get_by_text("This is the start.").count()) == (False, 0)
        assert "e^(\u2212\u221e)" in words.inner_text()
        assert numbers(page, "l, the")[-1] == ("after", "1.25")
        press(page, "Next")
        assert words.inner_text().startswith("Block 2 raises m from 1.39 to 2.08.")
        assert words.inner_text() in status.inner_text()
        assert page.locator(".block.now:visible").inner_text() == "block 2, keys 2 to 3: read now"
        before, kept, added, after = gauge(page, "o, the")
        assert [each[1] for each in (before, kept, added, after)] == ["22.50", "11.25", "47.50", "58.75"]
        assert kept[0] == "\u00d7 0.500"
        assert kept[2] == pytest.approx(before[2] / 2, abs=1)
        assert kept[2] + added[2] == pytest.approx(after[2], abs=1)
        press(page, "Next")
        ahead.click(force=True)
        assert value(page, "_step") == 3
        assert (back.is_disabled(), ahead.is_disabled()) == (False, True)
        reason = page.locator(f"#{ahead.get_attribute('aria-describedby')}")
        assert reason.inner_text() == "This is the end."
        assert "softmax @ values = 38.00. They are equal." in page.locator(".verdict").inner_text()
        said = "Block 3 does not raise m. The factor is e^0 = 1, so the old sums stay."
        assert words.inner_text() == said
        page.get_by_label("neither").check()
        assert words.inner_text() == f"{said} In this block the bug does nothing."
        press(page, "Back", 2)
        assert words.inner_text().endswith("e^(\u2212\u221e). In this block the bug does nothing.")
        assert numbers(page, "l, the")[1] == ("\u00d7 0.00", "0.00")  # not 1: it is the same

    def test_other_blocks_alone_do_not_reach_a_goal(self, shown):
        page = shown(examples.online_softmax())
        for rescaled in ("o", "neither"):
            for block in range(1, 7):
                page.evaluate("(kind) => model.set('_rescaled', kind)", rescaled)
                page.evaluate("(block) => { model.set('_block', block); model.set('_step', 6); }", block)
        assert page.locator(".goals .done").count() == 0

    def test_a_line_is_never_behind_a_square(self, shown):
        """The highest score is where the line is."""
        page = shown(examples.online_softmax())
        press(page, "Next", 2)
        marks = page.locator(".key:not(.off) .peak:not([hidden])")
        found = marks.evaluate_all("""(marks) => marks.map((mark) => {
          mark.style.pointerEvents = "auto";
          const { x, y, width, height } = mark.getBoundingClientRect();
          return document.elementFromPoint(x + width / 2, y + height / 2).className;
        })""")
        assert found == ["peak old", "peak"] * 4

    def test_the_bug_is_shown_beside_the_right_numbers(self, shown):
        page = shown(examples.online_softmax())
        page.emulate_media(reduced_motion="reduce")
        press(page, "Next", 3)
        assert [name for name, _ in numbers(page, "l, the")] == ["before", "\u00d7 1.000", "+ block", "after"]
        page.get_by_label("only o").check()
        assert numbers(page, "l, the")[1:] == [
            ("\u00d7 1.000", "2.50"),  # the bug changes nothing here
            ("+ block", "0.62"),
            ("after", "3.12"),
            ("right", "2.50"),
        ]
        assert numbers(page, "output so far") == [("here", "30.40"), ("softmax", "38.00")]
        assert page.locator(".verdict").inner_text().endswith("Wrong by 7.60.")
        for i, score in enumerate((9, 1, 0, 2, 1, 1)):  # the highest first: no harm
            page.get_by_label(f"score of key {i}, a number").fill(str(score))
        assert page.locator(".verdict").inner_text().endswith("They are equal.")
        assert page.locator(".goals .done").count() == 1

    def test_hidden_blocks_give_no_nan(self, shown):
        page = shown(examples.online_softmax())
        for i in range(6):
            press(page, f"hide key {i}")
        assert page.locator(".key.off").count() == 6
        for _ in range(3):
            press(page, "Next")
            text = page.locator(".mha").inner_text()
            assert "m is still \u2212\u221e" in text
            assert [each[1:] for each in gauge(page, "m, the")] == [["\u2212\u221e", 0]] * 3  # no bar at 0
            assert "the output is set to 0" in text
            assert text.replace("is NaN", "").count("NaN") == 0
        press(page, "hide key 5")
        assert numbers(page, "output so far") == [("here", "60.00"), ("softmax", "60.00")]
        press(page, "hide key 0")
        press(page, "hide key 5")
        assert "all its keys are hidden. m stays" in page.locator(".now-words").inner_text()
        page.get_by_label("score of key 4, a number").fill("1.5")  # typing shows it again
        assert (value(page, "_hidden")[4], value(page, "_scores")[4]) == (False, 1.5)

    def test_a_score_is_moved_with_the_keyboard_and_typed(self, shown):
        page = shown(examples.online_softmax(), dead=True)
        page.set_viewport_size({"width": 900, "height": 300})
        page.evaluate("document.addEventListener('keydown', (event) => { window.heard = event.key; })")
        tip, field = grip(page, 2), page.get_by_label("score of key 2, a number")
        tip.focus()
        place = page.evaluate("scrollY")
        for key in ("ArrowRight", "ArrowUp", "PageUp", "ArrowLeft"):
            page.keyboard.press(key)
        page.wait_for_timeout(300)
        assert page.evaluate("scrollY") == place
        assert value(page, "_scores")[2] == pytest.approx(math.log(2) + 1.1, abs=1e-5)
        assert tip.get_attribute("aria-valuetext") == field.input_value() == "1.79"
        page.keyboard.press("End")
        assert value(page, "_scores")[2] == value(page, "_range")[1]
        page.keyboard.press("Home")
        assert value(page, "_scores")[2] == value(page, "_range")[0]
        assert page.evaluate("window.heard") is None  # JupyterLab would move to another cell
        for typed in ("-1.5", ""):
            field.fill(typed)
            assert value(page, "_scores")[2] == -1.5
        field.fill("900")
        field.press("Tab")
        assert float(field.input_value()) == value(page, "_scores")[2] == value(page, "_range")[1]
        said = page.locator(".said")
        assert (
            said.inner_text() == "For the score of key 2, choose a number from \u22123 to 5. Now it is 5.00."
        )
        place = "(one) => getComputedStyle(one).position"
        assert said.evaluate(place) == "sticky"  # in sight
        field.fill("2.345678")
        assert (said.inner_text(), said.evaluate(place)) == ("", "static")  # covers nothing
        field.press("Tab")
        assert (said.inner_text(), field.input_value(), value(page, "_scores")[2]) == ("", "2.35", 2.345678)
        field.fill("")
        field.press("Tab")
        assert said.inner_text().endswith("from \u22123 to 5. Now it is 2.35.")
        assert value(page, "_scores")[2] == 2.345678
        press(page, "hide key 2")
        assert said.inner_text() == ""

    def test_a_score_is_dragged(self, shown):
        page = shown(examples.online_softmax())
        low, high = value(page, "_range")
        rail = page.locator(".score").nth(4).bounding_box()
        box = grip(page, 4).bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for go in (1, 2, -1):
            page.mouse.move(*middle)
            page.mouse.down()
            page.mouse.move(middle[0] + go * rail["width"] / (high - low), middle[1], steps=3)
            page.mouse.up()
            assert value(page, "_scores")[4] == pytest.approx(go, abs=0.06)
            page.mouse.move(middle[0] + 200, middle[1])  # let go: it stays
            assert value(page, "_scores")[4] == pytest.approx(go, abs=0.06)
            page.evaluate("model.set('_scores', model.get('_scores').with(4, 0))")
        assert page.get_by_role("status").first.inner_text() != ""

    def test_a_finger_drags_a_square_by_as_much_as_it_moves(self, shown):
        page = shown(examples.online_softmax(), device=PHONE)
        low, high = value(page, "_range")
        box, rail = grip(page, 0).bounding_box(), page.locator(".score").first.bounding_box()
        assert (box["width"], box["height"]) == (44, 44)
        finger(page, box["x"] + 40, box["y"] + 4, 2 * rail["width"] / (high - low), 0)
        assert value(page, "_scores")[0] == pytest.approx(2, abs=0.15)
        assert page.evaluate("scrollY") == 0

    def test_a_swipe_that_begins_on_a_square_leaves_the_score(self, shown):
        page = shown(examples.online_softmax(), device=PHONE)
        page.evaluate("model.on('change:_scores', () => { window.changed = true; })")
        before, box = value(page, "_scores"), grip(page, 0).bounding_box()
        finger(page, box["x"] + 22, box["y"] + 22, 40, -120)
        page.wait_for_function("scrollY > 60")
        assert value(page, "_scores") == before
        assert page.evaluate("window.changed")  # it moved until the page did

    def test_another_block_size_keeps_what_is_read(self, shown):
        page = shown(examples.online_softmax())
        press(page, "Next", 2)
        size = page.get_by_label("keys in a block")
        for block, step, blocks in ((1, 4, 6), (3, 1, 2), (6, 0, 1)):
            size.select_option(str(block))
            assert (value(page, "_block"), value(page, "_step")) == (block, step)
            assert page.locator(".block").filter(visible=True).count() == blocks
        press(page, "Next")
        for block, step in ((4, 2), (1, 6), (2, 3)):  # all stays read, and the output the same
            size.select_option(str(block))
            assert value(page, "_step") == step
            assert numbers(page, "output so far")[0] == ("here", "38.00")

    def test_play_goes_on_by_itself_and_stops_when_something_is_pressed(self, shown):
        page = shown(examples.online_softmax())
        for _ in range(3):
            press(page, "Play")
            assert value(page, "_step") == 1
            page.wait_for_function("model.get('_step') === 2")
            press(page, "Pause")
            page.wait_for_timeout(2800)
            assert value(page, "_step") == 2
            press(page, "Reset")
        press(page, "Play")
        page.wait_for_function("model.get('_step') === 3")
        assert page.get_by_role("button", name="Play").count() == 1
        press(page, "Play")  # from the beginning again
        assert value(page, "_step") == 1

    @pytest.mark.parametrize("motion", ["reduce", "no-preference"])
    def test_bars_move_for_half_a_second_at_most_and_only_where_motion_is_welcome(self, shown, motion):
        page = shown(examples.online_softmax())
        page.emulate_media(reduced_motion=motion)
        press(page, "Next", 2)
        ends = page.evaluate("document.getAnimations().map((one) => one.effect.getComputedTiming().endTime)")
        assert (len(ends) > 0) == (motion == "no-preference")
        assert all(end <= 500 for end in ends)
        press(page, "Reset")
        assert page.evaluate("document.getAnimations().length") == 0

    def test_with_less_motion_too_play_goes_block_by_block(self, shown):
        page = shown(examples.online_softmax())
        page.emulate_media(reduced_motion="reduce")
        page.evaluate("""window.times = [];
          model.on("change:_step", () => times.push(performance.now()) ); 0""")
        press(page, "Play")
        assert value(page, "_step") == 1
        page.get_by_role("button", name="Pause").wait_for()
        page.get_by_role("button", name="Play").wait_for()
        assert value(page, "_step") == 3
        first, second, third = page.evaluate("times")
        assert min(second - first, third - second) > 2000

    @pytest.mark.parametrize("width", [320, 375, 768, 1280])
    def test_nothing_is_cut_off_or_small_at_any_width(self, shown, width):
        scores, values = torch.tensor([-8.25, 3.5, 12.0, 0, 1, 2, 3, 4, 5, 6, 7, 8]), torch.randn(12, 3)
        page = shown(explore.online_softmax(scores, values, block=3, step=4, rescaled="neither"))
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        small = page.locator(".mha *").evaluate_all("""(all) => all.filter((one) => one.checkVisibility()
          && parseFloat(getComputedStyle(one).fontSize) < 11).length""")
        assert small == 0
        over = page.locator(".level > span, .name").evaluate_all("""(all) =>
          all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)""")
        assert over == []
