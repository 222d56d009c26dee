"""What is repeated is in step, and a new chapter or a new address needs no list by hand."""

import re
import shutil
import subprocess

import nbformat
import pytest

from tests.notebooks.chapters import NAMES, ROOT, code_cells, read
from tools import sync

OTHER = "https://github.com/ada/attention-course"
PLACEHOLDER = "https://github.com/mha_lab/mha_lab"  # nobody can publish there


@pytest.fixture
def copy(tmp_path):
    """The files that are synced, and where it comes from."""
    for name in ("README.md", "CITATION.cff", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in ("docs", "notebooks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns(".*"))
    for folder, name in (("exercises", "order.txt"), ("explore", "colours.js")):
        (tmp_path / "mha_course" / folder).mkdir(parents=True)
        shutil.copy(ROOT / "mha_course" / folder / name, tmp_path / "mha_course" / folder)
    return tmp_path


def test_everything_is_in_step(capsys):
    assert sync.main(["check"]) == 0, capsys.readouterr().err


def test_a_new_address_reaches_every_place(copy, capsys):
    assert sync.address(copy) == sync.address()
    old = (copy / "CITATION.cff").read_text()
    assert sync.main(["publish", OTHER], copy) == 0
    assert capsys.readouterr().out.split() == [*(f"notebooks/{name}.ipynb" for name in NAMES), "CITATION.cff"]
    assert sync.address(copy) == OTHER
    assert sync.main(["check"], copy) == 0
    assert (copy / "CITATION.cff").read_text().count(f'\nrepository-code: "{OTHER}"\n') == 1
    for name in NAMES:
        chapter = nbformat.read(copy / "notebooks" / f"{name}.ipynb", as_version=4)
        file = f"notebooks/{name}.ipynb"
        there = f"https://colab.research.google.com/github/ada/attention-course/blob/main/{file}"
        tree = f"lab%2Ftree%2F{file.replace('/', '%2F')}"
        assert f"]({there})" in chapter.cells[0].source
        binder = f"https://mybinder.org/v2/gh/ada/attention-course/main?urlpath={tree}"
        assert f"]({binder})" in chapter.cells[0].source
        assert f'"git+{OTHER}"' in code_cells(chapter)[0].source
    text = (copy / "pyproject.toml").read_text()
    (copy / "pyproject.toml").write_text(text.replace(OTHER, PLACEHOLDER))
    assert sync.main([], copy) == 0
    assert (copy / "CITATION.cff").read_text() == re.sub("repository-code: .*\n", "", old)


@pytest.mark.parametrize(
    "wrong", [PLACEHOLDER, "ada/attention", "http://github.com/ada/a", "https://example.org/ada/a"]
)
def test_an_address_that_does_not_fit_changes_nothing(copy, capsys, wrong):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert sync.main(["publish", wrong], copy) == 2
    assert "expected an address such as https://github.com/" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_the_address_of_another_repository_is_refused(copy, capsys):
    for command in (["init", "-q"], ["remote", "add", "origin", "git@github.com:ada/another.git"]):
        subprocess.run(["git", *command], cwd=copy, check=True, timeout=60)
    assert sync.main(["publish", OTHER], copy) == 2
    assert "is no remote of this copy, which has git@github.com:ada/another.git" in capsys.readouterr().err
    assert sync.main(["publish", "https://github.com/Ada/another/"], copy) == 0
    assert sync.address(copy) == "https://github.com/Ada/another"


@pytest.mark.parametrize("name", NAMES)
def test_before_there_is_an_address_no_chapter_has_a_link_to_it(name):
    chapter = read(name)
    if not sync.published(sync.address()):
        assert not re.search("colab.research|mybinder|github.com/mha", nbformat.writes(chapter))


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


@pytest.fixture(params=[PLACEHOLDER, OTHER])
def set_up(request, tmp_path, monkeypatch):
    """Runs the set-up cell in an empty folder, with or without the package; returns what pip is asked for."""
    monkeypatch.chdir(tmp_path)

    def run(*, missing):
        asked = []
        source = sync.set_up(request.param).replace("%pip install -q {source}", "pip(str(source))")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if missing else name)
        exec(source, {"pip": asked.append})
        return asked

    return run, request.param


def test_the_set_up_cell_does_nothing_where_the_package_is(set_up):
    run, _ = set_up
    assert run(missing=False) == []


def test_the_set_up_cell_installs_what_there_is_or_says_what_to_do(set_up, tmp_path):
    """The newest handout beside the notebook; without one, from the address, if there is one."""
    run, where = set_up
    if where == OTHER:
        assert run(missing=True) == [f"git+{OTHER}"]
    else:
        with pytest.raises(ModuleNotFoundError, match="Put the file mha_lab-"):
            run(missing=True)
    for version in ("0.1.0", "0.2.0"):
        (tmp_path / f"mha_lab-{version}-py3-none-any.whl").touch()
    assert run(missing=True) == ["mha_lab-0.2.0-py3-none-any.whl"]


def test_no_other_file_names_the_address():
    """Only what is synced repeats it."""
    own = {"pyproject.toml", "CITATION.cff"}
    for pattern in ("*.md", "*.toml", "docs/*.md", "mha_*/**/*.py", "tools/*", ".github/**/*.y*ml"):
        for path in ROOT.glob(pattern):
            if path.is_file() and path.name not in own:
                assert sync.address() not in path.read_text(encoding="utf-8"), path
