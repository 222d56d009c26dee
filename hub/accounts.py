"""Makes a Unix account for each line of a class list: a CSV file with the columns that nbgrader imports.

New accounts get a random password, which is written into a file that only root can read. An account that
this hub did not make is never touched: a class list cannot name ``root``.
"""

import csv
import grp
import os
import pwd
import re
import secrets
import subprocess
from pathlib import Path

STUDENTS, TEACHERS = "mha-students", "mha-teachers"
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
# Addresses that get what is sent to 127.0.0.1, as the kernel's tables have them.
LISTENING = {
    "tcp": ("0100007F", "00000000"),
    "tcp6": ("0" * 32, "0" * 16 + "FFFF00000100007F", "0" * 16 + "FFFF000000000000"),
}
LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look like another one


def listed(file: Path) -> list[str]:
    """The column ``id`` of the class list.

    Raises:
        ValueError: there is no such column, or an id cannot be the name of an account.
    """
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.DictReader(lines)
        if "id" not in (rows.fieldnames or []):
            raise ValueError(f"{file} has no column `id` in its first line")
        names = [row["id"].strip() for row in rows]
    for name in names:
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{file}: {name!a} cannot be an account: use a to z, 0 to 9 and -, a letter first"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"{file}: an id is there twice")
    return names


def make(names: list[str], group: str, passwords: Path) -> list[str]:
    """Make the accounts that are missing, each with a closed home folder.

    Returns:
        the names of the new accounts. Their passwords are added to ``passwords``.

    Raises:
        ValueError: an account with this name exists, and this hub did not make it.
    """
    subprocess.run(["groupadd", "--force", "--system", group], check=True)
    ours, existing = set(grp.getgrnam(group).gr_mem), {account.pw_name for account in pwd.getpwall()}
    if strangers := sorted(set(names) & existing - ours):
        raise ValueError(f"these accounts exist and are not this hub's: {', '.join(strangers)}; rename them")
    new = [name for name in names if name not in existing]
    for name in new:
        options = ["--create-home", "--key", "HOME_MODE=0700", "--shell", "/bin/bash", "--groups", group]
        options += ["--key", "SUB_UID_COUNT=0"]  # no other numbers, whose processes `end` would not find
        subprocess.run(["useradd", *options, name], check=True)
        password = "".join(secrets.choice(LETTERS) for _ in range(12))
        subprocess.run(["chpasswd"], input=f"{name}:{password}\n", text=True, check=True)
        handle = os.open(passwords, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(handle, f"{name},{password}\n".encode())
        os.close(handle)
    for name in names:  # one that has left may be here again
        subprocess.run(["usermod", "--expiredate", "", name], check=True, capture_output=True)
    return new


def end(names: list[str]) -> None:
    """End all processes of these accounts, also what was detached from a server; root is refused.

    The account itself sends one signal to all that it runs: Linux then lets none of them start another one.
    """
    for name in names:
        if number := pwd.getpwnam(name).pw_uid:
            kill = ["setpriv", "--reuid", str(number), "--clear-groups", "kill", "-KILL", "-1"]
            subprocess.run(kill, check=False, capture_output=True)


def close(names: list[str]) -> None:
    """End what these accounts run, and let nobody log in as them; their files stay."""
    ours = [name for name in names if name in grp.getgrnam(STUDENTS).gr_mem]
    for name in ours:
        subprocess.run(["usermod", "--expiredate", "1", name], check=True)
    end(ours)


def owners(port: int, tables: Path = Path("/proc/net")) -> set[int]:
    """The user numbers of those who get what is sent to a port of 127.0.0.1.

    Who listens at all addresses of IPv6 gets it if nobody listens at one of IPv4.
    """
    for name, addresses in LISTENING.items():
        rows = [line.split() for line in (tables / name).read_text().splitlines()[1:]]
        here = {f"{address}:{port:04X}" for address in addresses}
        if found := {int(row[7]) for row in rows if row[1] in here and row[3] == "0A"}:
            return found
    return set()
