"""What pages promise, and what is easily forgotten when something is added."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


PAGES = ["README.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "CONTRIBUTING.md"]
PAGES += ["docs/compatibility.md", "docs/architecture.md", "docs/teaching.md"]


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


def test_the_limits_that_security_names_are_those_of_the_code():
    from mha_lab.check import runner
    from mha_lab.grading import sandbox
    from mha_lab.grading.nbgrader import GradeApart

    page = " ".join(text("SECURITY.md").split())
    cell, whole = GradeApart.cell_seconds.default_value, GradeApart.seconds.default_value / 60
    for limit in (
        f"{runner.SECONDS:g} seconds of CPU time or {runner.PATIENCE * runner.SECONDS:g} seconds",
        f"{runner.MEMORY >> 30} GB more memory",
        f"| CPU time for a cell | {cell:g} seconds |",
        f"| real time for a cell | {runner.PATIENCE * cell:g} seconds |",
        f"| real time for a submission | {whole:g} minutes |",
        f"| memory of a process | {sandbox.MEMORY >> 30} GB |",
        f"| open files of a process | {sandbox.FILES} |",
        "`/tmp` of 256 MB",
    ):
        assert limit in page
    command = sandbox.command("bubblewrap")
    assert command[command.index("--size") + 1] == str(256 << 20)


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


def test_each_file_that_the_map_names_is_there():
    names = set(re.findall(r"`([\w./-]+(?:/|\.(?:py|md|js|ipynb)))`", text("docs/architecture.md")))
    names = {name for name in names if not re.search("NAME|NN_", name)}
    found = [ROOT, ROOT / "mha_lab"]
    assert len(names) > 10
    assert [name for name in names if not any((place / name).exists() for place in found)] == []


def test_no_explorable_is_without_a_module_a_name_and_an_example():
    from mha_lab import explore
    from tools import examples

    folder = ROOT / "mha_lab" / "explore"
    pages = {path.stem for path in folder.glob("*.js")} - {"shared"}
    sides = {path.stem[1:] for path in folder.glob("_[a-z]*.py")} - {"widget"}
    assert pages == sides == set(explore.__all__) == set(examples.ALL)
