"""A Python that can reach no other machine, wherever the tests run."""

from pathlib import Path

NO_NETWORK = '''
"""Loaded by every Python that finds it on its path: no connection leaves this machine."""
import socket

def refuse(self, address, *rest):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise PermissionError(f"a chapter asked for the network: {address}")
    return connect(self, address, *rest)

def unknown(host, *rest, **options):
    if host not in ("127.0.0.1", "::1", "localhost", "", None):
        raise PermissionError(f"a chapter asked for the network: {host}")
    return getaddrinfo(host, *rest, **options)

connect, socket.socket.connect = socket.socket.connect, refuse
getaddrinfo, socket.getaddrinfo = socket.getaddrinfo, unknown
'''


def refusing(folder: Path) -> str:
    """What to set as PYTHONPATH: a Python that starts with it refuses every connection to another machine."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    return str(folder)
