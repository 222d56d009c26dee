"""Keeps the running hub and the class list the same: a service that the hub starts, as root.

A new line gets an account. A name that has left loses, within seconds, its server with all processes, its
cookies and its tokens. Its account stays, with its files, but nobody can use it until the name is on the list
again. A list that cannot be read changes nothing.
"""

import json
import os
import shutil
import sys
import time
import urllib.request
from pathlib import Path

import accounts

EVERY = 1  # seconds between two looks; a list counts when two looks find the same one


def hub(method: str, path: str):
    """A request to the hub's own interface."""
    headers = {"Authorization": f"token {os.environ['JUPYTERHUB_API_TOKEN']}"}
    request = urllib.request.Request(os.environ["JUPYTERHUB_API_URL"] + path, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read() or "null")


def same(file: Path, teacher: str, passwords: Path) -> None:
    """Keep the list for the hub, make its accounts, and end those of the hub's users who are not on it.

    Raises:
        ValueError: the list cannot be used.
        OSError: the list cannot be read, or the hub does not answer.
    """
    listed = accounts.listed(file)
    good = passwords.with_name("class.csv")
    shutil.copy(file, good.with_suffix(".new"))
    good.with_suffix(".new").replace(good)
    accounts.make(listed, accounts.STUDENTS, passwords)
    left = [user["name"] for user in hub("GET", "/users") if user["name"] not in {*listed, teacher}]
    accounts.close(left)
    for name in left:
        hub("DELETE", f"/users/{name}")
        print(f"{name} has left the class list", flush=True)


def main(file: Path, teacher: str, passwords: Path) -> None:
    """Look again and again."""
    done = seen = said = None
    while True:
        try:
            now = file.read_bytes()
            if now == seen != done:
                same(file, teacher, passwords)
                done = now
            seen, said = now, None
        except (OSError, ValueError) as reason:
            if said != (said := str(reason)):
                print(f"the class list and the hub are not the same yet: {reason}", flush=True)
        time.sleep(EVERY)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
