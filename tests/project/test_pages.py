"""What pages promise, and what is easily forgotten when something is added."""

import json
import re
from itertools import pairwise

import pytest

from mha_course.exercises import find, names, ordered
from mha_course.exercises._to_say import TO_SAY
from tests.notebooks.chapters import NAMES, ROOT, markdown, read
from tools import mistakes
from tools.sync import Chapter, chapter_paths


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


PAGES = ["README.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "CONTRIBUTING.md"]
PAGES += [f"docs/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.md")]
PAGES.remove("docs/site/first.md")  # its links are those of the website
PAGES += ["hub/README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_a_link_of_a_page_leads_to_a_file_and_a_heading(page):
    prose = re.sub(r"```.*?```", "", text(page), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https://)([^)\s]*)\)", prose):
        file, _, part = target.partition("#")
        there = (ROOT / page).parent / file if file else ROOT / page
        assert there.exists(), target
        if part:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert part in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in headings}


def test_the_limits_that_the_guides_name_are_those_of_the_code():
    from mha_course.checker import runner
    from mha_course.grading import sandbox
    from mha_course.grading.nbgrader import GradeApart

    check, guide = (" ".join(text(page).split()) for page in ("SECURITY.md", "docs/grading.md"))
    cell, whole = GradeApart.cell_seconds.default_value, GradeApart.seconds.default_value / 60
    assert f"{runner.SECONDS:g} seconds of CPU time or {runner.PATIENCE * runner.SECONDS:g} seconds" in check
    assert f"{runner.MEMORY >> 30} GB of memory in addition" in check
    for limit in (
        f"| CPU time for a cell | {cell:g} seconds |",
        f"| real time for a cell | {runner.PATIENCE * cell:g} seconds |",
        f"| real time for a submission | {whole:g} minutes |",
        f"| memory of a process | {sandbox.MEMORY >> 30} GB |",
        f"| open files of a process | {sandbox.FILES} |",
        f"`/tmp` of 256 MB and a `/dev/shm` of {sandbox.SHARED >> 20} MB",
    ):
        assert limit in guide
    command = sandbox.command("bubblewrap")
    sizes = [command[i + 1] for i, word in enumerate(command) if word == "--size"]
    assert sizes == [str(256 << 20), str(sandbox.SHARED)]


def test_stored_outputs_hold_no_script():
    """SECURITY.md says so, and a notebook that is trusted once runs what it holds."""
    active = r"<(script|iframe|object|embed|form|meta|link)\b|javascript:|<[^>]+\son\w+\s*="
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for output in (output for cell in cells for output in cell.get("outputs", [])):
            data = output.get("data", {})
            kinds = {kind for kind in data if not re.fullmatch(r"application/vnd\.mha-lab\.\w+\+json", kind)}
            assert kinds <= {"text/plain", "text/html", "image/png"}
            found = re.search(active, "".join(data.get("text/html", [])), re.IGNORECASE)
            assert not found, (path.name, found)


OURS = "(?:mha_lab|mha_course|tests)/"


@pytest.mark.parametrize(
    ("page", "folder"), [("docs/architecture", ""), ("CONTRIBUTING", OURS), ("docs/grading", OURS)]
)
def test_each_file_that_a_guide_names_is_there(page, folder):
    names = re.findall(rf"`({folder}[\w./-]+(?:/|\.(?:py|md|js|ipynb)|Containerfile))`", text(f"{page}.md"))
    names = {name for name in names if not re.search("NAME|NN_|double_rows", name)}
    assert len(names) >= 2
    places = [ROOT, ROOT / "mha_lab", ROOT / "mha_course"]
    assert [name for name in names if not any((place / name).exists() for place in places)] == []


PLANS = text("docs/teaching.md").split("## Minutes and points")[0]
ROWS = re.findall(r"(?m)^\| .+ \|$", PLANS)


def test_each_exercise_that_a_plan_names_is_there():
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", "\n".join(ROWS)))
    assert len(named) > 10
    assert named <= set(names())


def test_the_minutes_of_a_plan_leave_none_out():
    spans = [(int(a), int(b)) for row in ROWS for a, b in re.findall(r"^\| (\d+)–(\d+) \|", row)]
    ends = [end for (_, end), (start, _) in pairwise([*spans, (0, 0)]) if start != end]
    assert ends == [90, 60]
    assert [start for start, _ in spans].count(0) == 2


def test_every_mistake_is_on_the_page_of_mistakes_and_what_to_say_belongs_to_one():
    page = mistakes.page(
        text("docs/mistakes.md"), [Chapter.read(path) for path in chapter_paths(ROOT / "notebooks")]
    )
    parts = re.split(r"(?m)^### (\w+)$", page)[1:]
    listed = {
        name: re.findall(r"(?m)^\| `(.+?)` \|", part)
        for name, part in zip(parts[::2], parts[1::2], strict=True)
    }
    known = {one.name: [n for n, mistake in one.mistakes.items() if not mistake.of] for one in ordered()}
    assert listed == known
    assert len(listed) == len(names())
    assert set(TO_SAY) <= {(one.chapter[:2], name) for one in ordered() for name in known[one.name]}
    assert all(said in page for said in TO_SAY.values())


def test_a_page_of_mistakes_without_a_place_for_them_is_refused():
    with pytest.raises(ValueError, match="no place for the list"):
        mistakes.page("# What goes wrong where", [])


def test_an_easy_exercise_is_worth_one_point_a_medium_two_a_hard_three():
    heading, worth = r"### Exercise: (\w+) · (\w+), ", {"easy": 1, "medium": 2, "hard": 3}
    found = [pair for chapter in NAMES for pair in re.findall(heading, markdown(read(chapter)))]
    assert {name: worth[level] for name, level in found} == {name: find(name).points for name in names()}


def test_no_explorable_is_without_a_module_a_name_and_an_example():
    from bench import examples
    from mha_course import explore

    folder = ROOT / "mha_course" / "explore"
    pages = {path.stem for path in folder.glob("*.js")} - {"shared", "colours", "alone"}
    sides = {path.stem[1:] for path in folder.glob("_[a-z]*.py")} - {"widget"}
    assert pages == sides == set(explore.__all__) == set(examples.MODULES.values())
