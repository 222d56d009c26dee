"""The map of attention: its rows against the census, and its filters in a real browser."""

import json
import re

import pytest
from playwright.sync_api import expect

from mha_course.chapters.published import census
from tests.site.test_site import AXE, LEVELS, WIDEST, finish, in_browser, text
from tools import attention_map

NAME = "map_of_attention.html"
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1300, "height": 900}


@pytest.fixture(scope="module")
def table():
    return census()


@pytest.fixture(scope="module")
def rows(pages):
    """Of the page, by the folder and the name of the class."""
    found = {row["data-name"]: row for row in pages[NAME].select(".map tbody tr")}
    for name, row in found.items():  # as a reader sees it
        own, folder = text(row.th).partition(" · ")[0].split()
        assert f"{folder}.{own}" == name
    return found


def test_each_class_that_the_page_promises_has_a_row(table, rows, pages):
    wanted = table[(table["result"] == "equal") | (table["kind"] == "text decoder")]
    assert set(rows) == set(wanted["folder"] + "." + wanted["class"])
    assert len(pages[NAME].select(".map tbody tr")) == len(wanted)
    assert f"{len(wanted)} of the {len(table)} classes" in text(pages[NAME].article)
    assert all(row.find("a") for row in rows.values())


def cells(row):
    """What a row says, by heading."""
    return {cell["data-is"]: text(cell) for cell in row.select("td[data-is]")}


def test_what_rows_say_of_models_that_are_known(rows):
    assert cells(rows["falcon.FalconAttention"]) == {
        "Year": "2023",
        "Heads": "71, 1 KV",
        "Width": "64",
        "Positions in the layer": "rotary, base 10,000",
        "More": "one matrix",
    }
    gpt_oss = cells(rows["gpt_oss.GptOssAttention"])
    assert (gpt_oss["Heads"], gpt_oss["Window"]) == ("64, 8 KV", "128")
    assert "sinks" in gpt_oss["More"]
    assert "base 1,000,000 and 10,000" in cells(rows["gemma3.Gemma3Attention"])["Positions in the layer"]
    assert cells(rows["llama.LlamaAttention"])["Heads"] == "32"
    smollm3 = cells(rows["smollm3.SmolLM3Attention"])
    assert smollm3["Heads"] == "16, 4 KV"
    assert "none in some layers" in smollm3["Positions in the layer"]
    assert "25% of a head" in cells(rows["gpt_neox.GPTNeoXAttention"])["Positions in the layer"]
    assert cells(rows["gpt2.GPT2Attention"])["Positions in the layer"] == "none"
    assert "not rebuilt: sparse index" in cells(rows["deepseek_v32.DeepseekV32Attention"])["More"]


def test_each_feature_of_a_row_leads_to_its_step(rows):
    """That the anchors exist is tested for all pages; here, that each feature has its own."""
    unseen = set(attention_map.FEATURES)
    for row in rows.values():
        there = {link["href"] for link in row.find_all("a")}
        for name in row["data-has"].split():
            chapter, heading = attention_map.STEPS[name]
            if name == "bias" and "ALiBi" in text(row):
                chapter, heading = attention_map.STEPS["alibi"]
            assert f"{chapter}.html#{heading.replace(' ', '-')}" in there, text(row)
            unseen.discard(name)
    assert not unseen


def test_the_picture_counts_the_classes_of_the_page(table):
    shares, counts = attention_map.by_year(table)
    some = table[(table["kind"] == "text decoder") & (table["result"] == "equal") & (table["year"] == 2025)]
    assert counts[2025] == len(some)
    assert shares.loc[2025, "rotary"] == some["positions"].notna().mean()
    assert shares.loc[2025, "sinks"] == (some["sinks"] == True).mean()  # noqa: E712


def test_a_place_that_is_missing_in_the_text_is_told(table):
    with pytest.raises(ValueError, match=r"map_of_attention\.md: expected <!-- numbers -->"):
        attention_map.page("", table, lambda *_: "")


def visit(browser, root, theme="light", viewport=DESK):
    """The page, and what it asks of other hosts and complains of."""
    page = browser.new_context(viewport=viewport, color_scheme=theme, reduced_motion="reduce").new_page()
    page.others, page.errors, page.kinds = [], [], []
    page.on("request", lambda r: None if r.url.startswith((root, "data:")) else page.others.append(r.url))
    page.on("console", lambda m: page.errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(root + NAME)
    return finish(page)


def left(page):
    """The classes that are shown."""
    return page.evaluate(
        "[...document.querySelectorAll('.map tbody tr')].filter((row) => row.checkVisibility())"
        ".map((row) => row.dataset.name)"
    )


def named(some):
    return [f"{row['folder']}.{row['class']}" for row in attention_map.shown(some).to_dict("records")]


@in_browser
@pytest.mark.parametrize("where", ["http", "file"])
def test_filters_leave_the_rows_that_have_all_of_them(browser, roots, table, where):
    page = visit(browser, roots[where])
    decoders = table[table["kind"] == "text decoder"]
    assert left(page) == named(decoders)
    said = page.locator(".map-filters output")
    total = len(attention_map.shown(table))
    expect(said).to_have_text(f"{len(decoders)} of {total} classes")
    page.get_by_label("sinks").check()
    assert left(page) == named(decoders[decoders["sinks"] == True])  # noqa: E712
    page.get_by_label("rotary positions").check()
    both = decoders[(decoders["sinks"] == True) & decoders["positions"].notna()]  # noqa: E712
    assert left(page) == named(both)
    assert len(both) > 0
    page.get_by_label("Year").select_option("2026")
    assert left(page) == named(both[both["year"] == 2026])
    page.get_by_label("latent vectors").check()
    page.get_by_label("position bias").check()
    assert left(page) == []
    expect(said).to_have_text("No class has all of these.")
    page.get_by_role("button", name="All filters off").click()
    assert left(page) == named(table[(table["result"] == "equal") | (table["kind"] == "text decoder")])
    page.get_by_label("Name").fill("GEMMA3")
    assert {name.split(".")[0] for name in left(page)} == {"gemma3", "gemma3n"}
    page.get_by_label("Name").fill("")
    page.get_by_label("Kind").select_option("vision")
    assert left(page) == named(table[(table["kind"] == "vision") & (table["result"] == "equal")])
    assert (page.others, page.errors) == ([], [])
    page.context.close()


@in_browser
def test_without_its_script_the_page_shows_all_rows_and_no_filters(browser, roots, rows):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(roots["file"] + NAME)
    assert page.locator(".map tbody tr:visible").count() == len(rows)
    assert not page.locator(".map-filters").is_visible()
    context.close()


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_axe_finds_nothing_and_nothing_is_too_wide(browser, roots, theme, viewport):
    page = visit(browser, roots["file"], theme, viewport)
    page.get_by_label("sinks").check()  # a filter that is on, and rows few enough for axe
    page.evaluate(AXE)
    found = page.evaluate(f"axe.run({json.dumps(LEVELS)}).then((all) => all.violations)")
    assert [(rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in found] == []
    page.get_by_role("button", name="All filters off").click()
    assert page.evaluate(WIDEST) == viewport["width"] or viewport is DESK
    assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    assert (page.others, page.errors) == ([], [])
    page.context.close()


@in_browser
@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_the_keyboard_reaches_every_filter_and_then_the_rows(browser, roots, viewport):
    page = visit(browser, roots["file"], viewport=viewport)
    page.locator(".map-filters [name=name]").focus()
    focused = "[document.activeElement.name || document.activeElement.tagName, document.activeElement.value]"
    assert page.evaluate(focused)[0] == "name"
    met = []
    for _ in range(4 + len(attention_map.FEATURES)):
        page.keyboard.press("Tab")
        if (now := page.evaluate(focused)) == ["has", "sinks"]:
            page.keyboard.press("Space")
            outline = "(() => { const s = getComputedStyle(document.activeElement);"
            outline += " return s.outlineStyle !== 'none' || s.boxShadow !== 'none'; })()"
            assert page.evaluate(outline)
        met.append(now)
    assert [one[0] for one in met] == ["kind", "year", *["has"] * len(attention_map.FEATURES), "BUTTON", "A"]
    assert [one[1] for one in met if one[0] == "has"] == list(attention_map.FEATURES)
    assert page.evaluate("document.activeElement.closest('tr').dataset.has").split().count("sinks") == 1
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/\d\d_\w+\.html#"))
    page.context.close()


@in_browser
def test_a_finger_meets_44_px(browser, roots):
    page = visit(browser, roots["file"], viewport=PHONE)
    sizes = page.locator(".map-filters :is(input, select, button)").evaluate_all(
        "(all) => all.map((e) => e.getBoundingClientRect()).map(({ width, height }) => [width, height])"
    )
    assert len(sizes) == 4 + len(attention_map.FEATURES)
    assert min(min(size) for size in sizes) >= 43.9
    page.context.close()
