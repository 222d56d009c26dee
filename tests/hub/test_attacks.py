"""What a student with an account and a browser can try against a running hub; each test is one attack."""

import json
import os
import pwd
import re
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest
from playwright.sync_api import Error

from bench.browser import needs_chromium
from tests.hub.running import ADA, BOB, EVE, SOURCE, TEACHER, needs_hub, running, until
from tests.hub.student import RUN, SAY, SCOPES, Student, browser, logged_in, stolen, visit

pytestmark = [pytest.mark.hub, needs_hub, needs_chromium]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A hub as `make hub` starts it, with a name for each server below localhost."""
    with running(tmp_path_factory.mktemp("hub"), ADA, BOB, EVE) as started:
        started.attacker(EVE)
        yield started


# --- one link ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [BOB, TEACHER])
def test_a_page_of_a_student_can_do_nothing_with_the_account_of_its_visitor(hub, victim):
    found = visit(hub, victim, *SCOPES[victim])
    got = {way for way, said in found.items() if said.startswith("2") or said == "set" or "uid=" in said}
    assert got == set(), found
    assert stolen(hub) == 0
    assert not Path(f"~{victim}/pulled").expanduser().exists()


# --- rights on the hub ------------------------------------------------------------------------------------


def test_nobody_is_an_admin_even_if_the_database_remembers_one(hub):
    with closing(sqlite3.connect(hub.folder / "state" / "jupyterhub.sqlite")) as database:
        database.execute("update users set admin = 1")
        database.execute(
            "insert into user_role_map (user_id, role_id, managed_by_auth) "
            "select users.id, roles.id, 0 from users, roles where roles.name = 'admin' and users.name = ?",
            [EVE],
        )
        database.commit()
    hub.restart()
    with closing(sqlite3.connect(hub.folder / "state" / "jupyterhub.sqlite")) as database:
        assert database.execute("select count(*) from users where admin").fetchone() == (0,)
        held = "select count(*) from user_role_map, roles where role_id = roles.id and roles.name = 'admin'"
        assert database.execute(held).fetchone() == (0,)


def test_a_student_reaches_nobody_elses_account_through_the_hub(hub):
    requests = [
        ("GET", "/hub/api/users"),
        ("GET", f"/hub/api/users/{BOB}"),
        ("POST", f"/hub/api/users/{BOB}/server"),
        ("DELETE", f"/hub/api/users/{BOB}/server"),
        ("POST", f"/hub/api/users/{BOB}/tokens"),
        ("POST", "/hub/api/users/somebody"),
        ("GET", "/hub/api/proxy"),
        ("POST", "/hub/api/shutdown"),
        ("PATCH", f"/hub/api/users/{BOB}"),
        ("PATCH", f"/hub/api/users/{EVE}"),
        ("POST", f"/hub/api/users/{BOB}/activity"),
        ("GET", f"/hub/api/users/{BOB}/tokens"),
        ("GET", f"/hub/api/users/{BOB}/server/progress"),
        ("POST", f"/hub/api/shares/{BOB}/"),
        ("POST", f"/hub/api/share-codes/{EVE}/"),
        ("GET", "/hub/api/groups"),
        ("GET", f"/hub/spawn/{BOB}"),
        ("GET", "/hub/api/oauth2/authorize?response_type=code&client_id=jupyterhub-user-" + BOB),
        ("GET", "/hub/admin"),
    ]
    with logged_in(hub, EVE) as eve:
        assert eve.ask_hub("GET", f"/hub/api/users/{EVE}")[0] == 200
        answers = {request: eve.ask_hub(*request)[0] for request in requests}
    assert {request: status for request, status in answers.items() if status not in (403, 404)} == {}


def test_who_asks_for_a_server_cannot_say_what_runs_in_it(hub):
    asked = {"cmd": ["sh", "-c", "id >asked"], "notebook_dir": "/", "ip": "0.0.0.0", "mem_limit": 0}
    asked |= {name: {"ASKED": "yes"} for name in ("env", "environment")}
    with logged_in(hub, EVE) as eve:
        path = f"/hub/api/users/{EVE}/server"
        until(lambda: eve.ask_hub("DELETE", path)[0] == 204, 180)
        assert eve.ask_hub("POST", path, asked)[0] in (201, 202)
        until(lambda: json.loads(eve.ask_hub("GET", f"/hub/api/users/{EVE}")[1])["server"], 180)
        eve.page.goto(hub.own(EVE) + "lab")
        eve.page.wait_for_selector("#jp-top-panel", state="attached")
        code = "import os\nprint(os.environ.get('ASKED'), os.path.exists(os.path.expanduser('~/asked')))\n"
        code += "print(os.environ['JUPYTERHUB_ROOT_DIR'], os.environ['MEM_LIMIT'])"
        printed = eve.run(code).splitlines()
    assert printed == ["None False", f"~ {2 * 2**30}"]


def log_in(hub, name, password, host=""):
    """The answer to a form that is filled in, and sent to this host; the status 302 leads on."""
    url = urlsplit(hub.url)
    with closing(HTTPConnection("127.0.0.1", url.port, timeout=300)) as web:
        web.request("GET", "/hub/login", headers={"Host": url.netloc})
        answer = web.getresponse()
        cookies = "; ".join(value.split(";")[0] for value in answer.headers.get_all("Set-Cookie"))
        token = re.search(r'name="_xsrf" value="([^"]+)"', answer.read().decode())[1]
        form = urlencode({"username": name, "password": password, "_xsrf": token})
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        web.request("POST", "/hub/login", form, {"Host": host or url.netloc, "Cookie": cookies} | kind)
        return web.getresponse()


def test_wrong_passwords_make_no_other_name_wait(hub):
    wrong, right = 6, hub.passwords()[BOB]
    with ThreadPoolExecutor(2 * wrong) as pool:
        tries = [pool.submit(log_in, hub, name, "wrong") for name in ("nobody", EVE) for _ in range(wrong)]
        time.sleep(1)
        assert log_in(hub, BOB, right).status == 302
        assert sum(not one.done() for one in tries) > wrong / 2
        assert {one.result().status for one in tries} == {403}


@pytest.mark.parametrize(
    "name", [BOB.upper(), f"{BOB}\0x", f"{BOB}\u200b", f"../{BOB}", "root", "a" * 10_000, ""]
)
def test_no_other_spelling_of_a_name_logs_in(hub, name):
    assert log_in(hub, name, hub.passwords()[BOB]).status == 403


def test_nobody_logs_in_at_the_name_of_a_students_server(hub):
    """Who did would give the hub's cookie to the pages of that student."""
    there = urlsplit(hub.own(EVE))
    answers = [log_in(hub, BOB, hub.passwords()[BOB], host) for host in ("", there.netloc)]
    cookies = [" ".join(answer.headers.get_all("Set-Cookie", [])) for answer in answers]
    assert ["hub-login" in set_there for set_there in cookies] == [True, False]
    with browser() as chromium, closing(chromium.new_page()) as page:
        page.goto(f"{there.scheme}://{there.netloc}/hub/home")
        assert page.url.startswith(f"{hub.url}/hub/login?")


@pytest.mark.parametrize("token", [True, False])
def test_the_hub_reads_no_large_request_and_keeps_none(hub, token):
    kept, large = hub.folder / "state" / "jupyterhub.sqlite", "n" * 5_000_000
    with logged_in(hub, EVE) as eve:
        made = json.loads(eve.ask_hub("POST", f"/hub/api/users/{EVE}/tokens", {"note": "own"})[1])["token"]
        before = kept.stat().st_size
        ways = {f"/hub/api/users/{EVE}/tokens": "note", f"/hub/api/users/{EVE}/server": "large"}
        for path, name in ways.items():
            said = eve.ask_hub("POST", path, {name: large}, token=made if token else "")
            assert said[0] in (0, 400, 413, 503), said  # 503 is the proxy's, if the hub ends the connection
    assert kept.stat().st_size < before + 1_000_000


@pytest.mark.parametrize(
    "there", ["//evil.test", "http://evil.test", "/\\evil.test", "https:evil.test", "own"]
)
def test_after_the_log_in_nobody_is_led_to_a_page_of_somebody_else(hub, there):
    there = hub.own(EVE) + "evil" if there == "own" else there
    with browser() as chromium, closing(chromium.new_page()) as page:
        page.goto(f"{hub.url}/hub/login?next={quote(there)}")
        page.fill("#username_input", BOB)
        page.fill("#password_input", hub.passwords()[BOB])
        page.click("#login_submit")
        page.wait_for_url(lambda url: "/hub/login" not in url, timeout=60_000)
        assert urlsplit(page.url).hostname in ("localhost", f"{BOB}.localhost")


# --- other accounts on the same machine -------------------------------------------------------------------

LISTEN = """
import glob, sys, time, zmq
from pathlib import Path
uid, found = sys.argv[1], set()
lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
ports = [int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and line[7] == uid]
places = [f"tcp://127.0.0.1:{port}" for port in ports] + ["ipc://" + path for path in sys.argv[2:]]
context, sockets = zmq.Context(), []
for place in places:
    socket = context.socket(zmq.SUB)
    socket.connect(place)
    socket.subscribe(b"")
    sockets.append(socket)
print(len(ports), flush=True)
end = time.monotonic() + 12
while time.monotonic() < end:
    for socket in sockets:
        while socket.poll(20):
            found.add(b" ".join(socket.recv_multipart()).decode(errors="replace"))
print(*found)
"""


def test_what_a_kernel_runs_and_prints_is_read_by_nobody_else(hub):
    with logged_in(hub, BOB) as bob:
        code = "from jupyter_core.paths import jupyter_runtime_dir\nprint(jupyter_runtime_dir())"
        sockets = [str(path) for path in Path(bob.run(code).strip()).glob("kernel-*-ipc-*")]
        words = hub.words(EVE, LISTEN, str(pwd.getpwnam(BOB).pw_uid), *sockets)
        spy = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(10):
            time.sleep(1)
            assert bob.run("print('my ' + 'secret')") == "my secret\n"
        heard, wrong = spy.communicate(timeout=60)
    assert int(heard.split()[0]) >= 1, wrong  # it found the server's port, at least
    assert "secret" not in heard


def test_a_kernel_that_was_killed_in_a_cell_is_there_again_for_a_page_that_asks_at_once(hub):
    with logged_in(hub, BOB) as bob:
        code = "import os\nfrom jupyter_core.paths import jupyter_runtime_dir\n"
        pid, folder = bob.run(code + "print(os.getpid(), jupyter_runtime_dir())").split()
        first = Path(folder, f"kernel-{bob.kernel}-ipc-1")
        old, busy = made_at(first), Path(folder, "busy")
        endless = f"import time\nopen({str(busy)!r}, 'w').close()\nwhile True: time.sleep(1)"
        bob.page.evaluate(
            f"(given) => {{ window.early = ({RUN})(given) }}", [hub.own(BOB), bob.kernel, endless]
        )
        until(busy.exists, 60)
        os.kill(int(pid), 9)
        until(lambda: made_at(first) != old, 60)  # the next one starts
        assert bob.run("print(6 * 7)") == "42\n"


def made_at(file):
    """When a file was made; its number alone can be that of the one before."""
    about = file.stat() if file.exists() else None
    return about and (about.st_ino, about.st_ctime_ns)


def test_a_server_that_ends_at_its_start_keeps_nobody_waiting(hub):
    code = """from pathlib import Path
folder = Path.home() / ".jupyter"
folder.mkdir(exist_ok=True)
(folder / "jupyter_server_config.py").write_text("exit(3)")"""
    assert hub.as_user(ADA, code).returncode == 0
    log, said = hub.folder / "state" / "hub.log", f"the server of {ADA} ended with"
    with browser() as chromium, pytest.raises(Error):
        Student(hub, chromium, ADA, wall=40_000)
    Path(f"~{ADA}/.jupyter/jupyter_server_config.py").expanduser().unlink()
    assert said in log.read_text()


LOOK = """
import ctypes, os, sys
pid, private = sys.argv[1:]
for name in ("environ", "maps", "fd", "cwd", "root"):
    path = f"/proc/{pid}/{name}"
    try:
        print("read", os.listdir(path) if os.path.isdir(path) else open(path, "rb").read())
    except PermissionError:
        pass
libc = ctypes.CDLL(None)
if libc.ptrace(16, int(pid), 0, 0) != -1:
    print("traced")
for folder in (private, os.path.dirname(private)):
    if libc.inotify_add_watch(libc.inotify_init(), folder.encode(), 0xFFF) != -1:
        print("watched", folder)
for name in os.listdir("/dev/shm"):
    if os.stat("/dev/shm/" + name).st_uid != os.getuid() and os.access("/dev/shm/" + name, os.R_OK):
        print("read", name)
"""


def test_a_process_its_memory_and_its_folders_are_closed_for_others(hub):
    code = "import os, torch\nfrom multiprocessing.shared_memory import SharedMemory\n"
    code += "held = SharedMemory(create=True, size=9)\nshared = torch.zeros(9).share_memory_()\n"
    with logged_in(hub, BOB) as bob:
        pid, private = bob.run(code + "print(os.getpid(), os.environ['TMPDIR'])").split()
        done = hub.as_user(EVE, LOOK, pid, private)
        bob.run("held.close()\nheld.unlink()")
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_a_server_answers_nobody_who_comes_straight_to_its_port(hub):
    ways = ["api/contents", "api/kernels", "files/attention", "lab", "api/status", "assignments", "metrics"]
    code = """import sys
from http.client import HTTPConnection
for way in sys.argv[2:]:
    web = HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    web.request("GET", way, headers={"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "root"})
    print(web.getresponse().status)"""
    query = "select port from spawners join servers on server_id = servers.id where user_id = "
    query += "(select id from users where name = ?)"
    with (
        logged_in(hub, BOB),
        closing(sqlite3.connect(hub.folder / "state" / "jupyterhub.sqlite")) as database,
    ):
        (port,) = database.execute(query, [BOB]).fetchone()
        said = hub.as_user(EVE, code, str(port), *(f"/user/{BOB}/{way}" for way in ways))
    assert len(said.stdout.split()) == len(ways), said.stderr
    assert set(said.stdout.split()) <= {"302", "403"}, said.stdout


def test_what_a_server_prints_fills_a_file_of_its_student_and_not_the_hubs_log(hub):
    with logged_in(hub, BOB):
        pass
    assert " ServerApp] " in Path(f"~{BOB}/.server.log").expanduser().read_text()
    assert " ServerApp] " not in (hub.folder / "state" / "hub.log").read_text()


def test_who_knows_the_name_of_a_submission_cannot_remove_or_rename_it(hub):
    inbound = hub.folder / "exchange" / "attention" / "inbound"
    made = inbound / f"{BOB}+03_splitting_heads+2030-01-01 00:00:00 UTC+abc"
    assert hub.as_user(BOB, "import os, sys; os.mkdir(sys.argv[1], 0o750)", str(made)).returncode == 0
    for code in ("os.rename(sys.argv[1], sys.argv[1] + 'x')", "os.rmdir(sys.argv[1])"):
        assert "PermissionError" in hub.as_user(EVE, "import os, sys; " + code, str(made)).stderr
    made.rmdir()


PLACES = """
import json, os, tempfile, matplotlib, torch._inductor.runtime.cache_dir_utils as inductor
from IPython.paths import get_ipython_dir
from jupyter_core.paths import jupyter_runtime_dir
from torch._inductor.runtime.triton_heuristics import triton_cache_dir
places = [tempfile.gettempdir(), inductor.default_cache_dir(), inductor.cache_dir(), triton_cache_dir(0)]
places += [matplotlib.get_configdir(), matplotlib.get_cachedir(), get_ipython_dir(), jupyter_runtime_dir()]
places += [os.path.expanduser("~/.cache/pip"), os.environ["XDG_RUNTIME_DIR"]]
print(json.dumps(places))
"""
# Whether an account can read a place, or make or replace a name on the way to it.
OPEN = """
import json, os, stat, sys
from pathlib import Path
for place in map(Path, json.loads(sys.argv[1])):
    if os.access(place, os.R_OK):
        print(f"{place} can be read")
    for name, folder in zip([place, *place.parents], place.parents):
        sticky = folder.stat().st_mode & stat.S_ISVTX if os.access(folder, os.X_OK) else 0
        if os.access(folder, os.W_OK) and not (sticky and name.exists() and name.stat().st_uid == 0):
            print(f"{name} can be made or replaced")
"""


@pytest.mark.parametrize("victim", [BOB, TEACHER])
def test_nothing_of_a_server_is_where_another_account_can_make_names(hub, victim):
    with logged_in(hub, victim) as student:
        printed = student.run(PLACES)
        assert json.loads(printed), printed
        done = hub.as_user(EVE, OPEN, printed)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


FAKE = """
import http.server, socket, sys
class Fake(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"fake")
port, address = int(sys.argv[1]), sys.argv[2]
http.server.ThreadingHTTPServer.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
web = http.server.ThreadingHTTPServer((address, port), Fake)
print("listens", flush=True)
web.serve_forever()
"""


@contextmanager
def answering(hub, port, address):
    """A program of EVE that answers there."""
    with subprocess.Popen(hub.words(EVE, FAKE, str(port), address), stdout=subprocess.PIPE) as fake:
        try:
            assert fake.stdout.readline() == b"listens\n"
            yield fake
        finally:
            fake.terminate()  # runuser ends what it has started, and kill() would leave it


PORT = "select port, state from spawners join servers on server_id = servers.id where user_id = "
PORT += "(select id from users where name = ?)"


def test_a_port_that_a_server_has_lost_is_not_visited(hub):
    """The hub looks at the process every five seconds; the next test is about who has the port."""
    with logged_in(hub, BOB) as bob:
        assert "fake" not in bob.ask_server("GET", "api")[1]
        with closing(sqlite3.connect(hub.folder / "state" / "jupyterhub.sqlite")) as database:
            port, state = database.execute(PORT, [BOB]).fetchone()
        os.kill(json.loads(state)["pid"], 9)
        answers = []
        with answering(hub, port, "127.0.0.1"):
            for _ in range(24):
                answers.append(bob.ask_server("GET", "api")[1])
                time.sleep(0.5)
    assert "fake" in answers  # or nothing was tried
    assert "fake" not in answers[-4:]


def test_a_lost_port_is_not_visited_either_if_another_process_has_the_servers_number(hub):
    """A hub that was started again knows only the number of a server's process, and Linux gives it away."""
    kept = closing(sqlite3.connect(hub.folder / "state" / "jupyterhub.sqlite"))
    with logged_in(hub, BOB) as bob, kept as database:
        port, state = database.execute(PORT, [BOB]).fetchone()
        os.kill(int((hub.folder / "state" / "hub.pid").read_text()), 9)
        os.kill(json.loads(state)["pid"], 9)
        with answering(hub, port, "127.0.0.1") as fake:
            changed = "update spawners set state = ? where state = ?"
            database.execute(changed, [json.dumps({"pid": fake.pid}), state])
            database.commit()
            hub.back()
            time.sleep(8)
            assert "fake" not in bob.ask_server("GET", "api")[1]


@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
def test_a_port_that_is_taken_before_its_server_has_it_is_not_visited(hub, address):
    """A student can take all free ports but a few, and those few when somebody else's process appears."""
    with logged_in(hub, BOB) as bob:
        path, user = f"/hub/api/users/{BOB}/server", f"/hub/api/users/{BOB}"
        until(lambda: bob.ask_hub("DELETE", path)[0] == 204, 180)
        until(lambda: not bob.ask_hub("GET", user)[1].count('"ready"'), 60)
        bob.home.evaluate(f"(given) => {{ ({SAY})(given) }}", ["POST", path, None, ""])  # does not wait
        with answering(hub, port_of(BOB), address):
            until(lambda: not json.loads(bob.ask_hub("GET", user)[1])["pending"], 180)
            assert "fake" not in bob.ask_server("GET", "api")[1]
            assert json.loads(bob.ask_hub("GET", user)[1])["server"] is None


def port_of(name):
    """The port of a server that is starting; its own student and root can read it."""
    uid, found = pwd.getpwnam(name).pw_uid, []

    def look():
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if folder.stat().st_uid == uid:
                    found.extend(
                        re.findall(
                            rb"JUPYTERHUB_SERVICE_URL=http://[^:]+:(\d+)", (folder / "environ").read_bytes()
                        )
                    )
        return found

    until(look, 60)
    return int(found[0])


def test_the_ports_of_hub_and_proxy_cannot_be_taken(hub):
    code = "import socket, sys; socket.create_server(('127.0.0.1', int(sys.argv[1])))"
    for name in ("HUB_PORT", "PROXY_PORT"):
        assert int(hub.settings[name]) < 1024
    port = str(urlsplit(hub.url).port)
    also = "import socket, sys; socket.create_server(('::1', int(sys.argv[1])), family=socket.AF_INET6)"
    assert "OSError" in hub.as_user(EVE, also, port).stderr
    free = next(port for port in range(1000, 1024) if str(port) not in hub.settings.values())
    assert "PermissionError" in hub.as_user(EVE, code, str(free)).stderr


def test_a_student_cannot_start_more_processes_than_allowed(hub):
    code = """
import subprocess
running = []
try:
    for _ in range(600):
        running.append(subprocess.Popen(["sleep", "60"]))
except OSError as error:
    print(type(error).__name__, len(running) < 400)
for one in running:
    one.kill()
    one.wait(timeout=60)
"""
    with logged_in(hub, EVE) as eve:
        assert eve.run(code) == "BlockingIOError True\n"


# --- who leaves -------------------------------------------------------------------------------------------


def test_who_leaves_the_class_list_loses_everything_at_once_and_can_come_back(hub):
    with browser() as chromium:
        ada = Student(hub, chromium, ADA)
        ada.run("import subprocess; subprocess.Popen(['setsid', 'sleep', '1000'])")
        ada.run("open('kept.txt', 'w').write('mine')")
        made = ada.ask_hub("POST", f"/hub/api/users/{ADA}/tokens", {"note": "own"})[1]
        token, start = json.loads(made)["token"], f"/hub/api/users/{ADA}/server"
        assert ada.ask_hub("GET", f"/hub/api/users/{ADA}", token=token)[0] == 200
        hub.write(BOB, EVE)
        until(lambda: subprocess.run(["pgrep", "--uid", ADA], check=False, timeout=60).returncode == 1, 20)
        time.sleep(1)
        assert ada.ask_hub("POST", start, token=token)[0] == 403
        assert ada.ask_hub("POST", start)[0] == 403
        assert ada.ask_hub("GET", f"/hub/api/users/{ADA}")[0] == 403
        assert ada.ask_server("GET", "api/contents")[0] != 200
        ada.home.goto(hub.url + "/hub/home")
        ada.home.fill("#username_input", ADA)
        ada.home.fill("#password_input", hub.passwords()[ADA])
        ada.home.click("#login_submit")
        ada.home.wait_for_selector(".login_error")
        asks = "import pamela, sys; pamela.check_account(sys.argv[1])"  # as ssh and su do
        assert [hub.as_user("root", asks, name).returncode for name in (ADA, BOB)] == [1, 0]
        hub.write(ADA, BOB, EVE)
        time.sleep(5)
        assert ada.ask_hub("GET", f"/hub/api/users/{ADA}", token=token)[0] == 403
        assert Student(hub, chromium, ADA).run("print(open('kept.txt').read())") == "mine\n"


def test_who_is_not_on_the_list_is_refused_before_the_account_is_closed(hub):
    kept = hub.folder / "state" / "class.csv"  # what the hub itself reads
    before = kept.read_text(encoding="utf-8")
    with logged_in(hub, ADA) as ada:
        try:
            kept.write_text(before.replace(f"{ADA}\n", ""), encoding="utf-8")
            time.sleep(2)
            assert ada.ask_hub("GET", f"/hub/api/users/{ADA}")[0] == 403
        finally:
            kept.write_text(before, encoding="utf-8")
        time.sleep(2)
        assert ada.ask_hub("GET", f"/hub/api/users/{ADA}")[0] == 200


def test_who_leaves_loses_what_runs_without_a_server_too(hub):
    with logged_in(hub, ADA) as ada:  # the hub knows this name
        until(lambda: ada.ask_hub("DELETE", f"/hub/api/users/{ADA}/server")[0] == 204, 180)
        until(lambda: '"ready"' not in ada.ask_hub("GET", f"/hub/api/users/{ADA}")[1], 60)
        with subprocess.Popen(
            hub.words(ADA, "import time; print(flush=True); time.sleep(99)"), stdout=-1
        ) as left:
            assert left.stdout.readline() == b"\n"
            hub.write(BOB, EVE)
            left.wait(timeout=20)
        hub.write(ADA, BOB, EVE)
        time.sleep(5)


def test_a_list_that_cannot_be_read_ends_nobody(hub):
    with logged_in(hub, EVE) as eve:
        hub.listed.write_text("name\n", encoding="utf-8")
        time.sleep(4)
        hub.listed.unlink()
        time.sleep(4)
        assert eve.run("print(6 * 7)") == "42\n"
        hub.write(ADA, BOB, EVE)
        time.sleep(4)
        assert eve.ask_hub("GET", f"/hub/api/users/{EVE}")[0] == 200


# --- what the teacher opens -------------------------------------------------------------------------------


def test_a_link_to_a_submission_opens_nothing_at_the_teachers_name(hub):
    code = """from pathlib import Path
folder = Path.home() / "course" / "submitted" / "eve" / "03_splitting_heads"
folder.mkdir(parents=True)
(folder / "x.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
(Path.home() / "way").symlink_to(folder)"""
    assert hub.as_user(TEACHER, code).returncode == 0
    file = "course/submitted/eve/03_splitting_heads/x.ipynb"
    # Without /files/, which shows the text of a notebook, in a sandbox of the browser.
    ways = [f"api/contents/{file}", f"nbconvert/html/{file}", "api/contents/way/x.ipynb"]
    ways += ["api/contents/course/submitted", f"api/contents/{file.replace('/', '//')}"]
    with logged_in(hub, TEACHER) as teacher:
        shown = json.loads(teacher.ask_server("GET", "api/contents/course?content=1")[1])["content"]
        assert teacher.ask_server("GET", "api/contents?content=1")[0] == 200
        answers = {way: teacher.ask_server("GET", way)[0] for way in ways}
    assert {"release", "source"} <= {entry["name"] for entry in shown}
    assert set(answers.values()) == {404}, answers


# --- what root does in folders of others ------------------------------------------------------------------


def hand_out(hub):
    """Hand out once more, as `make hub` does it when a chapter has changed."""
    (hub.folder / ".handed-out").unlink(missing_ok=True)
    code = "import sys, start; from pathlib import Path; start.hand_out(Path(sys.argv[1]), sys.argv[2])"
    words = [sys.executable, "-c", code, str(hub.folder), TEACHER]
    options = {"cwd": SOURCE / "hub", "capture_output": True, "text": True, "check": False}
    return subprocess.run(words, timeout=300, **options)


def test_a_link_in_the_teachers_folder_is_not_handed_out(hub):
    link = Path(f"~{TEACHER}/course/release/x").expanduser()
    link.symlink_to("/etc/shadow")
    try:
        done = hand_out(hub)
    finally:
        link.unlink()
    assert f"{link} is a link" in done.stderr
    assert done.returncode == 1
    assert not list((hub.folder / "chapters").rglob("x"))
    assert hand_out(hub).returncode == 0


def test_what_git_runs_in_the_teachers_folder_is_not_run_by_root(hub):
    seen = Path(f"~{TEACHER}/seen").expanduser()
    git = Path(f"~{TEACHER}/course/release/.git").expanduser()
    code = f"""from pathlib import Path
git = Path({str(git)!r})
(git / "hooks").mkdir(parents=True)
hook = git / "hooks" / "pre-commit"
hook.write_text("#!/bin/sh\\nid -un >>{seen}\\n")
hook.chmod(0o755)
"""
    assert hub.as_user(TEACHER, code).returncode == 0
    done = hand_out(hub)
    assert done.returncode == 0, done.stderr
    assert seen.read_text().split() == [TEACHER]


def test_students_read_what_is_handed_out_and_cannot_change_it(hub):
    pull = hub.folder / "chapters"
    code = "import os, sys; from pathlib import Path\n"
    code += "print([str(p) for p in Path(sys.argv[1]).rglob('*') if os.access(p, os.W_OK)])\n"
    code += "print(len(list(Path(sys.argv[1]).glob('*/*.ipynb'))))"
    writable, chapters = hub.as_user(EVE, code, str(pull)).stdout.splitlines()
    assert writable == "[]"
    assert int(chapters) >= 15


def test_no_setting_of_the_hub_can_be_read_by_a_student(hub):
    code = "import os, sys; print([name for name in sys.argv[1:] if os.access(name, os.R_OK)])"
    names = [str(hub.folder / "state"), *map(str, (hub.folder / "state").glob("*"))]
    names += [
        f"/proc/{(hub.folder / 'state' / f'{part}.pid').read_text()}/environ" for part in ("hub", "proxy")
    ]
    assert hub.as_user(EVE, code, *names).stdout == "[]\n"
