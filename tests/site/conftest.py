"""The website, built once from the chapters and one more for all files of tests here."""

import functools
import os
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from bs4 import BeautifulSoup

from tests.notebooks.chapters import FOLDER, ROOT
from tests.site import one_more
from tools.notebooks import files, write


def run_build(out, notebooks, seed):
    command = [sys.executable, "-m", "tools.site", str(out), "--notebooks", str(notebooks)]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)


@pytest.fixture(scope="session")
def notebooks(tmp_path_factory):
    """The chapters and one more."""
    folder = tmp_path_factory.mktemp("chapters")
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    write(files(folder / f"{one_more.NAME}.ipynb", one_more.chapter()))
    return folder


def build(notebooks, out, seed):
    """Build, and see that nothing was said but where it is."""
    done = run_build(out, notebooks, seed)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{out / 'index.html'}\n", "")
    return out


@pytest.fixture(scope="session")
def site(notebooks, tmp_path_factory):
    return build(notebooks, tmp_path_factory.mktemp("site") / "one", "1")


@pytest.fixture(scope="session")
def pages(site):
    """Every page, parsed."""
    files = sorted(site.glob("*.html"))
    return {file.name: BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser") for file in files}


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Says nothing on the terminal."""


@pytest.fixture(scope="session")
def roots(site):
    """Where the site is: on a plain web server, and in a plain folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"http": f"http://127.0.0.1:{server.server_port}/", "file": site.as_uri() + "/"}
        server.shutdown()
