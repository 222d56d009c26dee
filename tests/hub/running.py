"""A real hub for tests: started as `make hub` does it, with accounts that are removed at the end."""

import csv
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress
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
PYTHON = os.environ.get("MHA_HUB_PYTHON", "/usr/bin/python3")  # one that students can run


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def remove_accounts() -> None:
    for name in (TEACHER, ADA, BOB, EVE):
        subprocess.run(["pkill", "--signal", "KILL", "--uid", name], check=False, timeout=60)
        subprocess.run(["userdel", "--remove", name], capture_output=True, check=False, timeout=60)


class Hub:
    """A hub that runs: its addresses, its folder, its class list."""

    def __init__(self, url: str, listen: str, listed: Path) -> None:
        self.url, self.listen, self.listed, self.folder = url, listen, listed, Path(FOLDER)

    def own(self, name: str, one_name: bool = False) -> str:
        """The address of somebody's server."""
        url = urlsplit(self.url)
        host = url.netloc if one_name else f"{name}.{url.netloc}"
        return f"{url.scheme}://{host}/user/{name}/"

    def write(self, *names: str) -> None:
        """The class list."""
        with self.listed.open("w", newline="") as file:
            csv.writer(file).writerows([["id"], *([name] for name in names)])

    def passwords(self) -> dict[str, str]:
        with (self.folder / "state" / "passwords.csv").open(encoding="utf-8") as file:
            return dict(csv.reader(file))

    def as_user(self, name: str, code: str, **options) -> subprocess.CompletedProcess:
        """A program in Python that an account runs, in the hub's environment."""
        python = self.folder / "env" / "bin" / "python"
        words = ["runuser", "-u", name, "--", python, "-c", code]
        return subprocess.run(
            words, cwd="/", capture_output=True, text=True, check=False, timeout=120, **options
        )

    def attacker(self, name: str) -> None:
        """Give an account the server extension of evil.py, as its student could."""
        home = Path(f"~{name}").expanduser()
        evil = Path(__file__).with_name("evil.py").read_text(encoding="utf-8")
        settings = (
            f"import sys\nsys.path.insert(0, {str(home)!r})\nc.ServerApp.jpserver_extensions = {{'evil': True}}\n"
        )
        code = f"""from pathlib import Path
Path({str(home / "evil.py")!r}).write_text({evil!r})
Path({str(home / ".jupyter")!r}).mkdir(exist_ok=True)
Path({str(home / ".jupyter" / "jupyter_server_config.py")!r}).write_text({settings!r})"""
        done = self.as_user(name, code)
        assert done.returncode == 0, done.stderr

    def evil(self, attacker: str, victim: str, one_name: bool = False, *scopes: str) -> str:
        """The address that a student sends to a victim."""
        home = Path(f"~{victim}").expanduser()
        own = self.own(victim, one_name)
        link = {"repo": f"file://{self.folder / 'chapters'}", "branch": "main", "targetpath": "pulled"}
        query = [("hub", self.url), ("own", own), ("victim", victim), *(("scope", one) for one in scopes)]
        query += [("pull", f"{own}git-pull/api?{urlencode(link)}"), ("home", str(home))]
        return f"{self.own(attacker, one_name)}evil?{urlencode(query)}"


@contextmanager
def running(tmp_path: Path, *students: str, source: Path = ROOT, **settings: str):
    """A hub for these students that runs until the end of the block."""
    remove_accounts()
    folder = Path(FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("state", "exchange", "chapters", ".handed-out"):
        path = folder / name
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
    port = free_port()
    usual = {"HUB_URL": f"http://localhost:{port}", "HUB_PORT": str(free_port()), "PROXY_PORT": str(free_port())}
    settings = usual | {name: value.format(port=port) for name, value in settings.items()}
    hub = Hub(settings["HUB_URL"], f"127.0.0.1:{port}", tmp_path / "class.csv")
    hub.write(*students)
    program = [PYTHON, str(source / "hub" / "start.py"), str(hub.listed)]
    process = subprocess.Popen(program, env=os.environ | {"HUB": FOLDER, "TEACHER": TEACHER} | settings)
    try:
        end = time.monotonic() + 1800  # the first time, PyTorch is installed
        log = folder / "state" / "hub.log"
        while "JupyterHub is now running" not in (log.read_text() if log.exists() else ""):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(1)
        yield hub
    finally:
        process.terminate()
        process.wait(timeout=120)
        remove_accounts()
