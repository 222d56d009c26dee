"""`make hub`: installs what the hub needs, makes the accounts of the class, runs hub and proxy until Ctrl-C.

Everything is under one folder, by default /srv/mha-hub; run it again after any change. Only Python's standard
library is used here, because nothing else is installed yet. The settings are environment variables:
"""

import hashlib
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import accounts
import limits

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {
    "HUB": "/srv/mha-hub",  # where everything is installed and kept
    "HUB_URL": "http://localhost:8000",  # what people open; a server is at a name below it: ada.localhost
    "LISTEN": "",  # address and port at which the proxy listens: 127.0.0.1 and the port of HUB_URL
    "CERT": "",  # a certificate for TLS, as a PEM file, that names HOST and *.HOST of HUB_URL,
    "KEY": "",  # and its private key
    "ONE_NAME": "",  # yes: all servers are at the one name of HUB_URL, and not protected from each other
    "TEACHER": "teacher",  # the teacher's account
    "STUDENT_MEMORY": "2G",  # that all processes of one student may use together
    "STUDENT_CPU": "1",  # processors that one student may use
    "TEACHER_MEMORY": "8G",  # the same for the teacher, who grades there, on all processors
    "IDLE_SECONDS": "3600",  # until a server that nobody uses is ended
    "HUB_PORT": "921",  # two ports inside this machine, below 1024: only root can take them
    "PROXY_PORT": "922",
}
NEEDED = {
    "node": "nodejs", "npm": "npm", "git": "git", "bwrap": "bubblewrap", "setpriv": "util-linux",
    "pkill": "procps",
}  # fmt: skip
OPEN = "a page of one student that another student or the teacher opens can do everything with that account"
WILDCARD = """{fault}
  A browser lets pages of one name act for each other, so each server has its own, such as {name}.{host}.
  Ask for a DNS entry *.{host} that leads to this machine, as {host} does.
  Ask for a certificate that names {host} and *.{host}, and set CERT and KEY to its two files.
  Without them, ONE_NAME=yes starts the hub under one name. Then """
LONGEST = 40  # letters of HUB: the sockets of a kernel are below it, and Linux takes 107 letters
# What the teacher's account runs: like `nbgrader release_assignment`, for all chapters in one process. Then
# the files, and no links, go into the folder that students pull from.
RELEASE = """import shutil, sys
from pathlib import Path
from mha_lab.grading.course import settings
course, (pull, *chapters) = Path.cwd(), sys.argv[1:]
api = settings(course)
api.config.ExchangeReleaseAssignment.force = True
for name in chapters:
    if not (done := api.release_assignment(name))["success"]:
        sys.exit(f"{name}: {done}")
if links := [path for path in (course / "release").rglob("*") if path.is_symlink()]:
    sys.exit(f"{links[0]} is a link, and only files are handed out: remove it")
shutil.copytree(course / "release", pull, dirs_exist_ok=True)
"""


def stop(why: str) -> None:
    """End with one line."""
    sys.exit(f"make hub: {why}")


def run(*command: object, user: str = "", **options) -> None:
    """A command that must succeed; as another user, in a clean environment and a private umask."""
    words = [str(word) for word in command]
    if user:
        words = [shutil.which("runuser"), "-u", user, "--", "sh", "-c", 'umask 022; exec "$@"', "sh", *words]
    if subprocess.run(words, check=False, **options).returncode:
        stop(f"this failed, and the lines above say why: {' '.join(map(str, command))}")


def look(settings: dict[str, str]) -> None:
    """Stop with one line if something is missing or unsafe."""
    if os.geteuid() != 0:
        stop("only root can start servers as the students' accounts: sudo make hub")
    python = Path(sys.executable).resolve()
    if sys.version_info < (3, 11):  # noqa: UP036  it may be any Python that is called here
        stop("Python 3.11 or newer is needed: make hub PYTHON=python3.11")
    if closed := [folder for folder in python.parents if not folder.stat().st_mode & stat.S_IXOTH]:
        stop(f"students cannot run {python}, because {closed[0]} is closed: make hub PYTHON=/usr/bin/python3")
    if missing := sorted({package for program, package in NEEDED.items() if not shutil.which(program)}):
        stop(f"some programs are missing: apt install {' '.join(missing)}")
    look_at_names(settings)
    if opened := [name for name in ("HUB_PORT", "PROXY_PORT") if int(settings[name]) >= 1024]:
        stop(f"{opened[0]} must be below 1024, because students could take another port before the hub does")
    if len(settings["HUB"]) > LONGEST:
        stop(f"HUB is longer than {LONGEST} letters, too long for the sockets of kernels: {settings['HUB']}")
    try:
        limits.group("test", 2**30, 1.0)
    except OSError as error:
        if settings["STUDENT_MEMORY"] != "0":
            stop(f"no limits of memory can be set here ({error}): to go on without, say STUDENT_MEMORY=0")


def listening(settings: dict[str, str]) -> tuple[str, int]:
    """Address and port of the proxy."""
    url = urlsplit(settings["HUB_URL"])
    listen = urlsplit("//" + settings["LISTEN"])
    return listen.hostname or "127.0.0.1", listen.port or url.port or {"http": 80, "https": 443}[url.scheme]


def look_at_names(settings: dict[str, str]) -> None:
    """Stop if passwords could be read, or if the certificate does not name each server."""
    url, cert = urlsplit(settings["HUB_URL"]), settings["CERT"]
    host = url.hostname or ""
    here = host == "localhost" or host.startswith("127.")
    if url.scheme not in ("http", "https") or not host or url.path.strip("/"):
        stop(f"HUB_URL is an address such as https://hub.example.org, and not {settings['HUB_URL']}")
    if bool(cert) != bool(settings["KEY"]) or (cert and url.scheme != "https"):
        stop("a certificate needs CERT, KEY, and a HUB_URL that begins with https://")
    encrypted = here or url.scheme == "https"
    if not cert and not (encrypted and listening(settings)[0].startswith("127.")):
        stop("passwords would cross the network in the clear: set CERT and KEY, or keep 127.0.0.1")
    needed = [host] if settings["ONE_NAME"] else [host, f"{settings['TEACHER']}.{host}"]
    if not settings["ONE_NAME"] and not re.search("[a-z]", host):
        stop(explained(f"{host} is a number, and has no names below it", settings))
    for name in needed if cert else []:
        try:
            shake_hands(cert, settings["KEY"], name)
        except ssl.SSLCertVerificationError as error:
            stop(explained(f"the certificate {cert} is refused for {name}: {error.verify_message}", settings))
        except (OSError, ssl.SSLError) as error:
            stop(f"CERT and KEY are not a certificate and its key: {error}")


def explained(fault: str, settings: dict[str, str]) -> str:
    """What is wrong with the names, what to ask for, and what is open without it."""
    host = urlsplit(settings["HUB_URL"]).hostname
    return WILDCARD.format(fault=fault, host=host, name=settings["TEACHER"]) + OPEN + "."


def shake_hands(cert: str, key: str, name: str) -> None:
    """What a browser does first at https://NAME, in memory; who has signed the certificate is not looked at.

    Raises:
        ssl.SSLCertVerificationError: the certificate does not name NAME, or is out of date.
        ssl.SSLError, OSError: these files are not a certificate and its key.
    """
    server, client = (ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    server.load_cert_chain(cert, key)
    client.load_verify_locations(cert)
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(here, there, server_hostname=name), server.wrap_bio(there, here, server_side=True)
    for end in ends * 2:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()


def unknown(names: list[str], settings: dict[str, str]) -> list[str]:
    """The names of servers that lead nowhere from this machine."""
    host, lost = urlsplit(settings["HUB_URL"]).hostname, []
    for name in names if not settings["ONE_NAME"] and host != "localhost" else []:
        try:
            socket.getaddrinfo(f"{name}.{host}", None)
        except OSError:
            lost.append(f"{name}.{host}")
    return lost


def changed(mark: Path, *files: Path) -> str:
    """The hash of the files if it is not the one in the mark, else an empty string."""
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    now = found.hexdigest()
    return "" if mark.exists() and mark.read_text() == now else now


def install(hub: Path) -> None:
    """The course's environment with JupyterHub in ``env``, and the proxy in ``node_modules``."""
    env, here = hub / "env", ROOT / "hub"
    named = ("pyproject.toml", "constraints.txt", "hub/requirements.txt", "hub/package-lock.json")
    package = sorted(p for p in (ROOT / "mha_lab").rglob("*") if p.is_file() and p.suffix != ".pyc")
    if new := changed(hub / ".installed", *(ROOT / name for name in named), *package):
        print(f"installing into {hub} (a few minutes the first time)", flush=True)
        if not (env / "bin" / "pip").exists():
            run(sys.executable, "-m", "venv", env)
        run(env / "bin" / "pip", "install", "--quiet", "--upgrade", "pip")
        pins = ["--constraint", ROOT / "constraints.txt", "--requirement", here / "requirements.txt"]
        run(env / "bin" / "pip", "install", "--quiet", *pins, f"{ROOT}[lab,class]")
        for name in ("package.json", "package-lock.json"):
            shutil.copy(here / name, hub)
        run("npm", "ci", "--silent", "--prefix", hub)
        (hub / ".installed").write_text(new)
    etc = env / "etc" / "jupyter"
    (etc / "labconfig").mkdir(parents=True, exist_ok=True)
    for name in ("nbgrader_config.py", "jupyter_server_config.json"):
        shutil.copy(here / name, etc / name)
    shutil.copy(here / "page_config.json", etc / "labconfig")
    settings = env / "share" / "jupyter" / "lab" / "settings"
    settings.mkdir(parents=True, exist_ok=True)
    shutil.copy(here / "overrides.json", settings)  # no question about news, and no look for them


def hand_out(hub: Path, teacher: str) -> None:
    """The teacher's course folder, the chapters in the exchange, and the folder that students pull from."""
    chapters = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    if not (new := changed(hub / ".handed-out", *chapters)):
        return
    print("handing out the chapters", flush=True)
    python, copies, pull = hub / "env" / "bin" / "python", hub / "source", hub / "chapters"
    shutil.rmtree(copies, ignore_errors=True)
    shutil.copytree(ROOT / "notebooks", copies)
    course = Path("~" + teacher).expanduser() / "course"
    places = {"HOME": course.parent, "PATH": f"{python.parent}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    places |= {"TMPDIR": course.parent, "GIT_CONFIG_GLOBAL": "/dev/null"}
    as_teacher = {"user": teacher, "env": {name: str(value) for name, value in places.items()}}
    (hub / "exchange").mkdir(exist_ok=True)
    (hub / "exchange").chmod(0o1777)  # nbgrader wants it open; 1: nobody deletes what is another's
    # From here on, nothing is done as root: a link or a git hook of the teacher has the teacher's rights.
    pull.mkdir(exist_ok=True)
    if pull.stat().st_uid == 0:
        run("chown", "--recursive", "--no-dereference", f"{teacher}:", pull)
    layout = ["-m", "mha_lab.grading", "layout", course, "--chapters", copies]
    run(python, *layout, cwd=hub, **as_teacher)
    names = [chapter.stem for chapter in chapters]
    run(python, "-W", "ignore", "-c", RELEASE, pull, *names, cwd=course, **as_teacher)
    git = ["git", "-C", pull, "-c", "user.name=the course", "-c", "user.email=nobody@localhost"]
    run("git", "init", "--quiet", "--initial-branch=main", pull, **as_teacher)
    run(*git, "add", "--all", **as_teacher)
    run(*git, "commit", "--quiet", "--allow-empty", "--message=The chapters", **as_teacher)
    (hub / "gitconfig").write_text(f"[safe]\n\tdirectory = {pull}\n\tdirectory = {pull}/.git\n")
    (hub / ".handed-out").write_text(new)


def proxy(settings: dict[str, str]) -> list[str]:
    """The command of configurable-http-proxy; its token is in the environment."""
    ip, port = listening(settings)
    command = [f"{settings['HUB']}/node_modules/.bin/configurable-http-proxy"]
    command += ["--ip", ip, "--port", str(port)]
    command += [] if settings["ONE_NAME"] else ["--host-routing"]
    command += ["--api-ip", "127.0.0.1", "--api-port", settings["PROXY_PORT"], "--log-level", "warn"]
    command += ["--error-target", f"http://127.0.0.1:{settings['HUB_PORT']}/hub/error"]
    return command + (
        ["--ssl-cert", settings["CERT"], "--ssl-key", settings["KEY"]] if settings["CERT"] else []
    )


def keep_running(commands: dict[str, list[str]], environment: dict[str, str], state: Path) -> None:
    """Run both until this program is asked to end; what ends by itself is started again."""
    asked = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: asked.append(number))
    running: dict[str, subprocess.Popen] = {}
    while not asked:
        for name, command in commands.items():
            if name not in running or running[name].poll() is not None:
                if name in running:
                    print(f"the {name} ended ({running[name].returncode}); starting it again", flush=True)
                    time.sleep(1)
                log = (state / f"{name}.log").open("ab")
                # A session of its own: Ctrl-C reaches only this program, which ends the others in order.
                running[name] = subprocess.Popen(
                    command, env=environment, cwd=state, stdout=log, stderr=log, start_new_session=True
                )
                log.close()
                (state / f"{name}.pid").write_text(str(running[name].pid))
        time.sleep(0.5)
    for name in ("hub", "proxy"):
        running[name].terminate()
        running[name].wait()


def main(file: str) -> None:
    """See the module."""
    settings = {name: os.environ.get(name) or usual for name, usual in SETTINGS.items()}
    look(settings)
    hub, given = Path(settings["HUB"]), Path(file).resolve()
    state = hub / "state"
    state.mkdir(parents=True, exist_ok=True)
    state.chmod(0o700)
    (hub / "private").mkdir(exist_ok=True)
    (hub / "private").chmod(0o711)  # only root makes names in it: a folder for each account
    if not given.is_file():
        stop(f"there is no class list {given}; its first line is: id,first_name,last_name,email")
    try:
        passwords = state / "passwords.csv"
        new = accounts.make([settings["TEACHER"]], accounts.TEACHERS, passwords)
        listed = accounts.listed(given)
        new += accounts.make(listed, accounts.STUDENTS, passwords)
    except ValueError as reason:
        stop(str(reason))
    install(hub)
    hand_out(hub, settings["TEACHER"])
    accounts.end(listed)  # an older program could listen where the hub will be
    if new:
        print(f"{len(new)} new accounts; their first passwords are in {passwords}")
    token = {"CONFIGPROXY_AUTH_TOKEN": secrets.token_hex(32), "CLASS": str(given)}
    path = {"PATH": f"{hub / 'env' / 'bin'}:{hub / 'node_modules' / '.bin'}:{os.environ['PATH']}"}
    commands = {
        "proxy": proxy(settings),
        "hub": [str(hub / "env/bin/jupyterhub"), "--config", str(ROOT / "hub/jupyterhub_config.py")],
    }
    if lost := unknown(listed, settings):
        print(f"{len(lost)} names lead nowhere from here, such as {lost[0]}: the DNS entry with * is missing")
    if settings["ONE_NAME"]:
        print(f"ONE_NAME is set, so {OPEN}")
    print(f"the hub is at {settings['HUB_URL']}; Ctrl-C ends it; its log is {state / 'hub.log'}", flush=True)
    keep_running(commands, os.environ | settings | token | path, state)
    accounts.end(listed)


if __name__ == "__main__":
    main(sys.argv[1])
