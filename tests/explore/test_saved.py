"""A notebook that was run, saved and opened again, in a real JupyterLab and Notebook 7."""

import contextlib
import json
import os
import re
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bench import examples
from bench.browser import needs_chromium
from mha_course.explore._widget import HERE, START
from tests.explore.test_jupyter import OWN, Opened, end_kernels, serving
from tests.notebooks.chapters import ROOT
from tools.notebooks import METADATA, WIDGET

pytestmark = [pytest.mark.browser, needs_chromium]

VIEWS = {"lab": "lab/tree", "notebook": "notebooks"}
NAME = "each"  # of the notebook
KINDS = list(examples.ALL)
SET_UP = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from bench import examples"
# What the browser would ask if the page were closed now.
ASKED = """() => {
  const event = document.createEvent("BeforeUnloadEvent");
  event.initEvent("beforeunload", false, true);
  dispatchEvent(event);
  return event.returnValue;
}"""
# What is chosen in an explorable and what it says of that, without what it says of the way there: a line that
# is read aloud, goals that were reached, and what a cache has just computed.
JUST_NOW = r"Computed just now \(in the frame\): \d+\. Kept from before: \d+\."
TOLD = """(one) => {
  const left_out = [...one.querySelectorAll(".quiet, .goals")];
  left_out.forEach((each) => { each.style.display = "none"; });
  const text = one.innerText;
  left_out.forEach((each) => { each.style.display = ""; });
  const chosen = (input) => (/radio|checkbox/.test(input.type) ? input.checked : input.value);
  return [text, ...[...one.querySelectorAll("input, select")].map(chosen)].join("; ");
}"""
NO_MODEL = "widget model not found"  # what the widget manager tells the console about widgets of yesterday


@pytest.fixture(params=VIEWS)
def application(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    """With a notebook that has an explorable of each kind, not run."""
    cells = [new_code_cell(source) for source in (SET_UP, *(f"examples.ALL[{kind!r}]()" for kind in KINDS))]
    nbformat.write(new_notebook(cells=cells, metadata=METADATA), tmp_path / f"{NAME}.ipynb")
    return tmp_path


def saved(folder):
    """The notebook on the disk."""
    return nbformat.read(folder / f"{NAME}.ipynb", as_version=4)


def starts(folder):
    """What the file says about each explorable."""
    return [cell.outputs[0].data[START] for cell in saved(folder).cells[1:]]


def save(chapter, folder, name=NAME):
    """With the keys that everybody knows; the file is written when its content is another one, to its end."""
    path = folder / f"{name}.ipynb"
    before = path.read_bytes()
    chapter.page.locator(".jp-CodeCell .cm-content").first.click()
    chapter.page.keyboard.press("Escape")
    chapter.page.keyboard.press("Control+s")
    for _ in range(600):
        chapter.page.wait_for_timeout(100)
        written = (now := path.read_bytes()) != before and now.endswith(b"}\n")
        if written and chapter.page.evaluate(ASKED) == "":  # else it was an automatic save, too early
            return
    raise AssertionError("nothing was saved, or this machine is too slow")


def seen(chapter):
    """The texts of all explorables, once each was on the screen and is not a picture any more."""
    outputs = chapter.page.locator(".jp-CodeCell .jp-OutputArea-output")
    outputs.nth(len(KINDS) - 1).wait_for(state="attached")
    return [re.sub(JUST_NOW, "", shown(output).evaluate(TOLD)) for output in outputs.all()]


def shown(output):
    """The explorable of an output."""
    output.evaluate("(place) => place.scrollIntoView({ block: 'center' })")
    explorable = output.locator(".mha")
    explorable.wait_for()
    return explorable


def no_kernel(folder, name=NAME):
    """The notebook asks for a kernel that is not there, and is still the reader's own."""
    path = folder / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.language_info = {"name": "gone"}
    notebook.metadata.kernelspec = {"name": "gone", "display_name": "Gone", "language": "gone"}
    nbformat.write(notebook, path)
    own = {f"JUPYTER{name}_DIR": str(folder / f".{name}") for name in OWN}
    trust = [sys.executable, "-m", "jupyter", "trust", path]
    subprocess.run(trust, env=os.environ | own, check=True, capture_output=True, timeout=300)


@contextlib.contextmanager
def opened(browser, folder, application, kernel=True):
    """The notebook in the browser, on a server of its own, with a new kernel or without any."""
    with serving(folder, application) as running:
        chapter = Opened(browser, running, NAME, VIEWS[application], kernel=kernel)
        try:
            if not kernel:
                chapter.page.get_by_role("dialog").get_by_role("button", name="No Kernel").click()
            yield chapter
        finally:
            chapter.page.close()
            end_kernels(running)


def wrong(chapter):
    """What went wrong, without what the widget manager and Notebook 7.6 always say."""
    return [w for w in chapter.wrong if NO_MODEL not in w and "reading 'schema'" not in w]


def test_what_was_moved_and_answered_is_there_tomorrow(browser, folder, application):
    """With a new kernel, and without any: each explorable is as it was left, moves, and is saved again."""
    with opened(browser, folder, application) as chapter:
        chapter.run_all(len(KINDS) + 1)
        chapter.page.locator(".mha").nth(len(KINDS) - 1).wait_for(state="attached")
        save(chapter, folder)
        first, states = (folder / f"{NAME}.ipynb").stat().st_size, starts(folder)
        for explorable in chapter.page.locator(".mha").all():
            chapter.move(explorable)
        save(chapter, folder)  # at once: what was done last is in it
        left = seen(chapter)
    moved = starts(folder)
    assert [new["module"] for new in moved if new in states] == []
    assert (folder / f"{NAME}.ipynb").stat().st_size - first < len(json.dumps(moved))
    assert "widgets" not in saved(folder).metadata
    for kernel in (True, False):
        if not kernel:
            no_kernel(folder)
        with opened(browser, folder, application, kernel) as chapter:
            assert seen(chapter) == left
            assert wrong(chapter) == []
            for explorable in chapter.page.locator(".mha").all():
                before, after = chapter.move(explorable, way=-1 if kernel else 1)
                assert before != after
            save(chapter, folder)
            left = seen(chapter)


def test_an_explorable_of_a_stranger_runs_no_other_script(browser, folder, application):
    """Its state may be shown before the notebook is trusted, so its name must not lead to another file."""
    (folder / "evil.js").write_text("document.title = 'evil'; export default {};")
    notebook = saved(folder)
    picture = {**examples.split()._repr_mimebundle_()[0]}
    picture.pop(WIDGET)
    for cell, name in zip(notebook.cells, ("../../../../files/evil", "split"), strict=False):
        start = picture[START] | {"module": name}
        cell.outputs = [new_output("display_data", data=picture | {START: start})]
    nbformat.write(notebook, folder / f"{NAME}.ipynb")
    with opened(browser, folder, application) as chapter:
        outputs = chapter.page.locator(".jp-CodeCell .jp-OutputArea-output")
        shown(outputs.nth(1))  # lives, without trust and without a widget
        outputs.nth(0).evaluate("(place) => place.scrollIntoView()")
        assert outputs.nth(0).locator("img").count() == 1
        assert "evil" not in chapter.page.title()
        assert any("no explorable has the name" in each for each in chapter.wrong)


# What labextension/main.js needs of JupyterLab to show one output; its picture is an empty one.
ALONE = """async (data) => {
  const nothing = { connect() {} };
  const picture = () => ({ node: document.createElement("div"), disposed: nothing, removeClass() {},
    renderModel() { this.node.append(document.createElement("img")); } });
  const rendermime = { mimeTypes: [], createRenderer: picture, addFactory(made) { this.made = made; } };
  const { default: plugin } = (await _JUPYTERLAB["mha-lab"].get())();
  const context = { saveState: nothing, model: { metadataChanged: nothing } };
  const docRegistry = { addWidgetExtension: (_, one) => one.createNew({ content: { rendermime } }, context) };
  plugin.activate({ docRegistry });
  const { node, renderModel } = rendermime.made.createRenderer();
  document.body.replaceChildren(node);
  renderModel({ data });
  while (!node.querySelector(".mha") && !window.failed) await new Promise((done) => setTimeout(done, 5));
  window.failed = false;
  return node.querySelector(".mha")?.innerText ?? null;
}"""


def test_a_state_of_another_version_shows_the_picture_and_no_wrong_number(browser):
    """Each name of each state is left out once, as if an older version had called it something else."""
    page = browser.new_page()
    page.route("http://saved/**", serve)
    page.goto("http://saved/")
    page.add_script_tag(url="http://saved/main.js")
    page.evaluate("() => { console.error = () => { window.failed = true; }; }")
    pictures = 0
    for kind in KINDS:
        start = examples.ALL[kind]().start()
        assert page.evaluate(ALONE, {START: start})
        for name in start["state"]:
            other = {key: value for key, value in start["state"].items() if key != name}
            shows = page.evaluate(ALONE, {START: start | {"state": other}})
            assert not re.search("NaN|undefined", shows or ""), (kind, name)
            pictures += shows is None
    assert pictures > 2 * len(KINDS)
    page.close()


def serve(route):
    """A file of the extension as it is installed, or an empty page."""
    folder, _, name = route.request.url.removeprefix("http://saved/").rpartition("/")
    if not name:
        return route.fulfill(body="<body></body>", content_type="text/html")
    path = HERE / name if folder else HERE / "labextension" / name
    kind = "text/css" if path.suffix == ".css" else "text/javascript"
    return route.fulfill(body=path.read_text(encoding="utf-8"), content_type=kind)


def test_a_notebook_that_was_only_opened_has_not_changed(browser, folder, application):
    """Whatever the version of Python: nothing is marked as changed after the kernel has started."""
    notebook = saved(folder)
    notebook.cells = notebook.cells[:1]
    nbformat.write(notebook, folder / f"{NAME}.ipynb")
    with opened(browser, folder, application) as chapter:
        chapter.page.wait_for_function(
            "document.querySelector('.jp-KernelName')?.textContent.startsWith('Python 3')"
        )
        chapter.page.wait_for_timeout(4000)
        asked = chapter.page.evaluate(ASKED)
        assert (asked, chapter.page.locator(".jp-mod-dirty").count()) == ("", 0)
