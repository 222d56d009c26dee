"""The hub of one class on one machine. `make hub` starts it; start.py sets the variables that are read here.

Who may do what: each student is a Unix account, so Linux keeps home folders, processes and submissions
apart. The hub runs as root, because only root can start a server as somebody else.
"""

import asyncio
import os
import pwd
import resource
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from jupyterhub.auth import PAMAuthenticator
from jupyterhub.handlers.login import LoginHandler
from jupyterhub.spawner import LocalProcessSpawner
from jupyterhub.utils import wait_for_http_server
from tornado.httpserver import HTTPServer
from tornado.web import Finish, HTTPError

sys.path.insert(0, str(Path(__file__).parent))
import accounts
import limits

c = get_config()
HUB = Path(os.environ["HUB"])
STATE, ENV, PRIVATE = HUB / "state", HUB / "env", HUB / "private"
TEACHER = os.environ["TEACHER"]
# In bytes, because JupyterHub does not read "0", which is for a machine that cannot set limits.
STUDENT_MEMORY, TEACHER_MEMORY = (
    limits.in_bytes(os.environ[f"{who}_MEMORY"]) for who in ("STUDENT", "TEACHER")
)


class OwnLogin(LoginHandler):
    """The log-in page, at the hub's name only, and with its own form only.

    The hub also answers at the names of the servers. Who logged in there would give the hub's cookie to the
    pages of that student. And a form in such a page could log its visitor in as the student.
    """

    async def prepare(self):
        there, hub = urlsplit(f"//{self.request.host}"), os.environ["HUB_URL"]
        if not os.environ["ONE_NAME"] and there.hostname != urlsplit(hub).hostname:
            return self.redirect(hub + self.request.uri)
        await super().prepare()
        site = self.request.headers.get("Sec-Fetch-Site", "none")
        if self.request.method == "POST" and site not in ("none", "same-origin"):
            raise HTTPError(403, "Log in with the form on this page.")

    def check_xsrf_cookie(self):
        """A page can set a token of another form for all names, before which ours is not read: delete it."""
        try:
            super().check_xsrf_cookie()
        except HTTPError as wrong:
            self.set_header("Clear-Site-Data", '"cookies"')
            self.redirect(self.request.uri)
            raise Finish from wrong


# Who may log in: the accounts of the class list, with the passwords of this machine (PAM). A student changes
# the password with the command `passwd` in a terminal of JupyterLab.
# For the accounts of a university, put its OAuth or LTI here, as the class that ClassAuthenticator extends:
#   pip install oauthenticator: oauthenticator.generic.GenericOAuthenticator
#   pip install jupyterhub-ltiauthenticator: ltiauthenticator.lti13.auth.LTI13Authenticator
# The names that it returns must be the ids of the class list: c.Authenticator.username_map renames them.
class ClassAuthenticator(PAMAuthenticator):
    """Knows who is on the class list now, at each log-in and request; class_list.py keeps a good list."""

    turns: ClassVar = defaultdict(asyncio.Lock)

    async def authenticate(self, handler, data):
        """PAM takes seconds for a wrong password. One at a time for each name: no name waits for others."""
        if not self.check_allowed(name := data["username"]):
            return await asyncio.sleep(3)
        async with self.turns[name]:
            return await super().authenticate(handler, data)

    def check_allowed(self, username, authentication=None):
        return username == TEACHER or username in accounts.listed(STATE / "class.csv")

    def get_handlers(self, app):
        return [("/login", OwnLogin), *super().get_handlers(app)]

    async def refresh_user(self, user, handler=None):
        return self.check_allowed(user.name)


c.JupyterHub.authenticator_class = ClassAuthenticator
c.Authenticator.allow_existing_users = False
c.ClassAuthenticator.executor_threads = 300  # at most one of each name is busy
c.Authenticator.auth_refresh_age = 1  # seconds until the list is asked again
c.Authenticator.auth_refresh_strict = True  # what is refused is not kept for tokens either
# Nobody is an admin of the hub: grading needs no such rights, and they open every account. The role is here
# with an empty list because the database of an older hub may remember somebody.
ADMINS = {"name": "admin", "users": [], "services": []}

# Where it listens. Only the proxy is reached from outside, and start.py starts it, with TLS if there is a
# certificate. The proxy is not a child of the hub: kernels stay connected while the hub starts again.
c.JupyterHub.bind_url = os.environ["HUB_URL"]
# A browser keeps pages of different names apart, and lets pages of one name act for each other. So the hub
# has a name, and each server has another one below it: a page that a student writes can do nothing with the
# account of whoever opens it. With __Host-, a page cannot set these cookies for other names; this needs TLS.
if not os.environ["ONE_NAME"]:
    c.JupyterHub.subdomain_host = os.environ["HUB_URL"]
    c.JupyterHub.cookie_host_prefix_enabled = os.environ["HUB_URL"].startswith("https:")
# What anybody sends is read into root's memory, and notes of tokens and options of servers into its database.
# Who opens a connection and sends nothing, or only the beginning of a request, keeps it for these seconds.
HTTPServer.configure(None, max_body_size=2**16, idle_connection_timeout=20, body_timeout=20)
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{os.environ['HUB_PORT']}"
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{os.environ['PROXY_PORT']}"
c.ConfigurableHTTPProxy.auth_token = os.environ["CONFIGPROXY_AUTH_TOKEN"]
c.JupyterHub.last_activity_interval = 5  # seconds, until a proxy that was started again knows all servers
c.JupyterHub.db_url = f"sqlite:///{STATE / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")
# Ctrl-C ends the students' servers, too. A hub that was killed leaves them running.
c.JupyterHub.cleanup_servers = True


class ClassSpawner(LocalProcessSpawner):
    """Starts a server as its student, within limits, with files that nobody else can read."""

    # If a whole class comes at once, a few servers start while the others wait for their turn. If all start
    # at the same time, each takes as long as all of them together, and the hub gives them up.
    turns = asyncio.Semaphore(os.cpu_count() + 1)

    @property
    def private(self):
        """A folder of the account, below one in which only root can make names."""
        return PRIVATE / str(pwd.getpwnam(self.user.name).pw_uid)

    def get_env(self):
        """What programs put into /tmp by a name that others can guess goes into the private folder."""
        places = ("TMPDIR", "XDG_RUNTIME_DIR", "JUPYTER_RUNTIME_DIR")
        return super().get_env() | dict.fromkeys(places, str(self.private))

    async def start(self):
        account = pwd.getpwnam(self.user.name)
        self.private.mkdir(mode=0o700, exist_ok=True)
        os.chown(self.private, account.pw_uid, account.pw_gid)
        if self.user.name == TEACHER:  # who grades there, several submissions at a time
            self.mem_limit = min(STUDENT_MEMORY, 1) * TEACHER_MEMORY  # none if students have none
            self.cpu_limit = float(os.cpu_count())
        async with self.turns:
            ip, port = await super().start()
            up = f"http://{ip}:{port}{self.server.base_url}api"
            with suppress(TimeoutError):  # then it waits once more, while others start
                await self.answers(up, 60)
        await self.answers(up, self.http_timeout)
        if (owners := accounts.owners(port)) != {account.pw_uid}:
            raise RuntimeError(f"port {port} of {self.user.name} was taken by {owners}")
        return ip, port

    async def answers(self, address, seconds):
        """Wait until the server answers; one that has ended never will."""
        answer = asyncio.ensure_future(wait_for_http_server(address, timeout=seconds))
        while not answer.done():
            if (status := await super().poll()) is not None:
                answer.cancel()
                raise RuntimeError(f"the server of {self.user.name} ended with {status}: see ~/.server.log")
            await asyncio.wait([answer], timeout=1)
        answer.result()

    async def poll(self):
        """A server whose port somebody else has taken has ended: the visitors would be theirs."""
        status = await super().poll()
        if status is None and self.server and self.server.port:
            ours = pwd.getpwnam(self.user.name).pw_uid
            return 1 if accounts.owners(self.server.port) - {ours} else None
        return status

    async def run_post_stop_hook(self):
        """Nothing of a student goes on when the server has ended; the teacher may be grading."""
        if (name := self.user.name) != TEACHER:
            await asyncio.to_thread(accounts.end, [name])
            # Without the hub's environment: what runs as the student can be read by the student.
            mine = ["find", str(self.private), "/dev/shm", "-mindepth", "1", "-user", name, "-delete"]
            options = {"cwd": "/", "env": {"PATH": "/usr/sbin:/usr/bin"}, "capture_output": True}
            await asyncio.to_thread(subprocess.run, ["runuser", "-u", name, "--", *mine], **options)

    def make_preexec_fn(self, name):
        """What runs between fork and exec, still as root."""
        become, entries = super().make_preexec_fn(name), []
        if self.mem_limit and self.cpu_limit:
            entries = limits.group(name, self.mem_limit, self.cpu_limit)

        def prepare():
            limits.enter(entries)
            resource.setrlimit(resource.RLIMIT_NOFILE, (limits.FILES, limits.FILES))
            os.umask(0o077)
            become()

        return prepare


# A student's server. `mem_limit` and `cpu_limit` are enforced by limits.py.
c.JupyterHub.spawner_class = ClassSpawner
c.Spawner.ip = "127.0.0.1"
c.Spawner.notebook_dir = "~"
c.Spawner.mem_limit = STUDENT_MEMORY
c.Spawner.cpu_limit = float(os.environ["STUDENT_CPU"])
c.Spawner.start_timeout = 900  # with the time in which it waits for its turn
c.Spawner.http_timeout = 120
c.Spawner.poll_interval = 5  # seconds between two looks at a server's process and at who has its port
c.JupyterHub.concurrent_spawn_limit = 60
c.Spawner.env_keep = ["LANG", "LC_ALL"]
c.Spawner.environment = {
    "PATH": f"{ENV / 'bin'}:/usr/local/bin:/usr/bin:/bin",
    "OMP_NUM_THREADS": "1",  # with one processor for each student, more threads only wait
    "GIT_CONFIG_SYSTEM": str(HUB / "gitconfig"),  # says that the folder of the chapters may be cloned
}
# Before a server starts, nbgitpuller copies the chapters, later the corrections. Its page in the server is
# off: there, a link would bring whatever it names into the folders of whoever opens it.
# What a server prints goes into a file of its student, and not into the hub's log, which has no quota.
PULL = f"""exec >.server.log 2>&1; timeout 120 gitpuller "file://$0" main attention
exec {ENV}/bin/jupyterhub-singleuser "$@\""""
c.Spawner.cmd = ["sh", "-c", PULL, str(HUB / "chapters")]
c.Spawner.default_url = "/lab/tree/attention/00_start_here/00_start_here.ipynb"

# A server without activity for an hour ends, and gives its memory back. Files stay.
c.JupyterHub.load_roles = [
    ADMINS,
    {
        "name": "culler",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["culler"],
    },
    {
        "name": "class-list",
        "scopes": ["list:users", "delete:users", "delete:servers"],
        "services": ["class-list"],
    },
]
PROGRAMS = {
    "culler": ["-m", "jupyterhub_idle_culler", f"--timeout={os.environ['IDLE_SECONDS']}", "--cull-every=60"],
    "class-list": [
        str(Path(__file__).with_name("class_list.py")),
        os.environ["CLASS"],
        TEACHER,
        STATE / "passwords.csv",
    ],
}
# setpriv: both end with the hub, even if the hub is killed.
c.JupyterHub.services = [
    {"name": name, "command": ["setpriv", "--pdeathsig", "TERM", sys.executable, *map(str, words)]}
    for name, words in PROGRAMS.items()
]
