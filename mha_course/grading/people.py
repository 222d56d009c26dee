"""Names of people, as names of folders and in a terminal."""

import unicodedata

# Two marks that are not shown, and without which some names are misspelt, as in Persian and Sinhala.
JOINERS = "\u200c\u200d"
APOSTROPHES = "'’‘ʼ"
ODD = set('[]{}*?\\/"<>|:;=')  # nbgrader, Windows or a shell reads more into these
MAX_BYTES = 160  # of the name of a folder; the number of a platform comes on top
MAX_NUMBER = 40  # bytes of the number of a platform, with which a name still fits into that of a record
NAMELESS = "student"


def bad_name(name: str) -> str:
    """Why a folder's name cannot be a student's; empty if it can."""
    if any(not _can_be_shown(c) for c in name):
        return "its name has a character that cannot be shown; rename the folder"
    if name != _stripped(name):
        return "its name begins or ends with a blank; rename the folder"
    if not _begins(name):
        return "its name must begin with a letter or a digit; rename the folder"
    if odd := sorted(set(name) & ODD):
        return f"its name contains {' '.join(odd)}; rename the folder"
    if len(name.encode()) > MAX_BYTES + 1 + MAX_NUMBER:
        return "its name is too long; rename the folder"
    return ""


def folder_name(given: str) -> str:
    """The name of the folder for somebody whom a platform calls so: a name that ``bad_name`` accepts.

    Nobody can rename a folder in a platform's zip file. A name that needs no change gets none.

    Args:
        given: a name, and in most cases ``_`` and the platform's number, which stays as it is.
    """
    if given.isprintable() and not bad_name(given) and len(given.encode()) <= MAX_BYTES:
        return given
    name, mark, number = given.rpartition("_")
    if not mark or not number.isalnum() or len(number.encode()) > MAX_NUMBER:
        name, mark, number = given, "", ""
    name = " ".join(unicodedata.normalize("NFC", name).split())
    name = "".join("-" if c in ODD else c for c in name if _can_be_shown(c))
    while name and not _begins(name):
        name = name[1:]
    name = _stripped(name.encode("utf-8", "ignore")[:MAX_BYTES].decode("utf-8", "ignore"))
    return f"{name or NAMELESS}{mark}{number}"


def shown(text: str) -> str:
    """A text of somebody else, for a terminal."""
    return "".join(c if _can_be_shown(c) else "?" for c in text)


def _can_be_shown(c: str) -> bool:
    return c.isprintable() or c in JOINERS or c == "\u00a0"


def _stripped(name: str) -> str:
    return name.strip(f" \u00a0{JOINERS}")


def _begins(name: str) -> bool:
    return name[:1].isalnum() or name[:1] in {*APOSTROPHES, "("}
