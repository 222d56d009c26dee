"""The words for the reader stand in one table at the top of each module, and none beside it."""

import re

import pytest

from mha_course.explore._widget import HERE

# Beside their tables, these have words in their logic still: with a whole table, they are too large.
OPEN = {"flow", "model", "online_softmax", "scaling"}
MODULES = sorted(path.stem for path in HERE.glob("*.js") if path.stem not in {"alone", "colours"})
TABLE = re.compile(r"^const TEXT = \{\n.*?^\};\n", re.MULTILINE | re.DOTALL)
# What a string has before it where it shows no words: a class, a style, the drawing of a path, a selector.
SILENT = re.compile(
    r"(?:from|(?:class|style|\bd|viewBox|fill|stroke|transform|content):|new Error\("
    r"|(?:querySelector(?:All)?|closest)\()\s*$"
    r"|class: [^,{}]*[?:]\s*$|(?:STYLE|LOOK|MIX|HATCH) = $"
)  # fmt: skip
CSS = re.compile(r"^[\w-]+: .*[;%]|^[(.]|::|var\(--|calc\(|\d(?:px|%|em)\b|^#|gradient\(")
WORDS = re.compile(
    r"[A-Za-z]{2,}[,;:)]? (?:\{\} )?\(?[A-Za-z]{2,}"
    r"|[A-Za-z]{2,}[,:;]? \{\}|\{\}[,:;]? [A-Za-z]{2,}|[a-z][.?]$"
)
SPOKEN = re.compile(
    r"(?:\"aria-label\"|\"aria-valuetext\"|title|placeholder|missing):\s*$"
    r"|(?:speak|warn|voice)\($|\bsay\(\w+(?:\.\w+|\[\w+\])*, $|make\(\"\w+\", \{[^{}]*\}, $"
)


# Comments and strings; a regular expression comes where no number can be divided.
TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
REGEX = re.compile(r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*")


def regex(source, at):
    """The regular expression that begins here; after a name or a number, it is a division."""
    return REGEX.match(source, at) if source[:at].rstrip()[-1:] in tuple("(,=:?&|!") else None


def strings(source):
    """Each string after what stands before it; a pair of braces is what a template inserts."""
    found, at = [], 0
    while at < len(source):
        before = source[max(0, at - 160) : at] if source[at] in "`\"'" else ""
        if source[at] == "`":
            text, inner, at = template(source, at + 1)
            found += [(before, text), *inner]
        elif source[at] in "\"'/" and (hit := TOKEN.match(source, at) or regex(source, at)):
            at = hit.end()
            if hit[0][0] in "\"'":
                found.append((before, hit[0][1:-1]))
        else:
            at += 1
    return found


def template(source, at):
    """The text of a template that begins before ``at``, the strings in what it inserts, and where it ends."""
    text, inner = "", []
    while source[at] != "`":
        if source.startswith("${", at):
            depth, begin, at = 1, at + 2, at + 2
            while depth:
                if source[at] == "`":
                    _, _, at = template(source, at + 1)
                    continue
                depth += {"{": 1, "}": -1}.get(source[at], 0)
                at += 1
            inner += strings(source[begin : at - 1])
            text += "{}"
        elif source[at] == "\\":
            text += source[at : at + 2]
            at += 2
        else:
            text += source[at]
            at += 1
    return text, inner, at + 1


def loose(source):
    """The strings with words that stand outside of the table."""
    rest = TABLE.sub("", source)
    return [
        text
        for before, text in strings(rest)
        if not SILENT.search(before)
        and not CSS.search(text)
        and (WORDS.search(text) or (SPOKEN.search(before) and re.search(r"[A-Za-z]{2}", text)))
    ]


@pytest.mark.parametrize("name", [name for name in MODULES if name not in OPEN])
def test_the_words_for_the_reader_stand_in_the_table(name):
    """A translator, or who corrects a sentence, has to read one place."""
    source = (HERE / f"{name}.js").read_text(encoding="utf-8")
    assert len(TABLE.findall(source)) == 1
    assert loose(source) == []


WORDY = {
    'say(note, "Copied");': "Copied",
    "say(note, `Head ${h} is silent`);": "Head {} is silent",
    'const why = "One head stays picked.";': "One head stays picked.",
    'make("p", {}, "Weights")': "Weights",
    'set(cell, { "aria-label": "mask" });': "mask",
    '`${a ? `key ${b}` : ""}`': "key {}",
}
SILENTLY = [
    'const TEXT = {\n  name: "Two words",\n};\n',
    'make("div", { class: "chosen row" })',
    "const LOOK = `.grid { margin: 0 auto; }`;",
    "set(mark, { style: `left: ${x}px; top: 2px` });",
    '// It says "two words".',
    "throw new Error(`no explorable has the name ${name}`);",
    'line("other", { "stroke-dasharray": "2 3" })',
]


@pytest.mark.parametrize(("line", "text"), WORDY.items())
def test_words_beside_the_table_are_found(line, text):
    assert loose(line) == [text]


@pytest.mark.parametrize("line", SILENTLY)
def test_what_nobody_reads_is_let_be(line):
    assert loose(line) == []
