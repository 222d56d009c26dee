"""What an account can send to the hub, its proxy and Linux, without a browser and often without a log-in."""

import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.hub.running import BOB, EVE, SOURCE, needs_hub, running, until
from tests.hub.student import Web

pytestmark = [pytest.mark.hub, needs_hub]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with running(tmp_path_factory.mktemp("hub"), BOB, EVE) as started:
        yield started


def said(hub, text, port=0):
    """The beginning of the answer to this text."""
    with closing(socket.create_connection(("127.0.0.1", port or urlsplit(hub.url).port), timeout=30)) as sent:
        sent.sendall(text.encode())
        return sent.recv(1000).decode()


# --- one connection for several people --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["DELETE", "OPTIONS", "GET", "POST"])
def test_the_end_of_a_request_is_not_the_beginning_of_somebody_elses(hub, method):
    """The proxy sent on the body of a DELETE as if there was none: the next visitor's cookies followed it."""
    host = f"Host: {urlsplit(hub.url).netloc}\r\n"
    rest = "GET /hub/logout HTTP/1.1\r\nX: "
    head = f"{method} /hub/x HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"
    answers = [said(hub, f"{head}{len(rest):x}\r\n{rest}\r\n0\r\n\r\n").splitlines()[0] for _ in range(3)]
    bob = Web(hub, BOB)
    assert [bob.ask("GET", "/hub/home")[0] for _ in range(6)] == [200] * 6
    assert answers == ["HTTP/1.1 411 Length Required"] * 3


def test_no_connection_to_the_hub_carries_the_requests_of_two_people(hub):
    bob = Web(hub, BOB)
    for _ in range(3):
        bob.ask("GET", "/hub/home")
    time.sleep(0.5)
    here, proxy = f":{int(hub.settings['HUB_PORT']):04X}", (hub.folder / "state" / "proxy.pid").read_text()
    open_there = {link for link in map(where, Path(f"/proc/{proxy}/fd").iterdir()) if "socket:" in link}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    kept = [row for row in rows if row[2].endswith(here) and f"socket:[{row[9]}]" in open_there]
    assert kept == []


def where(link):
    try:
        return str(link.readlink())
    except OSError:  # it was closed meanwhile
        return ""


# --- very many ---------------------------------------------------------------------------------------------

HOLD = """
import socket, sys, time
port, text = int(sys.argv[1]), sys.argv[2].encode()
held = []
for _ in range(1000):
    held.append(socket.create_connection(("127.0.0.1", port), timeout=60))
    held[-1].sendall(text)
print("held", flush=True)
time.sleep(100)
"""


@contextmanager
def holding(hub, port, text):
    """Two programs of EVE, each with 1000 connections on which no more comes."""
    words = hub.words(EVE, HOLD, str(port), text)
    two = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    try:
        assert [one.stdout.readline() for one in two] == [b"held\n"] * 2, two[0].stderr.read()
        yield
    finally:
        for one in two:
            one.terminate()  # runuser ends what it has started
            one.communicate(timeout=60)  # this closes its pipes, too


BODY = "Host: {host}\r\nContent-Length: 60000\r\n"
SLOW = {
    "nothing, to the hub": ("HUB_PORT", ""),
    "half a request, to the hub": ("HUB_PORT", "GET / HTTP/1.1\r\nX: "),
    "half a request, to the proxy": ("", "GET / HTTP/1.1\r\nX: "),
    "half a form": ("", f"POST /hub/login HTTP/1.1\r\n{BODY}\r\nx"),
    "half a socket": (
        "",
        f"GET /hub/ HTTP/1.1\r\n{BODY}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\nx",
    ),
    "nothing, to the proxy's own port": ("PROXY_PORT", ""),
}


@pytest.mark.parametrize("way", SLOW)
def test_thousands_of_requests_that_never_end_keep_nobody_from_logging_in(hub, way):
    name, text = SLOW[way]
    port = int(hub.settings[name]) if name else urlsplit(hub.url).port
    log = hub.folder / "state" / "hub.log"
    before = log.stat().st_size
    with holding(hub, port, text.format(host=urlsplit(hub.url).netloc)):
        start = time.monotonic()
        Web(hub, BOB, timeout=20)
        assert time.monotonic() - start < 10
    assert log.stat().st_size < before + 1_000_000  # "too many open files", again and again
    until(lambda: connections(hub) < 100, 60)
    Web(hub, BOB, timeout=20)


def connections(hub):
    """How many connections the hub has; none that somebody has left stays for ever."""
    pid = (hub.folder / "state" / "hub.pid").read_text()
    return len([link for link in map(where, Path(f"/proc/{pid}/fd").iterdir()) if "socket:" in link])


def test_who_has_not_the_proxys_token_cannot_fill_its_memory(hub):
    head = "POST /api/routes/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
    there, sent = ("127.0.0.1", int(hub.settings["PROXY_PORT"])), 0
    with closing(socket.create_connection(there, timeout=30)) as way, suppress(ConnectionError):
        way.sendall(head.encode())
        while sent < 50_000_000:
            sent += way.send(b"x" * 1_000_000)
    assert sent < 50_000_000
    assert "403 Forbidden" in said(hub, head, there[1])


# --- pages of the hub, elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["/hub/login", "/hub/home", "/hub/token", "/hub/nothing", "/hub/api/user"])
def test_no_other_page_can_frame_or_read_a_page_of_the_hub(hub, page):
    bob, url = Web(hub, BOB), urlsplit(hub.url)
    cookies = "; ".join(map("=".join, bob.cookies.items()))
    elsewhere = {"Host": url.netloc, "Cookie": cookies, "Origin": f"http://{EVE}.{url.netloc}"}
    with closing(HTTPConnection("127.0.0.1", url.port, timeout=60)) as web:
        web.request("GET", page, headers=elsewhere)
        answer = web.getresponse()
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Access-Control-Allow-Origin"] is None


# --- the log-in form ---------------------------------------------------------------------------------------


def test_the_token_of_another_form_is_deleted_and_the_form_shown_again(hub):
    """A page of EVE can set a cookie with it for all names, which the hub reads before that of the form."""
    visitor, url = Web(hub, EVE), urlsplit(hub.url)
    visitor.cookies = {"_xsrf": (eve := visitor.cookies["_xsrf"])}
    shown = visitor.ask("GET", "/hub/login")[1]
    time.sleep(1.5)  # the tokens of one second are the same
    token = re.search(r'name="_xsrf" value="([^"]+)"', shown)[1]
    known = urlencode({"username": BOB, "password": hub.passwords()[BOB], "_xsrf": token})
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": f"_xsrf={eve}; _xsrf={token}"}
    with closing(HTTPConnection("127.0.0.1", url.port, timeout=60)) as web:
        web.request("POST", "/hub/login", known, {"Host": url.netloc} | kind)
        answer = web.getresponse()
    assert (answer.status, answer.headers["Location"]) == (302, "/hub/login")
    assert answer.headers["Clear-Site-Data"] == '"cookies"'


# --- what runs on ------------------------------------------------------------------------------------------

HOP = "import os\nwhile True:\n    if os.fork(): os._exit(0)"


def test_a_program_that_starts_itself_again_and_again_is_ended_at_once(hub):
    with subprocess.Popen(hub.words(EVE, HOP)):
        time.sleep(1)
        code = f"import accounts, time; start = time.monotonic(); accounts.end([{EVE!r}, 'root'])\n"
        code += "print(time.monotonic() - start)"
        options = {"cwd": SOURCE / "hub", "capture_output": True, "text": True, "check": True}
        assert float(subprocess.run([sys.executable, "-c", code], timeout=60, **options).stdout) < 3
    look = ["ps", "-u", EVE, "-o", "stat="]
    shown = subprocess.run(look, capture_output=True, text=True, check=False, timeout=60).stdout
    assert [state for state in shown.split() if not state.startswith("Z")] == []
    others = Path("/etc/subuid")  # user numbers that a student could take
    assert not others.exists() or EVE not in others.read_text()


SPY = """
import os, time
from pathlib import Path
end, seen = time.monotonic() + 20, ""
while time.monotonic() < end and "find" not in seen:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == os.getuid() and (folder / "comm").read_text() == "find\\n":
                seen = "find " + (folder / "environ").read_text()
        except OSError:
            pass
print(seen)
"""


def test_what_is_emptied_after_a_server_is_emptied_without_the_hubs_secrets(hub):
    """The student may have another way to run something then, such as ssh."""
    bob, shared = Web(hub, BOB), Path("/dev/shm/mha-test-left")
    bob.start()
    shared.unlink(missing_ok=True)  # of an account of an earlier run
    code = "import os\nfrom pathlib import Path\nPath('/dev/shm/mha-test-left').write_text('left')\n"
    code += f"folder = Path('{hub.folder}/private') / str(os.getuid()) / 'many'\nfolder.mkdir()\n"
    code += "for number in range(100_000): (folder / str(number)).touch()"
    assert hub.as_user(BOB, code).returncode == 0
    seen, end = "", time.monotonic() + 60
    with ThreadPoolExecutor() as pool:
        pool.submit(bob.ask, "DELETE", f"/hub/api/users/{BOB}/server")
        while not seen and time.monotonic() < end:  # who comes before the server has ended is ended, too
            seen = hub.as_user(BOB, SPY).stdout.strip()
    assert seen.startswith("find ")
    assert "TOKEN" not in seen
    until(lambda: not shared.exists(), 60)
