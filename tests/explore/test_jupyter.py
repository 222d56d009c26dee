"""The chapters in a real JupyterLab and Notebook 7: run, drag, read back, stop the kernel, drag again."""

import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from types import SimpleNamespace

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from jupyter_client import BlockingKernelClient

from bench.browser import FOCUS, PATIENCE, TOLD, needs_chromium
from bench.firefox import needs_firefox
from mha_course.grading.needed import needed
from tests.notebooks.chapters import NAMES, code_cells, read

pytestmark = [pytest.mark.browser, needs_chromium]


def live(cell):
    """Whether a cell shows an explorable."""
    return "explore." in cell.source or "quiz.ask(" in cell.source


TOY = "02_toy_queries_keys_values"
WITH_EXPLORABLES = [n for n in NAMES if any(map(live, code_cells(read(n))))]
CELLS = 'document.querySelectorAll(".jp-CodeCell")'
# A folded cell has no number, only the prompt of what stands in its place.
PROMPTS = 'document.querySelectorAll(".jp-CodeCell .jp-InputPrompt:not(.jp-Placeholder-prompt)")'
RESTS = 'document.querySelector(".jp-Notebook-ExecutionIndicator")?.getAttribute("data-status") === "idle"'
CONNECTED = 'document.querySelector(".jp-KernelName")?.textContent.startsWith("Python 3")'
READY = f"(count) => {CONNECTED} && {RESTS} && {CELLS}.length === count"
BEGUN = f"() => [...{PROMPTS}].some((one) => /[*\\d]/.test(one.textContent))"
DONE = f"() => {RESTS} && [...{PROMPTS}].every((one) => /\\d/.test(one.textContent))"


OWN = "LAB_SETTINGS", "LAB_WORKSPACES", "_CONFIG", "_DATA", "_RUNTIME"  # folders
SETTINGS = {
    "apputils-extension/themes": {"theme": "JupyterLab Light"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Every cell is on the page from the start; older releases add a cell when it is scrolled to.
    "notebook-extension/tracker": {"windowingMode": "none"},
}


def without_trainings(cells):
    """Only what the explorables and the exercises need: nbval runs the chapters whole."""
    own = [live(cell) or "nbgrader" in cell.metadata for cell in cells]
    for cell, source in zip(cells, needed([cell.source for cell in cells], own, ()), strict=True):
        cell.source = source or "pass"


@contextlib.contextmanager
def server(folder, application, whole=()):
    """JupyterLab or Notebook 7 with the chapters."""
    folder.mkdir()
    for name in NAMES:
        notebook = read(name)
        if name not in whole:
            without_trainings(code_cells(notebook))
        for cell in code_cells(notebook):
            cell.execution_count = None  # so that a number means a run
        nbformat.write(notebook, folder / f"{name}.ipynb")
    with serving(folder, application) as running:
        yield running


@contextlib.contextmanager
def serving(folder, application):
    """JupyterLab or Notebook 7 on a free port, with its token, with settings of its own."""
    for file, settings in SETTINGS.items():
        path = folder / ".LAB_SETTINGS" / "@jupyterlab" / f"{file}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token, address = secrets.token_hex(16), f"http://127.0.0.1:{port}"
    own = {f"JUPYTER{name}_DIR": str(folder / f".{name}") for name in OWN}
    command = [sys.executable, "-m", "jupyter", application, "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}"]
    if application == "lab":
        command += ["--expose-app-in-browser"]
    environment = os.environ | own | {"JUPYTER_TOKEN": token}
    with (folder / "server.log").open("wb") as log:
        running = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            for _ in range(1500):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"{address}/api?token={token}", timeout=5).close()
                    break
                time.sleep(0.2)
            else:
                pytest.fail(f"too slow: no answer from Jupyter in 300 seconds, see {folder}/server.log")
            yield SimpleNamespace(address=address, token=token, runtime=folder / "._RUNTIME")
        finally:
            running.terminate()
            running.wait(timeout=300)


def ask(running, method, what, content=None):
    """The server's answer to a request."""
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(f"{running.address}/api/{what}", data, method=method)
    request.add_header("Authorization", f"token {running.token}")
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read() or "null")


def end_kernels(running):
    for session in ask(running, "GET", "sessions"):
        ask(running, "DELETE", f"sessions/{session['id']}")


def start_kernel(running, path):
    """A new kernel, which answers before a browser looks: else, on a slow machine, the page asks for one."""
    wanted = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
    kernel = ask(running, "POST", "sessions", wanted)["kernel"]["id"]
    client = BlockingKernelClient(connection_file=str(running.runtime / f"kernel-{kernel}.json"))
    client.load_connection_file()
    client.start_channels()
    client.kernel_info(reply=True, timeout=300)  # wait_for_ready takes a kernel that is slow for a dead one
    client.stop_channels()


class Opened:
    """One notebook in the browser."""

    def __init__(self, browser, running, name, view="lab/tree", *, kernel=True):
        if kernel:
            start_kernel(running, f"{name}.ipynb")
        self.page = browser.new_page(viewport={"width": 1300, "height": 1000})
        self.wrong = []
        self.page.on("console", lambda message: self._error(message.text, message.type))
        self.page.on("pageerror", lambda error: self._error(str(error)))
        self.page.on("requestfailed", lambda request: self.wrong.append(f"failed: {request.url}"))
        others = re.compile(f"http(?!{re.escape(running.address[4:])})")
        self.page.on("request", lambda r: self.wrong.append(r.url) if others.match(r.url) else None)
        self.page.goto(f"{running.address}/{view}/{name}.ipynb?token={running.token}&reset")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")

    def _error(self, text, kind="error"):
        # A stopped kernel is noticed, and an extension built for another release of JupyterLab: not ours.
        if kind == "error" and not re.search("/api/kernels/|getter for the shared module", text):
            self.wrong.append(text)

    def run_all(self, cells):
        """Once every cell and the kernel are there: before that, the menu's entry asks or does nothing."""
        self.page.wait_for_function(READY, arg=cells)
        self.menu("Run", "Run All Cells")
        self.page.wait_for_function(BEGUN)
        self.page.wait_for_function(DONE, timeout=1_200_000)

    def menu(self, *texts):
        for text in texts:
            self.page.get_by_role("menuitem", name=text, exact=True).click()

    def theme(self):
        return "light" if self.page.evaluate("document.body.dataset.jpThemeLight") == "true" else "dark"

    def change_theme(self):
        """From light to dark, or back: what the next chapter starts with is what this one leaves."""
        wanted = "dark" if self.theme() == "light" else "light"
        self.menu("Settings")
        for entry in ("Theme", f"JupyterLab {wanted.title()}"):
            self.page.locator(".lm-Menu-itemLabel").get_by_text(entry, exact=True).click()
        is_light = str(wanted == "light").lower()
        self.page.wait_for_function(f"document.body.dataset.jpThemeLight === '{is_light}'")

    def bring(self, place):
        """Scroll until it stands still in the middle: cells out of sight have no height yet."""
        before = None
        for _ in range(400):
            place.evaluate("(place) => place.scrollIntoView({ block: 'center' })")
            self.page.wait_for_timeout(150)
            box = place.bounding_box()
            if box and box == before and 0 < box["y"] + box["height"] / 2 < 1000:
                return
            before = box
        raise AssertionError(f"it does not stand still, or this machine is too slow: {before}")

    def move(self, explorable, way=1):
        """Its text before and after it was moved, one way or the other."""
        self.bring(explorable)
        before = explorable.inner_text()
        name = explorable.get_attribute("aria-label")
        if name.startswith("Question"):
            self.answer(explorable, way)
        elif name.endswith("two positions"):
            explorable.get_by_role("slider").first.press("ArrowRight" if way == 1 else "ArrowLeft")
        elif "query" in name:
            self.drag(explorable, 0.5 * way, -0.7)
        elif name.endswith("of all heads"):
            explorable.get_by_role("option").nth(2).focus()
            self.page.keyboard.press("ArrowRight" if way == 1 else "ArrowLeft")
        elif name.endswith("language model"):
            explorable.get_by_role("button", name="Write one" if way == 1 else "Delete").click()
        elif "mask" in name:
            explorable.get_by_role("button", name="Causal" if way == 1 else "Padding", exact=True).click()
            explorable.locator(".cell").first.focus()
            self.page.keyboard.press("Space")
        elif "scale" in name:
            explorable.get_by_label("d_k", exact=True).press("End" if way == 1 else "Home")
        else:
            explorable.get_by_role("button", name="Next" if way == 1 else "Back").click()
        changed = "([explorable, before]) => explorable.innerText !== before"
        self.page.wait_for_function(changed, arg=[explorable.element_handle(), before])
        return before, explorable.inner_text()

    def answer(self, question, way):
        """Commit to some answer, or begin again."""
        if way == 1:
            for part in ("input[type=radio]", "input[type=range]", "button.place"):
                if (found := question.locator(part)).count():
                    found.first.focus()
                    self.page.keyboard.press({"input[type=range]": "ArrowRight"}.get(part, "Space"))
            if (number := question.locator("input[inputmode=decimal]")).count():
                number.fill("1")
        question.get_by_role("button", name="Commit" if way == 1 else "Try again").click()

    def drag(self, explorable, x, y):
        """The query, from the middle of the plane; 1 is the way to its edge."""
        plane = explorable.locator("svg").bounding_box()
        half, mouse = plane["width"] / 2, self.page.mouse
        middle = plane["x"] + half, plane["y"] + plane["height"] / 2
        mouse.move(*middle)
        mouse.down()
        mouse.move(middle[0] + x * half, middle[1] + y * plane["height"] / 2, steps=4)
        mouse.up()
        self.page.wait_for_timeout(500)

    def cell(self, text):
        """The cell with this text, chosen as if it had been clicked."""
        cell = self.page.locator(".jp-CodeCell", has_text=text).first
        self.bring(cell)
        cell.locator(".cm-content").click()
        return cell


@contextlib.contextmanager
def opened(browser, running, name=TOY, view="lab/tree"):
    """A chapter after *Run All*, with its explorables; in the end, nothing may have gone wrong."""
    chapter = Opened(browser, running, name, view)
    try:
        if view == "notebooks":
            chapter.page.wait_for_timeout(2000)
            chapter.wrong.clear()  # Notebook 7.6 has an error of its own when it starts
        chapter.run_all(len(code_cells(read(name))))
        explorables = chapter.page.locator(".mha")
        explorables.first.wait_for(state="attached")
        yield chapter, explorables
        assert chapter.wrong == []
    finally:  # a page that failed would slow down the next one
        chapter.page.close()
        end_kernels(running)


@pytest.fixture(scope="module")
def jupyterlab(tmp_path_factory):
    with server(tmp_path_factory.mktemp("jupyter") / "lab", "lab", whole=[TOY]) as running:
        yield running


@pytest.mark.parametrize("name", WITH_EXPLORABLES)
def test_a_chapter_in_jupyterlab(browser, jupyterlab, name):
    """In both themes: run, move, look for violations; then again without a kernel."""
    with opened(browser, jupyterlab, name) as (chapter, explorables):
        assert explorables.count() == sum(map(live, code_cells(read(name))))
        for explorable in explorables.all():
            before, after = chapter.move(explorable)
            assert before != after
        for _ in range(2):
            chapter.bring(explorables.first)
            found = Axe().run(chapter.page, context=".mha").response["violations"]
            assert [(rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in found] == []
            chapter.change_theme()
        assert chapter.wrong == []
        chapter.menu("Kernel", "Shut Down Kernel")
        chapter.page.wait_for_timeout(1500)
        before, after = chapter.move(explorables.first, way=-1)
        assert before != after
        chapter.wrong.clear()  # what the front end says of a kernel that is gone


def test_pictures_follow_the_theme(browser, jupyterlab):
    dark = "(all) => all.map((each) => getComputedStyle(each).filter.includes('#dark'))"
    with opened(browser, jupyterlab) as (chapter, _):
        pictures = chapter.page.locator(".jp-RenderedImage img")
        for _ in range(2):
            found = pictures.evaluate_all(dark)
            assert len(found) >= 3
            assert set(found) == {chapter.theme() == "dark"}
            chapter.change_theme()


def test_an_exercise_asks_for_what_was_dragged(browser, jupyterlab):
    with opened(browser, jupyterlab) as (chapter, explorables):
        plane = explorables.and_(chapter.page.locator(':not([aria-label^="Question"])')).first
        chapter.bring(plane)
        reach = 1.25 * 18**0.5  # of the longest key
        chapter.drag(plane, 1.8 / reach, 4.2 / reach)
        chapter.cell("def query_by_hand")
        chapter.page.keyboard.press("Control+A")
        chapter.page.keyboard.insert_text("def query_by_hand(): return by_hand.query")
        chapter.page.keyboard.press("Shift+Enter")
        checking = chapter.page.locator(".jp-CodeCell", has_text="check(query_by_hand)").first
        chapter.page.keyboard.press("Control+Enter")
        checking.get_by_text("query_by_hand is right: 1 point").wait_for()


@pytest.fixture(scope="module")
def notebook_7(tmp_path_factory):
    with server(tmp_path_factory.mktemp("notebook") / "lab", "notebook") as running:
        yield running


@pytest.mark.parametrize("name", WITH_EXPLORABLES)
def test_a_chapter_in_notebook_7(browser, notebook_7, name):
    with opened(browser, notebook_7, name, view="notebooks") as (chapter, explorables):
        assert explorables.count() == sum(map(live, code_cells(read(name))))
        for explorable in explorables.all():
            before, after = chapter.move(explorable)
            assert before != after


def value_in_kernel(running, expression):
    """What an expression is in the kernel of the only notebook that is open."""
    (session,) = ask(running, "GET", "sessions")
    file = running.runtime / f"kernel-{session['kernel']['id']}.json"
    client = BlockingKernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels()
    try:
        asked = {"it": expression}
        answer = client.execute("", silent=True, user_expressions=asked, reply=True, timeout=300)
    finally:
        client.stop_channels()
    return answer["content"]["user_expressions"]["it"]["data"]["text/plain"]


@needs_firefox
@pytest.mark.parametrize("name", WITH_EXPLORABLES)
def test_a_chapter_in_jupyterlab_in_firefox(firefox, jupyterlab, name):
    """Run all; every explorable is there and moves by a key; the kernel of chapter 02 hears of it."""
    start_kernel(jupyterlab, f"{name}.ipynb")
    page, wrong = firefox.new_page(viewport={"width": 1300, "height": 1000}), []
    page.on("pageerror", wrong.append)
    try:
        page.goto(f"{jupyterlab.address}/lab/tree/{name}.ipynb?token={jupyterlab.token}&reset")
        page.wait_for_function(f"typeof jupyterapp === 'object' && ({READY})({len(code_cells(read(name)))})")
        page.evaluate("() => void jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_function(f"({BEGUN})()")
        end = time.monotonic() + 1200
        while not page.evaluate(DONE):
            assert time.monotonic() < end, "too slow: 20 minutes"
            time.sleep(0.2)
        count = page.evaluate("document.querySelectorAll('.mha').length")
        assert count == sum(map(live, code_cells(read(name))))
        for number in range(count):
            if page.evaluate(f"document.querySelectorAll('.mha')[{number}].ariaLabel").startswith("Question"):
                continue
            query = name == TOY and value_in_kernel(jupyterlab, "by_hand.query")
            key, before = page.evaluate(FOCUS, number), page.evaluate(TOLD, number)
            page.keyboard.press(key)
            page.wait_for_function(f"({TOLD})({number}) !== {json.dumps(before)}")
            end = time.monotonic() + PATIENCE / 1000
            while name == TOY and value_in_kernel(jupyterlab, "by_hand.query") == query:
                assert time.monotonic() < end, "too slow: the kernel has not heard of the move"
                time.sleep(0.1)
        assert wrong == []
    finally:
        page.close()
        end_kernels(jupyterlab)
