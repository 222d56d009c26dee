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
def shown(browser):
    """Shows explorables on pages; whatever the console says is an error."""
    pages = []
    yield lambda *given, **named: pages.append(show(browser, *given, **named)) or pages[-1]
    for page in pages:
        assert page.errors == []
        page.close()


@pytest.fixture
def page(shown, request):
    """A page with the explorable that a test's mark names, where no kernel answers."""
    return shown(examples.ALL[request.param](), dead=True)


def on(*names):
    return pytest.mark.parametrize("page", names, indirect=True)


def value(page, name):
    return page.evaluate("(name) => model.get(name)", name)


def table(page):
    """The last column."""
    return [row.split()[-1] for row in page.locator("tbody tr").all_inner_texts()]


@pytest.mark.parametrize("name", examples.ALL)
def test_a_stored_start_stays_as_it_is_when_a_browser_saves_it(shown, name):
    stored = json.dumps(examples.ALL[name]().start())
    saved = shown(examples.ALL[name]()).evaluate("(text) => JSON.stringify(JSON.parse(text))", stored)
    assert json.dumps(json.loads(saved)) == stored


SCALES = {1.0: ["no scale"], 0.707107: ["1/√d_k"], 0.5: ["1/d_k"], 0.3: []}


@pytest.mark.parametrize(("scale", "chosen"), SCALES.items())
def test_the_scale_of_a_stored_start_is_chosen(shown, scale, chosen):
    """Stored starts are rounded; a scale that is not on offer chooses none."""
    page = shown(explore.query(toy.plane_keys(), toy.plane_keys(), scale=scale))
    labels = page.locator("label", has=page.locator("input:checked")).all_inner_texts()
    assert [label.strip() for label in labels] == chosen


@pytest.mark.parametrize("width", [1000, 860, 500])
def test_nothing_jumps_while_one_drags(shown, width):
    """Longer numbers must not push the table below the plane, from under the pointer's eye."""
    values = torch.tensor([[10.5, 1.5], [20.5, 2.5], [30.5, 3.5]])
    page = shown(explore.query(toy.plane_keys(), values))
    page.set_viewport_size({"width": width, "height": 900})
    plane = page.locator("svg").bounding_box()
    places = set()
    page.mouse.move(plane["x"] + 100, plane["y"] + 100)
    page.mouse.down()
    for dx, dy in ((5, 5), (5, 190), (190, 375), (375, 375), (375, 5), (188, 190)):
        page.mouse.move(plane["x"] + dx, plane["y"] + dy)
        box = page.locator("table").bounding_box()
        places.add((round(box["x"]), round(box["y"])))
    page.mouse.up()
    assert len(places) == 1


@on("query")
def test_the_query_follows_the_keyboard(page):
    tip, field = page.get_by_role("slider"), page.get_by_label("query, y")
    (x, y), reach = value(page, "_query"), value(page, "_reach")
    tip.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    assert value(page, "_query") == pytest.approx([x + reach / 40, y + 5 * reach / 40])
    assert tip.get_attribute("aria-valuetext").startswith("x 1.1")
    for typed in ("-1.5", ""):
        field.fill(typed)  # no Enter: some front ends take it for themselves
        assert value(page, "_query")[1] == -1.5
    field.fill("-1000")
    field.press("Tab")
    assert value(page, "_query")[1] == -reach
    assert float(field.input_value()) == pytest.approx(-reach, abs=0.005)
    page.get_by_label("no scale").check()
    assert value(page, "_scale") == 1
    page.get_by_role("button", name="Focus on one key").press("Enter")
    assert max(map(float, table(page))) > 0.9
    page.evaluate("model.set('_query', [0, 0])")  # from Python
    assert table(page)[0] == "0.200"


def test_a_preset_that_no_query_meets_is_not_offered(shown):
    """Keys 0 and 1 are equal, so no query prefers one of them, or one of them and another."""
    keys = torch.tensor([[2.0, 1.0], [2.0, 1.0], [-1.0, 3.0], [0.5, 1.0]])
    page = shown(explore.query(keys, keys))
    for name, found in {"Focus on one key": {(2,), (3,)}, "Average two keys": {(0, 1), (2, 3)}}.items():
        button, seen = page.get_by_role("button", name=name), set()
        for _ in range(4):
            button.click()
            seen.add(tuple(i for i, weight in enumerate(table(page)) if float(weight) > 0.45))
        assert seen == found
    page.evaluate("model.set('_scale', 0)")  # from Python
    assert page.locator("button:disabled").all_inner_texts() == ["Focus on one key", "Average two keys"]


@on("heads")
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
    page.get_by_role("button", name="head 1").click()
    assert value(page, "_picked") == [1]  # one always stays
    page.get_by_role("button", name="head 0").click()
    page.get_by_role("button", name="Average").click()
    assert page.locator(".strips tbody th").all_inner_texts() == ["average"]
    shown = [float(text) for text in page.locator(".strips td").all_inner_texts()]
    picture = examples.heads()
    picture.row, picture.averaged = 1, True
    assert shown == pytest.approx(picture.weights[0].tolist(), abs=0.006)


@on("mask")
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
    for key in ("ArrowRight", "ArrowDown", "Space"):
        page.keyboard.press(key)
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


@on("split")
def test_a_split_is_stepped_and_resized(page):
    spot = page.locator(".board").first.locator(".spot").nth(3)  # x[0, 3]: head 1, row 0
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").press("Enter")
    assert value(page, "_step") == "transpose"
    assert spot.evaluate("(spot) => spot.style.transform") == "translate(0px, 102px)"
    page.get_by_label("4 merge back").check()
    assert spot.evaluate("(spot) => spot.style.transform") == "translate(90px, 0px)"
    for typed, n in {"5": 5, "99": 6}.items():
        page.get_by_label("n, tokens").fill(typed)
        page.get_by_label("n, tokens").press("Enter")
        assert value(page, "_n") == n
        assert page.locator(".board").first.locator(".spot").count() == 6 * n
    assert "block 0 row 5: token 5" in page.locator(".board").first.get_attribute("aria-label")


@pytest.mark.parametrize("name", ["query", "heads", "mask"])
def test_labels_show_as_typed(shown, name):
    page = shown(examples.ALL[name](examples.NASTY))
    page.on("dialog", lambda dialog: page.errors.append(dialog.message))
    text = page.locator(".mha").evaluate("(root) => root.textContent")
    assert [label for label in examples.NASTY if label not in text] == []
    assert page.locator(".mha img, .mha script").count() == 0
    page.keyboard.press("Tab")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", examples.ALL)
def test_axe_finds_no_violation(shown, name, theme):
    found = Axe().run(shown(examples.ALL[name](), theme)).response["violations"]
    assert [(rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in found] == []


FOCUSED = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  return e === document.body ? null : [e.outerHTML.slice(0, 60), style.outlineStyle, style.outlineWidth];
}"""


@pytest.mark.parametrize("name", examples.ALL)
def test_focus_is_visible_everywhere(shown, name):
    page, seen = shown(examples.ALL[name]()), set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(tuple(page.evaluate(FOCUSED) or ()))
    seen.discard(())
    assert len(seen) >= 4
    assert {outline[1:] for outline in seen} == {("solid", "3px")}


@pytest.mark.parametrize(("motion", "durations"), [("no-preference", ["0.6s"]), ("reduce", ["0s", ""])])
def test_nothing_moves_for_those_who_asked_for_that(shown, motion, durations):
    page = shown(examples.split())
    page.emulate_media(reduced_motion=motion)
    spot = page.locator(".spot").first
    assert spot.evaluate("(spot) => getComputedStyle(spot).transitionDuration") in durations
