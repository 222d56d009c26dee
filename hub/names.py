"""The name of the hub, the names of the servers below it, and the certificate for both.

A browser keeps pages of different names apart, and lets pages of one name act for each other. So each server
has a name of its own: if the hub is at hub.example.org, that of ada is at ada.hub.example.org.
"""

import re
import socket
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

OPEN = "a page of one student that another student or the teacher opens can do everything with that account"
WILDCARD = """{fault}
  A browser lets pages of one name act for each other, so each server has its own, such as {name}.{host}.
  Ask for a DNS entry *.{host} that leads to this machine, as {host} does.
  Ask for a certificate that names {host} and *.{host}, and set CERT and KEY to its two files.
  Without them, ONE_NAME=yes starts the hub under one name. Then {open}."""


def listening(settings: dict[str, str]) -> tuple[str, int]:
    """Address and port of the proxy: LISTEN, or 127.0.0.1 and the port of HUB_URL."""
    url, listen = urlsplit(settings["HUB_URL"]), urlsplit("//" + settings["LISTEN"])
    return listen.hostname or "127.0.0.1", listen.port or url.port or {"http": 80, "https": 443}[url.scheme]


def hold(settings: dict[str, str]) -> socket.socket:
    """The port of the proxy at ::1, which is localhost, too: nobody can listen there while this is held."""
    address, port = listening(settings)
    held = socket.socket(socket.AF_INET6)
    with suppress(OSError):  # no IPv6 here, or the proxy has it
        if address.startswith("127."):
            held.bind(("::1", port))
    return held


def check(settings: dict[str, str]) -> None:
    """Look whether passwords can be read on the way, and whether the certificate names each server.

    Raises:
        ValueError: one or the other, with what to ask for.
    """
    url, cert, key = urlsplit(settings["HUB_URL"]), settings["CERT"], settings["KEY"]
    host = url.hostname or ""
    if url.scheme not in ("http", "https") or not host or url.path.strip("/"):
        raise ValueError(f"HUB_URL is an address such as https://hub.example.org, not {settings['HUB_URL']}")
    if bool(cert) != bool(key) or (cert and url.scheme != "https"):
        raise ValueError("a certificate needs CERT, KEY, and a HUB_URL that begins with https://")
    closed = url.scheme == "https" or host == "localhost" or host.startswith("127.")
    if not cert and not (closed and listening(settings)[0].startswith("127.")):
        raise ValueError(
            "passwords would cross the network in the clear: set CERT and KEY, or keep 127.0.0.1"
        )
    own = f"{settings['TEACHER']}.{host}"  # stands for all servers
    told = {"name": settings["TEACHER"], "host": host, "open": OPEN}
    if not settings["ONE_NAME"] and not re.search("[a-z]", host):
        raise ValueError(WILDCARD.format(fault=f"{host} is a number, without names below it", **told))
    for name in ([host] if settings["ONE_NAME"] else [host, own]) if cert else []:
        try:
            shake_hands(cert, key, name)
        except ssl.SSLCertVerificationError as error:
            fault = f"the certificate {cert} is refused for {name}: {error.verify_message}"
            raise ValueError(
                fault if settings["ONE_NAME"] else WILDCARD.format(fault=fault, **told)
            ) from error
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"{cert} and {key} are not a certificate and its key: {error}") from error


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


def unknown(accounts: list[str], settings: dict[str, str]) -> list[str]:
    """The names of servers that lead nowhere from this machine; browsers know those below localhost."""
    host, lost = urlsplit(settings["HUB_URL"]).hostname, []
    for account in accounts if not settings["ONE_NAME"] and host != "localhost" else []:
        try:
            socket.getaddrinfo(f"{account}.{host}", None)
        except OSError:
            lost.append(f"{account}.{host}")
    return lost
