"""The hub at a real name with a certificate: what a link of a student can do there."""

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.browser import needs_chromium
from tests.hub.running import BOB, EVE, TEACHER, certificate, needs_hub, running
from tests.hub.student import NAME, SCOPES, Student, browser, logged_in, stolen, visit

pytestmark = [pytest.mark.hub, needs_hub, needs_chromium]


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """The same, at a real name with a certificate."""
    folder = tmp_path_factory.mktemp("named")
    cert, key = certificate(folder, NAME, f"*.{NAME}")
    address = {"HUB_URL": f"https://{NAME}:{{port}}", "CERT": cert, "KEY": key}
    with running(folder, BOB, EVE, **address) as started:
        started.attacker(EVE)
        yield started


@pytest.mark.parametrize("victim", [BOB, TEACHER])
def test_a_page_of_a_student_can_do_nothing_with_the_account_of_its_visitor(named, victim):
    found = visit(named, victim, *SCOPES[victim])
    got = {way for way, said in found.items() if said.startswith("2") or said == "set" or "uid=" in said}
    # A page may set cookies for the name above its own: one of these is signed, the other is no secret.
    assert got == {"cookie, xsrf", "cookie, session"}, found
    assert stolen(named) == 0
    assert not Path(f"~{victim}/pulled").expanduser().exists()


def test_cookies_that_a_page_sets_for_all_names_do_not_log_anybody_in(named):
    with logged_in(named, BOB) as bob:
        names = {cookie["name"] for cookie in bob.profile.cookies([named.url, named.own(BOB)])}
    kept = {name for name in names if "jupyterhub-hub-login" in name or "jupyterhub-user-" in name}
    assert kept == {"__Host-jupyterhub-hub-login", f"__Host-jupyterhub-user-{BOB}"}


def test_a_page_of_a_student_cannot_log_its_visitor_in_as_the_student(named):
    send = """([hub, name, password, token, host]) => {
      document.cookie = `_xsrf=${token}; domain=${host}; path=/hub/; secure`;
      const sent = document.createElement("form");
      Object.assign(sent, {method: "POST", action: hub + "/hub/login?next=/hub/token"});
      for (const [key, value] of Object.entries({username: name, password, _xsrf: token}))
        sent.appendChild(Object.assign(document.createElement("input"), {name: key, value}));
      document.body.appendChild(sent).submit();
    }"""
    with browser() as chromium:
        Student(named, chromium, EVE)  # starts the server with the page
        own, visitor = (chromium.new_context(ignore_https_errors=True) for _ in range(2))
        form, page = own.new_page(), visitor.new_page()
        form.goto(named.url + "/hub/login")
        token = form.input_value("[name=_xsrf]")
        page.goto(named.evil(EVE, BOB))
        page.evaluate(send, [named.url, EVE, named.passwords()[EVE], token, NAME])
        page.wait_for_url(named.url + "/hub/**")
        page.wait_for_load_state()
        names = {cookie["name"] for cookie in visitor.cookies([named.url + "/hub/"])}
    assert "_xsrf" in names  # that of the attacker
    assert "__Host-jupyterhub-hub-login" not in names


BOMB = """host => {
  for (let i = 0; i < 60; i++)
    document.cookie = `bomb${i}=${"x".repeat(3000)}; domain=${host}; path=/; secure; max-age=9999999`;
  return document.cookie.length;
}"""


def test_a_page_that_sets_many_long_cookies_keeps_nobody_out(named):
    """Every request is then too long, to the hub and to the visitor's own server."""
    with browser() as chromium:
        Student(named, chromium, EVE)  # starts the server with the page
        bob = Student(named, chromium, BOB)
        page = bob.profile.new_page()
        page.goto(named.evil(EVE, BOB))
        assert page.evaluate(BOMB, NAME) > 100_000
        assert page.goto(named.own(BOB) + "lab").status == 431
        assert "load the page again" in page.text_content("body")
        page.goto(named.url + "/hub/home")
        page.fill("#username_input", BOB)
        page.fill("#password_input", named.passwords()[BOB])
        page.click("#login_submit")
        page.wait_for_selector("#start")


COOKIES = """
import http.server
class Cookies(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/favicon.ico":
            print(self.path, self.headers.get("Cookie"), flush=True)
        self.send_response(200)
        self.end_headers()
with http.server.HTTPServer(("127.0.0.1", 0), Cookies) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""


def test_a_program_of_a_student_at_another_port_gets_no_cookie_that_logs_in(named):
    """At localhost, without TLS, it gets them all."""
    own = urlsplit(named.own(BOB))
    with (
        logged_in(named, BOB) as bob,
        subprocess.Popen(named.words(EVE, COOKIES), stdout=subprocess.PIPE, text=True) as spy,
    ):
        port = int(spy.stdout.readline())
        page, heard = bob.profile.new_page(), []
        for host, path in ((NAME, "/hub/"), (own.hostname, own.path)):
            page.goto(f"http://{host}:{port}{path}")
            heard.append(spy.stdout.readline())
        spy.terminate()  # runuser ends what it has started
    assert [line.split()[0] for line in heard] == ["/hub/", own.path]
    assert not [cookies for cookies in heard if "hub-login" in cookies or "-user-" in cookies]
