"""`make hub`: installs what the hub needs, makes the accounts of the class, runs hub and proxy until Ctrl-C.

Everything is under one folder, by default /srv/mha-hub; run it again after any change. Only Python's standard
library is used here, because nothing else is installed yet. The settings are environment variables:
"""

import hashlib
import importlib.util
import json
import os
import resource
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import accounts
import limits
import names

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
}  # fmt: skip
LOG = 50_000_000  # bytes of a log file
LONGEST = 40  # letters of HUB: the sockets of a kernel are below it, and Linux takes 107 letters
# What the teacher's account runs: like `nbgrader release_assignment`, for all chapters in one process. Then
# the files, and no links, go into the folder that students pull from.
RELEASE = """import shutil, sys
from pathlib import Path
from mha_course.grading.course import settings
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
    """Stop with one line if something is missing or unsafe.

    Raises:
        ValueError: the same, of the names and the certificate.
    """
    if os.geteuid() != 0:
        stop("only root can start servers as the students' accounts: sudo make hub")
    python = Path(sys.executable).resolve()
    if sys.version_info < (3, 11):  # noqa: UP036  it may be any Python that is called here
        stop("Python 3.11 or newer is needed: make hub PYTHON=python3.11")
    if closed := [folder for folder in python.parents if not folder.stat().st_mode & stat.S_IXOTH]:
        stop(f"students cannot run {python}, because {closed[0]} is closed: make hub PYTHON=/usr/bin/python3")
    if not all(map(importlib.util.find_spec, ("ensurepip", "venv"))):
        stop(f"{python} has no venv module: install it (on Debian and Ubuntu: apt install python3-venv)")
    if missing := sorted({package for program, package in NEEDED.items() if not shutil.which(program)}):
        stop(f"some programs are missing: apt install {' '.join(missing)}")
    names.check(settings)
    if opened := [name for name in ("HUB_PORT", "PROXY_PORT") if int(settings[name]) >= 1024]:
        stop(f"{opened[0]} must be below 1024, because students could take another port before the hub does")
    if len(settings["HUB"]) > LONGEST:
        stop(f"HUB is longer than {LONGEST} letters, too long for the sockets of kernels: {settings['HUB']}")
    try:
        limits.group("test", 2**30, 1.0)
    except OSError as error:
        if settings["STUDENT_MEMORY"] != "0":
            stop(f"no limits of memory can be set here ({error}): to go on without, say STUDENT_MEMORY=0")


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
    files = (path for name in ("mha_lab", "mha_course") for path in (ROOT / name).rglob("*"))
    package = sorted(path for path in files if path.is_file() and path.suffix != ".pyc")
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
    shutil.copy(here / "proxy.mjs", hub)
    etc = env / "etc" / "jupyter"
    (etc / "labconfig").mkdir(parents=True, exist_ok=True)
    for name in ("nbgrader_config.py", "jupyter_server_config.json", "jupyter_server_config.py"):
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
    layout = ["-m", "mha_course.grading", "layout", course, "--chapters", copies]
    run(python, *layout, cwd=hub, **as_teacher)
    stems = [chapter.stem for chapter in chapters]
    run(python, "-W", "ignore", "-c", RELEASE, pull, *stems, cwd=course, **as_teacher)
    inbound = hub / "exchange" / "attention" / "inbound"
    run("chmod", "+t", inbound, **as_teacher)  # t: nobody removes or renames what is another's
    git = ["git", "-C", pull, "-c", "user.name=the course", "-c", "user.email=nobody@localhost"]
    run("git", "init", "--quiet", "--initial-branch=main", pull, **as_teacher)
    run(*git, "add", "--all", **as_teacher)
    run(*git, "commit", "--quiet", "--allow-empty", "--message=The chapters", **as_teacher)
    (hub / "gitconfig").write_text(f"[safe]\n\tdirectory = {pull}\n\tdirectory = {pull}/.git\n")
    (hub / ".handed-out").write_text(new)


def proxy(settings: dict[str, str]) -> list[str]:
    """The command of proxy.mjs; its token is in the environment."""
    ip, port = names.listening(settings)
    asked = {"ip": ip, "port": port, "apiPort": int(settings["PROXY_PORT"])}
    asked |= {"hostRouting": not settings["ONE_NAME"], "cert": settings["CERT"], "key": settings["KEY"]}
    asked |= {"errorTarget": f"http://127.0.0.1:{settings['HUB_PORT']}/hub/error"}
    return ["node", f"{settings['HUB']}/proxy.mjs", json.dumps(asked)]


def shorten(log: Path, most: int = LOG) -> None:
    """Keep the newest part of a log in two files; each request of a student writes a line into it."""
    if log.stat().st_size > most:
        shutil.copy(log, log.with_suffix(".old"))
        os.truncate(log, 0)


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
            shorten(state / f"{name}.log")
        time.sleep(0.5)
    for name in ("hub", "proxy"):
        running[name].terminate()
        running[name].wait()


def main(file: str) -> None:
    """See the module."""
    settings = {name: os.environ.get(name) or usual for name, usual in SETTINGS.items()}
    settings["HUB_URL"] = settings["HUB_URL"].rstrip("/")
    try:
        look(settings)
    except ValueError as reason:
        stop(str(reason))
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
        shutil.copy(given, state / "class.csv")
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
    if lost := names.unknown(listed, settings):
        print(f"{len(lost)} names lead nowhere from here, such as {lost[0]}: the DNS entry with * is missing")
    if settings["ONE_NAME"]:
        print(f"ONE_NAME is set, so {names.OPEN}")
    print(f"the hub is at {settings['HUB_URL']}; Ctrl-C ends it; its log is {state / 'hub.log'}", flush=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a student can hold more connections than 1024
    with names.hold(settings):
        keep_running(commands, os.environ | settings | token | path, state)
    accounts.end(listed)


if __name__ == "__main__":
    main(sys.argv[1])
