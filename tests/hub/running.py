"""A real hub for tests: started as `make hub` does it, with accounts that are removed at the end."""

import csv
import os
import resource
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.notebooks.chapters import ROOT

FOLDER = os.environ.get("MHA_HUB_TEST", "")
MISSING = [name for name in ("node", "npm", "git", "bwrap", "setpriv", "pkill") if not shutil.which(name)]
READY = bool(FOLDER) and os.name == "posix" and os.geteuid() == 0 and not MISSING
needs_hub = pytest.mark.skipif(
    not READY,
    reason="no JupyterHub: as root, run make test-hub (and install node, npm, bwrap)",
)
TEACHER, ADA, BOB, EVE = (f"mha-test-{name}" for name in ("teacher", "ada", "bob", "eve"))
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # open files that root may ask for; usual are 1024
WALL = 180_000  # milliseconds that a page may take
RUNS = "JupyterHub is now running"  # in the hub's log
SOURCE = Path(os.environ.get("MHA_HUB_SOURCE", ROOT))  # an older course shows which attacks succeed there
PYTHON = os.environ.get("MHA_HUB_PYTHON", "/usr/bin/python3")  # one that students can run


def free_port(ports: range = range(0, 1)) -> int:
    """The first free one of these ports of 127.0.0.1; 0 is any."""
    for port in ports:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as server:
            return server.getsockname()[1]
    raise OSError(f"no free port in {ports}")


def remove_accounts() -> None:
    for name in (TEACHER, ADA, BOB, EVE):
        subprocess.run(["pkill", "--signal", "KILL", "--uid", name], check=False, timeout=60)
        subprocess.run(["userdel", "--remove", name], capture_output=True, check=False, timeout=60)


def certificate(folder: Path, *names: str) -> list[str]:
    """The files of a certificate that nobody has signed, and of its key."""
    about = ["-subj", f"/CN={names[0]}", "-addext", "subjectAltName=" + ",".join(f"DNS:{n}" for n in names)]
    kind = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = [str(folder / "cert.pem"), str(folder / "key.pem")]
    command = ["openssl", *kind, *about, "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return files


class Hub:
    """A hub that runs: its addresses, its folder, its class list."""

    def __init__(self, settings: dict[str, str], listed: Path) -> None:
        self.settings, self.url, self.listed, self.folder = (
            settings,
            settings["HUB_URL"],
            listed,
            Path(FOLDER),
        )

    def own(self, name: str) -> str:
        """The address of somebody's server."""
        url = urlsplit(self.url)
        host = url.netloc if self.settings.get("ONE_NAME") else f"{name}.{url.netloc}"
        return f"{url.scheme}://{host}/user/{name}/"

    def write(self, *names: str) -> None:
        """The class list."""
        with self.listed.open("w", newline="") as file:
            csv.writer(file).writerows([["id"], *([name] for name in names)])

    def passwords(self) -> dict[str, str]:
        with (self.folder / "state" / "passwords.csv").open(encoding="utf-8") as file:
            return dict(csv.reader(file))

    def words(self, name: str, code: str, *given: str) -> list[str]:
        """The command of a program in Python that an account runs, in the hub's environment."""
        return ["runuser", "-u", name, "--", str(self.folder / "env" / "bin" / "python"), "-c", code, *given]

    def as_user(self, name: str, code: str, *given: str) -> subprocess.CompletedProcess:
        """Run it to its end."""
        options = {"cwd": "/", "capture_output": True, "text": True, "check": False}
        return subprocess.run(self.words(name, code, *given), timeout=120, **options)

    def restart(self) -> None:
        """Kill the hub; start.py starts it again."""
        os.kill(int((self.folder / "state" / "hub.pid").read_text()), 9)
        self.back()

    def back(self) -> None:
        """Wait until the hub that was just killed runs again."""
        log = self.folder / "state" / "hub.log"
        before = log.read_text().count(RUNS)
        until(lambda: log.read_text().count(RUNS) > before, 120)

    def attacker(self, name: str) -> None:
        """Give an account the server extension of evil.py, as its student could."""
        home = Path(f"~{name}").expanduser()
        evil = Path(__file__).with_name("evil.txt").read_text(encoding="utf-8")
        settings = f"import sys\nsys.path.insert(0, {str(home)!r})\n"
        settings += "c.ServerApp.jpserver_extensions = {'evil': True}\n"
        code = f"""from pathlib import Path
Path({str(home / "evil.py")!r}).write_text({evil!r})
Path({str(home / ".jupyter")!r}).mkdir(exist_ok=True)
Path({str(home / ".jupyter" / "jupyter_server_config.py")!r}).write_text({settings!r})"""
        done = self.as_user(name, code)
        assert done.returncode == 0, done.stderr

    def evil(self, attacker: str, victim: str, *scopes: str) -> str:
        """The address that a student sends to a victim."""
        link = {"repo": f"file://{self.folder / 'chapters'}", "branch": "main", "targetpath": "pulled"}
        query = {"hub": self.url, "own": self.own(victim), "victim": victim, "scope": scopes}
        query["pull"] = f"{self.own(victim)}git-pull/api?{urlencode(link)}"
        return f"{self.own(attacker)}evil?{urlencode(query, doseq=True)}"


def until(true, seconds: float) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.5)


@contextmanager
def running(tmp_path: Path, *students: str, source: Path = SOURCE, **settings: str):
    """A hub for these students that runs until the end of the block."""
    remove_accounts()
    folder = Path(FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("state", "exchange", "chapters", "private", ".handed-out"):
        path = folder / name
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    port, inside = free_port(), free_port(range(900, 950))
    usual = {"HUB": FOLDER, "TEACHER": TEACHER, "HUB_URL": f"http://localhost:{port}"}
    usual["ONE_NAME"] = os.environ.get("ONE_NAME", "")
    usual |= {"HUB_PORT": str(inside), "PROXY_PORT": str(free_port(range(inside + 1, 999)))}
    given = {name: value.format(port=port) for name, value in settings.items()}
    hub = Hub(usual | given, tmp_path / "class.csv")
    hub.write(*students)
    program = [PYTHON, str(source / "hub" / "start.py"), str(hub.listed)]
    usual_files = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (1024, FILES))
    environment = os.environ | {"LISTEN": f"127.0.0.1:{port}"} | hub.settings
    process = subprocess.Popen(program, env=environment, preexec_fn=usual_files)
    log = folder / "state" / "hub.log"
    try:
        until(lambda: process.poll() is not None or (log.exists() and RUNS in log.read_text()), 1800)
        assert process.poll() is None
        yield hub
    finally:
        process.terminate()
        process.wait(timeout=120)
        remove_accounts()
