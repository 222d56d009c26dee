"""Students of a running hub, each with a real browser."""

import json
import re
import sqlite3
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import sync_playwright

from bench.browser import CHROMIUM, FLAGS
from tests.hub.running import BOB, EVE, TEACHER, WALL, until

NAME = "hub.test"
ROUTES = f"--host-resolver-rules=MAP {NAME} 127.0.0.1,MAP *.{NAME} 127.0.0.1"
# What the attacker asks a token for.
SCOPES = {TEACHER: ("admin:users", "access:servers"), BOB: ("access:servers!user",)}


@contextmanager
def browser():
    """Chromium, which lets every page open windows."""
    with sync_playwright() as driver:
        flags = [*FLAGS, "--disable-popup-blocking", ROUTES]
        with closing(driver.chromium.launch(executable_path=CHROMIUM, args=flags)) as chromium:
            yield chromium


SAY = """async ([method, path, body, token]) => {
  const xsrf = window.jhdata?.xsrf_token ?? /(?:^|; )_xsrf=([^;]+)/.exec(document.cookie)[1];
  const headers = {"Content-Type": "application/json"};
  Object.assign(headers, token ? {Authorization: "token " + token} : {"X-XSRFToken": xsrf});
  try {
    const said = await fetch(path, {method, headers, body: body && JSON.stringify(body)});
    return [said.status, await said.text()];
  } catch (error) { return [0, String(error)]; }  // for example, the way leads to another name
}"""
RUN = """([base, kernel, code]) => new Promise((done, fail) => {
  const id = crypto.randomUUID(), xsrf = /(?:^|; )_xsrf=([^;]+)/.exec(document.cookie)[1];
  const address = `${base.replace(/^http/, "ws")}api/kernels/${kernel}/channels?_xsrf=${xsrf}`;
  const socket = new WebSocket(address);
  const header = {msg_id: id, msg_type: "execute_request", session: id, username: "", version: "5.3"};
  const content = {code, silent: false, store_history: true, user_expressions: {}, allow_stdin: false};
  const message = {header, parent_header: {}, metadata: {}, content, channel: "shell", buffers: []};
  let printed = "";
  socket.onopen = () => socket.send(JSON.stringify(message));
  socket.onerror = fail;
  socket.onmessage = ({data}) => {
    const said = JSON.parse(data);
    if (said.parent_header.msg_id !== id) return;
    if (said.msg_type === "stream") printed += said.content.text;
    if (said.msg_type === "error") printed += said.content.traceback.join("\\n");
    if (said.content.execution_state === "idle") {
      socket.close();
      done(printed);
    }
  };
})"""


class Student:
    """A browser profile in which somebody has logged in and has a server."""

    def __init__(self, hub, chromium, name, wall=WALL):
        self.hub, self.name = hub, name
        self.profile = chromium.new_context(ignore_https_errors=True)
        self.profile.set_default_timeout(wall)
        self.page = self.profile.new_page()
        self.page.goto(f"{hub.url}/hub/login?next=/hub/spawn")
        self.page.fill("#username_input", name)
        self.page.fill("#password_input", hub.passwords()[name])
        self.page.click("#login_submit")
        self.page.wait_for_url(f"**/user/{name}/lab/**")
        self.page.wait_for_selector("#jp-top-panel", state="attached")
        self.home = self.profile.new_page()
        self.home.goto(hub.url + "/hub/token")
        self.kernel = ""

    def ask_hub(self, method, path, body=None, token=""):
        """The status and the text of the hub's answer."""
        return self.home.evaluate(SAY, [method, path, body, token])

    def ask_server(self, method, path, body=None):
        """The same, of the own server."""
        return self.page.evaluate(SAY, [method, self.hub.own(self.name) + path, body, ""])

    def run(self, code):
        """What a cell printed."""
        if not self.kernel:
            self.kernel = json.loads(self.ask_server("POST", "api/kernels", {"name": "python3"})[1])["id"]
        return self.page.evaluate(RUN, [self.hub.own(self.name), self.kernel, code])


@contextmanager
def logged_in(hub, name):
    with browser() as chromium:
        yield Student(hub, chromium, name)


def visit(hub, victim, *scopes):
    """What the page of an attacker found when the victim had opened it."""
    with browser() as chromium:
        Student(hub, chromium, EVE)
        student = Student(hub, chromium, victim)
        assert json.loads(student.ask_server("POST", "api/terminals")[1])["name"] == "1"  # is guessed
        leak = {"type": "file", "format": "text", "content": "window.leaked = '200 mine'"}
        assert student.ask_server("PUT", "api/contents/leak.js", leak)[0] == 201
        page = student.profile.new_page()
        page.goto(hub.evil(EVE, victim, *scopes))
        page.click("button")
        page.wait_for_function("document.title === 'done'")
        assert len(json.loads(student.ask_server("GET", "api/terminals")[1])) == 1
        return json.loads(page.text_content("pre"))


def stolen(hub):
    """How many tokens of the hub the attacker has got."""
    with closing(sqlite3.connect(hub.folder / "state" / "jupyterhub.sqlite")) as database:
        return database.execute("select count(*) from api_tokens where note = 'stolen'").fetchone()[0]


class Web:
    """Somebody who has logged in without a browser."""

    def __init__(self, hub, name, timeout=300):
        self.hub, self.name, self.timeout, self.cookies = hub, name, timeout, {}
        form = self.ask("GET", "/hub/login")[1]
        token = re.search(r'name="_xsrf" value="([^"]+)"', form)[1]
        known = {"username": name, "password": hub.passwords()[name], "_xsrf": token}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        assert self.ask("POST", "/hub/login", urlencode(known), kind)[0] == 302
        self.ask("GET", "/hub/home")

    def ask(self, method, path, body=None, headers=None):
        """The status and the text of an answer."""
        url = urlsplit(self.hub.url)
        cookies = "; ".join(map("=".join, self.cookies.items()))
        usual = {"Host": url.netloc, "Cookie": cookies, "X-XSRFToken": self.cookies.get("_xsrf", "")}
        with closing(HTTPConnection("127.0.0.1", url.port, timeout=self.timeout)) as web:
            web.request(method, path, body, usual | {"Sec-Fetch-Mode": "navigate"} | (headers or {}))
            answer = web.getresponse()
            for line in answer.headers.get_all("Set-Cookie", []):
                name, _, value = line.split(";")[0].partition("=")
                self.cookies[name] = value
            return answer.status, answer.read().decode()

    def start(self):
        """Start the server, and wait for it."""
        assert self.ask("POST", f"/hub/api/users/{self.name}/server")[0] in (201, 202)
        until(lambda: json.loads(self.ask("GET", f"/hub/api/users/{self.name}")[1])["server"], 180)
