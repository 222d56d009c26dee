"""What is repeated is in step, and a new chapter or a new address needs no list by hand."""

import re
import shutil

import nbformat
import pytest

from tests.notebooks.chapters import NAMES, ROOT, code_cells, read
from tools import sync

OTHER = "https://github.com/ada/attention-course"


@pytest.fixture
def copy(tmp_path):
    """The files that are synced, and where it comes from."""
    for name in ("README.md", "CITATION.cff", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in ("docs", "notebooks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns(".*"))
    for folder, name in (("exercises", "order.txt"), ("explore", "colours.js")):
        (tmp_path / "mha_lab" / folder).mkdir(parents=True)
        shutil.copy(ROOT / "mha_lab" / folder / name, tmp_path / "mha_lab" / folder)
    return tmp_path


def test_everything_is_in_step(capsys):
    assert sync.main(["check"]) == 0, capsys.readouterr().err


def test_a_new_address_reaches_every_place(copy):
    assert sync.address(copy) == sync.address()
    text = (copy / "pyproject.toml").read_text()
    (copy / "pyproject.toml").write_text(text.replace(sync.address(), OTHER))
    changed = {path.name for path, text in sync.synced(copy) if path.read_text() != text}
    assert changed == {"CITATION.cff", *(f"{name}.ipynb" for name in NAMES)}
    assert sync.main(["check"], copy) == 1
    assert sync.main([], copy) == 0
    assert sync.main(["check"], copy) == 0
    old = sync.address().removeprefix("https://github.com/")
    for path, text in sync.synced(copy):
        assert old not in text, path
        assert path.suffix in (".md", ".txt", ".js") or "ada/attention-course" in text


def test_a_new_chapter_is_found_by_its_name_and_title(copy):
    last = nbformat.read(copy / "notebooks" / f"{NAMES[-1]}.ipynb", as_version=4)
    first = last.cells[0].source
    promise = "You try whether a chapter is found."
    last.cells[0].source = re.sub(r"^# .+\n\n.+", f"# 99 A new chapter\n\n{promise}", first)
    nbformat.write(last, copy / "notebooks" / "99_a_new_chapter.ipynb")
    assert sync.main([], copy) == 0
    row = next(line for line in (copy / "README.md").read_text().splitlines() if "99_a_new_chapter" in line)
    assert row.startswith(f"| [99 A new chapter](notebooks/99_a_new_chapter.ipynb) | {promise} | ")
    assert row.count("99_a_new_chapter.ipynb") == 1
    there = nbformat.read(copy / "notebooks" / "99_a_new_chapter.ipynb", as_version=4).cells[0].source
    where, file = sync.address().removeprefix("https://github.com/"), "notebooks/99_a_new_chapter.ipynb"
    assert f"(https://colab.research.google.com/github/{where}/blob/main/{file})" in there
    assert f"https://mybinder.org/v2/gh/{where}/main?urlpath=lab%2Ftree%2F{file.replace('/', '%2F')}" in there


@pytest.mark.parametrize("name", NAMES)
def test_syncing_again_changes_nothing_and_adds_one_cell_only(name):
    notebook = read(name)
    assert sync.notebook(notebook, name, sync.address()) == notebook
    bare = nbformat.from_dict(notebook)
    bare.cells.remove(code_cells(bare)[0])
    bare.cells[0].source = sync.LAUNCH.sub("", bare.cells[0].source)
    again = sync.notebook(bare, name, sync.address())
    assert [cell.source for cell in again.cells] == [cell.source for cell in notebook.cells]


def test_minutes_that_change_reach_every_place_in_one_run(copy):
    path = copy / "notebooks" / f"{NAMES[2]}.ipynb"
    chapter = nbformat.read(path, as_version=4)
    chapter.cells[1].source += " word" * 1800  # ten minutes of reading
    nbformat.write(chapter, path)
    assert sync.main([], copy) == 0
    assert sync.main(["check"], copy) == 0


@pytest.mark.parametrize("old", ["# 01 ", "**Time**", " minutes"])
def test_a_first_cell_that_says_too_little_is_an_error(copy, old):
    path = copy / "notebooks" / f"{NAMES[1]}.ipynb"
    chapter = nbformat.read(path, as_version=4)
    chapter.cells[0].source = chapter.cells[0].source.replace(old, "")
    nbformat.write(chapter, path)
    with pytest.raises(ValueError, match=r"01_\w+\.ipynb: expected a first cell with # TITLE, .*Time"):
        sync.main([], copy)
    with pytest.raises(ValueError, match="no place for chapters"):
        sync.between("# A page without the comments", "chapters", "| |")


def test_the_set_up_cell_does_nothing_where_the_package_is():
    """Here `%pip` would be a syntax error: IPython translates it, and it must not be reached."""
    source = sync.SET_UP.format(address=sync.address())
    assert len([line for line in source.splitlines() if line]) == 3
    names = {"pip": lambda *_: pytest.fail("it installs")}
    exec(source.replace("%pip install -q git+", "pip() #"), names)


def test_no_other_file_names_the_address():
    """Only what is synced repeats it."""
    own = {"pyproject.toml", "CITATION.cff"}
    for pattern in ("*.md", "*.toml", "docs/*.md", "mha_lab/**/*.py", "tools/*", ".github/**/*.y*ml"):
        for path in ROOT.glob(pattern):
            if path.is_file() and path.name not in own:
                assert sync.address() not in path.read_text(encoding="utf-8"), path
