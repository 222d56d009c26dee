"""A state that is written to and erased: the package's numbers after every token, and the page."""

import pytest
import torch

from bench import examples
from bench.browser import PHONE, needs_chromium, show, state
from mha_course import explore
from mha_course.chapters.delta import decayed_linear_attention, delta_rule
from mha_course.explore._state import RULES
from mha_lab import scaled_dot_product_attention
from tests.explore.test_colours import SEEN, contrast

CLOSE = {"atol": 1e-9, "rtol": 1e-9}


def value(page, name):
    return page.evaluate("(name) => model.get(name)", name)


def real(x):
    return torch.tensor(x, dtype=torch.float64)


def problem(seed, **options):
    """Some keys are there twice; the sizes of all axes differ."""
    torch.manual_seed(seed)
    n, d_k, d_v = [(7, 3, 2), (5, 4, 3), (2, 1, 3), (8, 2, 1)][seed % 4]
    keys, values = torch.randn(n, d_k, dtype=torch.float64), 4 * torch.randn(n, d_v, dtype=torch.float64)
    keys[-1] = keys[0]
    decay, rate = torch.rand(2).tolist()
    return explore.state(keys, values, decay=decay, rate=rate, query=seed % n, scale=1 + seed / 2, **options)


def after(picture, i):
    """The state after ``i`` tokens, by the package."""
    keys, values = picture._pairs()
    ones = torch.ones(i, 1, dtype=torch.float64)
    keys, values = keys[:i], values[:i]
    if not i:
        return torch.zeros(keys.shape[1], values.shape[1], dtype=torch.float64)
    if picture.rule == "delta":
        return delta_rule(keys, keys, values, picture.rate * ones, picture.decay * ones)[1]
    decay = picture.decay * ones if picture.rule == "decays" else ones
    return decayed_linear_attention(keys, keys, values, decay)[1]


@pytest.fixture(scope="module")
def page(browser):
    return show(browser, examples.state())


def called(page, name, picture, **more):
    asked = {name.removeprefix("_"): each for name, each in state(picture).items()}
    return page.evaluate(f"(asked) => module.{name}(asked)", asked | more)


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(8))
def test_after_every_token_the_numbers_are_those_of_the_package(page, seed, rule):
    picture = problem(seed, rule=rule)
    keys, values = picture._pairs()
    found = called(page, "compute", picture)
    assert len(found) == len(keys) + 1
    for i, there in enumerate(found):
        picture.step = i
        torch.testing.assert_close(real(there["S"]), after(picture, i), **CLOSE)
        torch.testing.assert_close(real(there["S"]), picture.state, **CLOSE)
        read = page.evaluate("([x, S]) => module.read(x, S)", [keys[picture.query].tolist(), there["S"]])
        torch.testing.assert_close(real(read), picture.read, **CLOSE)
        if i:
            faded = (1 if rule == "adds" else picture.decay) * after(picture, i - 1)
            part = picture.rate if rule == "delta" else 1
            finds = keys[i - 1] @ faded if rule == "delta" else 0 * values[0]
            torch.testing.assert_close(real(there["faded"]), faded, **CLOSE)
            torch.testing.assert_close(real(there["found"]), finds, **CLOSE)
            torch.testing.assert_close(real(there["erased"]), part * finds, **CLOSE)
            torch.testing.assert_close(real(there["written"]), part * values[i - 1], **CLOSE)


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("seed", range(8))
def test_the_cache_is_softmax_attention_over_the_tokens_that_are_read(page, seed):
    picture = problem(seed)
    keys, values = picture._pairs()
    for i in range(1, len(keys) + 1):
        picture.step = i
        output, weights = scaled_dot_product_attention(
            keys[[picture.query]], keys[:i], values[:i], scale=picture._scale
        )
        there = called(page, "attend", picture, at=i)
        torch.testing.assert_close((real(there["weights"]), real(there["output"])), (weights[0], output[0]))
        torch.testing.assert_close((picture.weights, picture.cache_read), (weights[0], output[0]))
    nothing = called(page, "attend", picture, at=0)
    assert (nothing["weights"], nothing["output"]) == ([], [0] * values.shape[1])


def test_the_rules_by_hand():
    keys = torch.tensor([[1.0, 0.0], [0.6, 0.8], [1.0, 0.0]])
    picture = explore.state(keys, torch.tensor([[10.0], [5.0], [2.0]]), rule="adds", decay=0.5, step=2)
    torch.testing.assert_close(picture.state, torch.tensor([[13.0], [4.0]]))
    picture.rule = "decays"
    torch.testing.assert_close(picture.state, torch.tensor([[8.0], [4.0]]))
    picture.rule, picture.decay = "delta", 1.0
    torch.testing.assert_close(
        picture.state, torch.tensor([[9.4], [-0.8]])
    )  # the key found 6, and 5 - 6 = -1
    picture.step, picture.rate = 3, 0.5
    # 5; then the key finds 3 and writes 1: 5.6 and 0.8; then the key finds 5.6 and writes -1.8.
    torch.testing.assert_close(picture.state, torch.tensor([[3.8], [0.8]]))
    torch.testing.assert_close(picture.read, torch.tensor([3.8]))
    picture.query = 1
    torch.testing.assert_close(picture.read, torch.tensor([2.92]))


def test_the_state_goes_both_ways_and_is_told():
    picture = examples.state()
    assert (picture.state.tolist(), picture.read.tolist()) == ([[0, 0]] * 3, [0, 0])
    assert (picture.weights.tolist(), picture.cache_read.tolist()) == ([], [0, 0])
    picture._step, picture._rule, picture._decay = 2, "decays", 0.5  # what the browser sends
    assert (picture.step, picture.rule, picture.decay, picture.state.dtype) == (
        2,
        "decays",
        0.5,
        torch.float32,
    )
    torch.testing.assert_close(picture.read, torch.tensor([2.5, 3.0]))
    picture.step, picture.rule, picture.query = 6, "delta", 1
    picture.decay = picture.rate = 1.0
    assert picture.describe() == (
        "Tokens cat: milk, dog: bone, cow: hay, dog: ball, cow: grass, cat: fish. Rule: delta, decay 1.00, "
        "rate 1.00. 6 of 6 tokens are read. The rows of S are (10.00, 10.00), (5.60, 4.00), (0.00, 10.00). "
        "dog reads (10.48, 9.20) in the state and (5.04, 5.00) in the cache. The state has 6 numbers, and "
        "the cache has 30."
    )


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "words"),
    {
        "make([[1.0]], x)": "keys: expected a torch.Tensor",
        "make(x[0], x)": "keys: expected a tensor of shape (n, d_k)",
        "make(x, x[0])": "values: expected a tensor of shape (n, d_v)",
        "make(x * torch.nan, x)": "keys: expected finite numbers, got NaN",
        "make(x, x.long())": "values: expected floating-point numbers",
        "make(x, x.double())": "values: expected the dtype of keys",
        "make(x, x[:1])": "values: expected one row for each of the 2 keys, got 1",
        "make(torch.ones(9, 2), torch.ones(9, 2))": "the picture: expected 1 to 8 for tokens, got 9",
        "make(torch.ones(2, 5), x)": "the picture: expected 1 to 4 for d_k, got 5",
        "make(x, torch.ones(2, 4))": "the picture: expected 1 to 3 for d_v, got 4",
        "make(x, x, key_labels=['a'])": "key_labels: expected 2 labels, got 1",
        "make(x, x, value_labels='ab')": "value_labels: expected a list of labels",
        "make(x, x, rule='add')": "rule: expected one of adds, decays, delta, got 'add'",
        "make(x, x, decay=1.5)": "decay: expected a number from 0 to 1, got 1.5",
        "make(x, x, rate=-1)": "rate: expected a number from 0 to 1, got -1",
        "make(x, x, rate='1')": "rate: expected a number",
        "make(x, x, query=2)": "query: expected at most 1, got 2",
        "make(x, x, step=3)": "step: expected at most 2, got 3",
        "make(x, x, scale='1')": "scale: expected a number",
        "setattr(make(x, x), 'step', -1)": "step: expected at least 0, got -1",
        "setattr(make(x, x), 'query', 1.0)": "query: expected an int",
        "setattr(make(x, x), 'rule', 'erases')": "rule: expected one of",
        "setattr(make(x, x), 'decay', torch.nan)": "decay: expected",
        "setattr(make(x, x), 'rate', 2)": "rate: expected a number from 0 to 1",
    }.items(),
)
def test_what_makes_no_sense_is_refused(call, words):
    names = {"make": explore.state, "x": torch.ones(2, 2), "torch": torch}
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(call, names)
    assert str(caught.value).startswith(words)


def press(page, name, times=1):
    for _ in range(times):
        page.get_by_role("button", name=name, exact=True).click()


def said(page, part):
    """Without the spaces that keep a vector on one line."""
    return page.locator(part).inner_text().replace("\N{NO-BREAK SPACE}", " ")


def board(page, kind):
    """The numbers of a matrix, row by row, and of what stands below it."""
    table = page.locator(f".board.{kind}")
    rows = [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]
    return [[float(x.replace("−", "-")) for x in row] for row in rows]


def read(page):
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in page.locator(".both td").all_inner_texts()]


@pytest.mark.browser
@needs_chromium
class TestPage:
    def test_next_shows_what_was_found_erased_and_written(self, shown):
        page = shown(examples.state(), dead=True)
        back, ahead = (page.get_by_role("button", name=name) for name in ("Back", "Next"))
        assert said(page, ".words").startswith("No token is read yet.")
        assert (back.is_disabled(), ahead.is_disabled(), read(page)[2]) == (True, False, "not written yet")
        assert not page.locator(".board.more").is_visible()
        press(page, "Next", 2)
        assert said(page, ".words") == (
            "dog: bone. The key finds (3.00, 0.00). All of it is erased. The whole value is written. "
            "Its own key, dog, now reads (0.00, 5.00)."
        )
        assert page.locator(".words").inner_text() in page.get_by_role("status").first.inner_text()
        assert said(page, ".formula") == (
            "found = ■ (0.60, 0.80, 0) (1.00 · S) = (3.00, 0.00)\n"
            "S ← 1.00 · S + ■ (0.60, 0.80, 0)ᵀ · 1.00 · (▲ (0, 5) − (3.00, 0.00))"
        )
        matrices = [torch.tensor(board(page, kind)) for kind in ("before", "less", "more", "result")]
        torch.testing.assert_close(matrices[0] - matrices[1] + matrices[2], matrices[3])
        assert matrices[1].tolist() == torch.tensor([[1.8, 0], [2.4, 0], [0, 0]]).tolist()
        assert page.locator(".tape [aria-current]").inner_text() == "dog: bone"
        assert page.locator(".cache tbody tr").filter(visible=True).count() == 2
        press(page, "Next", 3)
        page.get_by_label("dog", exact=True).check()
        assert read(page)[0] == "(10.00, 5.00)"  # until the last token, which has another key
        page.get_by_label("cat", exact=True).check()
        press(page, "Next")
        assert (back.is_disabled(), ahead.is_disabled()) == (False, True)
        ahead.click(force=True)
        assert value(page, "_step") == 6
        assert page.get_by_text(
            "3 · 2 = 6 numbers, and the cache has n · (d_k + d_v) = 6 · (3 + 2) = 30."
        ).is_visible()
        assert read(page) == ["(10.00, 10.00)", "(7.45, 5.00)", "▲ (10, 10)"]
        page.get_by_label("dog", exact=True).check()
        assert read(page) == ["(10.48, 9.20)", "(5.04, 5.00)", "▲ (10, 5)"]
        page.get_by_label("cow", exact=True).check()
        assert read(page) == ["(0.00, 10.00)", "(2.50, 7.50)", "▲ (0, 10)"]
        press(page, "Start again")
        assert (value(page, "_step"), value(page, "_query")) == (0, 2)

    def test_every_button_three_times(self, shown):
        page = shown(examples.state())
        for _ in range(3):
            press(page, "Next", 3)
            press(page, "Back", 3)
            assert value(page, "_step") == 0
            press(page, "Next")
            press(page, "Start again")
            for rule in ("adds", "decays", "delta rule"):
                page.get_by_label(rule, exact=True).check()
            press(page, "Next", 2)
            press(page, "Reset")
            assert [value(page, name) for name in ("_step", "_rule", "_query")] == [0, "delta", 0]

    def test_a_rule_shows_its_own_sliders_and_parts(self, shown):
        page = shown(examples.state())
        press(page, "Next", 4)
        shows = {}
        for rule in ("adds", "decays", "delta rule"):
            page.get_by_label(rule, exact=True).check()
            parts = page.get_by_role("slider"), page.locator(".board caption")
            shows[rule] = [part.filter(visible=True).count() for part in parts]
        assert shows == {"adds": [0, 3], "decays": [1, 3], "delta rule": [2, 4]}
        page.get_by_label("adds", exact=True).check()
        assert said(page, ".formula") == "S ← S + ■ (0.60, 0.80, 0)ᵀ ▲ (10, 5)"
        assert "Nothing is erased." in page.locator(".words").inner_text()

    def test_sliders_follow_the_keyboard_and_python(self, shown):
        page = shown(examples.state(), dead=True)
        press(page, "Next", 4)
        rate, decay = (page.get_by_label(name, exact=True) for name in ("rate", "decay"))
        rate.focus()
        for key in ("ArrowLeft", "ArrowDown", "PageDown", "ArrowRight"):
            page.keyboard.press(key)
        assert (value(page, "_rate"), rate.get_attribute("aria-valuetext")) == (0.7, "0.70")
        assert "Of it, the part 0.70 is erased." in page.locator(".words").inner_text()
        rate.press("Home")
        assert value(page, "_rate") == 0
        page.evaluate("model.set('_decay', 0.333)")  # from Python
        assert page.locator(".slide", has=decay).inner_text().split() == ["decay", "0.33"]
        assert "S ← 0.33 · S" in said(page, ".formula")

    def test_what_has_no_number_is_no_cell_and_all_can_be_read(self, shown):
        """The ground of every number, in both themes, at both ends of the colours."""
        for theme in ("light", "dark"):
            page = shown(explore.state(torch.eye(3), torch.tensor([[9.0], [-9], [0]]), step=3), theme)
            page.evaluate(SEEN)
            grounds = page.locator(".result .cell").evaluate_all("""(all) => all.map((one) => {
              const { color, backgroundColor } = getComputedStyle(one);
              return [seen(backgroundColor), seen(color)];
            })""")
            assert len({tuple(ground) for ground, _ in grounds}) == 3
            assert min(contrast(*pair) for pair in grounds) >= 4.5

    @pytest.mark.parametrize("width", [320, 375, 768, 1280])
    def test_nothing_is_cut_off_or_small_at_any_width(self, shown, width):
        keys, values = torch.randn(8, 4), 10 * torch.randn(8, 3)
        page = shown(explore.state(keys, values, step=8))
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        small = page.locator(".mha *").evaluate_all("""(all) => all.filter((one) => one.checkVisibility()
          && parseFloat(getComputedStyle(one).fontSize) < 11).length""")
        assert small == 0

    def test_two_matrices_are_beside_each_other_on_a_phone(self, shown):
        page = shown(examples.state(), device=PHONE)
        press(page, "Next", 6)
        boxes = [each.bounding_box() for each in page.locator(".board").all()]
        assert len({box["y"] for box in boxes}) == 2
