"""Whether an answer names somebody of the class, so that it is not shown to the others.

Too many answers are held back rather than too few: another one is shown in their place. Only a reader can
find what no list has, such as a nickname, or a name in another script than that of the class list.
"""

import builtins
import keyword
import re
import tokenize
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import einops
import numpy
import torch
from torch.nn import functional

import mha_course
import mha_lab
from mha_course.grading.gradebook import Row

LONG = 4  # letters of a name that is looked for inside a word; a shorter one is looked for at its ends
SHORT = 2  # letters of a name that is looked for as a whole word
DIGITS = 5  # of a number that may be a student's
# Letters of Latin scripts that Unicode does not take apart.
APART = str.maketrans(
    dict(zip("øłđðıħŧæœþ", ["o", "l", "d", "d", "i", "h", "t", "ae", "oe", "th"], strict=True))
)
TYPED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})  # how some type them
ESCAPED = re.compile(r"\\(?:x\w\w|u\w{4}|U\w{8})")  # in a text of Python's: a character that is not shown
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Letters that are no Latin ones; a Greek letter or two is mathematics.
ANOTHER_SCRIPT = re.compile(r"[^\W\d_a-zα-ω]|[α-ω]{3}")


def words(rows: Iterable[Row]) -> set[str]:
    """The words of the class list: parts of names, of ids and of addresses, each as it may be typed."""
    found: set[str] = set()
    for row in rows:
        whole = f"{row.first_name} {row.last_name}", f"{row.last_name} {row.first_name}"
        for text in (row.student, row.email.partition("@")[0], *whole):
            for variant in _variants(text):
                one_by_one = re.findall(r"[^\W\d_]+", variant)
                # `O'Brien` is typed `obrien`, and `Li Na` may be `lina`.
                together = [re.sub(r"[\W\d_]", "", word) for word in (*variant.split(), variant)]
                found |= {*one_by_one, *together, *re.findall(rf"\d{{{DIGITS},}}", variant)}
    return {word for word in found if len(word) >= SHORT}


def names_nobody(code: str, listed: set[str]) -> bool:
    """Whether no word of the class list is in it, as a word or in one, and nothing in another script."""
    code = ESCAPED.sub("", code).replace("\\n", " ").replace("\\t", " ")
    for variant in _variants(CAMEL.sub("_", unicodedata.normalize("NFKD", code))):
        if ANOTHER_SCRIPT.search(variant) or not listed.isdisjoint(re.findall(r"\d+", variant)):
            return False
        if any(_names(word, listed) for word in set(re.findall(r"\w+", variant))):
            return False
    return True


def _names(word: str, listed: set[str]) -> bool:
    """Whether a name is in a word such as ``anna_split2``."""
    parts = re.findall(r"[^\W\d_]+", word)
    if any(part in listed and part not in _known(everything=len(part) <= SHORT) for part in parts):
        return True
    whole = "".join(parts)
    if len(parts) > 1 and len(whole) >= LONG and whole in listed:
        return True
    strange = [part for part in parts if part not in _known(everything=True)]
    looked_in = [*strange, whole] if len(strange) > 1 else strange
    # Canvas writes `lovelaceada` for Ada Lovelace.
    return any(_is_in(name, each) or _is_in(each, name) for name in listed for each in looked_in)


def _is_in(name: str, word: str) -> bool:
    return (
        name in word
        if len(name) >= LONG
        else len(name) > SHORT and word.startswith(name) | word.endswith(name)
    )


def _variants(text: str) -> set[str]:
    """A text without marks, capitals and what is not shown, as it may be typed."""
    text = unicodedata.normalize("NFC", text).casefold()
    return {_plain(text), _plain(text.translate(TYPED))}


def _plain(text: str) -> str:
    taken_apart = unicodedata.normalize("NFKD", text.translate(APART))
    return "".join(c for c in taken_apart if unicodedata.category(c) not in ("Mn", "Cf")).casefold()


@cache
def _known(everything: bool) -> frozenset[str]:
    """Words that name nobody: those of Python and its packages, and ``everything`` in the course's code."""
    places = builtins, torch, torch.Tensor, functional, numpy, einops
    found = {*keyword.kwlist, *(name for place in places for name in dir(place))}
    if everything:
        course = Path(mha_course.__file__).parent
        folders = Path(mha_lab.__file__).parent, course / "chapters", course / "exercises"
        for file in (file for folder in folders for file in folder.glob("*.py")):
            with tokenize.open(file) as opened:  # its names only: texts and comments are about people, too
                tokens = [*tokenize.generate_tokens(opened.readline)]
            found |= {token.string for token in tokens if token.type == tokenize.NAME}
        found = {part for word in found for part in re.findall(r"[^\W\d_]+", CAMEL.sub("_", word))}
    return frozenset(word.casefold() for word in found if not word.startswith("_"))
