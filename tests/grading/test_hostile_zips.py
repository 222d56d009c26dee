"""Zip files with names and contents that a student chose: nobody gets or loses a file."""

import io
import json
import re
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mha_course.grading.platforms import submissions
from mha_course.grading.shapes import Refused, pick

CHAPTER = "03_splitting_heads"
NAME = f"{CHAPTER}.ipynb"


OF = re.compile(rb'"of": "([^"]*)"')


def notebook(mark: str) -> bytes:
    return json.dumps({"cells": [], "metadata": {"of": mark}, "nbformat": 4, "nbformat_minor": 5}).encode()


def made(path: Path, files: list[tuple[str | zipfile.ZipInfo, bytes]], change=lambda data: data) -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    path.write_bytes(change(buffer.getvalue()))
    return path


def taken(path: Path) -> tuple[dict[str, str], list[str]]:
    """Whose file everybody got, and what was refused: each with a name and one line."""
    found, refused = {}, []
    for sent in submissions(path):
        try:
            if sent.reason:
                raise Refused(sent.reason)
            data = pick(sent.files, CHAPTER, [CHAPTER, "04_masking"]).data
            assert sent.student not in found
            found[sent.student] = of.group(1).decode() if (of := OF.search(data)) else "eve's nothing"
        except Refused:
            refused.append(sent.student)
    return found, refused


MOODLE = "{}_assignsubmission_file_/{}".format
EVE = [  # what Eve may call her file, or a folder in hers
    "Bob Stone_12_assignsubmission_file_/" + NAME,
    "../Bob Stone_12_assignsubmission_file_/" + NAME,
    "../../../../etc/cron.d/" + NAME,
    "..\\..\\Bob Stone_12_assignsubmission_file_\\" + NAME,
    "/Bob Stone_12_assignsubmission_file_/" + NAME,
    "C:\\" + NAME,
    "bobstone_12_9001_" + NAME,
    "\nBob Stone_12_assignsubmission_file_/" + NAME,
    "a\r\nBob Stone_12_assignsubmission_file_/" + NAME,
    "\u202e" + NAME,
    "./././" + NAME,
    NAME + "/.",
    NAME + " ",
    NAME + ".",
    "a" * 60_000 + NAME,
    "=cmd|'/c calc'!A0 " + NAME,
    "__MACOSX/" + NAME,
]  # fmt: skip


@pytest.mark.parametrize("flat", [False, True], ids=["folders", "flat"])
@pytest.mark.parametrize("number", range(len(EVE)))
def test_eve_gets_nobodys_place_in_moodle(tmp_path, number, flat):
    mine = EVE[number]
    name = (lambda who, file: f"{who}_assignsubmission_file_{file}") if flat else MOODLE
    path = made(tmp_path / "a.zip", [
        (name("Ada Byron_11", NAME), notebook("ada")),
        (name("Eve Long_13", mine), notebook("eve")),
        (name("Bob Stone_12", NAME), notebook("bob")),
    ])  # fmt: skip
    found, _ = taken(path)
    assert found.items() >= {"Ada Byron_11": "ada", "Bob Stone_12": "bob"}.items()
    assert {who for who, of in found.items() if of == "eve"} <= {"Eve Long_13"}
    assert set(found) <= {"Ada Byron_11", "Bob Stone_12", "Eve Long_13"}


CANVAS_EVE = [
    "bobstone_12_9002_" + NAME,
    "bobstone_LATE_12_9002_" + NAME,
    "12_9002_" + NAME,
    "../bobstone_12_9999_" + NAME,
    "/bobstone_12_9999_" + NAME,
    "Bob Stone_12_assignsubmission_file_/" + NAME,
    "Bob Stone_12_assignsubmission_file_" + NAME,
    "LATE_" + NAME,
    "_" + NAME,
]


@pytest.mark.parametrize("number", range(len(CANVAS_EVE)))
def test_eve_gets_nobodys_place_in_canvas(tmp_path, number):
    path = made(tmp_path / "a.zip", [
        (f"adabyron_11_9000_{NAME}", notebook("ada")),
        (f"evelong_13_9001_{CANVAS_EVE[number]}", notebook("eve")),
        (f"bobstone_12_9002_{NAME}", notebook("bob")),
        (f"carlrow_LATE_14_9003_{NAME}", notebook("carl")),
    ])  # fmt: skip
    found, _ = taken(path)
    assert found.items() >= {"adabyron_11": "ada", "bobstone_12": "bob", "carlrow_14": "carl"}.items()
    assert {who for who, of in found.items() if of == "eve"} <= {"evelong_13"}


@contextmanager
def at_most(megabytes: int) -> Iterator[None]:
    """What happens inside takes no more memory."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * 2**20
    finally:
        tracemalloc.stop()


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(MOODLE("Eve Long_13", NAME))
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


def marked(bit: int):
    """The last entry with this flag in its two headers."""

    def change(data: bytes) -> bytes:
        data = bytearray(data)
        for sign, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            at = data.rfind(sign) + offset
            struct.pack_into("<H", data, at, struct.unpack_from("<H", data, at)[0] | bit)
        return bytes(data)

    return change


def method(number: int):
    def change(data: bytes) -> bytes:
        data = bytearray(data)
        for sign, offset in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
            struct.pack_into("<H", data, data.rfind(sign) + offset, number)
        return bytes(data)

    return change


def needs(version: int):
    def change(data: bytes) -> bytes:
        data = bytearray(data)
        struct.pack_into("<H", data, data.rfind(b"PK\1\2") + 6, version)
        return bytes(data)

    return change


def moved(data: bytes) -> bytes:
    """The last entry says that it lies where the first one does."""
    data = bytearray(data)
    struct.pack_into("<I", data, data.rfind(b"PK\1\2") + 42, 0)
    return bytes(data)


def broken(data: bytes) -> bytes:
    data = bytearray(data)
    data[data.rfind(b"PK\3\4") + 14] ^= 255
    at = data.rfind(b"PK\1\2")
    data[at + 16] ^= 255
    return bytes(data)


def extra(data: bytes) -> bytes:
    """The last entry's extra field is cut off."""
    data = bytearray(data)
    at = data.rfind(b"PK\1\2")
    length = struct.unpack_from("<H", data, at + 28)[0]
    data[at + 46 + length : at + 46 + length] = b"\1\0\xff\xff"
    struct.pack_into("<H", data, at + 30, 4)
    end = data.rfind(b"PK\5\6")
    struct.pack_into("<I", data, end + 12, struct.unpack_from("<I", data, end + 12)[0] + 4)
    return bytes(data)


ODD = {
    "a link": (link(), b"../../gradebook.db", lambda data: data),
    "locked": (MOODLE("Eve Long_13", NAME), notebook("eve"), marked(1)),
    "strongly locked": (MOODLE("Eve Long_13", NAME), notebook("eve"), marked(0x40)),
    "patched": (MOODLE("Eve Long_13", NAME), notebook("eve"), marked(0x20)),
    "another method": (MOODLE("Eve Long_13", NAME), notebook("eve"), method(99)),
    "bzip2": (MOODLE("Eve Long_13", NAME), notebook("eve"), method(12)),
    "a newer version": (MOODLE("Eve Long_13", NAME), notebook("eve"), needs(99)),
    "a wrong sum": (MOODLE("Eve Long_13", NAME), notebook("eve"), broken),
    "where another lies": (MOODLE("Eve Long_13", NAME), notebook("eve"), moved),
    "a broken extra field": (MOODLE("Eve Long_13", NAME), notebook("eve"), extra),
    "a bomb": (MOODLE("Eve Long_13", NAME), bytes(300 * 2**20), lambda data: data),
    "no name": (MOODLE("Eve Long_13", "\0" + NAME), notebook("eve"), lambda data: data),
}


# A platform writes these fields, and no student. Python opens no such zip: the teacher reads one sentence.
BY_PLATFORM = "a newer version", "a broken extra field"


@pytest.mark.parametrize("name", ODD)
def test_an_odd_entry_costs_nobody_else_anything(tmp_path, name):
    place, content, change = ODD[name]
    path = made(tmp_path / "a.zip", [
        (MOODLE("Ada Byron_11", NAME), notebook("ada")),
        (MOODLE("Bob Stone_12", NAME), notebook("bob")),
        (place, content),
    ], change)  # fmt: skip
    with at_most(200):
        if name in BY_PLATFORM:
            with pytest.raises(Refused, match=r"^it cannot be read: "):
                taken(path)
            return
        found, _ = taken(path)
    assert found.items() >= {"Ada Byron_11": "ada", "Bob Stone_12": "bob"}.items()
    assert found.get("Eve Long_13", "eve").startswith("eve")


def packed(files: list[tuple[str, bytes]], change=lambda data: data) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return change(buffer.getvalue())


def bomb() -> bytes:
    return packed([(f"{i}/{NAME}", bytes(20 * 2**20)) for i in range(30)])


MINE = NAME, notebook("eve")
ZIPS = {  # what Eve may hand in as `homework.zip`
    "a bomb of many": bomb,
    "a bomb in a bomb": lambda: packed([(f"{name}.zip", bomb()) for name in "ab"]),
    "in itself": lambda: packed([("a.zip", packed([("a.zip", packed([MINE]))]))]),
    "no end": lambda: packed([MINE])[:-30],
    "an end that lies": lambda: packed([MINE], lambda data: data[:-14] + b"\xff" * 4 + data[-10:]),
    "zip64 that lies": lambda: packed(
        [MINE],
        lambda data: data[:-22]
        + b"PK\6\6" + b"\xff" * 52 + b"PK\6\7" + b"\xff" * 16 + b"PK\5\6" + b"\xff" * 18,
    ),
    "not a zip": lambda: b"Rar!\x1a\7\0" * 999,
    "many directories": lambda: b"PK\1\2" * 5_000_000,
    "names in it": lambda: packed([(f"../../Bob Stone_12/{NAME}", notebook("eve"))]),
    "two of one name": lambda: packed([MINE, MINE, (NAME.upper(), b"{")]),
    "locked": lambda: packed([MINE], marked(1)),
    "a newer version": lambda: packed([MINE], needs(99)),
    "a broken extra field": lambda: packed([MINE], extra),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ZIPS)
def test_a_zip_in_the_zip_costs_nobody_else_anything(tmp_path, name):
    path = made(tmp_path / "a.zip", [
        (MOODLE("Ada Byron_11", NAME), notebook("ada")),
        (MOODLE("Eve Long_13", "homework.zip"), ZIPS[name]()),
        (MOODLE("Bob Stone_12", NAME), notebook("bob")),
    ])  # fmt: skip
    begin = time.monotonic()
    with at_most(200):
        found, _ = taken(path)
    assert found.items() >= {"Ada Byron_11": "ada", "Bob Stone_12": "bob"}.items()
    assert found.get("Eve Long_13", "eve").startswith("eve")
    assert time.monotonic() - begin < 30


TWINS = [
    ("Eve Long_13", "eve long_13"),
    ("Zo\u00eb_13", "Zoe\u0308_13"),
    ("Eve: Long_13", "Eve- Long_13"),
    ("Eve\u200b Long_13", "Eve Long_13"),
    ("Eve  Long_13", "Eve Long_13"),
    ("ﬁn_13", "fin_13"),
    ("Straße_13", "STRASSE_13"),
]


@pytest.mark.parametrize("twins", TWINS)
def test_of_two_names_that_look_alike_nobody_gets_the_file_of_the_other(tmp_path, twins):
    path = made(tmp_path / "a.zip", [
        (MOODLE("Ada Byron_11", NAME), notebook("ada")),
        *((MOODLE(who, NAME), notebook(ascii(who))) for who in twins),
    ])  # fmt: skip
    found, refused = taken(path)
    assert found.pop("Ada Byron_11") == "ada"
    assert len(found) == 2 or len(refused) == 1
    assert len(found) + len(refused) >= 1
