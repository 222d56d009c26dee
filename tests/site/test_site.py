"""The files of the website, and its pages in a real browser."""

import filecmp
import functools
import gzip
import io
import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import axe_playwright_python
import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from jinja2 import Environment, FileSystemLoader
from matplotlib.image import imread
from PIL import Image
from playwright.sync_api import expect

from bench.browser import FOCUS, TOLD, needs_chromium
from bench.firefox import CALM, DARK, Firefox, needs_firefox
from mha_course.explore import _widget
from tests.notebooks.chapters import FOLDER, PATHS, ROOT, markdown, read
from tests.site import one_more
from tests.site.conftest import build, run_build
from tools import site as tool
from tools.notebooks import read_whole
from tools.reasons import LEDGER
from tools.sync import launch, published

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
LEVELS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
LEVELS["preload"] = False  # axe itself would fetch the style sheets, which fails over file://
# A token of code looks like every other of its kind in the same box: one of each is enough for axe, the
# others become plain text, which is checked, too. Contrast takes most of the time, token by token.
ONE_OF_EACH = """
const seen = new Set();
for (const token of document.querySelectorAll(".highlight pre span")) {
  const box = token.closest(".cell_input, .output, .highlight");
  const look = `${token.className} in ${box.className}`;
  if (seen.has(look)) token.replaceWith(...token.childNodes);
  seen.add(look);
}
"""
# The theme lets the whole article scroll sideways in a box of its own, where the window would not show it.
WIDEST = "Math.max(...['html', '.bd-article-container'].map((e) => document.querySelector(e).scrollWidth))"
# Not at once: so it runs in both pages at the same time.
SOON = "axe.found = new Promise((done) => setTimeout(() => done(axe.run(%s))));"
# Each text below 11 px as rendered, whatever scales it.
SMALL = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, box = text.parentElement;
    if (!text.data.trim() || !box.checkVisibility({ visibilityProperty: true })) continue;
    const scale = box.getScreenCTM?.() ?? new DOMMatrix();
    const size = parseFloat(getComputedStyle(box).fontSize) * Math.hypot(scale.a, scale.b);
    if (size < 11) found.push(`${size.toFixed(1)} px: ${text.data.trim().slice(0, 40)}`);
  }
  return [...new Set(found)];
}"""
DESKTOP, PHONE = {"width": 1300, "height": 900}, {"width": 375, "height": 800}
EXTRA = f"{one_more.NAME}.html"
FOLDERS = "docs", tool.ANSWERS


def in_browser(test):
    return pytest.mark.browser(needs_chromium(test))


def text(element):
    return " ".join(element.get_text().split())


def links(page, kind):
    """Address and text of each link of this class."""
    return [(link["href"], text(link)) for link in page.find_all("a", class_=kind)]


def titles():
    """Page and title of each chapter, in order."""
    found = [(f"{path.stem}.html", nbformat.read(path, as_version=4).cells[0].source) for path in PATHS]
    found = [(name, source.splitlines()[0].removeprefix("# ")) for name, source in found]
    return [*found, (EXTRA, one_more.TITLE)]


@functools.cache
def stored(name):
    """The kinds of the explorables that a page has: those of its chapter, and two on the first page."""
    if name == "index.html":
        return ["flow", "model"]
    path = FOLDER / name.replace(".html", ".ipynb")
    if name != EXTRA and not path.is_file():
        return []
    notebook = one_more.chapter() if name == EXTRA else read_whole(path)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [o.data[_widget.START]["module"] for o in outputs if _widget.START in o.get("data", {})]


@pytest.mark.slow
def test_two_builds_give_the_same_files(site, notebooks, tmp_path):
    other = build(notebooks, tmp_path / "two", "2")
    names = [str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()]
    assert len(names) == len([path for path in other.rglob("*") if path.is_file()])
    assert filecmp.cmpfiles(site, other, names, shallow=False)[1:] == ([], [])


@pytest.mark.slow
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path):
    chapter = one_more.chapter()
    chapter.cells[0].source = chapter.cells[0].source.replace("#1-A-formula", "#1-An-formula")
    nbformat.write(chapter, tmp_path / "00_one.ipynb")
    done = run_build(tmp_path / "out", tmp_path, "0")
    assert done.returncode != 0
    assert "1-An-formula" in done.stderr  # an anchor
    assert "03_splitting_heads" in done.stderr  # a chapter that is not there
    assert not (tmp_path / "out").exists()


def test_every_chapter_has_its_page_and_its_place(pages):
    wanted = titles()
    for name, title in wanted:
        assert [text(heading).removesuffix("#") for heading in pages[name].find_all("h1")] == [title]
    for name, page in pages.items():
        found = [(name if href == "#" else href, said) for href, said in links(page, "reference")]
        first = found.index(wanted[0])
        assert found[first : first + len(wanted)] == wanted, name


def test_next_leads_through_all_pages_and_back(pages):
    def follow(name, kind):
        while name:
            yield name
            name = next((href for href, _ in links(pages[name], kind)), None)

    there = list(follow("index.html", "right-next"))
    chapters = ["index.html", *(name for name, _ in titles())]
    assert there[: len(chapters)] == chapters
    documents = {f"{path.stem}.html" for folder in FOLDERS for path in (ROOT / folder).glob("*.md")}
    sheets = {"sheets.html", *(f"sheet_{name[:2]}.html" for name, _ in titles())}
    listed = {f"reasons_{path.stem}.html" for path in LEDGER.glob("*.toml")}
    assert set(there[len(chapters) :]) == documents | sheets | {
        "map_of_attention.html",
        "readme.html",
        "reasons.html",
        *listed,
    }
    assert list(follow(there[-1], "left-prev")) == there[::-1]
    assert {*there, "search.html"} == set(pages)


def test_the_teachers_pages_are_together_in_the_sidebar(pages):
    for page in pages.values():
        (heading,) = [box for box in page.select(".bd-docs-nav .caption") if text(box) == "For teachers"]
        found = [link["href"] for link in heading.find_next("ul").find_all("a")]
        own = [href for href in found if href != "#"]
        assert len(found) - len(own) <= 1
        assert len(found) == len([p for p in tool.FOR_TEACHERS if f"{p}.html" in pages]) + 1
        assert not [href for href in own if "wrong_answers" in href]
    assert {"teaching.html", "grading.html", "mistakes.html", "handout-view.html", "syllabus.html"} <= set(
        own
    )


def test_the_first_page_lists_the_chapters(pages):
    cards = pages["index.html"].find_all("a", class_="chapter-card")
    assert [(card["href"], text(card.find("b"))) for card in cards] == titles()
    said = "You read a chapter that only the tests have. It has a second sentence."
    assert text(cards[-1]) == f"{one_more.TITLE} {said} 5 minutes"
    assert text(next(row for row in pages["readme.html"].find_all("tr") if one_more.TITLE in text(row))) == (
        f"{one_more.TITLE} {said} 5"
    )


def test_the_first_page_plays_what_saw_gets_with_all_its_numbers(pages):
    flow = pages["index.html"].find("div", class_="explorable")
    start = json.loads(flow.find("script").string)
    state = start["state"]
    assert (start["module"], state["_tokens"][state["_row"]], state["_playing"]) == ("flow", "saw", True)
    assert "weight" in flow.find("img")["alt"]


def test_every_link_and_anchor_leads_somewhere(pages, site):
    ids = {name: [element["id"] for element in page.find_all(id=True)] for name, page in pages.items()}
    for name, page in pages.items():
        assert len(set(ids[name])) == len(ids[name]), name
        for target in {each.get(kind, "https://") for each in page.find_all() for kind in ("href", "src")}:
            if not target.startswith("https://"):
                parts = urlsplit(target)
                assert (parts.scheme, parts.netloc) == ("", ""), (name, target)
                file = unquote(parts.path) or name
                assert (site / file).is_file(), (name, target)
                if parts.fragment and file.endswith(".html"):
                    assert unquote(parts.fragment) in ids[file], (name, target)


def test_jupyters_anchors_are_ids(pages):
    """A link from a notebook, or from what `check` prints, works with the page's name in it."""
    for path in PATHS:
        prose = re.sub(r"^```.*?^```", "", markdown(read(path.stem)), flags=re.MULTILINE | re.DOTALL)
        for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE):
            assert pages[f"{path.stem}.html"].find(id=tool.anchor(heading)), heading
    assert tool.anchor("3 The `view`, *and* a **wide_one**") == "3-The-view,-and-a-wide_one"


def test_every_picture_is_described(pages):
    found = [
        picture
        for page in pages.values()
        for picture in page.find_all("img")
        if not picture.find_parent(class_="chapter-card")
    ]
    assert found
    assert [picture for picture in found if len(picture.get("alt", "")) < 20] == []
    output = nbformat.v4.new_output("display_data", data={"image/png": ""}, metadata={"image/png": {}})
    with pytest.raises(ValueError, match="00, cell 3: a picture without a description"):
        tool.shown(output, Path(), "00, cell 3")


def test_each_chapter_can_be_launched_and_taken_away(pages, site):
    for name, _ in titles():
        services = launch(tool.address(), f"notebooks/{Path(name).stem}.ipynb")
        *others, file = [href for href, _ in links(pages[name], "launch-link")]
        assert others == (list(services.values()) if published(tool.address()) else [])
        assert nbformat.read(site / file, as_version=4).cells[0].source.startswith("# ")
    assert not links(pages["index.html"], "launch-link")


NOWHERE, SOMEWHERE = "https://github.com/no_name/mha_lab", "https://github.com/a-name/mha_lab"


def test_before_this_is_published_nothing_leads_to_its_address(pages, monkeypatch):
    assert published(SOMEWHERE)
    assert not published(NOWHERE)
    if not published(tool.address()):
        for name, page in pages.items():
            where = urlsplit(tool.address()).path
            assert [each["href"] for each in page.find_all(href=True) if where in each["href"]] == [], name
    said = "See [the *steps*](../CONTRIBUTING.md#add), [04](../notebooks/04_masking.ipynb), [x](nowhere.md)."
    target = f"{SOMEWHERE}/blob/main/CONTRIBUTING.md#add"
    for address, there in ((NOWHERE, "the *steps*"), (SOMEWHERE, f"[the *steps*]({target})")):
        monkeypatch.setattr(tool, "address", lambda address=address: address)
        assert tool.relinked(said, "docs") == f"See {there}, [04](04_masking.ipynb), [x](nowhere.md)."


def test_the_launch_links_are_there_when_an_address_is():
    templates = Environment(loader=FileSystemLoader(tool.LOOK / "_templates"), autoescape=True)
    page = templates.get_template("launch.html")
    given = {"notebook": "notebooks/00.ipynb", "launch": launch(SOMEWHERE, "notebooks/00.ipynb")}
    found = links(BeautifulSoup(page.render(given), "html.parser"), "launch-link")
    assert found == [
        (given["launch"]["colab"], "Colab"),
        (given["launch"]["binder"], "Binder"),
        (given["notebook"], "Notebook"),
    ]
    bare = BeautifulSoup(page.render(given | {"launch": {}}), "html.parser")
    assert links(bare, "launch-link") == found[2:]
    assert page.render(launch={}).strip() == ""  # a guide


def test_a_flowchart_is_rows_of_parts_that_say_what_they_use(pages):
    chart = """flowchart TD
        top(["<b>top/</b><br/>uses & shows"])
        left["<b>left</b><br/>one"]
        right["<b>right</b><br/>two"]
        low["<b>low</b><br/>three"]
        top --> left
        top --> right
        left --> right
        right --> low
    """
    rows = BeautifulSoup(tool.diagram(chart), "html.parser").find_all("li")
    assert [[text(box) for box in row.find_all("div")] for row in rows] == [
        ["top/ uses & shows imports from left, right"],
        ["left one imports from right"],
        ["right two imports from low"],
        ["low three"],
    ]
    passed = tool.diagram(chart.replace("-->", "-->|what|"))
    assert "<small>passes what to left, what to right</small>" in passed
    assert "imports" not in passed
    with pytest.raises(ValueError, match="expected a part or an arrow, got 'what'"):
        tool.diagram("flowchart TD\n what")
    stored = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(pages["architecture.html"].select(".parts li > div")) == stored.count("<br/>") > 5
    assert "flowchart" not in pages["architecture.html"].get_text()


@in_browser
@pytest.mark.parametrize(("width", "height"), [(375, 667), (768, 1024), (1280, 800)])
def test_start_is_on_the_first_screen(browser, roots, width, height):
    context = browser.new_context(viewport={"width": width, "height": height})
    page = open_page(context, roots["http"], "index.html")
    begins = page.get_by_role("link", name=re.compile("^Start"))
    assert begins.inner_text() == "Start, 15 minutes"  # step 1 of chapter 00
    box = begins.bounding_box()
    assert 0 < box["y"] < box["y"] + box["height"] < height
    said = page.locator(".bd-article section > p").first.inner_text()
    assert re.findall(r"[.!?]", said) == ["."] == [said[-1]]  # one sentence
    assert page.locator(".explorable").first.bounding_box()["y"] > box["y"]
    context.close()


def test_every_page_has_its_licence_and_none_says_when_or_where_it_was_made(site):
    for path in [*site.rglob("*.html"), *site.rglob("*.js")]:
        text = path.read_text(encoding="utf-8")
        assert not [words for words in (str(ROOT), str(site.parent), "Last updated") if words in text]
        a_page = path.suffix == ".html" and path.parent == site  # not an example to keep
        assert not a_page or "CC BY 4.0" in text


def begin(context, root, name):
    """A page that is loading; what it asks of other hosts and what the console complains of are collected."""
    page = context.new_page()
    page.others, page.errors, page.kinds = [], [], stored(name)
    own = (root, "blob:", "data:")
    page.on("request", lambda r: None if r.url.startswith(own) else page.others.append(r.url))
    page.on("console", lambda m: page.errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("requestfailed", lambda request: page.errors.append(request.url))
    page.goto(root + name, wait_until="commit")
    return page


# An explorable comes alive when it is near, a heavy one when its button is pressed; a broken one never does.
MEET = """async (press) => {
  for (const met of document.querySelectorAll(".explorable")) {
    met.scrollIntoView({ behavior: "instant" });
    for (let i = 0; i < 50 && !met.matches(".alive"); i += 1) {
      const wake = met.querySelector(":scope > .wake");
      if (press) wake?.click();
      else if (wake) break;
      await new Promise((done) => setTimeout(done, 20));
    }
  }
  scrollTo({ top: 0, behavior: "instant" });
}"""


def finish(page):
    """The page when all of it is there, explorables alive."""
    page.wait_for_load_state("load")
    page.evaluate(MEET, True)
    alive = f"document.querySelectorAll('.explorable.alive .mha').length === {len(page.kinds)}"
    page.wait_for_function(alive)
    return page


def open_page(context, root, name):
    return finish(begin(context, root, name))


def measure(page):
    """Everything that is asked of each page, while axe runs in it."""
    axe = page.evaluate("() => axe.found.then((all) => all.violations)")
    axe = [(rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in axe]
    broken = page.evaluate("() => [...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)")
    alive = page.locator(".explorable.alive .mha").count() == len(page.kinds)
    seen = {"axe": axe, "others": page.others, "errors": page.errors, "alive": alive, "broken": broken}
    return seen | {"small": page.evaluate(SMALL)}


@pytest.fixture(scope="module")
def visits(browser, roots, pages):
    """Each page on a host, light, on a desk; and from a folder, dark, on a phone; both at once."""
    calm = {"reduced_motion": "reduce"}
    desk = browser.new_context(viewport=DESKTOP, color_scheme="light", **calm)
    phone = browser.new_context(viewport=PHONE, color_scheme="dark", **calm)
    seen = {}
    for name in pages:
        both = [begin(desk, roots["http"], name), begin(phone, roots["file"], name)]
        for page in map(finish, both):
            page.evaluate(f"() => {{ {ONE_OF_EACH}; {AXE}; {SOON % json.dumps(LEVELS)} }}")
        seen[name] = [measure(page) for page in both]
        for page, found in zip(both, seen[name], strict=True):
            page.set_viewport_size(PHONE)
            found["width"] = page.evaluate(f"() => {WIDEST}")
            found["small"] += page.evaluate(SMALL)
            theme = page.evaluate("() => document.documentElement.dataset.theme")
            found["theme"] = theme == ("light" if page is both[0] else "dark")
            page.close()
    desk.close()
    phone.close()
    return seen


@in_browser
@pytest.mark.parametrize("name", ["01_single_head_attention.html", "05_output_projection.html"])
def test_a_picture_that_is_not_alive_yet_is_scrolled_with_the_keyboard(browser, roots, name):
    """On a phone, at once: what is further down does not live yet, and its picture is wider than the page."""
    page = browser.new_page(viewport=PHONE)
    page.goto(roots["http"] + name, wait_until="load")
    pictures = page.locator(".explorable:not(.alive, .asked)")
    page.wait_for_function("document.fonts.status === 'loaded'")
    wide = [each for each in pictures.all() if each.evaluate("(box) => box.scrollWidth > box.clientWidth")]
    assert wide
    assert [each.get_attribute("tabindex") for each in wide] == ["0"] * len(wide)
    last = wide[-1].element_handle()
    last.scroll_into_view_if_needed()
    page.wait_for_function("(box) => box.matches('.alive') && !box.hasAttribute('tabindex')", arg=last)
    page.close()


FINE = {
    "others": [],
    "errors": [],
    "axe": [],
    "broken": [],
    "small": [],
    "width": 375,
    "alive": True,
    "theme": True,
}


@in_browser
@pytest.mark.parametrize("what", FINE)
def test_on_every_page(visits, what):
    """No other host, no error, no violation of A or AA, no picture lost, nothing too wide or too small."""
    found = {name: [visit[what] for visit in both] for name, both in visits.items()}
    assert found == {name: [FINE[what]] * 2 for name in visits}


MOVES = {
    "model": ("button:text-is('Write one word')", "Enter", "p:has-text('The cache holds')"),
    "query": ("[role=slider]", "ArrowRight", "tbody"),
    "heads": ("[role=option][tabindex='0']", "ArrowRight", ".strips tbody"),
    "mask": (".cell[tabindex='0']", "Space", "pre"),
    "split": ("button:text-is('Next')", "Enter", ".panel p"),
    "flow": ("button:text-is('Next')", "Enter", ".now"),
    "state": ("button:text-is('Next')", "Enter", ".words"),
    "training": ("input[type=range]", "ArrowRight", ".now"),
}


@in_browser
@pytest.mark.parametrize("where", ["http", "file"])
def test_the_explorables_move_and_show_labels_as_text(browser, roots, where):
    page = open_page(browser, roots[where], EXTRA)
    page.on("dialog", lambda dialog: page.errors.append(dialog.message))
    for kind, (handle, key, result) in MOVES.items():
        whole = page.locator(".explorable").nth(page.kinds.index(kind))
        before = whole.locator(result).first.inner_text()
        whole.locator(handle).focus()
        page.keyboard.press(key)
        expect(whole.locator(result).first).not_to_have_text(before, use_inner_text=True)  # some glide
        assert kind == "split" or "<img src=x onerror=alert(1)>" in whole.locator(".mha").text_content()
        assert whole.locator(".mha img, .mha script").count() == 0
        assert not whole.locator("> img").is_visible()
    assert page.errors == []
    page.close()


def moved(page):
    """How many explorables a key has moved, of all but the questions."""
    names = page.evaluate("[...document.querySelectorAll('.mha')].map((one) => one.ariaLabel)")
    numbers = [i for i, name in enumerate(names) if not name.startswith("Question")]
    for i in numbers:
        key, before = page.evaluate(FOCUS, i), page.evaluate(TOLD, i)
        page.keyboard.press(key)
        page.wait_for_function(f"({TOLD})({i}) !== {json.dumps(before)}")
    return len(numbers)


WITH_THE_OTHERS = {  # the explorables without labels
    "01_single_head_attention.html": ["scaling"],
    "08_what_attention_costs.html": ["online_softmax"],
    "09_scores_and_positions.html": ["positions"],
}


@in_browser
@pytest.mark.parametrize(("name", "kinds"), WITH_THE_OTHERS.items())
def test_the_explorables_without_labels_move(browser, roots, name, kinds):
    page = open_page(browser, roots["http"], name)
    assert {*kinds} <= {*page.kinds}
    assert moved(page) == sum(kind != "predict" for kind in page.kinds)
    assert page.errors == []
    page.close()


@pytest.mark.browser
@needs_firefox
@pytest.mark.parametrize(
    ("name", "theme"),
    [
        ("index.html", "light"),
        ("04_masking.html", "dark"),
        (EXTRA, "dark"),
        *((name, "light") for name in WITH_THE_OTHERS),
    ],
)
def test_firefox_opens_pages_from_a_folder(roots, name, theme):
    with Firefox(CALM | (DARK if theme == "dark" else {})) as firefox:
        page = open_page(firefox, roots["file"], name)
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert moved(page) == sum(kind != "predict" for kind in page.kinds)
        page.set_viewport_size(PHONE)
        assert page.evaluate(WIDEST) == PHONE["width"]
        assert (page.errors, page.others) == ([], [])


# A module that uses all of the contract, and says what happened.
MODULE = """
export default async () => ({
  initialize({ model }) {
    model.set("begun", true);
    return () => told.push("initialize ends");
  },
  async render({ model, el, signal }) {
    const told = globalThis.told = [];
    const heard = (value) => told.push(value);
    model.on("change:a", (...given) => told.push(["a", given[0] === model, given[1]]));
    model.on("change", () => told.push("any"));
    model.on("change:b change:c", heard);
    model.set("a", [1, 2]);
    model.set("a", [1, 2]);
    model.set("c", 1);
    model.off("change:b change:c", heard);
    model.set("c", 2);
    model.off("change");
    model.set("a", 3);
    model.off();
    model.set("a", 4);
    model.save_changes();
    model.send({ kind: "greeting" });
    told.length && told.push([model.get("a"), model.get("begun"), model.get("never") === undefined]);
    signal.addEventListener("abort", () => told.push("aborted"));
    el.textContent = "alive";
    return () => told.push("render ends");
  },
});"""


def with_modules(context, roots, modules):
    """A page whose explorables have other modules, or none."""
    page = context.new_page()
    for name in MOVES:
        text = f"(globalThis.explorables ??= {{}}).{name} = {json.dumps(modules.get(name))};"
        answer = {"body": text, "content_type": "text/javascript"} if name in modules else {"status": 404}
        page.route(f"**/{name}.js", lambda route, _, answer=answer: route.fulfill(**answer))
    page.goto(roots["http"] + EXTRA)
    return page


@in_browser
def test_the_host_keeps_anywidgets_contract(browser, roots):
    page = with_modules(browser, roots, {"split": MODULE})
    page.evaluate(MEET, True)
    page.wait_for_selector(".alive >> text=alive")
    told = page.evaluate("() => told.map((x) => (x?.get ? 'model' : x))")
    changes = [["a", True, [1, 2]], "any", "model", "any", "any", ["a", True, 3]]
    assert told == [*changes, [4, True, True]]
    page.evaluate("() => document.querySelector('.alive').explorable.stop()")
    assert page.evaluate("() => told")[-3:] == ["aborted", "render ends", "initialize ends"]
    assert page.locator(".alive, .live").count() == 0
    assert page.locator(".explorable > img").first.is_visible()
    page.close()


THROWS = "export default { render({ el }) { el.textContent = 'half'; throw new Error('no'); } }"


@in_browser
@pytest.mark.parametrize("why", ["no script", "no module", "it throws"])
def test_where_no_module_runs_the_picture_stays(browser, roots, why):
    context = browser.new_context(java_script_enabled=why != "no script")
    page = with_modules(context, roots, dict.fromkeys(MOVES, THROWS) if why == "it throws" else {})
    if why != "no script":  # where there is none, no timer ends
        page.evaluate(MEET, True)
    page.wait_for_load_state("networkidle")
    assert page.locator(".mha, .alive, .live").count() == 0
    assert [still.is_visible() for still in page.locator(".explorable > img").all()] == [True] * len(MOVES)
    assert page.locator("math").count() == 2
    hint = page.get_by_text("Think of rows.")
    assert not hint.is_visible()
    page.get_by_text("Hint 1").click()
    assert hint.is_visible()
    context.close()


@in_browser
@pytest.mark.parametrize("where", ["http", "file"])
def test_search_finds_a_chapter(browser, roots, where):
    page = open_page(browser, roots[where], "00_start_here.html")
    page.keyboard.press("Control+K")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results a >> text=01 Single-head attention")
    page.wait_for_load_state("networkidle")  # a click would stop the downloads of the excerpts: an error
    page.locator("#search-results").get_by_role("link", name="04 Masking", exact=True).click()
    page.wait_for_url("**/04_masking.html*")
    assert (page.errors, page.others) == ([], [])
    page.close()


@in_browser
def test_the_copy_button_copies_a_cell_as_typed(browser, roots):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = open_page(context, roots["http"], EXTRA)
    cell = page.locator(".cell_input").first
    cell.hover()
    cell.get_by_role("button", name="Copy").click()
    page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
    assert page.evaluate("() => navigator.clipboard.readText()") == "print(1)\nx = [1, 2]"
    assert page.locator(".output .copybtn").count() == 0  # what came out is not for running
    context.close()


@in_browser
def test_the_theme_switch_is_remembered_from_page_to_page(browser, roots):
    context = browser.new_context(color_scheme="light")
    page = open_page(context, roots["http"], "index.html")
    page.get_by_role("button", name="Color mode").first.click()
    page.get_by_role("button", name="Dark").first.click()
    page.goto(roots["http"] + "04_masking.html")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    ink = "(e) => getComputedStyle(e).getPropertyValue('--jp-content-font-color1')"
    dark = page.locator(".explorable").first.evaluate(ink)
    page.emulate_media(media="print")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")
    assert page.locator(".explorable").first.evaluate(ink) != dark
    page.emulate_media(media="screen")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    context.close()


@in_browser
@pytest.mark.parametrize("where", ["http", "file"])
def test_a_chapter_read_to_its_last_section_is_ticked_until_it_is_forgotten(browser, roots, where):
    context = browser.new_context(viewport=DESKTOP)
    page = begin(context, roots[where], "04_masking.html")
    page.wait_for_load_state("load")
    ticks, forget = page.locator(".visited"), page.get_by_role("button", name="Forget visited chapters")
    page.wait_for_timeout(200)
    assert (ticks.count(), forget.is_visible()) == (0, False)
    page.locator(".bd-article h2").last.scroll_into_view_if_needed()
    ticks.wait_for()
    for name in ("04_masking.html", "00_start_here.html", "architecture.html"):
        page.goto(roots[where] + name)
        page.get_by_role("link", name="04 Masking (visited)", exact=True).wait_for()
        assert ticks.count() == 1
    page.locator(".bd-article h2").last.scroll_into_view_if_needed()  # a guide is no chapter
    page.wait_for_timeout(200)
    assert ticks.count() == 1
    forget.click()
    assert (ticks.count(), forget.is_visible()) == (0, False)
    page.reload()
    assert page.evaluate("() => Object.keys(localStorage).filter((key) => key.includes('visited'))") == []
    assert (ticks.count(), page.errors, page.others) == (0, [], [])
    context.close()


@in_browser
@pytest.mark.parametrize("kept", ["throw new DOMException('refused')", "return 'damaged'", "return 'null'"])
def test_a_browser_that_keeps_nothing_shows_no_ticks_and_no_error(browser, roots, kept):
    context = browser.new_context(viewport=DESKTOP)
    context.add_init_script(f"""for (const name of ["getItem", "setItem", "removeItem"]) {{
      const real = Storage.prototype[name];
      Storage.prototype[name] = function (key, ...rest) {{
        if (key.includes("visited")) {{ {kept}; }}
        return real.call(this, key, ...rest);
      }};
    }}""")
    page = open_page(context, roots["http"], "04_masking.html")
    page.locator(".bd-article h2").last.scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    assert (page.locator(".visited").count(), page.errors) == (0, [])
    context.close()


@in_browser
def test_paper_has_the_text_and_the_pictures_whole(browser, roots):
    page = open_page(browser, roots["http"], EXTRA)
    page.set_viewport_size({"width": 700, "height": 1000})
    page.emulate_media(media="print")
    for gone in ("bd-header", "bd-sidebar", "launch", "prev-next-footer", "copybtn", "headerlink", "mha"):
        found = page.locator(f".{gone}")
        assert found.count(), gone
        assert not any(each.is_visible() for each in found.all()), gone
    assert [picture.is_visible() for picture in page.locator("article img").all()] == [True] * len(MOVES)
    cut = "(all) => all.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.outerHTML.slice(0, 99))"
    assert page.locator("article pre, article img").evaluate_all(cut) == []
    assert page.locator(".licence").is_visible()
    page.close()


@in_browser
@pytest.mark.parametrize("where", ["http", "file"])
def test_an_output_that_answers_a_prediction_waits_and_is_open_on_paper(browser, roots, where):
    page = open_page(browser, roots[where], EXTRA)
    answer, button = page.get_by_text(one_more.ANSWER), page.get_by_text("I have predicted: show the output")
    assert not answer.is_visible()
    page.emulate_media(media="print")
    answer.wait_for(state="visible")
    page.emulate_media(media="screen")
    answer.wait_for(state="hidden")
    for visible in (True, False, True):
        (button if visible else page.get_by_text("Hide the output")).click()
        assert answer.is_visible() is visible
    page.emulate_media(media="print")
    page.emulate_media(media="screen")
    assert answer.is_visible()
    page.close()


@in_browser
def test_a_page_has_at_most_250_kB_and_loads_what_it_uses(browser, roots, pages):
    """Compressed, without pictures: at once, and read to its end; a model comes when it is asked for."""
    for name in pages:
        context = browser.new_context(viewport=DESKTOP)
        page, got = context.new_page(), {}
        page.kinds = stored(name)
        page.on("response", lambda r, got=got: got.setdefault(urlsplit(r.url).path, r))

        def weight(got=got):
            kept = [r for r in list(got.values()) if not r.url.startswith("blob:")]  # made on the page
            sent = [r.body() for r in kept if r.request.resource_type != "image"]
            return sum(min(len(body), len(gzip.compress(body, 6))) for body in sent)

        page.goto(roots["http"] + name, wait_until="networkidle")
        assert weight() <= 250_000, name
        assert ("/searchindex.js" in got) is (name == "search.html"), name
        page.evaluate(MEET, False)
        page.wait_for_load_state("networkidle")
        assert weight() <= 250_000, name
        scripts = {f"/_static/explorables/{kind}.js" for kind in stored(name)}
        waits = page.locator(".wake").count()
        assert waits == page.locator(".explorable.asked").count(), name
        assert waits or name not in ("index.html", "10_small_language_model.html"), name
        assert scripts - set(got) == ({"/_static/explorables/model.js"} if waits else set()), name
        finish(page)
        assert scripts <= set(got), name
        context.close()


@in_browser
@pytest.mark.parametrize("where", ["http", "file"])
def test_a_heavy_explorable_waits_for_its_button(browser, roots, where):
    page = begin(browser, roots[where], "index.html")
    page.wait_for_load_state("load")
    model = page.locator(".explorable").last
    button = model.get_by_role("button", name="Start the live version")
    button.scroll_into_view_if_needed()
    page.wait_for_timeout(200)  # near, and not alive
    assert (model.locator("> img").is_visible(), page.locator(".live .model").count()) == (True, 0)
    page.emulate_media(media="print")
    assert not button.is_visible()
    page.emulate_media(media="screen")
    button.press("Enter")
    model.locator(".live .mha").wait_for()
    expect(button).to_be_hidden()
    assert not model.locator("> img").is_visible()
    page.wait_for_function("() => document.activeElement.closest('.live')")  # the button is gone
    assert (page.errors, page.others) == ([], [])
    page.close()


def test_every_icon_and_every_letter_of_a_formula_is_there(pages, site):
    style = (site / "_static" / "style.css").read_text(encoding="utf-8")
    drawn = set(re.findall(r"\.(fa-[\w-]+) \{ --icon", style)) | {"fa-solid", "fa-lg"}
    used = {name for page in pages.values() for box in page.select("[class*=fa-]") for name in box["class"]}
    assert {name for name in used if name.startswith("fa-")} - drawn == set()
    ranges = re.findall(r"U\+(\w+)(?:-(\w+))?", style)
    has = {code for first, last in ranges for code in range(int(first, 16), int(last or first, 16) + 1)}
    letters = {
        letter for page in pages.values() for box in page.find_all("math") for letter in box.get_text()
    }
    assert letters
    assert {letter for letter in letters if ord(letter) not in has and not letter.isspace()} == set()


def test_the_pages_before_and_after_are_at_the_top_and_at_the_foot(pages):
    for name, page in pages.items():
        top, foot = page.select(".steps a"), page.select(".prev-next-footer a")
        assert [link["href"] for link in top] == [link["href"] for link in foot], name
        assert [text(link).strip("←→ ") for link in top] == [text(p) for p in page.select(".prev-next-title")]
    assert [link["rel"] for link in pages["04_masking.html"].select(".steps a")] == [["prev"], ["next"]]


def test_minutes_are_beside_the_titles(pages):
    wanted = {card["href"]: text(card.find("small")) for card in pages["index.html"].select(".chapter-card")}
    for name, page in pages.items():
        found = {
            name if link["href"] == "#" else link["href"]: text(mark).replace("min", "minutes")
            for mark in page.select(".bd-docs-nav .minutes")
            for link in mark.parent.find_all("a")
        }
        assert found == wanted, name


# The letters in each line of the paragraphs but their last, which is short.
LINES = """() => [...document.querySelectorAll(".bd-article section > p")].flatMap((paragraph) => {
  const lines = new Map(), range = document.createRange(), walker = document.createTreeWalker(paragraph, 4);
  while (walker.nextNode()) {
    for (let i = 0; i < walker.currentNode.length; i += 1) {
      range.setStart(walker.currentNode, i);
      range.setEnd(walker.currentNode, i + 1);
      const line = Math.round(range.getBoundingClientRect().bottom / 10);
      lines.set(line, (lines.get(line) ?? 0) + 1);
    }
  }
  return [...lines.values()].slice(0, -1);
})"""
SIZES = "(all) => all.map((e) => parseFloat(getComputedStyle(e).fontSize))"


@in_browser
def test_text_is_66_letters_wide_and_pictures_have_920_px(browser, roots):
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    page = open_page(context, roots["http"], "01_single_head_attention.html")
    lines = page.evaluate(LINES)
    assert len(lines) > 50
    assert 62 <= sum(lines) / len(lines) <= 70
    for box in (".cell_input:not(details *)", ".explorable"):
        assert page.locator(box).first.bounding_box()["width"] == 920
    context.close()


@in_browser
@pytest.mark.parametrize("width", [375, 768, 1280])
def test_a_heading_is_larger_than_those_below_it(browser, roots, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(roots["http"] + "04_masking.html")
    sizes = [set(page.locator(f".bd-article {box}").evaluate_all(SIZES)) for box in ("h1", "h2", "h3", "p")]
    (first,), (second,), (third,), text = sizes
    assert first > second > third > max(text)
    page.close()


@in_browser
def test_code_that_goes_on_at_a_side_shows_it(browser, roots):
    page = open_page(browser, roots["http"], "04_masking.html")
    page.set_viewport_size(PHONE)
    wide = page.locator(".highlight[data-more~=right]").first
    assert wide.evaluate("(e) => getComputedStyle(e, '::after').boxShadow").startswith("rgb")
    for side, there in (("left", 1e6), ("right", 0)):
        wide.locator("pre").evaluate("(e, there) => { e.scrollLeft = there; }", there)
        expect(wide if side == "right" else page.locator(".highlight[data-more~=left]")).to_have_attribute(
            "data-more", re.compile(f"^ ?{side} ?$")
        )
    page.set_viewport_size(DESKTOP)
    expect(page.locator(".highlight").first).to_have_attribute("data-more", " ")
    page.close()


@in_browser
def test_the_bar_says_how_much_of_a_chapter_was_read(browser, roots):
    page = begin(browser, roots["http"], "04_masking.html")
    page.wait_for_load_state("load")
    read = "() => Number(document.querySelector('.bd-header').style.getPropertyValue('--read'))"
    seen = [page.evaluate(read)]
    for part in (0.5, 1):
        page.evaluate(f"() => scrollTo({{ top: {part} * document.body.scrollHeight, behavior: 'instant' }})")
        page.wait_for_function(f"{seen[-1]} < ({read})()")
        seen.append(page.evaluate(read))
    assert seen[0] < 0.1 < 0.4 < seen[1] < 0.7 < seen[2] == 1
    page.goto(roots["http"] + "teaching.html")
    assert page.evaluate(read) == 0
    page.close()


# The smallest letters of each picture as rendered, in pixels.
PICTURES = """() => [...document.querySelectorAll(".bd-article img:not(.chapter-card img)")]
  .filter((picture) => picture.checkVisibility() && picture.closest(".picture"))
  .map((picture) => picture.dataset.text * picture.clientWidth / picture.getAttribute("width"))"""
OPEN = "() => document.querySelectorAll('.bd-article details').forEach((fold) => { fold.open = true; })"


@in_browser
@pytest.mark.parametrize("width", [375, 768, 1280])
def test_no_text_of_a_picture_is_below_11_px(browser, roots, pages, width):
    context = browser.new_context(viewport={"width": width, "height": 800})
    page, found = context.new_page(), {}
    for name in (name for name, parsed in pages.items() if parsed.select(".picture")):
        page.goto(roots["http"] + name)
        page.evaluate(OPEN)
        found[name] = page.evaluate(PICTURES)
        assert len(found[name]) == len(pages[name].select(".picture"))
        assert page.evaluate(WIDEST) == width
    assert {name: min(sizes) for name, sizes in found.items() if not min(sizes) > 10.9} == {}
    assert len(found) > 10
    context.close()


# How much smaller than drawn a card's picture is; it keeps its shape in a box of another.
SCALE = """(card) => {
  const picture = card.querySelector("img"), drawn = (side) => picture.getAttribute(side);
  return Math.min(picture.clientWidth / drawn("width"), picture.clientHeight / drawn("height"));
}"""


@in_browser
@pytest.mark.parametrize("width", [375, 768, 1280])
def test_no_text_of_a_card_is_below_11_px(browser, roots, width):
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = begin(context, roots["http"], "index.html")
    page.wait_for_load_state("load")
    for path in PATHS:  # each has a picture of its own: one from a chapter is too wide
        with Image.open(ROOT / "figures" / f"{path.stem}.png") as drawn:
            info = drawn.info
        scale = page.locator(f".chapter-card[href='{path.stem}.html']").evaluate(SCALE)
        assert scale > 0.8, path.stem
        assert float(info.get("smallest", 99)) * scale > 10.9, path.stem
    context.close()


# What a finger meets outside the explorables, which have their own test; a link in a text is as its line.
TARGETS = """() => [...document.querySelectorAll("a, button, summary, input, select")]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }))
  .filter((e) => !e.closest(".live, .skip-link, #pst-skip-link, [hidden]"))
  .filter((e) => !(e.matches("a") && e.closest(".bd-article :is(p, li, td, th, h1, h2, h3, h4)")))
  .map((e) => [e.className || e.tagName, e.textContent.trim().slice(0, 30), e.getBoundingClientRect()])
  .filter(([, , box]) => box.width && (box.width < 43.9 || box.height < 43.9))
  .map(([name, text, box]) => `${name} ${text}: ${box.width.toFixed(0)} by ${box.height.toFixed(0)}`)"""


@in_browser
@pytest.mark.parametrize(
    "name", ["index", "01_single_head_attention", "10_small_language_model", "teaching", "search"]
)
def test_a_finger_meets_44_px_on_a_phone(browser, roots, name):
    context = browser.new_context(viewport=PHONE, has_touch=True)
    page = open_page(context, roots["http"], f"{name}.html")
    page.evaluate(OPEN)
    assert page.evaluate(TARGETS) == []
    page.locator(".primary-toggle").click()
    page.locator("dialog[open] .bd-docs-nav").wait_for()
    assert page.evaluate(TARGETS) == []
    context.close()


SHOWN = """(all) => all.map((e) => [
  e.clientWidth, e.clientHeight, Number(e.getAttribute("width")), Number(e.getAttribute("height")),
])"""
BREAKS = """(all) => all.map((e) => [
  e.querySelector(".cell_input pre").textContent.trim().split("\\n").length,
  getComputedStyle(e.firstElementChild).breakAfter,
])"""


@in_browser
def test_a_picture_on_paper_is_as_large_as_drawn(browser, roots):
    """And tall code may part from it, so that no half page stays empty."""
    page = open_page(browser, roots["http"], "13_longer_texts.html")
    page.evaluate(OPEN)
    page.emulate_media(media="print")
    sizes = page.locator(".picture img").evaluate_all(SHOWN)
    assert len(sizes) > 3
    assert [size for size in sizes if size[0] > size[2] + 1 or size[1] > size[3] + 1] == []
    cells = page.locator(".cell:has(.picture)")
    breaks = cells.evaluate_all(BREAKS)
    assert {kept for lines, kept in breaks if lines > tool.LONG} == {"auto"}
    assert {kept for lines, kept in breaks if lines <= tool.LONG} <= {"avoid"}
    page.close()


@in_browser
def test_a_picture_too_wide_for_a_phone_says_so_and_scrolls_with_the_keyboard(browser, roots):
    context = browser.new_context(viewport=PHONE)
    page = open_page(context, roots["http"], "03_splitting_heads.html")
    page.evaluate(OPEN)
    page.set_viewport_size({"width": 374, "height": 800})  # what is folded has no width
    frame = page.locator(".picture[data-more~=right]").first
    assert "Scroll sideways" in frame.evaluate("(e) => getComputedStyle(e, '::before').content")
    box = frame.locator("> div")
    box.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(e) => e.scrollLeft > 0", arg=box.element_handle())
    page.set_viewport_size(DESKTOP)
    expect(page.locator(".picture").first).to_have_attribute("data-more", " ")
    assert page.locator(".picture > div[tabindex]").count() == 0
    context.close()


def contrast(one, other):
    """WCAG 2.2, "contrast ratio", of pixels from 0 to 1."""

    def luminance(rgb):
        return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [
            0.2126,
            0.7152,
            0.0722,
        ]

    light = [luminance(np.asarray(rgb)[..., :3]) + 0.05 for rgb in (one, other)]
    return np.maximum(*light) / np.minimum(*light)


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["03_splitting_heads.html", "05_output_projection.html", "readme.html"])
def test_a_picture_has_the_pages_ground_and_text_that_can_be_read(browser, roots, name, theme):
    context = browser.new_context(viewport=DESKTOP, color_scheme=theme)
    page = open_page(context, roots["http"], name)
    page.evaluate(OPEN)
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    ground = np.array(re.findall(r"\d+", ground)[:3], dtype=float) / 255
    for picture in page.locator(".picture img").all():
        picture.evaluate("(e) => e.scrollIntoView({ block: 'center', behavior: 'instant' })")
        shot = imread(io.BytesIO(picture.screenshot()))[..., :3]
        assert np.abs(shot[shot.shape[0] // 2, 2] - ground).max() < 2 / 255
        labels = shot[:, : shot.shape[1] // 8]  # names of rows, at the left
        assert contrast(labels, ground).max() >= 4.5
    context.close()


@in_browser
def test_each_card_has_a_picture(browser, roots):
    context = browser.new_context(viewport={"width": 768, "height": 800})
    page = begin(context, roots["http"], "index.html")
    page.wait_for_load_state("load")
    cards = page.locator(".chapter-card").all()
    shown = [
        card.locator("img").evaluate_all("(all) => all.map((e) => e.naturalWidth > 0)") for card in cards
    ]
    assert shown == [*[[True]] * (len(cards) - 1), shown[-1]]  # the last one is only for the tests
    assert len(cards) == len(PATHS) + 1
    context.close()


# A heading's page and its height above the foot of it, in points; the margin is 42.5 of them.
HEADING = re.compile(rb"/Dest \[(\d+) 0 R /XYZ [\d.]+ ([\d.]+) 0\]")


@in_browser
@pytest.mark.parametrize("name", ["01_single_head_attention.html", "04_masking.html"])
def test_a_printed_chapter_is_complete_and_no_heading_ends_a_page(browser, roots, name):
    page = open_page(browser, roots["http"], name)
    printed = page.pdf(format="A4", outline=True, tagged=True)
    headings = [float(height) for _, height in HEADING.findall(printed)]
    assert len(headings) > page.locator(".bd-article :is(h2, h3)").count()
    assert min(headings) > 42.5 + 40  # of its own and of a line below it
    assert page.locator("details[open]").count() == 0  # as they were
    for fold in page.locator(".bd-article details").all():
        fold.evaluate("(e) => { e.open = true; }")
    opened = page.pdf(format="A4", outline=True, tagged=True)
    assert printed.count(b"/Type /Page\n") == opened.count(b"/Type /Page\n") > 20
    page.emulate_media(media="print")
    assert page.evaluate("() => document.getAnimations().length") == 0  # white on paper
    broken = "(all) => [...new Set(all.map((e) => getComputedStyle(e).breakInside))]"
    assert page.locator(".cell_input").evaluate_all(broken) == ["avoid"]
    page.close()


@in_browser
def test_the_page_about_view_is_one_page_of_paper(browser, roots):
    page = open_page(browser, roots["http"], "handout-view.html")
    assert page.pdf(format="A4").count(b"/Type /Page\n") == 1
    assert page.locator("article img").evaluate("(e) => e.complete && e.naturalWidth > 500")
    page.close()
