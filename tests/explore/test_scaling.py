"""Three ways to scale dot products: the package's numbers, the prediction, keys, mouse and finger, state."""

import math

import pytest
import torch

from bench import examples
from bench.browser import PHONE, finger, needs_chromium
from mha_course import explore
from mha_lab import scaled_dot_product_attention

CLOSE = {"atol": 1e-6, "rtol": 1e-6}
FACTORS = {"no scale": 1.0, "1/sqrt(d_k)": None, "1/d_k": "1/d_k"}
browser = [pytest.mark.browser, needs_chromium]


def value(page, name):
    return page.evaluate("(name) => model.get(name)", name)


def point(page, d_k):
    return page.get_by_label(f"your prediction at d_k = {d_k}", exact=True)


def jacobian(scores):
    return torch.autograd.functional.jacobian(lambda row: torch.softmax(row, dim=-1), scores)


PROBLEMS = [(0, 6, 0, 2), (1, 2, 31, 512), (7, 8, 255, 64), (2**31 - 1, 5, 100, 3), (12345, 3, 17, 200)]


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("scale", FACTORS)
@pytest.mark.parametrize(("seed", "n_k", "sample", "d_k"), PROBLEMS)
def test_the_numbers_are_those_of_attention_and_autograd(shown, seed, n_k, sample, d_k, scale):
    page = shown(examples.scaling())
    picture = explore.scaling(n_k, d_k=d_k, scale=scale, seed=seed)
    picture.sample = sample
    found = page.evaluate(
        "([problem, d_k, scale]) => module.compute(module.products(problem), d_k, scale)",
        [{"seed": seed, "n_k": n_k, "sample": sample}, d_k, scale],
    )
    factor = 1 / d_k if scale == "1/d_k" else FACTORS[scale]  # None is the package's own 1/sqrt(d_k)
    query, key = picture.query[None], picture.key
    assert (query.shape, key.shape) == ((1, d_k), (n_k, d_k))
    _, weights = scaled_dot_product_attention(query, key, key, scale=factor)
    size = jacobian(picture.scores).square().sum().sqrt().item()
    for numbers in (found["weights"], picture.weights.tolist()):
        torch.testing.assert_close(torch.tensor(numbers, dtype=torch.float64), weights[0], **CLOSE)
    torch.testing.assert_close(torch.tensor(found["scores"], dtype=torch.float64), picture.scores, **CLOSE)
    assert [found["gradient"], picture.gradient] == pytest.approx([size, size], abs=1e-6)


@pytest.mark.browser
@needs_chromium
def test_the_curve_is_the_mean_of_all_samples(shown):
    page, picture = shown(examples.scaling()), explore.scaling(4, seed=3)
    for picture.scale in FACTORS:
        for picture.d_k in (2, 50, 512):
            sizes = []
            for picture.sample in range(256):
                sizes.append(picture.gradient)
            found = page.evaluate(
                """([d_k, scale]) => module.mean(Array.from({ length: 256 }, (_, sample) =>
                  module.products({ seed: 3, n_k: 4, sample })), d_k, scale)""",
                [picture.d_k, picture.scale],
            )
            mean = sum(sizes) / len(sizes)
            assert [found, picture.mean_gradient] == pytest.approx([mean, mean], abs=1e-6)


def test_the_numbers_are_standard_normal_and_each_seed_has_its_own():
    numbers = explore.scaling(8, seed=5)._numbers  # over a million
    assert numbers.mean().item() == pytest.approx(0, abs=0.004)
    for power, moment in {2: 1, 3: 0, 4: 3, 6: 15}.items():
        assert numbers.pow(power).mean().item() == pytest.approx(
            moment, abs=0.03 * math.factorial(power // 2)
        )
    rows = numbers.view(-1, 512)
    together = torch.corrcoef(rows[:300]).fill_diagonal_(0)  # 1/sqrt(512) = 0.044 if they are independent
    assert together.std().item() == pytest.approx(512**-0.5, rel=0.03)
    assert together.abs().max() < 0.3
    again, other = explore.scaling(8, seed=5)._numbers, explore.scaling(8, seed=6)._numbers
    assert torch.equal(numbers, again)
    assert abs(torch.corrcoef(torch.stack([numbers.flatten(), other.flatten()]))[0, 1]) < 0.005


def test_what_the_chapter_says_of_the_three_scales():
    """Also the paper's: the variance of a dot product is d_k (footnote 4)."""
    picture = explore.scaling()
    for d_k in (2, 32, 512):
        scores = picture._all_scores(d_k, "no scale")
        assert scores.var().item() == pytest.approx(d_k, rel=0.15)
        assert picture._mean(d_k, "1/sqrt(d_k)") == pytest.approx(0.385, abs=0.01)
        assert picture._mean(d_k, "1/d_k") == pytest.approx(0.38, abs=0.01)
    assert picture._mean(2, "no scale") > 0.36
    assert picture._mean(512, "no scale") < 0.07
    picture.d_k, picture.scale = 512, "1/d_k"
    torch.testing.assert_close(picture.weights, torch.full((6,), 1 / 6).double(), atol=0.02, rtol=0)


def test_the_state_goes_both_ways():
    picture = explore.scaling(5, d_k=16, scale="1/d_k", seed=9)
    assert (picture.d_k, picture.scale, picture.sample, picture.prediction) == (16, "1/d_k", 0, None)
    hidden = picture.describe()
    assert "hidden" in hidden
    before = picture.scores
    picture._sample, picture._d_k = 3, 64  # what the browser sends
    assert not torch.equal(picture.scores, before)
    picture._drawn = {"1/d_k": [0.1, 0.2, 0.3, 0.4, 0.5]}
    torch.testing.assert_close(picture.prediction, torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5]).double())
    assert f"{picture.gradient:.3f}" not in picture.describe()
    picture._shown = ["1/d_k"]
    said = picture.describe()
    assert f"is {picture.gradient:.3f} for this sample" in said
    assert f"is {picture.mean_gradient:.3f}. With 1/d_k, every weight comes close to 1/5" in said
    picture.scale = "no scale"
    assert (picture.prediction, picture._scale) == (None, "no scale")


def test_the_still_shows_no_curve_before_it_was_asked_for():
    picture = examples.scaling()
    picture._drawn = {"no scale": [0.1, 0.2, 0.3, 0.4, 0.5]}
    *_, chart = picture.still().axes
    assert [line.get_label() for line in chart.lines] == ["your prediction"]
    picture._shown = ["1/d_k", "no scale"]
    line, bars, chart = picture.still().axes
    assert [line.get_label() for line in chart.lines[:2]] == ["mean, 1/d_k", "mean, no scale"]
    d_k, means = chart.lines[1].get_data()
    assert means[list(d_k).index(8)] == pytest.approx(picture.mean_gradient)
    assert list(line.lines[-1].get_xdata()) == pytest.approx(picture.scores.tolist())
    assert [bar.get_width() for bar in bars.patches] == pytest.approx(picture.weights.tolist())


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "words"),
    {
        "scaling(1)": "n_k: expected at least 2, got 1",
        "scaling(9)": "n_k: expected at most 8, got 9",
        "scaling(6.0)": "n_k: expected an int",
        "scaling(d_k=1)": "d_k: expected at least 2, got 1",
        "scaling(d_k=513)": "d_k: expected at most 512, got 513",
        "scaling(scale='sqrt')": "scale: expected one of no scale, 1/sqrt(d_k), 1/d_k, got 'sqrt'",
        "scaling(seed=2**31)": "seed: expected a number below 2**31",
        "scaling(seed=-1)": "seed: expected at least 0",
        "setattr(scaling(), 'd_k', 1000)": "d_k: expected at most 512",
        "setattr(scaling(), 'scale', ['1/d_k'])": "scale: expected one of",
        "setattr(scaling(), 'sample', 256)": "sample: expected one of the samples 0 to 255, got 256",
    }.items(),
)
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(call, {"scaling": explore.scaling})
    assert str(caught.value).startswith(words)


@pytest.mark.browser
@needs_chromium
class TestInTheBrowser:
    def test_the_curve_comes_after_a_prediction_only(self, shown):
        page = shown(examples.scaling(), dead=True)
        curve, now = page.locator("svg path[stroke-width='3.5']").first, page.locator(".now")
        read, told = page.locator(".read"), page.get_by_role("status")
        show = page.get_by_role("button", name="Show the curve")
        for moves in range(2):  # one point is not enough
            show.click()
            assert read.inner_text() == told.inner_text() == "Move at least two points first."
            assert (value(page, "_shown"), curve.get_attribute("d") or "", now.is_visible()) == (
                [],
                "",
                False,
            )
            point(page, (32, 512)[moves]).press("ArrowUp")
        assert value(page, "_drawn") == {"no scale": [0.25, 0.25, 0.26, 0.25, 0.26]}
        show.click()
        assert value(page, "_shown") == ["no scale"]
        assert now.is_visible()
        picture = explore.scaling(d_k=8)
        assert f"{picture.gradient:.3f} for this sample. One sample can differ much" in read.inner_text()
        assert f"mean size of 256 samples is {picture.mean_gradient:.3f}. Your" in read.inner_text()
        assert read.inner_text().endswith("Your prediction: 0.250.")
        means = [f"{picture._mean(d_k):.2f} at {d_k}" for d_k in (2, 8, 32, 128, 512)]
        assert told.inner_text().startswith(f"Mean size of 256 samples: {', '.join(means)}.")
        first, *_, last = curve.get_attribute("d").removeprefix("M").split("L")
        ends = [100 * (1 - picture._mean(d_k) / 0.5) for d_k in (2, 512)]
        assert [float(end.split()[1]) for end in (first, last)] == pytest.approx(ends, abs=1e-4)
        page.get_by_label("1/√d_k").check()  # each scale has a prediction of its own
        assert not now.is_visible()
        assert page.locator(".end:visible").all_inner_texts() == ["no scale"]
        page.get_by_label("no scale").check()
        for _ in range(3):
            page.get_by_role("button", name="Clear and predict again").click()
            assert (now.is_visible(), value(page, "_shown"), value(page, "_drawn")) == (False, [], {})
            point(page, 2).press("ArrowUp")
            point(page, 8).press("ArrowUp")
            show.click()

    def test_locked_points_look_as_before_and_say_why_they_do_not_move(self, shown):
        page = shown(examples.scaling(), dead=True)
        point(page, 2).press("ArrowUp")
        point(page, 8).press("ArrowUp")
        page.get_by_role("button", name="Show the curve").click()
        drawn, words = value(page, "_drawn"), "The points are locked now."
        look = "(one) => [getComputedStyle(one).borderTopStyle, getComputedStyle(one).opacity]"
        assert point(page, 32).evaluate(look) == ["none", "1"]
        for act in (lambda: point(page, 32).press("ArrowUp"), lambda: point(page, 512).click(force=True)):
            act()
            assert page.locator(".read").inner_text().startswith(words)
            assert page.get_by_role("status").inner_text().startswith(words)
            page.get_by_label("d_k", exact=True).press("ArrowUp")
            assert "for this sample" in page.locator(".read").inner_text()
        assert value(page, "_drawn") == drawn

    def test_what_1_over_d_k_does_to_the_weights_is_said_with_its_curve(self, shown):
        page = shown(explore.scaling(5, scale="1/d_k"))
        why = page.get_by_text("every weight comes close to 1/5, whatever the keys are")
        assert not why.is_visible()
        for _ in range(2):
            point(page, 2).press("ArrowUp")
            point(page, 8).press("ArrowUp")
            page.get_by_role("button", name="Show the curve").click()
            assert why.is_visible()
            page.get_by_role("button", name="Clear and predict again").click()
            assert not why.is_visible()

    def test_the_axis_of_the_scores_depends_on_the_scale_only(self, shown):
        page = shown(examples.scaling())
        for name, reach in (("no scale", "100"), ("1/√d_k", "5"), ("1/d_k", "5")):
            page.get_by_label(name).check()
            for d_k in (2, 512):
                page.evaluate("(d_k) => model.set('_d_k', d_k)", d_k)
                page.get_by_role("button", name="Other sample").click()
                assert page.locator(".ends").first.inner_text().split() == [f"\u2212{reach}", "0", reach]

    def test_every_d_k_is_reached_with_the_keyboard(self, shown):
        page = shown(explore.scaling(d_k=2), dead=True)
        slider = page.get_by_label("d_k", exact=True)
        seen = [2]
        slider.press("ArrowLeft")
        assert value(page, "_d_k") == 2
        while seen[-1] < 512:
            slider.press("ArrowRight")
            seen.append(value(page, "_d_k"))
            assert seen[-1] > seen[-2]
        assert seen[:15] == list(range(2, 17))
        assert {2**i for i in range(1, 10)} <= {*seen}
        assert slider.get_attribute("aria-valuetext") == "512"
        assert "Largest weight: key" in page.get_by_role("status").inner_text()
        while seen.pop() > 2:
            slider.press("ArrowLeft")
            assert value(page, "_d_k") <= max(seen[-1], 2)
        page.evaluate("model.set('_d_k', 500)")  # from Python; no place of the slider
        slider.press("ArrowRight")
        assert value(page, "_d_k") in (501, 512)

    def test_a_row_has_the_score_and_the_weight_of_a_key(self, shown):
        page = shown(examples.scaling(), dead=True)
        for name, sample, d_k in (("no scale", 0, 8), ("1/√d_k", 1, 512), ("1/d_k", 2, 100)):
            page.get_by_label(name).check()
            page.evaluate("(d_k) => model.set('_d_k', d_k)", d_k)
            picture = explore.scaling(d_k=d_k, scale=value(page, "_scale"))
            picture.sample = sample
            rows = [row.split()[-2:] for row in page.locator("tbody tr").all_inner_texts()]
            numbers = [[float(x.replace("\u2212", "-")) for x in row] for row in rows]
            scores, weights = zip(*numbers, strict=True)
            assert scores == pytest.approx(picture.scores.tolist(), abs=0.0051)
            assert weights == pytest.approx(picture.weights.tolist(), abs=0.00051)
            reach = float(page.locator(".ends").first.locator("> :last-child").inner_text())
            rail = page.locator(".rail").first.bounding_box()
            for mark, score in zip(page.locator(".spot").all(), scores, strict=True):
                box = mark.bounding_box()
                middle = box["x"] + box["width"] / 2 - rail["x"] - rail["width"] / 2
                assert middle == pytest.approx(score / reach * rail["width"] / 2, abs=1)
            page.get_by_role("button", name="Other sample").click()
            assert value(page, "_sample") == sample + 1

    def test_a_mouse_draws_across_the_chart(self, shown):
        page = shown(examples.scaling(), dead=True)
        box = page.locator(".field").bounding_box()
        page.mouse.move(box["x"], box["y"] + 0.2 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"], box["y"] + box["height"], steps=40)
        page.mouse.up()
        page.mouse.move(box["x"], box["y"])
        line = value(page, "_drawn")["no scale"]
        assert line == sorted(line, reverse=True)
        assert line[-1] == 0
        assert 0.3 < line[0] <= 0.4

    def test_a_finger_drags_a_point_and_swipes_elsewhere(self, shown):
        page = shown(examples.scaling(), device=PHONE)
        page.locator(".chart").scroll_into_view_if_needed()
        box, field = point(page, 32).bounding_box(), page.locator(".field").bounding_box()
        assert (box["width"], box["height"]) == (44, 44)
        before = page.evaluate("scrollY")
        finger(page, box["x"] + 34, box["y"] + 30, 60, 40)  # beside its middle; it does not jump
        moved = [0.25, 0.25, 0.25 - 0.5 * 40 / field["height"], 0.25, 0.25]
        assert value(page, "_drawn")["no scale"] == pytest.approx(moved, abs=0.002)
        assert page.evaluate("scrollY") == before
        drawn = value(page, "_drawn")
        finger(page, field["x"] + 40, field["y"] + 20, 10, 100)  # down: the page goes back up
        page.wait_for_function("(before) => scrollY < before", arg=before)
        assert value(page, "_drawn") == drawn

    def test_a_swipe_that_starts_on_d_k_scrolls(self, shown):
        page = shown(explore.scaling(d_k=32), device=PHONE)
        page.evaluate("document.body.style.paddingBlock = '400px'")
        for part, moves in ((".slide", False), (".handle", True)):
            page.evaluate("scrollTo(0, 300)")
            box = page.locator(part).bounding_box()
            x, y = box["x"] + box["width"] * (0.5 if moves else 0.15), box["y"] + box["height"] / 2
            before = page.evaluate("scrollY")
            finger(page, x, y, 4, -120)
            page.wait_for_function("(before) => scrollY > before + 50", arg=before)
            assert value(page, "_d_k") == 32
            page.evaluate("scrollTo(0, 300)")
            finger(page, x, y, 60, 0)
            long = page.locator("[type=range]").bounding_box()["width"] - 16
            assert value(page, "_d_k") == (pytest.approx(2 ** (5 + 8 * 60 / long), rel=0.03) if moves else 32)

    @pytest.mark.parametrize("width", [320, 375, 700, 768, 1280])
    def test_nothing_is_cut_off_and_no_text_is_small(self, shown, width):
        page = shown(examples.scaling())
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate("model.set('_shown', ['no scale', '1/sqrt(d_k)', '1/d_k'])")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        texts = page.locator(".mha :is(td, th, p, span, button, label, li)").evaluate_all("""(all) => all
          .filter((one) => one.checkVisibility() && one.innerText && !one.closest(".quiet")).map((one) => {
            const range = document.createRange(), root = one.closest(".mha").getBoundingClientRect();
            range.selectNodeContents(one);
            const { left, right } = range.getBoundingClientRect();
            const size = parseFloat(getComputedStyle(one).fontSize);
            return [one.innerText, left >= root.left && right <= root.right, size];
          })""")
        assert len(texts) > 30
        assert [text for text, inside, size in texts if not inside or size < 11] == []
