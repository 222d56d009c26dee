"""The hub of one class on one machine. `make hub` starts it; start.py sets the variables that are read here.

Who may do what: each student is a Unix account, so Linux keeps home folders, processes and submissions
apart. The hub runs as root, because only root can start a server as somebody else.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

from jupyterhub.spawner import LocalProcessSpawner
from jupyterhub.utils import wait_for_http_server

sys.path.insert(0, str(Path(__file__).parent))
import accounts
import limits

c = get_config()
HUB = Path(os.environ["HUB"])
STATE, ENV = HUB / "state", HUB / "env"
TEACHER = os.environ["TEACHER"]
# In bytes, because JupyterHub does not read "0", which is for a machine that cannot set limits.
STUDENT_MEMORY, TEACHER_MEMORY = (
    limits.in_bytes(os.environ[f"{who}_MEMORY"]) for who in ("STUDENT", "TEACHER")
)

# Who may log in: the accounts of the class list, with the passwords of this machine (PAM). A student changes
# the password with the command `passwd` in a terminal of JupyterLab.
# For the accounts of a university, put its OAuth or LTI here, and keep the three lines below:
#   pip install oauthenticator, c.JupyterHub.authenticator_class = "generic-oauth"
#   pip install jupyterhub-ltiauthenticator, c.JupyterHub.authenticator_class = "lti13"
# The names that it returns must be the ids of the class list: c.Authenticator.username_map renames them.
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allowed_users = {*accounts.listed(Path(os.environ["CLASS"])), TEACHER}
c.Authenticator.allow_existing_users = False  # a line deleted from the class list ends the access
c.Authenticator.admin_users = {TEACHER}

# Where it listens. Only the proxy is reached from outside, and start.py starts it, with TLS if there is a
# certificate. The proxy is not a child of the hub: kernels stay connected while the hub starts again.
c.JupyterHub.bind_url = os.environ["HUB_URL"]
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

    async def start(self):
        if self.user.name == TEACHER:  # who grades there, several submissions at a time
            self.mem_limit = min(STUDENT_MEMORY, 1) * TEACHER_MEMORY  # none if students have none
            self.cpu_limit = float(os.cpu_count())
        async with self.turns:
            ip, port = await super().start()
            with suppress(TimeoutError):  # then the hub waits once more, and says what is wrong
                await wait_for_http_server(f"http://{ip}:{port}{self.server.base_url}api", timeout=60)
        return ip, port

    def make_preexec_fn(self, name):
        """What runs between fork and exec, still as root."""
        become, entries = super().make_preexec_fn(name), []
        if self.mem_limit and self.cpu_limit:
            entries = limits.group(name, self.mem_limit, self.cpu_limit)

        def prepare():
            limits.enter(entries)
            os.umask(0o077)
            become()

        return prepare


# A student's server. `mem_limit` and `cpu_limit` are enforced by limits.py.
c.JupyterHub.spawner_class = ClassSpawner
c.Spawner.cmd = [str(ENV / "bin" / "jupyterhub-singleuser")]
c.Spawner.ip = "127.0.0.1"
c.Spawner.notebook_dir = "~"
c.Spawner.mem_limit = STUDENT_MEMORY
c.Spawner.cpu_limit = float(os.environ["STUDENT_CPU"])
c.Spawner.start_timeout = 900  # with the time in which it waits for its turn
c.Spawner.http_timeout = 120
c.JupyterHub.concurrent_spawn_limit = 60
c.Spawner.env_keep = ["LANG", "LC_ALL"]
c.Spawner.environment = {
    "PATH": f"{ENV / 'bin'}:/usr/local/bin:/usr/bin:/bin",
    "OMP_NUM_THREADS": "1",  # with one processor for each student, more threads only wait
    "GIT_CONFIG_SYSTEM": str(HUB / "gitconfig"),  # says that the folder of the chapters may be cloned
}
# The first page of a server: nbgitpuller copies the chapters, later the corrections, and opens chapter 00.
PULL = {
    "repo": f"file://{HUB / 'chapters'}",
    "branch": "main",
    "targetpath": "attention",
    "urlpath": "lab/tree/attention/00_start_here/00_start_here.ipynb",
}
c.Spawner.default_url = "/git-pull?" + urlencode(PULL)

# A server without activity for an hour ends, and gives its memory back. Files stay.
c.JupyterHub.load_roles = [
    {
        "name": "culler",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["culler"],
    }
]
CULL = ["-m", "jupyterhub_idle_culler", f"--timeout={os.environ['IDLE_SECONDS']}", "--cull-every=60"]
# setpriv: the culler ends with the hub, even if the hub is killed.
c.JupyterHub.services = [
    {"name": "culler", "command": ["setpriv", "--pdeathsig", "TERM", sys.executable, *CULL]}
]
