"""What learners hand in, and what somebody who means harm may: names, folders and zip files, as data.

A shape is a dictionary: the name of each file, and what is in it. A text stands for a notebook that says so;
bytes are taken as they are. Each shape is put among the files of a class, whose own files must stay theirs.
"""

import io
import json
import zipfile
from dataclasses import dataclass

C = "03_splitting_heads"
OLD, NEW = (2026, 11, 1, 8, 0, 0), (2026, 11, 2, 8, 0, 0)


def notebook(mark: str) -> bytes:
    """A notebook whose only cell says this."""
    cell = {"cell_type": "code", "source": mark, "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}).encode()


@dataclass(frozen=True)
class Newer:
    """What is in a file that was changed a day after the others."""

    content: str | bytes


@dataclass(frozen=True)
class Link:
    """In the place of a file, a link to another one."""

    to: str


@dataclass(frozen=True)
class Shape:
    """Files, and who has what in the end; ``said`` is a part of what the teacher reads."""

    files: dict[str, object]
    has: dict[str, str]
    said: str = ""
    unflagged: bool = False  # the names in the zip file are UTF-8, and it does not say so


def pack(files: dict[str, object], unflagged: bool = False, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip file of these."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo("x", NEW if isinstance(content, Newer) else OLD)
            info.filename = name.encode().decode("latin-1") if unflagged else name
            info.compress_type = compression
            content = content.content if isinstance(content, Newer) else content
            if isinstance(content, Link):
                info.external_attr, content = 0o120777 << 16, content.to.encode()
            archive.writestr(info, notebook(content) if isinstance(content, str) else content)
    return out.getvalue() if not unflagged else _unflagged(files, compression)


def _unflagged(files: dict[str, object], compression: int) -> bytes:
    """The same without the mark that says that names are UTF-8, as some programs write it."""

    class Info(zipfile.ZipInfo):
        def _encodeFilenameFlags(self) -> tuple[bytes, int]:
            return self.filename.encode(), self.flag_bits & ~0x800

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(Info(name, OLD), notebook(content))
    return out.getvalue()


A = "Ada Lovelace_4711"
F = f"{A}_assignsubmission_file"


def one(*names: str) -> Shape:
    """Ada's only file, or the files of which the last is hers and the others do not count."""
    return Shape({f"{F}/{name}": "ada" if name == names[-1] else "not this" for name in names}, {A: "ada"})


def of(student: str, id_: str = "") -> Shape:
    """A file of somebody with this name."""
    return Shape({f"{student}_assignsubmission_file/{C}.ipynb": "x"}, {id_ or student: "x"})


NOTHING = b""
WIDE = {
    name: notebook("ada").decode().encode(name) for name in ("utf-16", "utf-16-be", "utf-32", "utf-8-sig")
}
MOODLE = {
    "as it was handed out": one(f"{C}.ipynb"),
    "an older Moodle": Shape({f"{F}_/{C}.ipynb": "ada"}, {A: "ada"}),
    "without folders": Shape({f"{F}_{C}.ipynb": "ada"}, {A: "ada"}),
    "without folders, renamed": Shape({f"{F}_Copy of {C} (1).ipynb": "ada"}, {A: "ada"}),
    "a browser's copy": one(f"{C} (1).ipynb"),
    "Safari's copy": one(f"{C}-2.ipynb"),
    "a Windows copy": one(f"{C} - Copy.ipynb"),
    "a German Windows copy": one(f"{C} - Kopie (2).ipynb"),
    "a JupyterLab copy": one(f"{C}-Copy1.ipynb"),
    "Google's copy": one(f"Copy of {C}.ipynb"),
    "Google's French copy": one(f"Copie de {C}.ipynb"),
    "Google's German copy": one(f"Kopie von {C}.ipynb"),
    "a Chinese copy": one(f"{C} - 副本.ipynb"),
    "a Russian copy": one(f"{C} — копия.ipynb"),
    "initials": one(f"{C}_An.ipynb"),
    "final": one(f"{C}_final.ipynb"),
    "a name in front": one(f"AL-{C}.ipynb"),
    "a date": one(f"2026-11-28_{C}_28.11.2026.ipynb"),
    "upper case": one(f"{C.upper()}.IPYNB"),
    "blanks": one("03 Splitting Heads.ipynb"),
    "without the number": one("Splitting_heads.ipynb"),
    "a browser's json": one(f"{C}.ipynb.json"),
    "a browser's txt": one(f"{C}.ipynb.txt"),
    "only json": one(f"{C}.json"),
    "twice the ending": one(f"{C}.ipynb.ipynb"),
    "a number after the ending": one(f"{C}.ipynb (1)"),
    "another name": one("homework.ipynb"),
    "notes beside it": Shape({f"{F}/{C}.ipynb": "ada", f"{F}/notes.ipynb": Newer("notes")}, {A: "ada"}),
    **{
        f"{name} beside what was handed out": Shape(
            {f"{F}/{C}.ipynb": "not this", f"{F}/{C} (1).ipynb": Newer(data)}, {A: data}
        )
        for name, data in WIDE.items()
    },
    "of macOS": Shape(
        {
            f"{F}/{C}.ipynb": "ada",
            f"{F}/._{C}.ipynb": Newer(b"\0\5\x16\7"),
            f"{F}/.DS_Store": b"x",
            f"__MACOSX/{F}/._{C}.ipynb": Newer(b"\0\5\x16\7"),
        },
        {A: "ada"},
    ),
    "a checkpoint": Shape(
        {f"{F}/{C}.ipynb": "ada", f"{F}/.ipynb_checkpoints/{C}-checkpoint.ipynb": Newer("old")}, {A: "ada"}
    ),
    "folders": one(f"attention/{C}/{C}.ipynb"),
    "a zip file in it": Shape({f"{F}/03.zip": pack({f"{C}.ipynb": "ada"})}, {A: "ada"}),
    "a folder in a zip file in it": Shape(
        {
            f"{F}/Ada.zip": pack(
                {f"Ada/{C}/{C} (1).ipynb": "ada", f"__MACOSX/Ada/._{C}.ipynb": Newer(b"x"), "Ada/": NOTHING}
            )
        },
        {A: "ada"},
    ),
    "a zip file of the whole course": Shape(
        {f"{F}/course.zip": pack({f"c/{C}.ipynb": "ada", "c/04_masking.ipynb": Newer("not this")})},
        {A: "ada"},
    ),
    "a zip file and the notebook": Shape(
        {f"{F}/{C}.zip": Newer(pack({f"{C}.ipynb": "not this"})), f"{F}/{C}.ipynb": "ada"}, {A: "ada"}
    ),
    "several versions": Shape(
        {f"{F}/{C}{end}.ipynb": end for end in (" (1)", " (10)", " (9)", "")},
        {A: " (10)"},
        f"of the notebooks of '{A}', '{C} (10).ipynb' counts: it is the newest",
    ),
    "the newest was not saved": Shape(
        {f"{F}/{C}.ipynb": "ada", f"{F}/{C} (1).ipynb": Newer(NOTHING)}, {A: "ada"}, f"'{C}.ipynb' counts"
    ),
    "another chapter, too": Shape(
        {f"{F}/{C}.ipynb": "ada", f"{F}/04_masking.ipynb": Newer("not this")}, {A: "ada"}
    ),
    "a text, too": Shape(
        {f"{A}_assignsubmission_onlinetext/onlinetext.html": b"<p>", f"{F}/{C}.ipynb": "ada"}, {A: "ada"}
    ),
    "a report and a picture beside it": Shape(
        {f"{F}/{C}.ipynb": "ada", f"{F}/report.pdf": b"%PDF", f"{F}/{C}.html": Newer(b"<p>")}, {A: "ada"}
    ),
    "a folder around all": Shape({f"all/{F}/{C}.ipynb": "ada", "all/": NOTHING}, {A: "ada"}),
    "backslashes": Shape({f"all\\{F}\\{C}.ipynb": "ada"}, {A: "ada"}),
    "UTF-8 that is not marked": Shape(
        {f"Zoë Łuk_5_assignsubmission_file/{C}.ipynb": "zoë"}, {"Zoë Łuk_5": "zoë"}, unflagged=True
    ),
    "a participant": of("Participant_12"),
    "a group in front": of("Group 2-Ada Lovelace_12"),
    "a team": of("Team Blue_7"),
    "the team of all others": of("Default group"),
    "two of one name": Shape(
        {f"Anna Meier_{n}_assignsubmission_file/{C}.ipynb": f"anna{n}" for n in (1, 2)},
        {"Anna Meier_1": "anna1", "Anna Meier_2": "anna2"},
    ),
    "Persian": of("علی\u200cرضا کریمی_12"),
    "Sinhala": of("ශ්\u200dරී_12"),
    "an Arabic name with a mark of direction": of("محمد\u200f_12", "محمد_12"),
    "a no-break space": of("Jean\u00a0Luc_12", "Jean Luc_12"),
    "two blanks": of("Jean  Luc _12"),
    "an apostrophe in front": of("'t Hooft_12"),
    "a curly apostrophe in front": of("’t Hooft_12"),
    "in parentheses": of("(Bob) Ek_12"),
    "with a sign that folders cannot have": of("Ann: Lee; “x”?_12", "Ann- Lee- “x”-_12"),
    "letters in two pieces": of("Zoe\u0308_12"),
    "letters in two pieces, and a no-break space": of("Zoe\u0308\u00a0Ek_12", "Zoë Ek_12"),
    "a long name": of("ชื่อยาว" * 30 + "_12", "ชื่อยาว" * 7 + "ชื่อ_12"),
    "a name of symbols": of("***_12", "student_12"),
}  # fmt: skip

L = "lovelaceada_4711"
CANVAS = {
    "as it was handed out": Shape({f"{L}_9001_{C}.ipynb": "ada"}, {L: "ada"}),
    "late": Shape({f"lovelaceada_LATE_4711_9001_{C}-1.ipynb": "ada"}, {L: "ada"}),
    "anonymous": Shape({f"LATE_anon_Ab1cD_9001_{C}.ipynb": "x"}, {"anon_Ab1cD": "x"}),
    "a browser's copy": Shape({f"{L}_9001_{C} (1).ipynb": "ada"}, {L: "ada"}),
    "Google's copy": Shape({f"{L}_9001_Copia de {C}.ipynb": "ada"}, {L: "ada"}),
    "a copy": Shape({f"{L}_9001_{C} - Kopie.ipynb": "ada"}, {L: "ada"}),
    "initials": Shape({f"{L}_9001_{C}_AL.ipynb": "ada"}, {L: "ada"}),
    "a date": Shape({f"{L}_9001_{C}_2026_11_28.ipynb": "ada"}, {L: "ada"}),
    "a student's number": Shape({f"{L}_9001_03_12345_splitting_heads.ipynb": "ada"}, {L: "ada"}),
    "a version": Shape({f"{L}_9001_v_1_2_{C}.ipynb": "ada"}, {L: "ada"}),
    "json": Shape({f"{L}_9001_{C}.ipynb.json": "ada"}, {L: "ada"}),
    "a zip file": Shape({f"{L}_9001_03.zip": pack({f"x/{C}.ipynb": "ada"})}, {L: "ada"}),
    "a checkpoint alone": Shape({f"{L}_9001_{C}-checkpoint.ipynb": "ada"}, {L: "ada"}),
    "a checkpoint beside it": Shape(
        {f"{L}_9001_{C}.ipynb": "ada", f"{L}_9002_{C}-checkpoint.ipynb": "x"}, {L: "ada"}
    ),
    "uploaded later": Shape(
        {f"{L}_10001_{C}.ipynb": "ada", f"{L}_9001_{C}-1.ipynb": "x"}, {L: "ada"}, "it is the newest"
    ),
    "notes": Shape({f"{L}_9001_{C}.ipynb": "ada", f"{L}_9002_notes.ipynb": "x"}, {L: "ada"}),
    "of macOS": Shape({f"{L}_9001_{C}.ipynb": "ada", f"{L}_9002_._{C}.ipynb": b"x"}, {L: "ada"}),
    "a text, too": Shape({f"{L}_9001_{C}.ipynb": "ada", f"{L}_text.html": b"<p>"}, {L: "ada"}),
    "a folder around all": Shape({f"submissions/{L}_9001_{C}.ipynb": "ada"}, {L: "ada"}),
    "letters": Shape({f"müllerjürgen_8_9001_{C}.ipynb": "x"}, {"müllerjürgen_8": "x"}),
    "two of one name": Shape(
        {f"meieranna_{n}_900{n}_{C}.ipynb": f"anna{n}" for n in (1, 2)},
        {"meieranna_1": "anna1", "meieranna_2": "anna2"},
    ),
}
# In submitted/: the folders and files of one class.
FOLDER = {
    "as it was handed out": Shape({f"ada/{C}/{C}.ipynb": "ada"}, {"ada": "ada"}),
    "Google's copy": Shape({f"ada/{C}/Copy of {C}.ipynb": "ada"}, {"ada": "ada"}),
    "final": Shape({f"ada/{C}/{C}_final.ipynb": "ada"}, {"ada": "ada"}),
    "another name": Shape({f"ada/{C}/homework.ipynb": "ada"}, {"ada": "ada"}),
    "a txt": Shape({f"ada/{C}/{C}.ipynb.txt": "ada"}, {"ada": "ada"}),
    "upper case": Shape({f"ada/{C.upper()}/{C.upper()}.IPYNB": "ada"}, {"ada": "ada"}),
    "one level less": Shape({f"ada/{C}.ipynb": "ada"}, {"ada": "ada"}),
    "one level more": Shape({f"ada/{C}/{C}/{C}.ipynb": "ada"}, {"ada": "ada"}),
    "a copy of the folder": Shape({f"ada/{C} (1)/{C}.ipynb": "ada"}, {"ada": "ada"}),
    "blanks in the folder": Shape({f"ada/03 Splitting Heads/{C}.ipynb": "ada"}, {"ada": "ada"}),
    "a zip file": Shape({f"ada/{C}/ada.zip": pack({f"{C}/{C}.ipynb": "ada"})}, {"ada": "ada"}),
    "notes": Shape({f"ada/{C}/{C}.ipynb": "ada", f"ada/{C}/notes.ipynb": Newer("x")}, {"ada": "ada"}),
    "of macOS": Shape({f"ada/{C}/{C}.ipynb": "ada", f"ada/{C}/._{C}.ipynb": Newer(b"x")}, {"ada": "ada"}),
    "a checkpoint": Shape(
        {f"ada/{C}/{C}.ipynb": "ada", f"ada/{C}/.ipynb_checkpoints/{C}-checkpoint.ipynb": Newer("x")},
        {"ada": "ada"},
    ),
    "the newest was not saved": Shape(
        {f"ada/{C}/{C}.ipynb": "ada", f"ada/{C}/{C} (1).ipynb": Newer(NOTHING)}, {"ada": "ada"}
    ),
    "two versions": Shape(
        {f"ada/{C}/{C}.ipynb": "old", f"ada/{C}/{C}_final.ipynb": Newer("ada")}, {"ada": "ada"}
    ),
    "all chapters in one folder": Shape(
        {f"ada/{C}.ipynb": "ada", "ada/04_masking.ipynb": Newer("x")}, {"ada": "ada"}
    ),
    "an apostrophe in front": Shape({f"'t Hooft/{C}/{C}.ipynb": "x"}, {"'t Hooft": "x"}),
    "Persian": Shape({f"علی\u200cرضا/{C}/{C}.ipynb": "x"}, {"علی\u200cرضا": "x"}),
    "a no-break space": Shape({f"Jean\u00a0Luc/{C}/{C}.ipynb": "x"}, {"Jean\u00a0Luc": "x"}),
    "a link beside it": Shape(
        {f"ada/{C}/{C}.ipynb": "ada", f"ada/{C}/{C} (1).ipynb": Link("/etc/passwd")}, {"ada": "ada"}
    ),
}
# In inbound/ of nbgrader's exchange.
EXCHANGE = {
    "as it was handed out": Shape({f"ada+{C}+t+r/{C}.ipynb": "ada"}, {"ada": "ada"}),
    "Google's copy": Shape({f"ada+{C}+t+r/Copy of {C}.ipynb": "ada"}, {"ada": "ada"}),
    "a JupyterLab copy": Shape({f"ada+{C}+t+r/{C}-Copy1.ipynb": "ada"}, {"ada": "ada"}),
    "another name": Shape({f"ada+{C}+t+r/mine.ipynb": "ada"}, {"ada": "ada"}),
    "notes": Shape({f"ada+{C}+t+r/{C}.ipynb": "ada", f"ada+{C}+t+r/x.ipynb": Newer("x")}, {"ada": "ada"}),
    "one level more": Shape({f"ada+{C}+t+r/{C}/{C}.ipynb": "ada"}, {"ada": "ada"}),
    "a checkpoint": Shape(
        {f"ada+{C}+t+r/{C}.ipynb": "ada", f"ada+{C}+t+r/.ipynb_checkpoints/{C}-checkpoint.ipynb": Newer("x")},
        {"ada": "ada"},
    ),
    "a zip file": Shape({f"ada+{C}+t+r/a.zip": pack({f"{C}.ipynb": "ada"})}, {"ada": "ada"}),
}

EVIL = {"victim": "her own"}
HUGE = b" " * (21 * 2**20)


def _many_records() -> bytes:
    """A zip file that lists one file very often: few bytes, and much to read."""
    data = pack({"x.ipynb": "x"})
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    many = 60_000
    listed = data[start:end] * many
    tail = bytearray(data[end:])
    tail[8:12] = many.to_bytes(2, "little") * 2
    tail[12:16] = len(listed).to_bytes(4, "little")
    return data[:start] + listed + bytes(tail)


V, M = "Vic Tim_2", "Mal Ory_1"
MINE = f"{M}_assignsubmission_file"
HOSTILE_MOODLE = {
    "a Canvas name in a text's folder": Shape(
        {f"{M}_assignsubmission_onlinetext_/{V}_99_{C}.ipynb": "evil"}, {M: "evil"}
    ),
    "a Canvas name in a file's folder": Shape({f"{MINE}/{V}_99_{C}.ipynb": "evil"}, {M: "evil"}),
    "a Canvas name after a newline": Shape({f"{MINE}/\n/{V}_99_{C}.ipynb": "evil"}, {M: "evil"}),
    "a folder with a newline": Shape({f"{M}_x\n{V}_assignsubmission_file/{C}.ipynb": "evil"}, {}),
    "a name with a newline": Shape({f"{MINE}/\n{V}_assignsubmission_file/{C}.ipynb": "evil"}, {M: "evil"}),
    "a Moodle name in a folder": Shape({f"{MINE}/{V}_assignsubmission_file/{C}.ipynb": "evil"}, {M: "evil"}),
    "a Moodle name without folders": Shape(
        {f"{MINE}_{V}_assignsubmission_file_{C}.ipynb": "evil"}, {M: "evil"}
    ),
    "a Canvas name without folders": Shape({f"{MINE}_{V}_99_{C}.ipynb": "evil"}, {M: "evil"}),
    "up and down again": Shape({f"{MINE}/../{V}_assignsubmission_file/{C}.ipynb": "evil"}, {M: "evil"}),
    "backslashes": Shape({f"{MINE}\\..\\{V}_assignsubmission_file\\{C}.ipynb": "evil"}, {M: "evil"}),
    "above all": Shape({f"../../{V}_assignsubmission_file/{C}.ipynb": "evil"}, {}),
    "an absolute path": Shape({f"/{V}_assignsubmission_file/{C}.ipynb": "evil"}, {}),
    "a link": Shape({f"{MINE}/{C}.ipynb": Link("/etc/passwd")}, {}, "is a link"),
    "a huge file": Shape({f"{MINE}/{C}.ipynb": HUGE}, {}, "larger than 20 MB"),
    "a zip bomb": Shape({f"{MINE}/a.zip": pack({f"{C}.ipynb": HUGE})}, {}, "larger than 20 MB"),
    "a zip file of many names": Shape({f"{MINE}/a.zip": _many_records()}, {}, "more than 1,000 files"),
    "a zip file with another's name": Shape(
        {
            f"{MINE}/a.zip": pack(
                {f"../../{V}/{C}/{C}.ipynb": "evil", f"{V}_assignsubmission_file/{C}.ipynb": "evil"}
            )
        },
        {M: "evil"},
    ),
    "a zip file in a zip file in a zip file": Shape(
        {f"{MINE}/a.zip": pack({"b.zip": pack({f"{C}.ipynb": "evil"})})}, {}, "there is no notebook"
    ),
    "a broken zip file": Shape({f"{MINE}/a.zip": b"PK\3\4" * 100}, {}, "a.zip"),
    "a zip file packed otherwise": Shape(
        {f"{MINE}/a.zip": pack({f"{C}.ipynb": "evil"}, compression=zipfile.ZIP_LZMA)},
        {},
        "cannot be unpacked",
    ),
    "a link in a zip file": Shape(
        {f"{MINE}/a.zip": pack({f"{C}.ipynb": Link("/etc/passwd")})}, {}, "is a link"
    ),
    "two that become one name": Shape(
        {f"Mal{sign}_1_assignsubmission_file/{C}.ipynb": "evil" for sign in ":;"},
        {},
        "the same name",
    ),
    "a formula": Shape({f"=cmd|x_7_assignsubmission_file/{C}.ipynb": "x"}, {"cmd-x_7": "x"}),
    "a pattern": Shape({f"[Vic]* {{x}}_7_assignsubmission_file/{C}.ipynb": "x"}, {"Vic-- -x-_7": "x"}),
    "written from right to left": Shape(
        {f"\u202eVic Tim_7_assignsubmission_file/{C}.ipynb": "x"}, {"Vic Tim_7": "x"}
    ),
    "only dots": Shape({f".._7_assignsubmission_file/{C}.ipynb": "x"}, {"student_7": "x"}),
    "not a notebook": Shape({f"{MINE}/{C}.ipynb": b"{" * 100_000}, {M: b"{" * 100_000}),
    "a thousand files": Shape(
        {f"{MINE}/{C} ({n}).ipynb": NOTHING for n in range(1000)}, {M: NOTHING}, "it is the newest"
    ),
}  # fmt: skip
W = "victim_2"
HOSTILE_CANVAS = {
    "another's name in a file's name": Shape({f"mal_1_9001_{W}_9002_{C}.ipynb": "evil"}, {}, "whose it is"),
    "another's name in one's own": Shape({f"{W}_99_y_1_9002_{C}.ipynb": "evil"}, {}, "whose it is"),
    "a Moodle name in one's own": Shape(
        {f"{W}_assignsubmission_file_1_9002_{C}.ipynb": "evil"}, {f"{W}_assignsubmission_file_1": "evil"}
    ),
    "a Moodle name": Shape({f"{V}_assignsubmission_file/{C}.ipynb": "evil"}, {}),
    "in a folder": Shape({f"x/{W}_9002_{C}.ipynb": "evil"}, {}),
    "above": Shape({f"../{W}_9002_{C}.ipynb": "evil"}, {}),
    "a newline": Shape({f"mal_1_9001_x\n{W}_9002_{C}.ipynb": "evil"}, {}),
    "a backslash": Shape({f"mal_1_9001_x\\{W}_9002_{C}.ipynb": "evil"}, {}),
}
HOSTILE_FOLDER = {
    "the folder of a chapter, with students in it": Shape({f"{C}/victim/{C}.ipynb": "evil"}, {}, f"'{C}'"),
    "a class in a folder": Shape(
        {f"class/ada/{C}.ipynb": "x", f"class/bob/{C}.ipynb": "y"}, {}, "is not in a folder"
    ),
    "a link to a file": Shape({f"mal/{C}/{C}.ipynb": Link(f"../../victim/{C}/{C}.ipynb")}, {}, "is a link"),
    "a link to a chapter's folder": Shape({f"mal/{C}": Link(f"../victim/{C}")}, {}, "is a link"),
    "a link to another's folder": Shape({"mal": Link("victim")}, {}, "is a link"),
    "a folder with the file's name": Shape({f"mal/{C}/{C}.ipynb/x": b"x"}, {}, "there is no notebook"),
    "a name with a newline": Shape({f"mal\nvictim/{C}/{C}.ipynb": "x"}, {}, "cannot be shown"),
    "a name from right to left": Shape({f"m\u202eal/{C}/{C}.ipynb": "x"}, {}, "cannot be shown"),
    "a hidden character": Shape({f"victim\u200b/{C}/{C}.ipynb": "x"}, {}, "cannot be shown"),
    "a joiner at the end": Shape({f"victim\u200d/{C}/{C}.ipynb": "x"}, {}, "its name"),
    "many folders": Shape({f"mal/{C}/{'x/' * 60}{C}.ipynb": "x"}, {}, "there is no notebook"),
}  # fmt: skip
