"""Each explorable on a plain page, without any kernel: pointer, keyboard, speed, markup, accessibility."""

import json

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe

from mha_lab import explore, toy
from tools import examples
from tools.browser import THEMES, needs_chromium, open_chromium, show

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as chromium:
        yield chromium


@pytest.fixture
def page(browser, request):
    """A page with the explorable named by the test's parameter; whatever the console says is an error."""
    page = show(browser, examples.ALL[request.param](), dead=True)
    yield page
    assert page.errors == []
    page.close()


only = pytest.mark.parametrize


def value(page, name):
    return page.evaluate("(name) => model.get(name)", name)


@only("page", examples.ALL, indirect=True)
def test_a_stored_start_stays_as_it_is_when_a_browser_saves_it(page, request):
    stored = json.dumps(examples.ALL[request.node.callspec.params["page"]]().start())
    saved = page.evaluate("(text) => JSON.stringify(JSON.parse(text))", stored)
    assert json.dumps(json.loads(saved)) == stored


@pytest.mark.parametrize(
    ("scale", "chosen"), [(1.0, "no scale"), (0.707107, "1/√d_k"), (0.5, "1/d_k"), (0.3, "")]
)
def test_the_scale_of_a_stored_start_is_chosen(browser, scale, chosen):
    """Stored starts are rounded; a scale that is not on offer chooses none."""
    page = show(browser, explore.query(toy.plane_keys(), toy.plane_keys(), scale=scale))
    labels = page.locator("label", has=page.locator("input:checked")).all_inner_texts()
    assert [label.strip() for label in labels] == ([chosen] if chosen else [])
    page.close()


@pytest.mark.parametrize("width", [1000, 860, 500])
def test_nothing_jumps_while_one_drags(browser, width):
    """Longer numbers must not push the table below the plane, from under the pointer's eye."""
    values = torch.tensor([[10.5, 1.5], [20.5, 2.5], [30.5, 3.5]])
    page = show(browser, explore.query(toy.plane_keys(), values))
    page.set_viewport_size({"width": width, "height": 900})
    plane = page.locator("svg").bounding_box()
    places = set()
    page.mouse.move(plane["x"] + 100, plane["y"] + 100)
    page.mouse.down()
    for dx, dy in ((5, 5), (5, 190), (190, 375), (375, 375), (375, 5), (188, 190)):
        page.mouse.move(plane["x"] + dx, plane["y"] + dy)
        table = page.locator("table").bounding_box()
        places.add((round(table["x"]), round(table["y"])))
    page.mouse.up()
    assert len(places) == 1
    page.close()


@only("page", ["query"], indirect=True)
def test_the_query_follows_the_keyboard(page):
    tip = page.get_by_role("slider")
    tip.focus()
    before = value(page, "_query")
    step = value(page, "_reach") / 40
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    assert value(page, "_query") == pytest.approx([before[0] + step, before[1] + 5 * step])
    assert tip.get_attribute("aria-valuetext").startswith("x 1.1")
    field, reach = page.get_by_label("query, y"), value(page, "_reach")
    field.fill("-1.5")
    assert value(page, "_query")[1] == -1.5  # no Enter: some front ends take it for themselves
    field.fill("")
    assert value(page, "_query")[1] == -1.5
    field.fill("-1000")
    field.press("Tab")
    assert value(page, "_query")[1] == -reach
    assert float(field.input_value()) == pytest.approx(-reach, abs=0.005)
    page.get_by_label("no scale").check()
    assert value(page, "_scale") == 1
    page.get_by_role("button", name="Focus on one key").press("Enter")
    weights = [float(row.split()[-1]) for row in page.locator("tbody tr").all_inner_texts()]
    assert max(weights) > 0.9
    page.evaluate("model.set('_query', [0, 0])")  # from Python
    assert page.locator("tbody tr").first.inner_text().split()[-1] == "0.200"


def test_a_preset_that_no_query_meets_is_not_offered(browser):
    """Keys 0 and 1 are equal, so no query prefers one of them, or one of them and another."""
    keys = torch.tensor([[2.0, 1.0], [2.0, 1.0], [-1.0, 3.0], [0.5, 1.0]])
    page = show(browser, explore.query(keys, keys))
    buttons = [page.get_by_role("button", name=name) for name in ("Focus on one key", "Average two keys")]
    for button, found in zip(buttons, ({(2,), (3,)}, {(0, 1), (2, 3)}), strict=True):
        seen = set()
        for _ in range(4):
            button.click()
            weights = [float(row.split()[-1]) for row in page.locator("tbody tr").all_inner_texts()]
            seen.add(tuple(i for i, weight in enumerate(weights) if weight > 0.45))
        assert seen == found
    page.evaluate("model.set('_scale', 0)")  # from Python
    assert all(button.is_disabled() for button in buttons)
    assert page.errors == []
    page.close()


@only("page", ["heads"], indirect=True)
def test_a_token_lights_its_row_in_all_heads(page):
    page.get_by_role("option").nth(2).hover()
    assert value(page, "_row") == 2
    tops = page.locator(".chosen-row").evaluate_all("(marks) => marks.map((mark) => mark.style.top)")
    assert tops == ["40%", "40%"]
    page.get_by_role("option").nth(2).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    assert value(page, "_row") == 4
    canvas = page.locator("canvas").first.bounding_box()
    page.mouse.move(canvas["x"] + 5, canvas["y"] + canvas["height"] * 0.3)
    assert value(page, "_row") == 1
    page.get_by_role("button", name="head 0").press("Space")
    assert value(page, "_picked") == [1]
    page.get_by_role("button", name="head 1").click()
    assert value(page, "_picked") == [1]  # one always stays
    page.get_by_role("button", name="head 0").click()
    page.get_by_role("button", name="Average").click()
    assert page.locator(".strips tbody th").all_inner_texts() == ["average"]
    shown = [float(text) for text in page.locator(".strips td").all_inner_texts()]
    picture = examples.heads()
    picture.row, picture.averaged = 1, True
    assert shown == pytest.approx(picture.weights[0].tolist(), abs=0.006)


@only("page", ["mask"], indirect=True)
def test_a_mask_is_painted_and_typed(page):
    def cell(i, j):
        return page.locator(".cell").nth(5 * i + j)

    box = [cell(1, j).bounding_box() for j in range(5)]
    page.mouse.move(box[0]["x"] + 9, box[0]["y"] + 9)
    page.mouse.down()
    page.mouse.move(box[1]["x"] + 9, box[1]["y"] + 9, steps=5)
    page.mouse.up()
    assert value(page, "_mask")[1] == [False] * 5
    assert "sees nothing" in page.locator("tbody tr").nth(6).inner_text()
    page.mouse.move(box[4]["x"] + 9, box[4]["y"] + 9)  # let go: nothing is painted
    assert value(page, "_mask")[1] == [False] * 5
    cell(1, 1).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert value(page, "_mask")[2] == [True, True, False, False, False]
    assert cell(2, 2).get_attribute("aria-pressed") == "false"
    assert cell(2, 2).get_attribute("aria-label") == "saw may attend to saw"
    page.get_by_label("real tokens").fill("2")
    page.get_by_role("button", name="Padding", exact=True).click()
    assert value(page, "_mask") == [[True, True, False, False, False]] * 5
    page.get_by_label("additive").check()
    assert '-float("inf")' in page.locator("pre").inner_text()
    page.get_by_role("button", name="Copy").click()
    assert page.locator("button", has_text="cop").inner_text() in ("Copied", "Selected: now copy")


@only("page", ["split"], indirect=True)
def test_a_split_is_stepped_and_resized(page):
    spot = page.locator(".board").first.locator(".spot").nth(3)  # x[0, 3]: head 1, row 0
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").press("Enter")
    assert value(page, "_step") == "transpose"
    assert spot.evaluate("(spot) => spot.style.transform") == "translate(0px, 102px)"
    page.get_by_label("4 merge back").check()
    assert spot.evaluate("(spot) => spot.style.transform") == "translate(90px, 0px)"
    page.get_by_label("n, tokens").fill("5")
    page.get_by_label("n, tokens").press("Enter")
    assert page.locator(".board").first.locator(".spot").count() == 30
    page.get_by_label("n, tokens").fill("99")
    page.get_by_label("n, tokens").press("Enter")
    assert value(page, "_n") == 6
    assert "block 0 row 5: token 5" in page.locator(".board").first.get_attribute("aria-label")


# Labels are text


@pytest.mark.parametrize("name", ["query", "heads", "mask"])
def test_labels_show_as_typed(browser, name):
    page = show(browser, examples.ALL[name](examples.NASTY))
    page.on("dialog", lambda dialog: page.errors.append(dialog.message))
    text = page.locator(".mha").evaluate("(root) => root.textContent")
    for label in examples.NASTY:
        assert label in text
    assert page.locator(".mha img, .mha script").count() == 0
    page.keyboard.press("Tab")
    assert page.errors == []
    page.close()


# Accessibility


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", examples.ALL)
def test_axe_finds_no_violation(browser, name, theme):
    page = show(browser, examples.ALL[name](), theme)
    found = Axe().run(page).response["violations"]
    assert [(rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in found] == []
    page.close()


@pytest.mark.parametrize("name", examples.ALL)
def test_focus_is_visible_everywhere(browser, name):
    page = show(browser, examples.ALL[name]())
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        outline = page.evaluate(
            """() => {
                const e = document.activeElement, s = getComputedStyle(e);
                const found = [e.outerHTML.slice(0, 60), s.outlineStyle, s.outlineWidth];
                return e === document.body ? null : found;
            }"""
        )
        if outline:
            seen.add(tuple(outline))
    assert len(seen) >= 4
    assert all(style == "solid" and width == "3px" for _, style, width in seen)
    page.close()


def test_nothing_moves_for_those_who_asked_for_that(browser):
    def duration(**media):
        page = show(browser, examples.split())
        page.emulate_media(**media)
        found = page.locator(".spot").first.evaluate("(spot) => getComputedStyle(spot).transitionDuration")
        page.close()
        return found

    assert duration(reduced_motion="no-preference") == "0.6s"
    assert duration(reduced_motion="reduce") in ("0s", "")
