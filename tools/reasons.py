"""The ledger of reasons: which sentence of a chapter is shown, proved, cited or hedged.

A chapter's rows are in ``tests/reasons/NN.toml``, each below its verdict, such as ``[[shown]]``. A sentence
that gives a reason, or says that something is always, never or only so, needs one; any other may have one.
``python -m tools.reasons NN`` prints those that need one and have none yet.

The sentences are those of the chapter's text, of the replies to its questions, of what a teacher's sheet
adds, and of its exercises' mistakes. Of a mistake, only sentences with a reason count: what its function
does is computed by its variants (``tests/check``).
"""

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from mha_course import quiz
from mha_course.exercises import find, names
from mha_course.exercises._to_say import to_say
from tools.notebooks import read_whole
from tools.sync import Chapter, chapter_paths

ROOT = Path(__file__).parents[1]
LEDGER = ROOT / "tests" / "reasons"
# What a row says beside its sentences. Each verdict has its own.
FIELDS = {
    # A test, such as reasons/test_ch04.py::test_name, that would fail if the reason were false: it changes
    # the supposed cause and nothing else, and brings the cause alone, with five seeds where something is
    # trained. Or a compared cell that does so, such as ch04-12.
    "shown": {"by"},
    "proved": {"where"},  # the step that proves it, or the proof
    "cited": {"source", "opened"},  # what was read, with the section or line, and the day
    "hedged": {"untried"},  # what nobody has tried; the sentence says "may"
    "no_claim": {"kind"},  # no reason at all; one of ``KINDS``
}
KINDS = {
    "instruction": "what to do, or why it is asked",
    "definition": "what a word or a symbol stands for",
    "choice": "what the authors chose, and what for",
    "pointer": "where something is said",
    "case": "what is so in this one example, and can be read off it",
    "promise": "what a function of the course does; its own tests are about that",
}
HEDGE = re.compile(r"\b(may|might|perhaps|possibl[ey]|not (been )?(tried|tested|measured)|suspect)\b", re.I)
REASON = r"because|since|therefore|thus|hence|why|reasons?|needs?|cannot|due to|in order to|causes?|explains?"
SO = r"(?:^|(?<=[,:;] )|(?<=\()|(?<=\band ))so\b(?! (?:that|far|on)\b)"
WHY = re.compile(rf"\b(?:{REASON}|otherwise)\b|{SO}", re.IGNORECASE)
GENERAL = re.compile(r"\b(?:only|always|never|prevents?)\b", re.IGNORECASE)
CODE = re.compile(r"^```.*?^```$|\$\$.*?\$\$", re.DOTALL | re.MULTILINE)
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=[-|#>]|\d+\. )|</?(?:details|summary)[^>]*>|(?<=\|) ")
HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)")
MARKS = re.compile(r"(`[^`]*`)|\*\*?|^[-|> ]+|^\d+\. ")
END = re.compile(r"(?<=[.?!])(?<!\bal\.)([)*`\"]*) (?=\(?[A-Z*`\"'])")
HEAD_LINES = re.compile(r"^(You need (chapter|Python)|Paper: )")


@dataclass(frozen=True)
class Row:
    """A sentence with its verdict, one of ``FIELDS``, and what the ledger says for it."""

    sentence: str
    verdict: str
    details: dict[str, Any]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text in Markdown, without code, headings, links and emphasis."""
    for paragraph in PARAGRAPH.split(HEADING.sub("\n\n", CODE.sub("\n\n", text))):
        lines = END.sub(r"\1\n", " ".join(LINK.sub(r"\1", paragraph).split())).split("\n")
        yield from filter(None, (" ".join(MARKS.sub(r"\1", line).split()) for line in lines))


def is_reason(sentence: str, *, general: bool = True) -> bool:
    """Whether a sentence needs a row: it gives a reason or, if ``general``, says what is always so."""
    if sentence.endswith(("?", "?)")) or HEAD_LINES.match(sentence):
        return False
    return bool(WHY.search(sentence) or (general and GENERAL.search(sentence)))


def statements(name: str, notebook: NotebookNode) -> dict[str, bool]:
    """All sentences about a chapter, by its file's name, in their order, and whether each needs a row."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    for asked in (quiz.question(each) for each in quiz.names() if each.startswith(f"ch{name[:2]}.")):
        texts += [asked.because, *asked.wrong]
    found = {each: is_reason(each) for text in texts for each in sentences(text)}
    for exercise in (exercise for exercise in map(find, names()) if exercise.chapter == name):
        for mistake, about in exercise.mistakes.items():
            if not about.of:
                for each in (*sentences(about.says), *sentences(to_say(exercise, mistake))):
                    found.setdefault(each, is_reason(each, general=False))
    return found


def rows(path: Path) -> list[Row]:
    """A chapter's part of the ledger, verdict by verdict."""
    read = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Row(sentence, verdict, {field: value for field, value in group.items() if field != "says"})
        for verdict, groups in read.items()
        for group in groups
        for sentence in group["says"]
    ]


# The website


VERDICTS = {
    "shown": "a test fails if the reason is not so",
    "proved": "by arithmetic, or by a step of the course",
    "cited": "somebody else's finding, read where they wrote it",
    "hedged": "the sentence says *may*: nobody has tried it here",
}
HEAD = """\
# What the reasons rest on

A course gives many reasons: *because*, *so*, *this is why*. Each such sentence of a chapter is listed here
with what it rests on:

{verdicts}

A test fails if a sentence of a listed chapter has no entry. Instructions and definitions are left out. If you
can refute a sentence, please open an issue: an experiment of a few lines is the best that it can contain."""
TREE = "```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def page(chapter: Chapter, notebook: NotebookNode, found: list[Row]) -> str:
    """A chapter's page in Markdown: its sentences in their order, each with its verdict."""
    by_sentence = {row.sentence: row for row in found}
    claims = [by_sentence[each] for each in statements(chapter.name, notebook) if each in by_sentence]
    claims = [row for row in claims if row.verdict != "no_claim"]
    counted = Counter(row.verdict for row in claims)
    total = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if counted[verdict])
    lines = [f"| {_cell(row.sentence)} | **{row.verdict}**: {_details(row)} |" for row in claims]
    return "\n".join(
        [
            f"# {chapter.title.partition(' ')[0]}: what the reasons rest on",
            f"\nThese are the reasons in [{chapter.title}]({chapter.name}.ipynb): {total}.\n",
            "| sentence | what it rests on |",
            "| --- | --- |",
            *lines,
            "",
        ]
    )


def name_of(chapter: Chapter) -> str:
    """The file name of its page without the ending."""
    return f"reasons_{chapter.name[:2]}"


def pages(chapters: list[Chapter], notebooks: list[NotebookNode]) -> dict[str, str]:
    """All pages in Markdown by their names: the first one leads to those of the chapters in the ledger."""
    made, links = {}, []
    for chapter, notebook in zip(chapters, notebooks, strict=True):
        if (path := LEDGER / f"{chapter.name[:2]}.toml").exists():
            made[name_of(chapter)] = page(chapter, notebook, rows(path))
            links.append(f"- [{chapter.title}]({name_of(chapter)}.md)")
    verdicts = "\n".join(f"- **{verdict}**: {meaning}" for verdict, meaning in VERDICTS.items())
    parts = [HEAD.format(verdicts=verdicts), "\n".join(links), TREE.format(pages="\n".join(made))]
    return {"reasons": "\n\n".join(parts)} | made


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _details(row: Row) -> str:
    details = row.details
    if row.verdict == "shown":
        return f"`{details['by']}`"
    if row.verdict == "cited":
        return _cell(f"{details['source']}, read on {details['opened']:%-d %B %Y}")
    return _cell(next(iter(details.values())))


def main(arguments: list[str] | None = None) -> int:
    """Print the sentences of a chapter that have no row, ready for its file; 1 if there are any."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("chapter", help="a chapter's number, such as 04")
    chapter = parser.parse_args(arguments).chapter
    (path,) = (path for path in chapter_paths(ROOT / "notebooks") if path.name.startswith(chapter))
    file = LEDGER / f"{chapter}.toml"
    known = {row.sentence for row in rows(file)} if file.exists() else set()
    said = statements(path.stem, read_whole(path))
    missing = [sentence for sentence, needed in said.items() if needed and sentence not in known]
    for sentence in missing:
        print(f'  """{sentence}""",' if '"' in sentence or "\\" in sentence else f'  "{sentence}",')
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
