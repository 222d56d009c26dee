"""Each explorable on a plain page, without any kernel: pointer, keyboard, speed, markup, accessibility."""

import json
from itertools import pairwise, product

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe

from bench import examples
from bench.browser import DESK, PHONE, THEMES, finger, needs_chromium
from mha_course import explore
from mha_lab import toy

pytestmark = [pytest.mark.browser, needs_chromium]


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


def test_the_query_follows_the_keyboard(shown):
    page = shown(examples.query(), dead=True)
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
    page.get_by_role("button", name="focus on key 2").press("Enter")
    assert float(table(page)[2]) > 0.9
    page.evaluate("model.set('_query', [0, 0])")  # from Python
    assert table(page)[0] == "0.200"


def test_a_click_on_a_key_focuses_and_a_second_one_averages(shown):
    """With a mouse, with the shift key, and with the two lists; three times, as nothing is counted."""
    page = shown(explore.query(toy.plane_keys(), toy.plane_values()))
    keys, lists = page.locator(".plane button"), page.get_by_role("combobox")
    for _ in range(3):
        keys.nth(2).click()
        assert float(table(page)[2]) > 0.99
        keys.nth(1).click(modifiers=["Shift"])
        assert table(page) == ["0.000", "0.500", "0.500"]
        assert [round(x, 2) for x in value(page, "_query")] == [-5.3, 2.27]
        assert [each.input_value() for each in lists.all()] == ["2", "1"]
        lists.nth(0).select_option("key 0")
        assert float(table(page)[0]) > 0.99
        lists.nth(1).select_option("key 1")
        assert table(page) == ["0.500", "0.500", "0.000"]
        page.get_by_role("slider").press("ArrowLeft")  # moved otherwise: no key is chosen any more
        assert [each.input_value() for each in lists.all()] == ["", ""]


def test_the_picture_says_why_no_query_does_that(shown):
    """Keys 0 and 1 are equal, so no query prefers one of them; and a short plane ends too early."""
    keys = torch.tensor([[2.0, 1.0], [2.0, 1.0], [-1.0, 3.0], [0.5, 1.0]])
    page = shown(explore.query(keys, keys))
    before = value(page, "_query")
    page.get_by_label("focus on", exact=True).select_option("key 1")
    said = "key 1 and key 0 are the same vector, so they always get the same weight."
    assert page.locator(".why").inner_text() == page.get_by_role("status").inner_text() == said
    assert value(page, "_query") == before
    page.evaluate("model.set('_scale', 0)")  # from Python
    page.get_by_label("focus on", exact=True).select_option("key 2")
    assert page.locator(".why").inner_text() == "With the scale 0, all scores are 0."
    near = torch.tensor([[1.0, 0.0], [0.8, 0.1], [0.9, -0.2]])
    page = shown(explore.query(near, near))
    page.locator(".plane button").first.click()
    assert page.locator(".why").inner_text().startswith("A longer query would do better, but the plane ends")


TOUCHING = """() => {
  const boxes = [...document.querySelectorAll(".plane text")]
    .map((one) => [one.textContent, one.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) =>
    p.left < q.right - 0.5 && q.left < p.right - 0.5 && p.top < q.bottom - 2 && q.top < p.bottom - 2)
    .map(([b]) => [a, b]));
}"""


@pytest.mark.parametrize("device", [DESK, PHONE])
def test_no_label_of_the_plane_covers_another_one(shown, device):
    """Wherever the query is, with the keys of the chapters."""
    page = shown(explore.query(toy.plane_keys(), toy.plane_values()), device=device)
    reach = value(page, "_reach")
    for x, y in product(range(-10, 11, 2), repeat=2):
        page.evaluate("(query) => model.set('_query', query)", [x * reach / 10, y * reach / 10])
        assert page.evaluate(TOUCHING) == []


def test_a_zero_has_no_sign(shown):
    page = shown(examples.query())
    page.evaluate("model.set('_query', [-0.001, -0.25])")
    assert [page.get_by_label(f"query, {axis}").input_value() for axis in "xy"] == ["0.00", "-0.25"]


SIDES = [(1000, True), (673, True), (671, False), (375, False)]  # margins take 32 px of the page


@pytest.mark.parametrize(("width", "beside"), SIDES)
def test_plane_and_numbers_are_side_by_side_from_640_px_of_its_own_width(shown, width, beside):
    """Else a strip with the weights is below the plane, and stays when the page is scrolled."""
    page = shown(examples.query())
    page.set_viewport_size({"width": width, "height": 667})
    plane, numbers = (page.locator(each).bounding_box() for each in (".plane", ".side"))
    assert (numbers["x"] >= plane["x"] + plane["width"]) == beside
    strip = page.locator(".strip")
    assert strip.is_visible() != beside
    if not beside:
        page.locator("table").scroll_into_view_if_needed()
        page.evaluate("scrollTo(0, 500)")
        assert strip.bounding_box()["y"] == 0
        assert "key 1\n0.56" in strip.inner_text()


def test_a_token_lights_its_row_in_all_heads(shown):
    page = shown(examples.heads(), dead=True)
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
    assert value(page, "_picked") == [1]
    assert page.get_by_role("status").inner_text() == "One head always stays picked."
    assert page.get_by_text("One head always stays picked.").count() == 2  # heard and seen
    page.get_by_role("button", name="head 0").click()
    assert page.get_by_text("One head always stays picked.").count() == 0
    assert value(page, "_row") == 4  # the mouse has left the map
    page.get_by_role("option").nth(1).click()
    page.get_by_role("button", name="Average").click()
    assert page.locator(".strips tbody th").all_inner_texts() == ["average"]
    drawn = [float(text) for text in page.locator(".strips td").all_inner_texts()]
    picture = examples.heads()
    picture.row, picture.averaged = 1, True
    assert drawn == pytest.approx(picture.weights[0].tolist(), abs=0.006)


def test_a_head_is_enlarged_with_numbers_and_shows_what_it_fetches(shown):
    weights, sizes = examples.heads()._all, toy.embeddings()[:, 3:]
    page = shown(explore.heads(weights, toy.tokens(), values=sizes, row=2))

    def large():
        return [float(text) for text in page.locator(".large tbody td").all_inner_texts()]

    assert page.locator(".names .now").all_inner_texts() == ["saw", "saw"]
    assert page.locator(".names, .below").all_inner_texts() == ["a\ndog\nsaw\na\ncat"] * 4  # on every map
    fetched = page.locator(".strips tbody td:nth-child(2)")
    assert fetched.all_inner_texts() == ["0.84", "\u22120.84"]
    assert large() == pytest.approx(weights[0].flatten().tolist(), abs=0.006)
    page.locator(".map").nth(1).click()
    assert large() == pytest.approx(weights[1].flatten().tolist(), abs=0.006)
    page.get_by_label("Enlarged").select_option("head 0")
    page.locator(".large tbody tr").nth(3).hover()
    assert value(page, "_row") == 3
    page.get_by_role("option", name="saw").click()
    page.get_by_role("button", name="Average").click()
    shown_now = page.get_by_label("Enlarged").locator("option:checked").inner_text
    assert shown_now() == "average of heads 0, 1"
    page.get_by_label("Enlarged").select_option("head 1")
    assert (value(page, "_averaged"), shown_now()) == (False, "head 1")
    page.get_by_label("Enlarged").select_option("average of heads 0, 1")
    assert value(page, "_averaged") is True
    assert large() == pytest.approx(weights.mean(0).flatten().tolist(), abs=0.006)
    assert fetched.all_inner_texts() == ["0.00"]
    assert "so it fetches 0.00" in page.get_by_role("status").inner_text()


@pytest.mark.parametrize("name", ["query", "heads", "mask", "split", "flow", "state", "predict_number"])
def test_keys_are_for_the_explorable_and_not_for_the_notebook_around_it(shown, name):
    """Notebook 7 hears of a key on its way down, JupyterLab on its way up. Both heed the attribute."""
    page = shown(examples.ALL[name](), dead=True)
    page.evaluate("""() => {
      const said = (phase) => ({ target, key }) => window.heard.push(
        [phase, key, target.hasAttribute("data-lm-suppress-shortcuts")]);
      document.addEventListener("keydown", said("down"), true);
      document.addEventListener("keydown", said("up"));
    }""")
    page.locator(".mha button, .mha input").first.focus()
    ours, theirs = [["down", True]], [["down", False], ["up", False]]
    found = {}
    for keys in ("ArrowRight", "Shift+ArrowDown", "Shift+Enter", "Control+s", "Escape"):
        page.evaluate("window.heard = []")
        page.keyboard.press(keys)
        said = page.evaluate("window.heard")
        found[keys] = [[phase, quiet] for phase, key, quiet in said if key not in ("Shift", "Control")]
    assert found == {
        "ArrowRight": ours,
        "Shift+ArrowDown": ours,
        "Shift+Enter": theirs,
        "Control+s": theirs,
        "Escape": theirs,
    }


@pytest.mark.parametrize("width", [700, 1000, 1280])
def test_a_mouse_over_the_maps_shows_a_row_and_moves_nothing_and_a_click_chooses_it(shown, width):
    """On its way to another button, the mouse crosses rows that nobody has chosen."""
    words = ["a", "dog", "chased", "horse", "mouse"]
    page = shown(explore.heads(examples.heads()._all, words, row=2))
    page.set_viewport_size({"width": width, "height": 900})
    inside = page.evaluate_handle("[...document.querySelectorAll('.mha *:not(.chosen-row)')]")
    places = "(all) => all.map((one) => one.getBoundingClientRect()).map(({ x, y }) => `${x} ${y}`)"
    for area in (".maps .map >> nth=0", ".maps .map >> nth=1", ".large tbody", "[role=listbox]"):
        seen, before = set(), inside.evaluate(places)
        for i in range(5):
            box = page.locator(area).bounding_box()
            if area == "[role=listbox]":
                page.get_by_role("option").nth(i).hover()
            else:
                page.mouse.move(box["x"] + 20, box["y"] + (i + 0.5) * box["height"] / 5)
            seen.add(value(page, "_row"))
            assert inside.evaluate(places) == before
        assert seen == {0, 1, 2, 3, 4}
        page.mouse.move(5, 5)
        assert value(page, "_row") == 2
    for i, head in ((4, 1), (0, 0), (3, 1)):
        box = page.locator(".maps .map").nth(head).bounding_box()
        page.mouse.click(box["x"] + 20, box["y"] + (i + 0.5) * box["height"] / 5)
        page.mouse.move(5, 5)
        assert (value(page, "_row"), page.get_by_label("Enlarged").input_value()) == (i, str(head))
    page.locator(".large tbody tr").nth(2).click()
    page.mouse.move(5, 5)
    assert value(page, "_row") == 2


def test_a_tap_on_a_map_chooses_its_row_and_its_head(shown):
    page = shown(examples.heads(), device=PHONE)
    for i, head in ((4, 1), (0, 0), (3, 1)):
        page.locator(".maps .map").nth(head).scroll_into_view_if_needed()
        box = page.locator(".maps .map").nth(head).bounding_box()
        page.touchscreen.tap(box["x"] + 20, box["y"] + (i + 0.5) * box["height"] / 5)
        assert (value(page, "_row"), page.get_by_label("Enlarged").input_value()) == (i, str(head))


def test_the_names_of_keys_stay_apart_on_a_phone(shown):
    names = shown(examples.heads(), device=PHONE).locator(".below").first.locator("span")
    ends = names.evaluate_all("""(all) => all.map((one) => {
      const range = document.createRange();
      range.selectNodeContents(one);
      const { left, right } = range.getBoundingClientRect();
      return [left, right];
    })""")
    assert min(after[0] - before[1] for before, after in pairwise(ends)) > 3


def test_a_mask_is_painted_and_typed(shown):
    page = shown(examples.mask(), dead=True)

    def cell(i, j):
        return page.locator(".cell").nth(5 * i + j)

    def columns():
        """Where every cell of both grids stands."""
        left = "(all) => all.map((one) => one.getBoundingClientRect().x)"
        return page.locator("tbody td").evaluate_all(left)

    before, box = columns(), [cell(1, j).bounding_box() for j in range(5)]
    page.mouse.move(box[0]["x"] + 9, box[0]["y"] + 9)
    page.mouse.down()
    page.mouse.move(box[1]["x"] + 9, box[1]["y"] + 9, steps=5)
    page.mouse.up()
    assert value(page, "_mask")[1] == [False] * 5
    assert columns() == before  # nothing moves under the pointer
    assert "sees nothing" in page.locator("tbody tr").nth(6).inner_text()
    all_keys = "a (index 0), dog, saw, a (index 3), cat"
    assert f"dog sees nothing. Hidden: {all_keys}." in page.get_by_role("status").first.inner_text()
    page.mouse.move(box[4]["x"] + 9, box[4]["y"] + 9)  # let go: nothing is painted
    assert value(page, "_mask")[1] == [False] * 5
    cell(1, 1).focus()
    for key in ("ArrowRight", "ArrowDown", "Space"):
        page.keyboard.press(key)
    assert value(page, "_mask")[2] == [True, True, False, False, False]
    assert [cell(2, j).get_attribute("aria-pressed") for j in (1, 2)] == ["false", "true"]
    assert [cell(2, j).inner_text() for j in (1, 2)] == ["", "hidden"]
    assert cell(2, 2).get_attribute("aria-label") == "hide saw from saw"
    fields = real, width = [page.get_by_label(name) for name in ("real tokens", "window width")]
    page.get_by_role("button", name="Causal and padding").click()
    real.fill("2")
    real.press("Enter")  # no button is pressed: the field is enough
    assert value(page, "_mask")[0] == [True, False, False, False, False]
    page.get_by_role("button", name="Padding", exact=True).click()
    assert value(page, "_mask") == [[True, True, False, False, False]] * 5
    page.get_by_role("button", name="Causal", exact=True).click()
    for typed, kept in {"-3": "1", "2.5": "3", "9": "5", "": "5"}.items():
        width.fill(typed)
        width.press("Tab")
        assert (width.input_value(), sum(value(page, "_mask")[4])) == (kept, int(kept))
    for field, seen in zip(fields, (4, 3), strict=True):  # at once, as a mouse wheel changes it
        field.fill("4")
        assert sum(value(page, "_mask")[4]) == seen
    cell(0, 4).click()
    painted = value(page, "_mask")
    for field, typed in product(fields, ("", "4")):  # no other number: what was painted stays
        field.fill(typed)
        field.press("Tab")
        assert (field.input_value(), value(page, "_mask")) == ("4", painted)
    page.get_by_label("additive").check()
    page.get_by_role("button", name="Reset").click()
    assert [field.input_value() for field in fields] == ["3", "2"]
    assert page.get_by_label("boolean").is_checked()
    page.get_by_label("additive").check()
    assert eval(
        page.locator("pre").inner_text().split("mask = ")[1], {"torch": torch, "inf": torch.inf}
    ).shape == (5, 5)
    page.get_by_role("button", name="Copy").click()
    assert page.locator("button", has_text="cop").inner_text() in ("Copied", "Selected: now copy")


@pytest.mark.parametrize("moves", [1, 2, 3, 10])
def test_a_fast_mouse_paints_every_cell_on_its_way(shown, moves):
    page = shown(explore.mask(torch.zeros(5, 5)))
    first, last = (page.locator(".cell").nth(5 + j).bounding_box() for j in (0, 4))
    page.mouse.move(first["x"] + 9, first["y"] + 9)
    page.mouse.down()
    page.mouse.move(last["x"] + 9, last["y"] + 9, steps=moves)
    page.mouse.up()
    assert value(page, "_mask") == [[i != 1] * 5 for i in range(5)]


@pytest.mark.parametrize(("window", "stated"), [(1, "1"), (3, "3"), (7, "2")])
def test_a_mask_editor_opens_with_the_width_of_its_window(shown, window, stated):
    """Seven keys back is no window: then the field has its own default."""
    mask = torch.ones(7, 7, dtype=torch.bool).tril().triu(1 - window)
    page = shown(explore.mask(torch.zeros(7, 7), mask))
    assert page.get_by_label("window width").input_value() == stated


def test_a_mask_opens_with_the_fields_as_they_were_left(shown):
    page, left = shown(examples.mask()), examples.mask()
    page.get_by_label("real tokens").fill("2")
    page.get_by_label("window width").fill("4")
    page.get_by_label("additive").check()
    page.locator(".cell").nth(1).click()  # the mask is no window: its width cannot be read from it
    left._mask, left._chosen = value(page, "_mask"), value(page, "_chosen")
    page = shown(left)
    for _ in range(2):
        assert page.get_by_label("real tokens").input_value() == "2"
        assert page.get_by_label("window width").input_value() == "4"
        assert page.get_by_label("additive").is_checked()
        page.get_by_label("window width").fill("1")
        page.get_by_label("boolean").check()
        page.get_by_role("button", name="Reset").click()


@pytest.mark.parametrize("name", examples.ALL)
def test_nothing_says_that_it_scrolls_where_all_of_it_is_in_sight(shown, name):
    page = shown(examples.ALL[name]())
    page.wait_for_timeout(200)
    assert page.locator(".wide.cut").count() == 0


@pytest.mark.parametrize(("width", "hints"), [(375, 2), (1280, 0)])
def test_a_table_wider_than_the_page_says_that_it_scrolls(shown, width, hints):
    page = shown(explore.mask(torch.zeros(7, 7)))
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function(
        """(hints) => [...document.querySelectorAll(".wide")]
        .filter((box) => getComputedStyle(box, "::before").content.includes("Scroll")).length === hints""",
        arg=hints,
    )
    found = Axe().run(page).response["violations"]
    assert [(rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in found] == []
    weights = page.get_by_role("group", name="a table that scrolls sideways")
    assert weights.count() == hints // 2  # the mask's own table has buttons
    if hints:
        weights.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("(box) => box.scrollLeft > 0", arg=weights.element_handle())


def test_the_names_of_the_rows_stay_in_sight_on_a_phone(shown):
    page = shown(explore.mask(torch.zeros(7, 7)), device=PHONE)
    boxes = page.locator(".wide")
    for box in boxes.all():
        box.evaluate("(box) => { box.scrollLeft = 1000; }")
        name, last = (box.locator("tbody tr").first.locator(each) for each in ("th", "td >> nth=6"))
        left = box.bounding_box()["x"]
        assert (name.bounding_box()["x"], last.is_visible()) == (pytest.approx(left, abs=1), True)


def test_the_preset_that_the_mask_is_stays_marked_and_a_number_keeps_it_causal(shown):
    page = shown(examples.mask())
    presets = ("All visible", "Causal", "Padding", "Causal and padding", "Window", "Window and padding")

    def marked():
        buttons = [page.get_by_role("button", name=name, exact=True) for name in presets]
        pairs = zip(presets, buttons, strict=True)
        return [name for name, one in pairs if one.get_attribute("aria-pressed") == "true"]

    real, width = (page.get_by_label(name) for name in ("real tokens", "window width"))
    assert marked() == ["Causal"]
    for field, typed, name in ((real, "2", "Causal and padding"), (width, "3", "Window and padding")):
        field.fill(typed)
        field.press("Tab")
        assert marked() == [name]
    assert value(page, "_mask")[3] == [False, True, False, False, False]  # j from 1 to 3, and real
    real.fill("99")
    real.press("Tab")
    assert "from 0 to 5" in page.locator(".said").inner_text()
    real.fill("4")
    assert page.locator(".said").inner_text() == ""
    page.locator(".cell").first.focus()
    for key, place in (("End", 4), ("Control+End", 24), ("Home", 20), ("Control+Home", 0)):
        page.keyboard.press(key)
        cells = "(all) => all.indexOf(document.activeElement)"
        assert page.locator("button.cell").evaluate_all(cells) == place
    page.keyboard.press("Space")
    assert marked() == []  # painted by hand
    said = {
        "boolean": "both give the output 0",
        "blocked": "it gives NaN",
        "additive": "torch.softmax gives NaN",
    }
    page.evaluate("model.set('_mask', Array(5).fill(Array(5).fill(false)))")
    for convention, words in said.items():
        page.locator(f"input[value={convention}]").check()
        assert words in page.locator("p", has_text="For a query that sees nothing").inner_text()


@pytest.mark.parametrize("sizes", [(3, 1, 4), (1, 2, 3)])
def test_where_both_splits_agree_neither_is_called_wrong(shown, sizes):
    page = shown(explore.split(*sizes))
    page.get_by_label("3 transpose").check()
    bare = page.locator(".panel").nth(1)
    assert bare.inner_text().startswith("here the same: the bare view")
    assert "here the same as the right way" in bare.inner_text()
    assert bare.locator(".off").count() == 0


def test_a_split_is_stepped_and_resized(shown):
    page = shown(examples.split(), dead=True)
    page.emulate_media(reduced_motion="reduce")
    right, bare = page.locator(".board").all()

    def place(i):
        """Of a number in the right board, in cells from the first one."""
        first, spot = (right.locator(".spot").nth(each).bounding_box() for each in (0, i))
        return [round((spot[axis] - first[axis]) / first["width"], 1) for axis in "xy"]

    page.get_by_role("button", name="Next").click()
    assert place(3) == [0, 1]  # x[0, 3] of head 1: view puts it below
    page.get_by_role("button", name="Next").press("Enter")
    assert value(page, "_step") == "transpose"
    assert place(3)[1] > 3  # in the second block, below three rows
    names = right.locator(".word").all_inner_texts()
    assert names == ["head 0", "token 0", "token 1", "token 2", "head 1", "token 0", "token 1", "token 2"]
    assert bare.locator(".word").nth(1).inner_text() == "row 0"
    assert bare.locator(".spot").nth(3).inner_text() == "3\nt0"
    assert (right.locator(".off").count(), bare.locator(".off").count()) == (0, 12)
    page.get_by_label("4 merge back").check()
    assert place(3) == [3, 0]
    for typed, n in {"5": 5, "99": 6}.items():
        page.get_by_label("n, tokens").fill(typed)
        page.get_by_label("n, tokens").press("Enter")
        assert value(page, "_n") == n
        assert right.locator(".spot").count() == 6 * n
    assert "token 5: 30 31 32 33 34 35, of token 5" in right.get_attribute("aria-label")
    page.get_by_label("3 transpose").check()
    page.set_viewport_size({"width": 375, "height": 667})
    boxes = [each.bounding_box() for each in (right, bare)]
    assert boxes[0]["y"] == boxes[1]["y"]  # row beside row, on a phone as well
    assert boxes[1]["x"] + boxes[1]["width"] <= 375


@pytest.mark.parametrize("name", ["split", "mask"])
def test_a_number_out_of_range_is_refused_in_words_and_the_change_is_spoken(shown, name):
    page = shown(examples.ALL[name](), dead=True)
    field, label, least, most = {
        "split": (page.get_by_label("n, tokens (1 to 6)"), "n, tokens", 1, 6),
        "mask": (page.get_by_label("window width, 1 to 5"), "window width", 1, 5),
    }[name]
    spoken = page.get_by_role("status").first
    for typed, kept in {"99": most, "2": 2, "-1": least, "4": 4}.items():
        before = spoken.inner_text()
        field.fill(typed)
        field.press("Enter")
        assert field.input_value() == str(kept)
        said = f"For {label}, choose a whole number from {least} to {most}. Now it is {kept}."
        assert page.get_by_text(said).is_visible() == (typed != str(kept))
        assert spoken.inner_text() not in ("", before)
    field.fill("99")
    field.press("Enter")
    page.get_by_role("button", name="Reset").click()
    assert page.get_by_text("choose a whole number").count() == 0


def test_a_split_speaks_of_its_step_and_has_no_dead_button(shown):
    page = shown(examples.split())
    back, ahead = (page.get_by_role("button", name=name) for name in ("Back", "Next"))
    found = []
    for _ in range(4):
        found.append((back.is_disabled(), ahead.is_disabled()))
        ahead.click(force=True)
    assert found == [(True, False), (False, False), (False, False), (False, True)]
    assert page.get_by_text("This is the end.").is_visible()
    back.click()
    said = page.get_by_role("status").first.inner_text()
    assert said.endswith("every token. The bare view has 12 numbers in a wrong place.")


# For each explorable: what meets its goals, one after the other; Reset forgets the goals and the moves.
GOALS = {
    "query": ["model.set('_query', [0, 0])", "model.set('_query', [0, 4])", "model.set('_query', [-2.4, 4])"],
    "heads": ["model.set('_row', 2)", "model.set('_averaged', true)"],
    "mask": [
        "model.set('_mask', model.get('_mask').map((row, i) => row.map((seen) => seen && i > 0)))",
        "model.set('_mask', model.get('_mask').map((row) => row.map((seen, j) => seen && j > 0)))",
    ],
    "split": [
        "model.set('_step', 'transpose')",
        "model.set('_n', 2), model.set('_num_heads', 1)",
        "model.set('_n', 6), model.set('_num_heads', 2)",
    ],
    "flow": [
        "model.set('_edits', { 'product 0 2 4': 3.9 }), model.set('_at', 3)",
        "edit({ scale: 2 })",  # each goal after the one before
        "model.set('_at', 5), edit({ 'value 0 1 0': 0, 'value 0 4 0': 0 })",
        "model.set('_at', 6), edit({ 'w_o 3 0': 0, 'w_o 3 3': 1 })",
    ],
    "online_softmax": [
        "model.set('_hidden', Array(6).fill(false)), model.set('_rescaled', 'o'),"
        "model.set('_scores', [3, 3, 0, 1, 2, 3]), model.set('_step', 3)",
        "model.set('_scores', [-2, -1, -1, 0, 2, 5])",
        "model.set('_hidden', [1, 1, 0, 0, 0, 0].map(Boolean)), model.set('_step', 1)",
    ],
    "positions": [
        "model.set('_at', [13, 10])",
        "model.set('_at', [13, 12]),document.querySelectorAll('.grip')[1].dispatchEvent(new Event('change'))",
        "model.set('_kind', 'sinusoidal'), model.set('_at', [16, 15])",
        "model.set('_kind', 'alibi'), model.set('_at', [16, 17])",
        "model.set('_at', [21, 22])",
    ],
    "scaling": [
        "model.set('_d_k', 512)",
        "model.set('_scale', '1/d_k')",
        "model.set('_shown', ['no scale', '1/sqrt(d_k)', '1/d_k'])",
    ],
    "state": [
        "model.set('_query', 2), model.set('_step', 3)",
        "model.set('_query', 0), model.set('_rule', 'decays'), model.set('_decay', 0), model.set('_step', 6)",
    ],
    "training": [
        "model.set('_seed', 1), model.set('_step', 40)",
        "model.set('_step', 80)",
        "model.set('_step', 100)",
    ],
    "model": [
        "model.set('_acts', model.get('_acts').map((_, i) => i === 2 ? 'silent' : ''))",
        "model.set('_acts', Array(8).fill('')), model.set('_tokens', model.get('_tokens').with(2, 39))",
    ],
}
# Met, but none sees it at step 0 of flow; of the trainings, these are the wrong steps.
EARLY = {
    "flow": "model.set('_edits', { scale: 3, 'value 0 1 0': 0 })",
    "training": "[10, 60, 90, 100, 0].forEach((step) => model.set('_step', step))",
    "state": "[1, 2, 3, 4, 5, 6].forEach((step) => model.set('_step', step)), model.set('_step', 0)",
    "online_softmax": "model.set('_hidden', [true, true, ...Array(4).fill(false)])",
}
STATES = "() => JSON.stringify(Object.keys(model.all()).sort().map((name) => model.get(name)))"


@pytest.mark.parametrize("name", GOALS)
def test_goals_are_ticked_when_they_are_reached_and_reset_forgets_them(shown, name):
    page = shown(examples.ALL[name]())
    done, texts, start = page.locator(".goals .done"), page.locator(".goals li"), page.evaluate(STATES)
    before = texts.all_inner_texts()
    assert len(before) == len(GOALS[name])
    page.evaluate("window.edit = (more) => model.set('_edits', { ...model.get('_edits'), ...more }); 0")
    page.evaluate(EARLY.get(name, "0"))
    assert done.count() == 0
    for i, step in enumerate(GOALS[name]):
        page.evaluate(step)
        told = zip(done.all_inner_texts(), before[: i + 1], strict=True)  # perhaps with what is to be seen
        assert all(said.startswith(f"Reached: {text}") for said, text in told)
    assert page.evaluate(STATES) != start
    page.get_by_role("button", name="Reset").click()
    assert page.evaluate(STATES) == start
    assert (done.count(), texts.all_inner_texts()) == (0, before)


PICTURES = {"query": ".plane", "heads": ".map", "mask": ".cell.hidden", "split": ".board", "flow": ".handle"}
PICTURES |= {"positions": ".dials svg", "model": ".enlarged .map", "scaling": ".chart", "training": "svg"}
PICTURES |= {"online_softmax": ".handle", "state": "input[type=range]"}


def swipe(page, box, x=0.5, y=0.5):
    """A finger goes 80 px up from a point of this box."""
    finger(page, box["x"] + x * box["width"], box["y"] + y * box["height"], 0, -80)


@pytest.mark.parametrize("name", PICTURES)
def test_a_swipe_on_a_picture_scrolls_the_page(shown, name):
    page = shown(examples.ALL[name](), device=PHONE)
    before = page.evaluate(STATES)
    swipe(page, page.locator(PICTURES[name]).first.bounding_box(), 0.2, 0.8)
    page.wait_for_function("scrollY > 40")
    assert page.evaluate(STATES) == before


def test_only_the_handle_catches_the_finger_and_it_does_not_jump(shown):
    page = shown(examples.query(), device=PHONE)
    (x, y), step = value(page, "_query"), 2 * value(page, "_reach") / 272
    handle = page.get_by_role("slider").bounding_box()
    assert (handle["width"], handle["height"]) == (44, 44)
    swipe(page, handle, 0.8, 0.8)  # the finger is beside the tip
    page.wait_for_timeout(300)  # in which it could scroll
    assert page.evaluate("scrollY") == 0
    assert value(page, "_query") == pytest.approx([x, y + 80 * step], abs=1e-3)
    page.locator(".plane button").nth(1).tap()
    assert float(table(page)[1]) > 0.99


# A label presses its radio button.
SMALL = """(all) => all.filter((one) => one.checkVisibility()).map((one) => {
  const { width, height } = (one.closest("label:has([type=radio])") ?? one).getBoundingClientRect();
  return [one.outerHTML.slice(0, 80), width, height];
}).filter(([, width, height]) => Math.min(width, height) < 44)"""


PLACES = """(all) => all.map((one) => {
  const { left, right } = one.getBoundingClientRect();
  return [left, right, one.closest(".sentence") !== null, one.outerHTML.slice(0, 60)];
})"""


@pytest.mark.parametrize("name", examples.ALL)
def test_every_target_is_44_px_on_a_phone(shown, name):
    page = shown(examples.ALL[name](), device=PHONE)
    # As on the website, which also takes the margins of radio buttons away.
    page.add_style_tag(content="body { margin: 0 16px; } input { margin: 0; }")
    page.evaluate("model.set('_at', 6)") if name == "flow" else None  # with w_o
    targets = page.locator(".mha :is(button, select, input, textarea, [role=slider])")
    assert targets.count() > 1
    assert targets.evaluate_all(SMALL) == []
    within = page.locator(".mha").bounding_box()
    for box in targets.filter(visible=True).evaluate_all(PLACES):
        long = name == "model" and box[2]  # the text of a model may be longer than a phone is wide
        assert long or within["x"] <= box[0] <= box[1] <= within["x"] + within["width"], box
    assert page.evaluate("document.documentElement.scrollWidth") == 375


LOOKS = """() => [...document.querySelectorAll(".mha *")].map((one) => {
  const { width, height } = one.getBoundingClientRect(), style = getComputedStyle(one);
  const names = ["font", "margin", "padding", "border", "color", "fill", "background-color", "display"];
  const look = names.map((name) => style.getPropertyValue(name));
  return [one.outerHTML.slice(0, 60), width, height, ...look].join("; ");
})"""


@pytest.mark.parametrize("name", examples.ALL)
def test_another_explorable_below_changes_nothing(shown, name):
    """It has the style that all share once more, later in the page."""
    page = shown(examples.ALL[name](), device=PHONE)
    page.evaluate(EARLY.get(name, "0"))
    before = page.evaluate(LOOKS)
    page.evaluate("document.body.append(document.querySelector('.mha style').cloneNode(true))")
    changed = [pair for pair in zip(before, page.evaluate(LOOKS), strict=True) if pair[0] != pair[1]]
    assert changed == []


@pytest.mark.parametrize("name", ["query", "heads", "mask", "flow", "model", "state"])
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
  const e = document.activeElement, own = getComputedStyle(e), next = e.nextElementSibling;
  const ring = own.outlineStyle === "none" && next?.matches(".handle"); // a slider below a handle
  const style = ring ? getComputedStyle(next, "::after") : own;
  return e === document.body ? null : [e.outerHTML.slice(0, 60), style.outlineStyle, style.outlineWidth];
}"""


@pytest.mark.parametrize("name", examples.ALL)
def test_focus_is_visible_everywhere(shown, name):
    page, seen = shown(examples.ALL[name]()), set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(tuple(page.evaluate(FOCUSED) or ()))
    seen.discard(())
    assert len(seen) >= (2 if name.startswith("predict") else 4)
    assert {outline[1:] for outline in seen} == {("solid", "3px")}


@pytest.mark.parametrize(("motion", "durations"), [("no-preference", ["0.6s"]), ("reduce", ["0s", ""])])
def test_nothing_moves_for_those_who_asked_for_that(shown, motion, durations):
    page = shown(examples.split())
    page.emulate_media(reduced_motion=motion)
    spot = page.locator(".spot").first
    assert spot.evaluate("(spot) => getComputedStyle(spot).transitionDuration") in durations
