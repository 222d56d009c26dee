"""A real Firefox, driven by WebDriver BiDi. A page has the methods of Playwright's that the tests need."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import websocket

from bench.browser import PATIENCE

FIREFOX = next((path for path in map(shutil.which, ("firefox-esr", "firefox")) if path), None)
needs_firefox = pytest.mark.skipif(
    FIREFOX is None and not os.environ.get("MHA_LAB_SKIP_NOTHING"),
    reason="no Firefox for the tests in a second browser (on Debian: apt install firefox-esr)",
)
CALM = {"ui.prefersReducedMotion": 1}
DARK = {"layout.css.prefers-color-scheme.content-override": 0}
# Times are exact to 0.02 ms and not to 1 ms; pages hear touches; a scroll bar takes no width, as on a phone.
SETTINGS = {
    "privacy.reduceTimerPrecision": False,
    "dom.w3c_touch_events.enabled": 1,
    "ui.useOverlayScrollbars": 1,
}
EVENTS = {
    "log.entryAdded": "console",
    "network.beforeRequestSent": "request",
    "network.fetchError": "requestfailed",
}
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Space": " ", "End": "\ue010", "Home": "\ue011"}
KEYS |= {f"Arrow{way}": chr(0xE012 + i) for i, way in enumerate(("Left", "Up", "Right", "Down"))}
CALL = """async (text, given) => {
  const found = (0, eval)(text);
  return JSON.stringify(await (typeof found === "function" ? found(JSON.parse(given)) : found));
}"""


class Firefox:
    """One headless browser with a profile of its own."""

    def __init__(self, settings=()):
        self._settings = SETTINGS | dict(settings)

    def __enter__(self):
        with contextlib.ExitStack() as opened:
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            lines = [f"user_pref({json.dumps(n)}, {json.dumps(v)});\n" for n, v in self._settings.items()]
            (folder / "user.js").write_text("".join(lines), encoding="utf-8")
            command = [FIREFOX, "--headless", "--no-remote", "--remote-debugging-port=0", "--profile", folder]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = opened.enter_context(subprocess.Popen(command, **quiet))
            opened.callback(process.terminate)
            self._socket = opened.enter_context(contextlib.closing(_connect(folder)))
            self._numbers, self._pages = itertools.count(), {}
            self.send("session.new", capabilities={})
            self.send("session.subscribe", events=list(EVENTS))
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_):
        self._opened.close()

    def send(self, method, **parameters):
        """The answer to a command. What pages tell before it is passed on."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (said := json.loads(self._socket.recv())).get("id") != number:
            told = said["params"]
            page = self._pages.get(told["context"] if "context" in told else told["source"]["context"])
            if page:
                page.hear(said["method"], told)
        if said["type"] == "error":
            raise RuntimeError(f"{method}: {said['message']}")
        return said["result"]

    def new_page(self, *, viewport=None, has_touch=True):
        """A tab of Playwright's size. Touches are possible everywhere."""
        context = self.send("browsingContext.create", type="tab")["context"]
        self._pages[context] = page = Page(self, context)
        page.set_viewport_size(viewport or {"width": 1280, "height": 720})
        return page


def _connect(folder):
    """Firefox writes its port into its profile."""
    file = folder / "WebDriverBiDiServer.json"
    for _ in range(1800):
        with contextlib.suppress(OSError, json.JSONDecodeError):
            port = json.loads(file.read_text())["ws_port"]
            return websocket.create_connection(
                f"ws://127.0.0.1:{port}/session", timeout=PATIENCE / 1000, suppress_origin=True
            )
        time.sleep(0.1)
    raise TimeoutError("Firefox was too slow to start: 180 seconds")


class Page:
    """A tab."""

    def __init__(self, browser, context):
        self._browser, self._context, self._listeners = browser, context, []
        self.mouse, self.finger = Pointer(self, "mouse"), Pointer(self, "touch")
        self.keyboard = self

    def send(self, method, **parameters):
        return self._browser.send(method, context=self._context, **parameters)

    def on(self, event, listener):
        """The events are console, pageerror, request and requestfailed."""
        self._listeners.append((event, listener))

    def hear(self, method, told):
        event = "pageerror" if told.get("type") == "javascript" else EVENTS[method]
        level = {"warn": "warning"}.get(told.get("level"), told.get("level"))
        url = told.get("request", {}).get("url")
        about = SimpleNamespace(text=told.get("text"), type=level, url=url)
        for wanted, listener in self._listeners:
            if wanted == event:
                listener(about.text if event == "pageerror" else about)

    def evaluate(self, text, given=None):
        """The value of an expression, or of a function that gets one argument, as Playwright has it."""
        call = {"functionDeclaration": CALL, "awaitPromise": True, "target": {"context": self._context}}
        call["arguments"] = [{"type": "string", "value": each} for each in (text, json.dumps(given))]
        found = self._browser.send("script.callFunction", **call)
        if found["type"] == "exception":
            raise RuntimeError(found["exceptionDetails"]["text"])
        return json.loads(found["result"].get("value", "null"))

    def wait_for_function(self, text):
        end = time.monotonic() + PATIENCE / 1000
        while not self.evaluate(text):
            if time.monotonic() > end:
                raise TimeoutError(f"too slow: {text}")
            time.sleep(0.02)

    def goto(self, url, wait_until="load"):
        wait = {"commit": "none", "load": "complete"}[wait_until]
        self.send("browsingContext.navigate", url=url, wait=wait)

    def wait_for_load_state(self, state):
        self.wait_for_function("document.readyState === 'complete'")

    def set_content(self, html):
        self.evaluate("(html) => { document.open(); document.write(html); document.close(); }", html)

    def set_viewport_size(self, size):
        self.send("browsingContext.setViewport", viewport=size)

    def press(self, key):
        """One key, by its name."""
        value = KEYS.get(key, key)
        self.act("key", "keyboard", [{"type": kind, "value": value} for kind in ("keyDown", "keyUp")])

    def act(self, kind, name, actions, **more):
        """Real input, as WebDriver has it."""
        self.send("input.performActions", actions=[{"type": kind, "id": name, "actions": actions, **more}])

    def screenshot(self, path):
        Path(path).write_bytes(base64.b64decode(self.send("browsingContext.captureScreenshot")["data"]))

    def close(self):
        self.send("browsingContext.close")


class Pointer:
    """A mouse or a finger."""

    def __init__(self, page, kind):
        self._page, self._kind = page, kind

    def _act(self, kind, **more):
        parameters = {"pointerType": self._kind}
        self._page.act("pointer", self._kind, [{"type": kind, **more}], parameters=parameters)

    def move(self, x, y):
        self._act("pointerMove", x=round(x), y=round(y))

    def down(self):
        self._act("pointerDown", button=0)

    def up(self):
        self._act("pointerUp", button=0)
