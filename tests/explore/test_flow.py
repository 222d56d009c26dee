"""Values that flow to an output: the same numbers as the package's, and every part by hand."""

import re

import pytest
import torch

import mha_lab
from bench import examples
from bench.browser import PHONE, finger, needs_chromium, show, state
from mha_course import explore
from mha_lab.heads import merge_heads

CLOSE = {"atol": 1e-6, "rtol": 1e-6}
SHOWN = {"head 0": [0], "head 1": [1], "both": [0, 1], "average": [0, 1]}


def value(page, name):
    return page.evaluate("(name) => model.get(name)", name)


def problem(seed, n=5):
    """Two heads; every axis has another size."""
    torch.manual_seed(seed)
    tensors = [torch.randn(2, n, width, dtype=torch.float64) for width in (3, 3, 4)]
    return [str(i) for i in range(n)], *tensors, torch.randn(8, 7, dtype=torch.float64)


def expected(query, key, value, w_o, row, shown, **scale):
    """Weights and output of one query by the package's functions."""
    heads, weights = mha_lab.scaled_dot_product_attention(query, key, value, **scale)
    heads, weights, picked = heads[:, row], weights[:, row], SHOWN[shown]
    if shown == "average":
        return weights.mean(0, keepdim=True), heads.mean(0)
    if w_o is None:
        return weights[picked], heads[picked].flatten()
    alone = torch.zeros_like(heads)
    alone[picked] = heads[picked]
    return weights[picked], (merge_heads(alone[None, :, None]) @ w_o)[0, 0]


def checked(page, picture, answer):
    """The browser's numbers and those of Python are the answer."""
    weights, output = answer
    torch.testing.assert_close((picture.weights, picture.output), answer, **CLOSE)
    asked = {name.removeprefix("_"): each for name, each in state(picture).items()}
    found = page.evaluate("(asked) => module.compute(asked)", asked)
    rows = torch.tensor([found["heads"][h]["weights"] for h in found["picked"]], dtype=torch.float64)
    torch.testing.assert_close(
        rows.mean(0, keepdim=True) if len(weights) < len(rows) else rows, weights, **CLOSE
    )
    torch.testing.assert_close(torch.tensor(found["output"], dtype=torch.float64), output, **CLOSE)


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("seed", range(3))
def test_the_numbers_are_those_of_attention(shown, seed):
    """For every choice of heads, with and without w_o; then with values, scale, w_o and a score changed."""
    page, row = shown(examples.flow()), seed + 1
    tokens, query, key, values, w_o = problem(seed, 5 + seed)
    for matrix in (w_o, None):
        picture = explore.flow(tokens, query, key, values, matrix, row=row)
        for name in SHOWN:
            picture.shown = name
            checked(page, picture, expected(query, key, values, matrix, row, name))
            torch.testing.assert_close(
                picture.scores, mha_lab.scaled_dot_product_scores(query, key)[SHOWN[name], row]
            )
    picture = explore.flow(tokens, query, key, values, w_o, row=row)
    picture.values, picture.scale, picture.w_o = values * 2, 0.25, w_o - 1
    checked(page, picture, expected(query, key, values * 2, w_o - 1, row, "both", scale=0.25))
    # A larger product with one key, as a longer key would have; the edit is for this query only.
    picture._edits |= {f"product 1 {row} 2": (query[1, row] @ key[1, 2]).item() + 3}
    longer = key.clone()
    longer[1, 2] += 3 * query[1, row] / query[1, row].square().sum()
    checked(page, picture, expected(query, longer, values * 2, w_o - 1, row, "both", scale=0.25))
    picture.row = 0
    checked(page, picture, expected(query, key, values * 2, w_o - 1, 0, "both", scale=0.25))


def test_the_state_goes_both_ways():
    tokens, query, key, values, w_o = problem(0)
    picture = explore.flow(tokens, query.float(), key.float(), values.float(), w_o.float(), row=3)
    assert (picture.row, picture.shown, picture.step, picture.output.dtype) == (
        3,
        "both",
        "start",
        torch.float32,
    )
    picture.step = "weigh"
    assert (picture.step, picture._at) == ("weigh", 4)
    picture._at = 4.5  # what the slider sends
    assert picture.step == "sum"
    picture._edits = {"value 1 2 0": 9.0}  # what a drag sends
    changed = values.float()
    changed[1, 2, 0] = 9
    assert torch.equal(picture.values, changed)
    picture.values = values.float()
    assert picture._edits == {}
    picture.shown = "head 1"
    assert (len(picture.weights), picture._shown) == (1, "1")
    one = explore.flow(tokens, query[0], key[0], values[0])
    assert (one.shown, one.w_o, one.output.shape) == ("head 0", None, (4,))
    assert "Output (head 0): " in one.describe()


@pytest.mark.parametrize(
    ("known", "numbers", "told"),
    [
        ("start", 0, {"value"}),
        ("scale", 2, {"value", "score"}),
        (None, 3, {"value", "score", "weight", "Output"}),
    ],
)
@pytest.mark.parametrize("heads", [1, 2])
def test_the_still_stops_where_it_is_told_to_until_a_later_step(known, numbers, told, heads):
    tokens, query, key, values, _ = problem(0)
    picture = explore.flow(tokens, query[:heads], key[:heads], values[:heads], row=3, known=known)
    weights = {f"{weight:.2f}" for weight in picture.weights.flatten().tolist()}

    def words():
        figure = picture.still()
        return [text.get_text() for ax in figure.axes for text in ax.texts], figure

    texts, figure = words()
    cells = [text for text in texts if re.fullmatch(r"-?\d+\.\d\d", text)]
    ribbons = sum(len(ax.collections) for ax in figure.axes)
    if known:
        assert (len(cells), ribbons) == (numbers * heads * len(tokens), 0)
        assert weights.isdisjoint(cells)
    said = picture.describe()
    assert {word for word in ("value", "score", "weight", "Output") if word in said} == told
    picture.step = "softmax"
    assert weights <= set(words()[0])
    assert "weight" in picture.describe()


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "words"),
    {
        "flow('ab', x, x, x)": "tokens: expected a list of labels",
        "flow(['a'], x, x, x)": "tokens: expected 2 labels, got 1",
        "flow(names, x, x, x * torch.nan)": "value: expected finite numbers",
        "flow(names, x[0], x, x)": "query: expected a tensor of shape",
        "flow(names, x, x[:, :1], x)": "key: expected",
        "flow(names, x, x[:1], x)": "value: expected one row for each key",
        "flow(names, x, x[:1], x[:1])": "key and value: expected 1 heads of 2 tokens, as in query",
        "flow(names, x.expand(3, 2, 2), x, x)": "key and value: expected 3 heads of 2 tokens",
        "flow(names, *3 * [torch.ones(3, 2, 2)])": "the picture: expected 1 to 2 for heads, got 3",
        "flow(['a'] * 9, *3 * [torch.ones(9, 2)])": "the picture: expected 1 to 8 for tokens, got 9",
        "flow(names, x, x, torch.ones(2, 5))": "the picture: expected 1 to 4 for d_v, got 5",
        "flow(names, x, x, x, torch.ones(3, 2))": "w_o: expected 2 rows, num_heads * d_v",
        "flow(names, x, x, x, x.double())": "w_o: expected the dtype of query",
        "flow(names, x, x, x, known='sum')": "known: expected None or one of start, scale, got 'sum'",
        "flow(names, x, x, x, row=2)": "row: expected a token from 0 to 1, got 2",
        "setattr(flow(names, x, x, x), 'shown', 'both')": "shown: expected one of head 0, got 'both'",
        "setattr(flow(names, x, x, x), 'step', 'w_o')": "step: expected one of start, product",
        "setattr(flow(names, x, x, x), 'values', x)": "values: expected a tensor of shape (1, 2, 2)",
        "setattr(flow(names, x, x, x), 'values', x[None, :1])": "values: expected the shape (1, 2, 2)",
        "setattr(flow(names, x, x, x), 'w_o', x)": "w_o: expected a picture with w_o",
        "setattr(flow(names, x, x, x), 'scale', '1')": "scale: expected a number",
    }.items(),
)
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(call, {"flow": explore.flow, "x": torch.ones(2, 2), "names": ["a", "b"], "torch": torch})
    assert str(caught.value).startswith(words)


pages = [pytest.mark.browser, needs_chromium]


def grip(page, name):
    return page.get_by_role("slider", name=name, exact=True)


TOUCHING = """() => {
  const shown = [...document.querySelectorAll(".picture text")]
    .filter((one) => one.textContent && one.getAttribute("opacity") > 0);
  const boxes = shown.map((one) => [one.textContent, one.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) =>
    Math.max(p.left - q.right, q.left - p.right) < 3 && Math.max(p.top - q.bottom, q.top - p.bottom) < -3)
    .map(([b]) => [a, b]));
}"""


def text(page):
    return page.locator(".now").inner_text()


class TestPage:
    pytestmark = pages

    def test_a_value_and_a_score_are_dragged_typed_and_spoken(self, shown):
        page = shown(examples.flow_one_head(), dead=True)
        assert not grip(page, "cat: query · key").is_visible()  # not before the first step
        for step in range(1, 6):
            page.get_by_role("button", name="Next").click()
            page.wait_for_function("(step) => model.get('_at') === step", arg=step)
        assert text(page) == "5 output = sum of weight × ▲ value = (0.85, 0.46)"
        assert page.get_by_role("status").inner_text() == text(page)
        box = grip(page, "cat: value, number 1").bounding_box()
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 7 + (box["width"] - 14) * 0.3 / 2.6, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + 7 + (box["width"] - 14) * 2.3 / 2.6, middle, steps=4)
        page.mouse.up()
        assert value(page, "_edits") == {"value 0 4 1": 1}
        assert text(page).endswith("= (0.85, 0.89)")  # as chapter 00 says
        page.get_by_role("button", name="Reset").click()
        page.evaluate("model.set('_at', 5)")
        cat = grip(page, "cat: score")
        cat.focus()
        page.evaluate("document.addEventListener('keydown', (event) => { window.heard = event.key; })")
        for _ in range(12):
            page.keyboard.press("ArrowRight")
        assert page.evaluate("window.heard") is None  # JupyterLab would move to another cell
        assert cat.get_attribute("aria-valuetext") == "2.90, weight 0.46"
        assert text(page).endswith("(0.90, \u22120.01)")  # nearly 0, as chapter 01 says
        assert page.get_by_role("status").inner_text() == text(page)
        assert page.locator(".goals .done").count() == 1

    def test_the_scale_the_heads_and_w_o(self, shown):
        """In each choice of heads, the words say the output; the average has no w_o."""
        page = shown(examples.flow())
        page.evaluate("model.set('_at', 6)")
        assert text(page) == "6 output = concat @ w_o = (\u22120.84, 0.85, 0.05, 0.84)"
        for head, output in {
            "head 0": "(0.00, 0.85, 0.00, 0.84)",
            "head 1": "(\u22120.84, 0.00, 0.05, 0.00)",
        }.items():
            page.get_by_label(head, exact=True).check()
            assert text(page).endswith(output)
            hidden = f"head {1 - int(head[-1])}, dog: value, number 0"
            assert not grip(page, hidden).is_visible()
        page.get_by_label("average").check()
        assert text(page) == "5 output = average of the heads = (0.45, 0.00), too narrow for w_o"
        assert not page.get_by_label("w_o, row 3, column 0").is_visible()
        page.get_by_label("both").check()
        grip(page, "steps").fill("6")
        page.get_by_label("w_o, row 3, column 0").fill("0")
        page.get_by_label("w_o, row 3, column 3").fill("1")
        assert text(page).endswith("= (0.00, 0.85, 0.05, 0.00)")  # as chapter 05 says
        page.get_by_role("button", name="Reset").click()
        grip(page, "scale").fill("1")
        assert text(page) == "Press Play or Next, or move the slider."
        assert grip(page, "steps").get_attribute("aria-valuetext") == text(page)
        assert value(page, "_edits") == {"scale": 1}
        grip(page, "steps").fill("2")
        assert "score = scale × (query · key) = 1.000 × 4.00 = 4.00" in text(page)
        page.evaluate("model.set('_at', 5)")
        assert text(page).startswith("5 output of a head = sum of weight × ▲ value = head 0, (")

    def test_a_score_has_its_handle_at_any_scale(self, shown):
        """Each score has its own place, and a key moves it by a little."""
        page = shown(examples.flow_one_head())
        page.evaluate("model.set('_at', 5)")
        dog, cat = (grip(page, f"{name}: score") for name in ("dog", "cat"))
        for scale in (0, 0.5, 3):
            edits = {"scale": scale, "product 0 2 1": 4, "product 0 2 4": 5}
            page.evaluate("(edits) => model.set('_edits', edits)", edits)
            assert [float(one.input_value()) for one in (dog, cat)] == pytest.approx([4 * scale, 5 * scale])
        bars = page.locator("svg rect[height='8']")  # three for each token: two numbers, the score
        long, longer = (float(bars.nth(i).get_attribute("width")) for i in (5, 14))
        assert long / longer == pytest.approx(4 / 5)
        dog.press("ArrowLeft")
        assert value(page, "_edits")["product 0 2 1"] == pytest.approx(3.9)
        box = page.locator(".handle").nth(5).bounding_box()
        page.mouse.move(box["x"] + 22, box["y"] + 22)
        page.mouse.down()
        page.mouse.move(box["x"] + 12, box["y"] + 22)
        page.mouse.up()
        assert page.locator(".handle").nth(5).bounding_box()["x"] == pytest.approx(box["x"] - 10, abs=2)

    @pytest.mark.parametrize("press", ["button.click()", "slider.dispatchEvent(new KeyboardEvent('keydown', "
                                       "{ key: 'ArrowRight', shiftKey: true }))"])  # fmt: skip
    def test_three_quick_presses_go_three_steps(self, shown, press):
        """Also back, and after a pause in the middle of a glide."""
        page = shown(examples.flow())
        page.evaluate("""(press) => {
          let now = 0, frames = [];
          performance.now = () => now;
          window.requestAnimationFrame = (draw) => frames.push(draw);
          window.pass = (ms) => { now += ms; frames.splice(0).forEach((draw) => draw(now)); };
          window.three = (way) => {
            const button = [...document.querySelectorAll("button")].find((one) => one.textContent === way);
            const slider = document.querySelector("[aria-label=steps]");
            for (let i = 0; i < 3; i += 1) eval(press);
          };
        }""", press)  # fmt: skip
        page.evaluate("three('Next'); pass(9000)")
        assert value(page, "_at") == 3
        page.get_by_role("button", name="Back").click()
        page.evaluate("pass(200)")
        grip(page, "head 0, dog: value, number 0").press("ArrowLeft")
        assert 2 < value(page, "_at") < 2.8  # a glide ends where something else is touched
        page.get_by_role("button", name="Next").click()
        page.evaluate("pass(9000)")
        assert value(page, "_at") == 3

    def test_the_steps_move_by_keys_to_places_that_one_can_see(self, shown):
        page = shown(examples.flow_one_head())
        page.evaluate("""document.addEventListener('keydown', ({ key }) => {
          if (key !== 'Shift') window.heard = key;
        })""")
        steps = grip(page, "steps")
        steps.fill("0.35")  # from between two places, to the next one
        for key, at in {"ArrowRight": 0.5, "ArrowUp": 0.75, "ArrowLeft": 0.5, "ArrowDown": 0.25}.items():
            steps.press(key)
            assert (value(page, "_at"), steps.input_value()) == (at, str(at))
        for key, at in {"PageUp": 1, "Shift+ArrowRight": 2, "PageDown": 1, "Shift+ArrowLeft": 0}.items():
            steps.press(key)
            page.wait_for_function("(at) => model.get('_at') === at", arg=at)
        steps.press("ArrowLeft")
        assert value(page, "_at") == 0
        steps.press("End")
        assert value(page, "_at") == 5
        assert page.evaluate("window.heard") is None  # JupyterLab would move to another cell

    def test_a_handle_is_named_after_the_number_that_it_says(self, shown):
        """At every place, also on the way from query · key to the score, and the picture says the same."""
        page, picture = shown(examples.flow_one_head()), examples.flow_one_head()
        scores = [f"{score:.2f}" for score in picture.scores[0].tolist()]
        products = [f"{product:.2f}" for product in picture._products()[0, 2].tolist()]
        for quarter in range(1, 21):
            page.evaluate("(at) => model.set('_at', at)", quarter / 4)
            name, heading, numbers = (
                ("query · key", "q · k", products) if quarter <= 4 else ("score", "score", scores)
            )
            grips = [grip(page, f"{token}: {name}").all() for token in ("a", "dog", "saw", "cat")]
            said = [one.get_attribute("aria-valuetext").split(",")[0] for some in grips for one in some]
            assert sorted(said) == sorted(numbers)
            words = page.locator(".picture text").all_text_contents()
            assert ("q · k" in words, "score" in words) == (heading == "q · k", heading == "score")
            assert set(numbers) <= set(words)

    @pytest.mark.parametrize("longer", [False, True])
    def test_labels_do_not_touch_on_a_phone(self, shown, longer):
        """At every step, for every choice of heads; also long names and long numbers."""
        tokens, query, key, values, w_o = problem(0)
        tokens = ["because", "understanding", *tokens[2:]]
        picture = explore.flow(tokens, 5 * query, 5 * key, 5 * values[..., :2], w_o[:4, :3], row=1)
        page = shown(picture if longer else examples.flow(), device=PHONE)
        page.evaluate("model.set('_edits', { scale: 3, 'product 0 2 4': 3.9 })")
        for heads in ("0", "both", "average"):
            page.evaluate("(heads) => model.set('_shown', heads)", heads)
            for half in range(13):
                page.evaluate("(at) => model.set('_at', at)", half / 2)
                assert page.evaluate(TOUCHING) == []

    def test_a_wide_ribbon_leaves_the_names_above_free(self, shown):
        page = shown(examples.flow())
        edits = {"scale": 3, "product 0 2 4": 9, "product 1 2 0": 9}
        page.evaluate("(edits) => { model.set('_at', 3); model.set('_edits', edits); }", edits)
        ends = page.locator("svg path").evaluate_all(
            "(all) => all.map((one) => one.getBBox()).map(({ y, height }) => [y, y + height])"
        )
        line = float(page.locator("svg text", has_text="weight").nth(1).get_attribute("y"))
        last, first = ends[12], ends[15]  # of head 0 and of head 1; each ribbon has two branches
        assert last[1] < line - 10
        assert first[0] > line

    def test_ribbons_bars_and_sums_are_to_scale(self, shown):
        """As thick as weights, as long as weight × value, one after the other, up to the output."""
        picture = examples.flow_one_head()
        page = shown(picture)
        page.evaluate("model.set('_at', 5)")
        unit = (grip(page, "dog: value, number 0").bounding_box()["width"] - 14) / 2.6
        thick = page.locator("svg path").evaluate_all("""(all) => all.map((path) => {
          const numbers = path.getAttribute("d").match(/-?[0-9.]+/g).map(Number);
          return [numbers.at(-1) - numbers[1], numbers[8] - numbers[7]];
        })""")[::3]  # at both ends; each ribbon has two branches behind the node
        weights = picture.weights[0]
        for end in zip(*thick, strict=True):
            assert end == pytest.approx((88 * weights).tolist(), abs=1e-3)
        bars = page.locator("svg rect").evaluate_all("""(all) => all.map((bar) =>
          ["fill", "x", "width", "height"].map((name) => bar.getAttribute(name)))""")
        bars = [(fill, *map(float, numbers)) for fill, *numbers in bars]
        sums = [(x, width / unit) for fill, x, width, _ in bars if fill == "currentColor"]
        assert [length for _, length in sums] == pytest.approx(picture.output.tolist(), abs=1e-3)
        zero = sums[0][0]
        parts = [bar[1:3] for bar in bars if bar[0] == "var(--value)" and bar[3] != 8 and bar[2]]
        expected = (weights[:, None] * picture.values[0]).abs()
        lengths = [width / unit for _, width in parts]
        assert lengths == pytest.approx(expected[expected > 0].tolist(), abs=1e-3)
        dog, saw, cat = weights[[1, 2, 4]].tolist()
        places = [(x - zero) / unit for x, _ in parts]  # dog twice, saw goes back, cat on and back
        assert places == pytest.approx([0, 0, dog - saw, dog - saw, dog - cat], abs=1e-3)

    def test_a_goal_that_is_met_at_the_start_is_not_ticked_by_another_score(self, shown):
        """The query "a" of head 0 gives two tokens over 0.4, whatever is dragged."""
        page = shown(examples.flow())
        page.evaluate("model.set('_row', 0); model.set('_at', 6)")
        grip(page, "head 0, saw: score").press("ArrowLeft")
        assert value(page, "_edits") != {}
        assert page.locator(".goals .done").count() == 0
        page.evaluate(
            "model.set('_edits', { 'product 0 0 2': 2.6, 'product 0 0 1': 2.6, 'product 0 0 4': -4 })"
        )
        assert page.locator(".goals .done").all_inner_texts() == [
            "Reached: Drag a score until two tokens have a weight over 0.4 each."
        ]

    def test_reset_while_it_plays_goes_back_to_the_beginning(self, shown):
        page = shown(examples.flow_one_head())
        page.get_by_role("button", name="Play").click()
        page.wait_for_function("document.querySelector('[aria-label=steps]').valueAsNumber > 1")
        page.get_by_role("button", name="Reset").click()
        page.wait_for_timeout(200)
        assert (value(page, "_playing"), value(page, "_at")) == (False, 0)
        assert page.get_by_label("steps").input_value() == "0"

    def test_a_loop_plays_until_something_is_touched(self, shown):
        page = shown(examples.flow_one_head())
        seen = page.evaluate("""async () => {
          const seen = [], slider = document.querySelector("[aria-label=steps]"), begun = performance.now();
          document.querySelector("button").click();
          while (performance.now() - begun < 4600) {
            seen.push([performance.now() - begun, slider.valueAsNumber]);
            await new Promise(requestAnimationFrame);
          }
          return seen;
        }""")
        ends = [time for time, at in seen if at == 5]
        assert ends[0] > 2800  # 5 steps; a slow machine draws later, but not earlier
        assert seen[-1][1] < 3  # it begins again
        page.get_by_role("button", name="Pause").click()
        at = value(page, "_at")
        assert (value(page, "_playing"), page.get_by_role("button", name="Play").count()) == (False, 1)
        page.wait_for_timeout(200)
        assert (value(page, "_at"), at > 0) == (at, True)
        page.evaluate("model.set('_at', 3.4)")
        page.get_by_role("button", name="Play").click()
        assert page.get_by_label("steps").evaluate("(slider) => slider.valueAsNumber") > 3  # it goes on
        page.wait_for_timeout(1000)
        grip(page, "dog: value, number 0").press("ArrowLeft")
        assert not value(page, "_playing")

    @pytest.mark.parametrize("play", [True, False])
    def test_nothing_plays_for_those_who_want_no_motion(self, browser, play):
        context = browser.new_context(reduced_motion="reduce")
        picture = examples.flow()
        picture._playing = play
        page = show(Page(context), picture)
        if not play:
            page.get_by_role("button", name="Play").click()
        assert (value(page, "_at"), value(page, "_playing"), page.errors) == (6, False, [])
        page.get_by_role("button", name="Back").click()
        assert value(page, "_at") == 5
        context.close()

    @pytest.mark.parametrize("x", [4, 31])  # beside the handle, and on it
    def test_a_swipe_scrolls_the_page_and_leaves_the_numbers(self, shown, x):
        page = shown(examples.flow(), device=PHONE)
        page.evaluate("model.set('_at', 5)")
        page.evaluate("model.on('change:_edits', () => { window.changed = true; })")
        box = grip(page, "head 0, a: value, number 0").first.bounding_box()
        finger(page, box["x"] + x, box["y"] + 22, 40, -120)
        page.wait_for_function("scrollY > 60")
        assert value(page, "_edits") == {}
        assert page.evaluate("window.changed ?? false") == (x == 31)  # it moved until the page did

    def test_a_finger_drags_a_handle_by_as_much_as_it_moves(self, shown):
        page = shown(examples.flow_one_head(), device=PHONE)
        handle = page.locator(".handle").nth(3).bounding_box()  # number 0 of the dog
        assert (handle["width"], handle["height"]) == (44, 44)
        unit = (grip(page, "dog: value, number 0").bounding_box()["width"] - 14) / 2.6
        finger(page, handle["x"] + 40, handle["y"] + 4, -unit, 0)  # it does not jump to the finger
        assert value(page, "_edits") == {"value 0 1 0": pytest.approx(0, abs=0.11)}
        assert page.evaluate("scrollY") == 0

    @pytest.mark.parametrize("width", [320, 375, 768, 1280])
    def test_the_picture_fills_its_own_width(self, shown, width):
        page = shown(examples.flow())
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate("model.set('_at', 6)")
        room, svg = page.locator(".picture").bounding_box(), page.locator("svg").bounding_box()
        assert svg["width"] == pytest.approx(max(room["width"], 0), abs=20)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cut = page.locator("svg text").evaluate_all("""(words) => words.filter((word) => {
          const [box, svg] = [word, word.ownerSVGElement].map((each) => each.getBoundingClientRect());
          return box.left < svg.left - 2 || box.right > svg.right + 2 || box.bottom > svg.bottom + 2;
        }).map((word) => word.textContent)""")
        assert cut == []


class Page:
    """A browser whose pages are in one context."""

    def __init__(self, context):
        self.new_page = lambda **_: context.new_page()
