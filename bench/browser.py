"""A real Chromium, and a page that runs an explorable without a kernel."""

import base64
import json
import os
import shutil

import pytest
from anywidget import AnyWidget
from playwright.sync_api import expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)
# Without these, it contacts its maker's hosts at every start.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("MHA_LAB_SKIP_NOTHING"),
    reason="no Chromium for the tests in a browser (on Debian and Ubuntu: apt install chromium)",
)
THEMES = {
    "light": "--jp-content-font-color1: rgba(0,0,0,0.87); --jp-layout-color0: #fff; background: #fff",
    "dark": "--jp-content-font-color1: #fff; --jp-layout-color0: #111; background: #111",
}
# The parts of anywidget's front end that an explorable uses.
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>An explorable</title>
<body style="%(theme)s"><main><h1 style="color: #888">An explorable</h1><div id="here"></div></main>
<script type="module">
const state = %(state)s, heard = {};
window.saves = 0;
window.model = {
  all: () => state,
  get: (name) => state[name],
  set(name, value) { // a change is told, and nothing else
    if (JSON.stringify(state[name]) === JSON.stringify(value)) return;
    state[name] = value;
    (heard[`change:${name}`] ?? []).forEach((draw) => draw());
  },
  on(event, draw) { (heard[event] ??= []).push(draw); },
  off() {},
  save_changes() { window.saves += 1; if (%(dead)s) throw new Error("no kernel"); },
};
window.module = await import(URL.createObjectURL(new Blob([%(module)s], { type: "text/javascript" })));
module.default.render({ model, el: document.getElementById("here") });
window.ready = true;
</script></html>"""


# What a page waits for is there within seconds on an idle machine; Playwright's own 30 seconds are not enough
# beside much else.
PATIENCE = 180_000


def open_chromium():
    """A context manager: the browser."""
    return Chromium()


class Chromium:
    """One headless browser."""

    def __enter__(self):
        expect.set_options(timeout=PATIENCE)
        self._driver = sync_playwright().start()
        self.browser = self._driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for name in ("new_page", "new_context"):
            setattr(self.browser, name, patient(getattr(self.browser, name)))
        return self.browser

    def __exit__(self, *_):
        self.browser.close()
        self._driver.stop()


def patient(make):
    """Makes a page or a context that waits for so long, whatever it waits for."""

    def made(**options):
        one = make(**options)
        one.set_default_timeout(PATIENCE)
        return one

    return made


def state(widget):
    """The state that the ES module gets from its model, in a form that JSON has."""
    general = {*AnyWidget.class_traits(), "_esm", "_css", "_anywidget_id"}
    values = {name: getattr(widget, name) for name in widget.traits(sync=True) if name not in general}
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in values.items()
    }


DESK = {"viewport": {"width": 1000, "height": 900}}
PHONE = {"viewport": {"width": 375, "height": 667}, "has_touch": True}


def show(browser, widget, theme="light", *, dead=False, device=DESK):
    """A page with the explorable in it; console and page errors are collected in ``page.errors``."""
    page = browser.new_page(**device)
    page.errors = []
    page.on("console", lambda message: page.errors.append(message.text))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on(
        "request", lambda request: page.errors.append(request.url) if request.url.startswith("http") else None
    )
    parts = {"theme": THEMES[theme], "dead": "true" if dead else "false"}
    scripts = {"state": json.dumps(state(widget)), "module": json.dumps(widget._esm)}
    parts |= {name: text.replace("</", "<\\/") for name, text in scripts.items()}
    page.set_content(PAGE % parts)
    page.wait_for_function("window.ready === true")
    return page


def finger(page, x, y, dx, dy):
    """It goes down at (x, y), moves on by (dx, dy) and goes up."""
    client = page.context.new_cdp_session(page)
    for i in range(11):
        points = [{"x": x + dx * i / 10, "y": y + dy * i / 10}]
        kind = "touchMove" if i else "touchStart"
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        page.wait_for_timeout(16)
    client.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


# What a keyboard can move in an explorable, focused; the value is the key that moves it.
FOCUS = """(number) => {
  const one = document.querySelectorAll(".mha")[number];
  one.scrollIntoView({ block: "center" });
  const find = (selector) => [...one.querySelectorAll(selector)].find((part) => part.checkVisibility());
  const button = [...one.querySelectorAll("button:not([disabled], [aria-disabled=true])")]
    .find((part) => /^(Next|Back|Write one|Causal)/.test(part.textContent.trim()));
  const part = button ?? find("[role=slider], input[type=range]") ?? find("[role=option][tabindex='0']");
  part.focus();
  return button ? "Space" : "ArrowRight";
}"""
TOLD = "(number) => document.querySelectorAll('.mha')[number].innerText"
