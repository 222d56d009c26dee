"""A query and a key at two positions: the package's numbers, and every way to move the two."""

import math
from itertools import product

import pytest
import torch

import mha_lab
from bench import examples
from bench.browser import DESK, PHONE, THEMES, finger, needs_chromium, state
from mha_course import explore
from mha_lab import positions
from mha_lab.scores import AlibiScore, RotaryScore

CLOSE = {"atol": 1e-6, "rtol": 1e-6}
KINDS = ("rotary", "sinusoidal", "alibi")
PLACES = [(0, 0), (31, 0), (0, 31), (7, 12), (12, 7), (30, 31)]


def value(page, name):
    return page.evaluate("(name) => model.get(name)", name)


def problem(seed):
    """A query and a key; every width occurs."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 2 + 2 * (seed % 4), generator=generator, dtype=torch.float64) * 2


def expected(query, key, kind, base, head):
    """The scores of 32 equal queries and 32 equal keys, by the package's own layers."""
    query, key = (x.expand(8, 32, -1) for x in (query, key))  # 8 heads
    if kind == "rotary":
        return RotaryScore(base=base)(query, key)[head]
    if kind == "alibi":
        return AlibiScore(8)(query, key)[head]
    P = positions.sinusoidal_positions(32, query.shape[-1], base=base, dtype=query.dtype)
    return mha_lab.scaled_dot_product_scores(query + P, key + P)[head]


def part_by_hand(query, key, kind, theta, i, j):
    """One pair of columns, by the chapter's formulas."""
    (a, b), (c, d) = query, key
    if kind == "rotary":
        apart = (j - i) * theta + math.atan2(d, c) - math.atan2(b, a)
        return math.hypot(a, b) * math.hypot(c, d) * math.cos(apart)
    if kind == "sinusoidal":
        a, b = a + math.sin(i * theta), b + math.cos(i * theta)
        c, d = c + math.sin(j * theta), d + math.cos(j * theta)
    return a * c + b * d


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_are_those_of_the_layers(shown, kind):
    """Parts by hand, scores by the layers; in Python and in the browser."""
    page = shown(examples.positions())
    for seed in range(8):
        (query, key), head, base = problem(seed), seed, [100, 10000.0, 50, 1.5][seed % 4]
        slope = positions.alibi_slopes(8, dtype=torch.float64)[head].item()
        picture = explore.positions(query, key, kind=kind, base=base, slope=slope)
        scores = expected(query, key, kind, base, head)
        for i, j in PLACES:
            picture.at = i, j
            asked = {name.removeprefix("_"): each for name, each in state(picture).items()}
            found = page.evaluate("(asked) => module.compute(asked)", asked)
            speeds = [base ** (-2 * r / len(query)) for r in range(len(query) // 2)]
            assert [pair["theta"] for pair in found["pairs"]] == pytest.approx(speeds)
            pairs = zip(query.view(-1, 2).tolist(), key.view(-1, 2).tolist(), speeds, strict=True)
            parts = torch.tensor([part_by_hand(q, k, kind, t, i, j) for q, k, t in pairs]).double()
            torch.testing.assert_close(picture.parts, parts, **CLOSE)
            drawn = torch.tensor([pair["part"] for pair in found["pairs"]], dtype=torch.float64)
            torch.testing.assert_close(drawn, parts, **CLOSE)
            by_angle = [math.prod(pair["lengths"]) * math.cos(pair["angle"]) for pair in found["pairs"]]
            assert by_angle == pytest.approx(parts.tolist(), abs=1e-6)
            torch.testing.assert_close(picture.score, scores[i, j], **CLOSE)
            assert found["score"] == pytest.approx(scores[i, j].item(), abs=1e-6)
            assert found["distance"] == j - i


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("seed", range(4))
def test_only_two_of_the_four_products_change_when_both_move(shown, seed):
    """Each term by the package's table; P · P of equal distances is equal."""
    page, (query, key) = shown(examples.positions()), problem(seed)
    P = positions.sinusoidal_positions(32, len(query), base=100, dtype=torch.float64)
    terms = []
    for i, j in [(3, 9), (14, 20)]:
        picture = explore.positions(query, key, at=(i, j), kind="sinusoidal", base=100)
        asked = {name.removeprefix("_"): each for name, each in state(picture).items()}
        found = page.evaluate("(asked) => module.products(module.compute(asked))", asked)
        terms.append(found)
        by_hand = [query @ key, query @ P[j], P[i] @ key, P[i] @ P[j]]
        assert found == pytest.approx([term.item() for term in by_hand], abs=1e-6)
    same = [a == pytest.approx(b, abs=1e-6) for a, b in zip(*terms, strict=True)]
    assert same == [True, False, False, True]


def test_the_state_goes_both_ways():
    picture = examples.positions()
    assert (picture.at, picture.kind, picture.parts.dtype, picture.score.shape) == (
        (8, 5),
        "rotary",
        torch.float32,
        (),
    )
    before = picture.parts
    picture.at = 20, 17
    assert picture._at == [20, 17]
    torch.testing.assert_close(picture.parts, before)
    picture._kind = "sinusoidal"  # what a press of the button sends
    assert not torch.allclose(picture.parts, before)
    picture.kind = "alibi"
    picture._at = [0, 4]  # what a drag sends
    assert picture.at == (0, 4)
    torch.testing.assert_close(picture.score, picture.parts.sum() / 8**0.5 - 0.5 * 4)
    assert picture.describe().startswith("ALiBi (slope 0.5): query at position 0, key at 4, distance 4.")


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "words"),
    {
        "positions([1.0, 2.0], x)": "query: expected a torch.Tensor",
        "positions(x[None], x)": "query: expected a tensor of shape (d_k,)",
        "positions(x, x * torch.inf)": "key: expected finite numbers",
        "positions(x.long(), x.long())": "query: expected floating-point numbers",
        "positions(x, x.double())": "key: expected the dtype of query",
        "positions(x, torch.ones(4))": "key: expected a last axis of d_k = 2, got 4",
        "positions(x[:1], x[:1])": "query: expected an even number from 2 to 8 for d_k, got 1",
        "positions(torch.ones(10), torch.ones(10))": "query: expected an even number from 2 to 8",
        "positions(x, x, at=(0, 32))": "at: expected positions from 0 to 31, got 32",
        "positions(x, x, at=(-1, 0))": "at: expected at least 0, got -1",
        "positions(x, x, at=(0.5, 0))": "at: expected an int",
        "positions(x, x, at=3)": "at: expected the positions of the query and of the key, got 3",
        "positions(x, x, kind='learned')": "kind: expected one of rotary, sinusoidal, alibi, got 'learned'",
        "positions(x, x, kind=[])": "kind: expected one of rotary, sinusoidal, alibi, got []",
        "positions(x, x, base=0)": "base: expected a number above 0",
        "positions(x, x, slope='1/2')": "slope: expected a number",
        "setattr(positions(x, x), 'at', (1, 2, 3))": "at: expected the positions of the query",
        "setattr(positions(x, x), 'kind', 'ALiBi')": "kind: expected one of rotary",
    }.items(),
)
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(call, {"positions": explore.positions, "x": torch.ones(2), "torch": torch})
    assert str(caught.value).startswith(words)


def slider(page, name):
    return page.get_by_role("slider", name=name, exact=True)


def unit(page):
    """The way in px from one position to the next."""
    return page.locator(".strip svg").bounding_box()["width"] / 32


def drag(page, i, steps):
    """A mouse takes handle i and goes this many positions."""
    box = page.locator(".strip .handle").nth(i).bounding_box()
    x, y = box["x"] + 30, box["y"] + 12  # beside its middle: it does not jump
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + steps * unit(page), y, steps=5)
    page.mouse.up()


def read(page):
    """The parts below the dials, and the score."""
    parts = page.locator(".dials strong").all_inner_texts()
    return [part.removeprefix("= ") for part in parts], page.locator(".sum").inner_text().split()[-1]


@pytest.mark.browser
@needs_chromium
class TestPage:
    def test_both_are_dragged_and_with_rotary_nothing_changes(self, shown):
        page = shown(examples.positions(), dead=True)
        start = read(page)
        for _ in range(3):
            drag(page, 2, 6)
        assert value(page, "_at") == [26, 23]
        assert read(page) == start
        said = "Query at 26, key at 23, distance \u22123: score 1.20."
        assert page.get_by_role("status").inner_text() == said
        drag(page, 2, 20)  # both stop where the first of them is at the end
        assert value(page, "_at") == [31, 28]
        drag(page, 0, -21)
        drag(page, 1, -40)
        assert value(page, "_at") == [10, 0]
        assert read(page) != start
        page.get_by_role("button", name="Reset").click()
        assert (value(page, "_at"), read(page)) == ([8, 5], start)

    @pytest.mark.parametrize(("kind", "same"), [("sinusoidal", False), ("ALiBi", True)])
    def test_which_scores_change_when_both_move(self, shown, kind, same):
        page = shown(examples.positions())
        page.get_by_label(kind).check()
        assert value(page, "_kind") == kind.lower()
        parts, score = read(page)
        drag(page, 2, 4)
        after, later = read(page)
        assert (after == parts, later == score) == (same, same)
        drag(page, 1, 3)
        after, last = read(page)
        assert (after == parts, last != later) == (same, True)  # ALiBi: only the distance counts
        four = page.get_by_text("The sum in brackets")
        assert four.is_visible() != same

    def test_keys_move_one_or_both(self, shown):
        page = shown(examples.positions(), dead=True)
        page.evaluate("document.addEventListener('keydown', (event) => { window.heard = event.key; })")
        for name, key, at in [
            ("position of the query", "ArrowRight", [9, 5]),
            ("position of the key", "ArrowLeft", [9, 4]),
            ("both positions", "ArrowUp", [10, 5]),
            ("both positions", "Home", [5, 0]),
            ("both positions", "End", [31, 26]),
            ("position of the query", "Home", [0, 26]),
            ("both positions", "End", [5, 31]),
            ("position of the key", "Home", [5, 0]),
        ]:
            slider(page, name).press(key)
            assert value(page, "_at") == at
        assert page.evaluate("window.heard") is None  # JupyterLab would move to another cell
        text = slider(page, "both positions").get_attribute("aria-valuetext")
        assert text.startswith("query at 5, key at 0, score ")
        assert (
            page.get_by_role("status")
            .inner_text()
            .startswith("Query at 5, key at 0, distance \u22125: score ")
        )

    @pytest.mark.parametrize("kind", KINDS)
    def test_hands_bars_and_the_curve_are_to_scale(self, shown, kind):
        """A tip stands where the pair is; a bar is as long as its part; the ring is on the curve."""
        picture = examples.positions()
        picture.kind, picture.at = kind, (3, 11)
        page = shown(picture)
        asked = {name.removeprefix("_"): each for name, each in state(picture).items()}
        pairs = page.evaluate("(asked) => module.compute(asked).pairs", asked)
        tips = page.locator(".dials svg").evaluate_all("""(all) => all.map((svg) => {
          const [disc, square] = [svg.querySelectorAll("circle")[1], svg.querySelector("rect")];
          return [[disc, "cx", "cy"], [square, "x", "y"]]
            .map(([tip, x, y]) => [tip.getAttribute(x) - 70, 70 - tip.getAttribute(y)]);
        })""")
        scale = tips[0][0][0] / pairs[0]["hands"][0][0]
        for pair, drawn in zip(pairs, tips, strict=True):
            for hand, tip in zip(pair["hands"], drawn, strict=True):
                assert tip == pytest.approx([scale * x for x in hand], abs=1e-6)
                assert math.hypot(*tip) <= 59
        bars = page.locator(".length div").evaluate_all(
            "(all) => all.map((bar) => [parseFloat(bar.style.width), parseFloat(bar.style.left)])"
        )
        by = bars[0][0] / abs(pairs[0]["part"])
        for pair, (width, left) in zip(pairs, bars, strict=True):
            assert width == pytest.approx(by * abs(pair["part"]), rel=1e-4)
            assert left == pytest.approx(50 if pair["part"] > 0 else 50 - width, abs=1e-3)
        ring, points = page.locator(".curve").evaluate("""(svg) => {
          const numbers = svg.querySelectorAll("path")[1].getAttribute("d").match(/-?[0-9.]+/g).map(Number);
          return [["cx", "cy"].map((a) => Number(svg.querySelector("circle").getAttribute(a))), numbers];
        }""")
        assert len(points) == 64
        assert points[22:24] == pytest.approx(ring, abs=0.06)  # the key at 11
        heights, scores = points[1::2], picture._scores()[3].tolist()
        low, high = (scores.index(end(scores)) for end in (min, max))
        unit = (heights[low] - heights[high]) / (scores[high] - scores[low])
        drawn = [scores[low] + (heights[low] - y) / unit for y in heights]
        assert drawn == pytest.approx(scores, abs=0.2 / unit)

    def test_the_dials_and_the_bars_keep_their_scale(self, shown):
        """In px for a length of 1, and for a part of 1."""
        page, scales = shown(examples.positions()), set()
        for kind in KINDS:
            page.evaluate("(kind) => model.set('_kind', kind)", kind)
            pair = page.evaluate("""() => module.compute({ query: model.get("_query"), key: model.get("_key"),
              at: model.get("_at"), kind: model.get("_kind"), base: 100, slope: 0.5 }).pairs[1]""")
            x = float(page.locator(".dials svg").nth(1).locator("line").first.get_attribute("x2"))
            width = page.locator(".length div").nth(1).evaluate("(bar) => parseFloat(bar.style.width)")
            scales.add((round((x - 70) / pair["hands"][0][0], 3), round(width / abs(pair["part"]), 3)))
            ends = page.locator(".curve text").all_text_contents()[1:3]
            assert all(end in page.get_by_text("the ends of the scale for").inner_text() for end in ends)
        assert len(scales) == 1

    def test_the_penalty_is_computed_from_the_distance_shown(self, shown):
        page = shown(examples.positions())
        page.get_by_label("ALiBi").check()
        assert "0.500 × |−3| = 1.33" in page.locator(".sum").inner_text().replace("\xa0", " ")
        told = page.locator(".kinds p:visible")
        assert told.count() == 1
        assert "without its sign. The slope is one fixed number for each" in told.inner_text()

    @pytest.mark.parametrize("device", [DESK, PHONE])
    def test_labels_stand_clear_of_the_lines_and_at_their_handle(self, shown, device):
        page = shown(examples.positions(), device=device)
        for at in ([0, 0], [31, 31], [8, 5], [0, 31], [3, 9], [25, 26], [16, 16]):
            page.evaluate("(at) => model.set('_at', at)", at)
            lines = [line.bounding_box()["y"] for line in page.locator(".strip line").all()[:2]]
            for name, line in zip(("query at", "key at"), lines, strict=True):
                box = page.locator(".strip text", has_text=name).bounding_box()
                assert box["y"] + box["height"] <= line
            text = page.locator(".strip text", has_text="distance")
            box, hold = text.bounding_box(), page.locator(".strip .handle").nth(2).bounding_box()
            assert box["x"] <= hold["x"] + 22 <= box["x"] + box["width"]
            assert text.evaluate("(text) => getComputedStyle(text).strokeWidth") == "10px"  # covers the drop

    def test_both_handles_say_why_they_cannot_move(self, shown):
        page = shown(examples.positions())
        why, both = page.get_by_text("no room to move both"), slider(page, "both positions")
        for at, stuck in (([0, 30], False), ([0, 31], True), ([31, 0], True), ([0, 0], False)):
            page.evaluate("(at) => model.set('_at', at)", at)
            assert why.is_visible() == stuck
            assert ("no room" in both.get_attribute("aria-valuetext")) == stuck

    def test_a_ring_is_around_the_handle_and_for_keys_only(self, shown):
        page = shown(examples.positions())
        rings = """() => [...document.querySelectorAll(".strip .handle")]
          .map((handle) => getComputedStyle(handle, "::after").outlineStyle)"""
        for i, name in enumerate(("position of the query", "position of the key", "both positions")):
            page.keyboard.press("Tab")
            drag(page, i, 2)
            assert page.evaluate(rings) == ["none"] * 3
            slider(page, name).press("ArrowLeft")
            assert page.evaluate(rings) == ["solid" if j == i else "none" for j in range(3)]
            assert slider(page, name).evaluate("(grip) => getComputedStyle(grip).outlineStyle") == "none"

    @pytest.mark.parametrize("theme", THEMES)
    def test_thin_lines_are_easy_to_see(self, shown, theme):
        """Contrast with the ground of at least 4.5, where 3 is asked for."""
        page = shown(examples.positions(), theme)
        ground = {"light": 1.0, "dark": 0.0056}[theme]
        thin = page.locator(".dials svg path[stroke-dasharray], .curve path:not([opacity])")
        drawn = thin.evaluate_all(
            "(all) => all.map((path) => getComputedStyle(path).stroke.match(/[0-9.]+/g).map(Number))"
        )
        assert len(drawn) == 10
        for red, green, blue in (row[:3] for row in drawn):
            light = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
            luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]
            low, high = sorted((ground, luminance))
            assert (high + 0.05) / (low + 0.05) >= 4.5

    @pytest.mark.parametrize("kind", KINDS)
    def test_no_number_of_the_sum_stands_alone_on_a_line(self, shown, kind):
        page = shown(examples.positions(), device=PHONE)
        page.evaluate("(kind) => model.set('_kind', kind)", kind)
        last = page.locator(".sum").evaluate("""(node) => {
          const [text, range] = [node.firstChild, document.createRange()];
          const top = (i) => {
            range.setStart(text, i);
            range.setEnd(text, i + 1);
            return range.getBoundingClientRect().top;
          };
          const ends = text.length - 1;
          return [...text.data].filter((_, i) => top(i) === top(ends)).join("");
        }""")
        assert "√" in last

    def test_the_top_is_reached_where_a_move_of_the_key_ends(self, shown):
        """Neither a drag of the query to it, nor a drag of the key past it."""
        page = shown(examples.positions())
        top = page.locator(".goals li").nth(1)
        drag(page, 0, -2)  # the score is as large as this query's can be
        page.evaluate("model.set('_at', [13, 5])")
        drag(page, 1, 12)
        assert value(page, "_at") == [13, 17]
        page.evaluate("model.set('_at', [13, 12])")
        page.locator(".strip .handle").nth(1).click()
        drag(page, 0, 1)
        drag(page, 0, -1)
        assert value(page, "_at") == [13, 12]
        assert top.inner_text().startswith("Rotary: move only the key")
        slider(page, "position of the key").press("ArrowLeft")
        assert not top.inner_text().startswith("Reached")
        slider(page, "position of the key").press("ArrowRight")
        assert top.inner_text().startswith("Reached: Rotary: move only the key")
        page.get_by_role("button", name="Reset").click()
        drag(page, 1, 2)
        assert top.inner_text().endswith("It need not be at distance 0.")

    def test_a_reached_goal_says_what_is_to_be_seen(self, shown):
        page = shown(examples.positions())
        page.get_by_label("ALiBi").check()
        drag(page, 2, 6)
        said = page.locator(".goals .done").all_inner_texts()
        assert [text.split("What changes? ")[1] for text in said] == [
            "Nothing: no hand depends on a position, and the distance stayed."
        ]

    def test_visited_scores_stay_as_dots(self, shown):
        """Both moved: with rotary one dot, with sinusoidal positions one for each place."""
        page = shown(examples.positions())
        trail = page.locator(".curve path").first
        for kind, dots in {"rotary": 1, "sinusoidal": 5, "ALiBi": 1}.items():
            page.get_by_label(kind).check()
            for _ in range(4):
                slider(page, "both positions").press("ArrowRight")
            places = trail.get_attribute("d").split("h0")[:-1]
            assert len(places) == dots
            assert len({place.split()[0] for place in places}) == 1  # at one distance
        page.get_by_label("rotary").check()
        for _ in range(4):
            slider(page, "position of the key").press("ArrowRight")
        assert trail.get_attribute("d").count("h0") == 5
        page.get_by_role("button", name="Reset").click()
        assert trail.get_attribute("d").count("h0") == 1

    def test_a_goal_is_met_by_the_move_it_asks_for_only(self, shown):
        """Two separate moves to the same distance, or another kind, do not count as moving both."""
        page = shown(examples.positions())
        done = page.locator(".goals .done")
        for at in ([14, 5], [14, 11]):
            page.evaluate("(at) => model.set('_at', at)", at)
        for kind in ("alibi", "sinusoidal", "rotary"):
            page.evaluate("(kind) => model.set('_kind', kind)", kind)
        assert done.count() == 0
        page.evaluate("model.set('_at', [9, 6])")
        assert done.all_inner_texts()[0].startswith("Reached: Rotary: move both tokens together")

    def test_no_goal_is_offered_that_nothing_meets(self, shown):
        zeros = torch.zeros(4)
        page = shown(explore.positions(zeros, zeros, slope=0))
        tries = page.locator(".goals li").all_inner_texts()
        assert [text.split(":")[0] for text in tries] == ["Rotary", "ALiBi"]
        drag(page, 2, 6)
        assert page.locator(".goals .done").count() == 1
        assert read(page) == (["0.00"] * 2, "0.00")

    @pytest.mark.parametrize("width", [320, 375, 768, 1280])
    def test_the_picture_fits_its_own_width(self, shown, width):
        page = shown(examples.positions())
        page.set_viewport_size({"width": width, "height": 800})
        for kind in KINDS:
            for at in ([0, 31], [31, 0], [16, 15], [31, 31]):
                page.evaluate(
                    "([kind, at]) => { model.set('_kind', kind); model.set('_at', at); }", [kind, at]
                )
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                cut, small = page.locator(".mha").evaluate("""(root) => {
                  const box = root.getBoundingClientRect(), words = [...root.querySelectorAll("svg text")];
                  const size = (word) => parseFloat(getComputedStyle(word).fontSize) * word.getScreenCTM().a;
                  const out = ({ left, right }) => left < box.left || right > box.right;
                  const wrong = [(word) => out(word.getBoundingClientRect()), (word) => size(word) < 11];
                  return wrong.map((test) => words.filter(test).map((word) => word.textContent));
                }""")
                assert (cut, small) == ([], [])

    @pytest.mark.parametrize("width", [375, 412, 800, 1280])
    def test_nothing_jumps_while_one_drags_or_chooses(self, shown, width):
        page = shown(examples.positions(), device=PHONE)
        page.set_viewport_size({"width": width, "height": 667})
        tops = set()
        for kind, at in product(KINDS, ([0, 31], [31, 0], [16, 15], [3, 3], [20, 9])):
            page.evaluate("([kind, at]) => { model.set('_kind', kind); model.set('_at', at); }", [kind, at])
            boxes = [page.locator(each).bounding_box() for each in (".strip", ".dials", ".curve", ".goals")]
            tops.add(tuple(round(box["y"]) for box in boxes))
        assert len(tops) == 1

    @pytest.mark.parametrize("i", range(3))
    def test_a_finger_drags_sideways_and_a_swipe_scrolls(self, shown, i):
        page = shown(examples.positions(), device=PHONE)
        box = page.locator(".strip .handle").nth(i).bounding_box()
        assert (box["width"], box["height"]) == (44, 44)
        finger(page, box["x"] + 30, box["y"] + 22, 10.2 * unit(page), 0)
        moved = [[18, 5], [8, 15], [18, 15]][i]
        assert value(page, "_at") == moved
        box = page.locator(".strip .handle").nth(i).bounding_box()
        page.evaluate("model.on('change:_at', () => { window.changed = true; }); 0")
        finger(page, box["x"] + 22, box["y"] + 22, 100, -150)
        page.wait_for_function("scrollY > 60")
        assert page.evaluate("window.changed")  # it moved until the page did
        assert value(page, "_at") == moved
