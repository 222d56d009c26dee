"""The website, built once from the chapters and one more: its files, and its pages in a real browser."""

import filecmp
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import axe_playwright_python
import nbformat
import pytest

from mha_lab.explore import _widget
from tests.notebooks.chapters import FOLDER, PATHS, ROOT
from tests.site import one_more
from tools import site as tool
from tools.browser import needs_chromium, open_chromium

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
DESKTOP, PHONE = {"width": 1300, "height": 900}, {"width": 375, "height": 800}
EXTRA = f"{one_more.NAME}.html"


def in_browser(test):
    return pytest.mark.browser(needs_chromium(test))


def run_build(out, notebooks, seed):
    command = [sys.executable, "-m", "tools.site", str(out), "--notebooks", str(notebooks)]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    """The chapters and one more."""
    folder = tmp_path_factory.mktemp("chapters")
    for path in PATHS:
        shutil.copy(path, folder)
    nbformat.write(one_more.chapter(), folder / EXTRA.replace(".html", ".ipynb"))
    return folder


def build(notebooks, out, seed):
    """Build, and see that nothing was said but where it is."""
    done = run_build(out, notebooks, seed)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{out / 'index.html'}\n", "")
    return out


@pytest.fixture(scope="module")
def site(notebooks, tmp_path_factory):
    return build(notebooks, tmp_path_factory.mktemp("site") / "one", "1")


@pytest.fixture(scope="module")
def pages(site):
    """Every page, parsed."""
    return {path.name: Page(path) for path in sorted(site.glob("*.html"))}


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.tags, self.ids, self.texts, self._open = [], [], {}, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        self._open.append(len(self.tags) - 1)

    def handle_endtag(self, tag):
        while self._open and self.tags[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data):
        for at in self._open:
            self.texts[at] = self.texts.get(at, "") + data

    def all(self, tag, **wanted):
        """The attributes and the text of each such element; ``class_`` names one of its classes."""
        kind = wanted.pop("class_", None)
        for at, (name, found) in enumerate(self.tags):
            fits = kind is None or kind in (found.get("class") or "").split()
            if name == tag and fits and wanted.items() <= found.items():
                yield found, " ".join(self.texts.get(at, "").split())


def titles():
    """Page and title of each chapter, in order."""
    found = [(f"{path.stem}.html", nbformat.read(path, as_version=4).cells[0].source) for path in PATHS]
    found = [(name, source.splitlines()[0].removeprefix("# ")) for name, source in found]
    return [*found, (EXTRA, one_more.TITLE)]


@functools.cache
def stored(name):
    """The kinds of the explorables that a page's chapter has stored; other pages have none."""
    path = FOLDER / name.replace(".html", ".ipynb")
    if name != EXTRA and not path.is_file():
        return []
    notebook = one_more.chapter() if name == EXTRA else nbformat.read(path, as_version=4)
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
        assert [text.removesuffix("#") for _, text in pages[name].all("h1")] == [title]
    for name, page in pages.items():
        links = [(a["href"], text) for a, text in page.all("a", class_="reference")]
        links = [(name if href == "#" else href, text) for href, text in links]
        first = links.index(wanted[0])
        assert links[first : first + len(wanted)] == wanted, name


def test_next_leads_through_all_pages_and_back(pages):
    def follow(name, kind):
        while name:
            yield name
            name = next((a["href"] for a, _ in pages[name].all("a", class_=kind)), None)

    there = list(follow("index.html", "right-next"))
    chapters = ["index.html", *(name for name, _ in titles())]
    assert there[: len(chapters)] == chapters
    documents = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    assert set(there[len(chapters) :]) == documents
    assert list(follow(there[-1], "left-prev")) == there[::-1]
    assert {*there, "search.html"} == set(pages)


def test_the_first_page_lists_the_chapters(pages):
    links = [(a.get("href"), text) for a, text in pages["index.html"].all("a", class_="internal")]
    assert [link for link in links if link in titles()][-len(titles()) :] == titles()
    row = next(text for _, text in pages["index.html"].all("tr") if one_more.TITLE in text)
    assert row == f"{one_more.TITLE} You read a chapter that only the tests have. It has a second sentence. 5"


def test_every_link_and_anchor_leads_somewhere(pages, site):
    for name, page in pages.items():
        assert len(set(page.ids)) == len(page.ids), name
        targets = {found.get(kind, "https://") for _, found in page.tags for kind in ("href", "src")}
        for target in targets:
            if not target.startswith("https://"):
                parts = urlsplit(target)
                assert (parts.scheme, parts.netloc) == ("", ""), (name, target)
                file = unquote(parts.path) or name
                assert (site / file).is_file(), (name, target)
                if parts.fragment and file.endswith(".html"):
                    assert unquote(parts.fragment) in pages[file].ids, (name, target)


def test_jupyters_anchors_are_ids(pages):
    """A link from a notebook, or from what `check` prints, works with the page's name in it."""
    for path in PATHS:
        text = "\n".join(c.source for c in nbformat.read(path, 4).cells if c.cell_type == "markdown")
        text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        wanted = {tool.anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
        assert wanted <= set(pages[f"{path.stem}.html"].ids)
    assert tool.anchor("3 The `view`, *and* a **wide_one**") == "3-The-view,-and-a-wideone"


def test_every_picture_is_described(pages):
    found = [(name, picture) for name, page in pages.items() for picture, _ in page.all("img")]
    assert found
    assert [place for place in found if len(place[1].get("alt", "")) < 20] == []
    output = nbformat.v4.new_output("display_data", data={"image/png": ""}, metadata={"image/png": {}})
    with pytest.raises(ValueError, match="00, cell 3: a picture without a description"):
        tool.shown(output, Path(), "00, cell 3")


def test_each_chapter_can_be_launched_and_taken_away(pages, site):
    where = tool.address().removeprefix("https://github.com/")
    for name, _ in titles():
        path = f"notebooks/{Path(name).stem}.ipynb"
        colab, binder, file = [a["href"] for a, _ in pages[name].all("a", class_="launch-link")]
        assert colab == f"https://colab.research.google.com/github/{where}/blob/main/{path}"
        assert binder.startswith(f"https://mybinder.org/v2/gh/{where}/main?")
        assert unquote(binder).endswith(path)
        assert nbformat.read(site / file, as_version=4).cells[0].source.startswith("# ")
    assert not list(pages["index.html"].all("a", class_="launch-link"))


def test_every_page_has_its_licence_and_none_says_when_or_where_it_was_made(site):
    for path in [*site.rglob("*.html"), *site.rglob("*.js")]:
        text = path.read_text(encoding="utf-8")
        assert not [words for words in (str(ROOT), str(site.parent), "Last updated") if words in text]
        assert path.suffix != ".html" or "CC BY 4.0" in text


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Says nothing on the terminal."""


@pytest.fixture(scope="module")
def roots(site):
    """Where the site is: on a plain web server, and in a plain folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"http": f"http://127.0.0.1:{server.server_port}/", "file": site.as_uri() + "/"}
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as chromium:
        yield chromium


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


def finish(page):
    """The page when all of it is there, explorables alive."""
    page.wait_for_load_state("load")
    alive = f"document.querySelectorAll('.explorable.alive .mha').length === {len(page.kinds)}"
    page.wait_for_function(alive, timeout=10_000)
    return page


def open_page(context, root, name):
    return finish(begin(context, root, name))


def measure(page):
    """Everything that is asked of each page, while axe runs in it."""
    axe = page.evaluate("() => axe.found.then((all) => all.violations)")
    axe = [(rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in axe]
    broken = page.evaluate("() => [...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)")
    alive = page.locator(".explorable.alive .mha").count() == len(page.kinds)
    return {"axe": axe, "others": page.others, "errors": page.errors, "alive": alive, "broken": broken}


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
            theme = page.evaluate("() => document.documentElement.dataset.theme")
            found["theme"] = theme == ("light" if page is both[0] else "dark")
            page.close()
    desk.close()
    phone.close()
    return seen


FINE = {"others": [], "errors": [], "axe": [], "broken": [], "width": 375, "alive": True, "theme": True}


@in_browser
@pytest.mark.parametrize("what", FINE)
def test_on_every_page(visits, what):
    """No request to other hosts, no error, no violation of A or AA, no picture lost, nothing too wide."""
    found = {name: [visit[what] for visit in both] for name, both in visits.items()}
    assert found == {name: [FINE[what]] * 2 for name in visits}


MOVES = {
    "query": ("[role=slider]", "ArrowRight", "tbody"),
    "heads": ("[role=option][tabindex='0']", "ArrowRight", ".strips tbody"),
    "mask": (".cell[tabindex='0']", "Space", "pre"),
    "split": ("button:text-is('Next')", "Enter", ".side p"),
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
        assert whole.locator(result).first.inner_text() != before, kind
        assert kind == "split" or "<img src=x onerror=alert(1)>" in whole.locator(".mha").text_content()
        assert whole.locator(".mha img, .mha script").count() == 0
        assert not whole.locator("> img").is_visible()
    assert page.errors == []
    page.close()


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
    """A page whose explorables have other modules."""
    page, text = context.new_page(), f"globalThis.explorableModules = {json.dumps(modules)};"
    page.route("**/modules.js*", lambda route: route.fulfill(body=text, content_type="text/javascript"))
    page.goto(roots["http"] + EXTRA)
    return page


@in_browser
def test_the_host_keeps_anywidgets_contract(browser, roots):
    page = with_modules(browser, roots, {"split": MODULE})
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
    page.wait_for_load_state("networkidle")
    assert page.locator(".mha, .alive, .live").count() == 0
    assert [still.is_visible() for still in page.locator(".explorable > img").all()] == [True] * 4
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
    page.wait_for_load_state("networkidle")  # the excerpts: a click before they are all there breaks one off
    page.get_by_role("link", name="04 Masking").last.click()
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
    dark = page.locator(".explorable").evaluate(ink)
    page.emulate_media(media="print")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'", timeout=5_000)
    assert page.locator(".explorable").evaluate(ink) != dark
    page.emulate_media(media="screen")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'", timeout=5_000)
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
    assert [picture.is_visible() for picture in page.locator("article img").all()] == [True] * 4
    cut = "(all) => all.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.outerHTML.slice(0, 99))"
    assert page.locator("article pre, article img").evaluate_all(cut) == []
    assert page.locator(".licence").is_visible()
    page.close()
