"""What somebody finds who joins: checks before a commit, forms, workflows, a container, a map of the code."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from check_jsonschema import main as check_jsonschema

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# Files that other programs read. A hook runs these tests too: the word "schema" is in their names.

SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "custom.github-workflows-require-timeout": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/a*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.citation-file-format": "CITATION.cff",
}
# What we use of the published specification (containers.dev, devContainer.base.schema.json), and no more: a
# property that is misspelled or new is an error here, where the specification's own tool takes anything.
SIZE = {"type": "string", "pattern": r"^\d+([tgmk]b)?$"}
WORDS = {"type": "array", "items": {"type": "string"}}
EDITOR = {"extensions": WORDS, "settings": {"type": "object"}}
HOST = {"cpus": {"type": "integer", "minimum": 1}, "memory": SIZE, "storage": SIZE}
COMMAND = {"type": ["string", "array", "object"], "items": {"type": "string"}}


def only(properties, *required):
    """A schema for an object with these properties and no other."""
    closed = {"type": "object", "additionalProperties": False}
    return closed | {"properties": properties, "required": list(required)}


DEV_CONTAINER = only(
    {
        "name": {"type": "string"},
        "image": {"type": "string"},
        "hostRequirements": only(HOST),
        "postCreateCommand": COMMAND,
        "customizations": only({"vscode": only(EDITOR)}),
    },
    "image",
)


def is_valid(*given):
    """What check-jsonschema says; none of these schemas is fetched."""
    return check_jsonschema([*map(str, given)], standalone_mode=False) == 0


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_file_follows_its_schema(schema, capsys):
    files = sorted(ROOT.glob(SCHEMAS[schema]))
    assert files
    assert is_valid("--builtin-schema", schema, "--default-filetype", "yaml", *files), capsys.readouterr().out


def test_no_form_and_no_workflow_is_left_out_of_the_schemas():
    covered = {path for pattern in SCHEMAS.values() for path in ROOT.glob(pattern)}
    found = {path for path in GITHUB.rglob("*") if path.is_file() and path.suffix != ".md"}
    assert found == covered - {ROOT / "CITATION.cff"}


@pytest.fixture
def container_schema(tmp_path):
    """As a file."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(DEV_CONTAINER), encoding="utf-8")
    return path


def test_the_dev_container_follows_the_schema_of_what_it_uses(container_schema, capsys):
    container = ROOT / ".devcontainer" / "devcontainer.json"
    assert is_valid("--schemafile", container_schema, container), capsys.readouterr().out
    python = json.loads(container.read_text(encoding="utf-8"))["image"].rpartition(":")[2].split("-")[-1]
    assert f'python-version: "{python}"' in text(".github/workflows/test.yml")


@pytest.mark.parametrize(
    "wrong",
    [
        {"imagee": "x"}, {"hostRequirements": {"cpus": "two"}}, {"hostRequirements": {"memory": "8 GB"}},
        {"customizations": {"vscode": {"plugins": []}}}, {"postCreateCommand": 3},
    ],
)  # fmt: skip
def test_the_schema_of_the_dev_container_sees_what_is_wrong(container_schema, tmp_path, wrong):
    container = json.loads(text(".devcontainer/devcontainer.json"))
    (tmp_path / "wrong.json").write_text(json.dumps(container | wrong), encoding="utf-8")
    assert not is_valid("--schemafile", container_schema, tmp_path / "wrong.json")


# The checks before a commit

HOOKS = {hook["id"]: hook for hook in load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]}
TREE = (
    ".pre-commit-config.yaml", ".gitignore", "pyproject.toml", "CITATION.cff", ".devcontainer", ".github",
    "notebooks/ruff.toml", "notebooks/00_start_here.ipynb", "tools/notebooks.py", "tools/architecture.py",
    "tests/project/test_joining.py", "tests/explore/examples.py",
)  # fmt: skip
CHAPTER = "notebooks/00_start_here.ipynb"


def chapter(source=None, printed=None, **metadata):
    """The first chapter with another first code cell, another print, or more metadata."""
    notebook = json.loads(text(CHAPTER))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if source:
        cells[0]["source"] = [source]
    if printed:
        printing = next(o for cell in cells for o in cell["outputs"] if o["output_type"] == "stream")
        printing["text"] = [printed]
    notebook["metadata"] |= metadata
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


# Written in pieces, so that the checks do not find them in this file.
TOKEN = "gh" + "p_" + "0aB1" * 9
KEY = "-----BEGIN OPENSSH PRIVATE " + "KEY-----\n"
MERGE = "<" * 7 + " HEAD\nours\n" + "=" * 7 + "\ntheirs\n" + ">" * 7 + " main\n"
FAULTS = {
    "an import that nobody uses": ("ruff-check", CHAPTER, lambda: chapter(source="import os")),
    "an unformatted cell": ("ruff-format", CHAPTER, lambda: chapter(source="x=1")),
    "a chapter as JupyterLab saves it": ("clean-notebooks", CHAPTER, lambda: chapter(widgets={})),
    "a file of 700 kB": ("large-files", "figures/new.png", lambda: "x" * 700_000),
    "a private key": ("private-keys", "docs/new.md", lambda: KEY),
    "a token in an output": ("secrets", CHAPTER, lambda: chapter(printed=TOKEN)),
    "half a merge": ("merge-conflicts", "docs/new.md", lambda: MERGE),
    "no YAML": ("yaml", "docs/new.yml", lambda: "a: [1\n"),
    "no TOML": ("toml", "docs/new.toml", lambda: "a = \n"),
    "no JSON": ("json", "docs/new.json", lambda: "{,}\n"),
    "no workflow": ("schemas", ".github/workflows/new.yml", lambda: "name: new\non: push\n"),
}  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A small git repository with our checks, and a way to run them."""
    folder = tmp_path_factory.mktemp("repository")
    for name in TREE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "mha_lab").symlink_to(ROOT / "mha_lab")  # ruff sorts imports by what is here
    ours = ("GIT_", "PYTEST_", "PRE_COMMIT_", "SKIP")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {"PRE_COMMIT_HOME": str(folder / ".venv.cache"), "GIT_CONFIG_GLOBAL": os.devnull}

    def call(*command):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def run(*hooks):
        call("git", "add", "--all")
        return call(sys.executable, "-m", "pre_commit", "run", "--all-files", "--verbose", *hooks)

    call("git", "init")
    with (folder / ".git" / "info" / "exclude").open("a") as file:
        file.write(".venv\n.venv.cache\nmha_lab\n")
    return folder, run


def test_a_clean_tree_passes_and_is_left_as_it_is(repository):
    _, run = repository
    status, said = run()
    assert status == 0, said
    assert said.count("..Passed") == len(HOOKS)


@pytest.mark.parametrize(("hook", "name", "content"), list(FAULTS.values()), ids=list(FAULTS))
def test_a_fault_is_seen(repository, hook, name, content):
    folder, run = repository
    path = folder / name
    before = path.read_bytes() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text(content(), encoding="utf-8")
    try:
        status, said = run(hook)
    finally:
        path.write_bytes(before) if before else path.unlink()
    assert status == 1
    assert "..Failed" in said
    assert Path(name).stem in said
    assert "files were modified" not in said


def test_every_check_was_seen_to_fail():
    assert {hook for hook, _, _ in FAULTS.values()} == set(HOOKS)


def test_the_checks_are_those_of_make_lint_and_need_no_network():
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", text("Makefile"), re.MULTILINE)[1]
    assert "-m pre_commit run --all-files" in lint
    config = load(ROOT / ".pre-commit-config.yaml")
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    for hook in HOOKS.values():
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")
        assert (Path(sys.prefix) / "bin" / hook["entry"].split()[0].removeprefix(".venv/bin/")).exists()


# Workflows

PINNED = r"(?:- )?uses: ([\w-]+/[\w/-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)"


def unpinned(workflow):
    """The lines that take an action by a name that can be moved."""
    lines = [line.strip() for line in workflow.splitlines() if re.search(r"\buses\b", line)]
    return [line for line in lines if not re.fullmatch(PINNED, line)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_commit_with_its_version(path):
    workflow = path.read_text(encoding="utf-8")
    assert re.search(PINNED, workflow)
    assert unpinned(workflow) == []


@pytest.mark.parametrize(
    "line",
    [
        "- uses: actions/checkout@v6", "- uses: actions/checkout@main # v6.0.2",
        "- {uses: actions/checkout@v6}", "- uses: actions/checkout@de0fac2e # v6.0.2",
        f"- uses: actions/checkout@{'a' * 40}",
    ],
)  # fmt: skip
def test_what_is_not_pinned_is_seen(line):
    assert unpinned(f"steps:\n  {line}\n")


def test_one_action_is_at_one_commit_everywhere():
    found = {pin for path in WORKFLOWS for pin in re.findall(PINNED, path.read_text(encoding="utf-8"))}
    assert len(found) == len({action for action, _, _ in found})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_and_only_publishing_may_write(path):
    workflow = load(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        given = job.get("permissions", {"contents": "read"})
        publishes = path.stem == "pages" and name == "deploy"
        assert given == ({"pages": "write", "id-token": "write"} if publishes else {"contents": "read"})
        if publishes:
            assert not any("run" in step for step in job["steps"])
    assert "pull_request_target" not in workflow[True]  # YAML reads the word "on" as true


def steps(name, job):
    return load(GITHUB / "workflows" / f"{name}.yml")["jobs"][job]["steps"]


def test_the_website_is_built_and_published_from_main():
    workflow = load(GITHUB / "workflows" / "pages.yml")
    assert workflow[True] == {"push": {"branches": ["main"]}, "workflow_dispatch": None}
    assert workflow["concurrency"] == {"group": "pages", "cancel-in-progress": False}
    assert [step["run"] for step in steps("pages", "build") if "run" in step] == ["make site"]
    assert steps("pages", "build")[-1]["with"] == {"path": "build/site"}
    deploy = workflow["jobs"]["deploy"]
    assert deploy["needs"] == "build"
    assert deploy["if"] == "github.ref == 'refs/heads/main'"
    assert deploy["environment"]["name"] == "github-pages"


def test_the_oldest_and_the_newest_versions_are_tried_weekly():
    workflow = load(GITHUB / "workflows" / "versions.yml")
    assert set(workflow[True]) == {"schedule", "workflow_dispatch", "pull_request"}
    assert re.fullmatch(r"\d+ \d+ \* \* \d", workflow[True]["schedule"][0]["cron"])
    assert {"pyproject.toml", "constraints.txt"} <= set(workflow[True]["pull_request"]["paths"])
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["command"] == [
        "make test-oldest",
        "make test-newest",
    ]
    *before, last = [step for step in steps("versions", "test") if "run" in step]
    assert last["run"] == "${{ matrix.command }}"
    assert before == [step for step in steps("test", "test") if "run" in step][:-1]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_makes_is_in_the_makefile(path):
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", path.read_text(encoding="utf-8")))
    assert named
    assert named <= targets


# Forms


def test_three_forms_ask_what_is_needed_to_try_it_again():
    forms = {load(path)["name"]: load(path) for path in (GITHUB / "ISSUE_TEMPLATE").glob("a*.yml")}
    needed = {
        "A cell fails": {"chapter", "cell", "output", "where"},
        "An explanation is unclear": {"place", "quote", "understood"},
        "A mistake that check does not recognise": {"exercise", "kind", "answer", "report", "idea"},
    }
    assert set(forms) == set(needed)
    for name, form in forms.items():
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        ids = [field["id"] for field in fields]
        assert len(set(ids)) == len(ids)
        asked = {field["id"] for field in fields if field.get("validations", {}).get("required")}
        assert asked == needed[name]


def test_a_pull_request_has_a_reviewers_list_for_chapters():
    template = text(".github/pull_request_template.md")
    before, _, reviewing = template.partition("## For the reviewer of a chapter")
    assert "`make test`" in before
    assert "CHANGELOG.md" in before
    assert len(re.findall(r"^- \[ \] .{20,}", reviewing, re.MULTILINE)) >= 6


PAGES = ("SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/architecture.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_link_of_a_page_leads_to_a_file_and_a_heading(page):
    for target in re.findall(r"\]\((?!https://)([^)\s]*)\)", text(page)):
        file, _, part = target.partition("#")
        there = (ROOT / page).parent / file if file else ROOT / page
        assert there.exists(), target
        if part:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert part in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in headings}


def test_the_limits_that_security_names_are_those_of_the_code():
    from mha_lab.check import sandbox
    from mha_lab.classroom import grading, isolation

    page = " ".join(text("SECURITY.md").split())
    assert f"after {sandbox.SECONDS:g} seconds of computing" in page
    assert f"or {sandbox.PATIENCE * sandbox.SECONDS:g} by the clock" in page
    assert f"{sandbox.MEMORY >> 30} GB more" in page
    assert f"{grading.GradeApart.cell_seconds.default_value:g} seconds a cell" in page
    assert f"{grading.GradeApart.seconds.default_value / 60:g} minutes in all" in page
    assert f"{isolation.MEMORY >> 30} GB a process" in page
    assert f"{256} MB" in page
    assert str(256 * 2**20) in isolation.command("bubblewrap")
    assert "--size" in isolation.command("bubblewrap")
    assert set(isolation.KINDS) == {"bubblewrap", "podman", "docker", "none"}


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


# The map of the code

MAP = "docs/architecture.md"


def named(page):
    """The files and folders that a page names in code type; NAME and NN stand for what is new."""
    names = set(re.findall(r"`([\w./-]+(?:/|\.(?:py|md|js|ipynb)))`", page))
    return {name for name in names if not re.search("NAME|NN_", name)}


def test_each_file_that_the_map_names_is_there():
    names = named(text(MAP))
    assert len(names) > 10
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_map_is_at_most_two_screens_with_its_picture_described():
    page = text(MAP)
    assert len(page.split()) < 700
    (alternative,) = re.findall(r"!\[([^\]]+)\]\(\.\./figures/architecture\.png\)", page)
    from tools.architecture import BOXES

    for box in BOXES.values():
        for word in re.findall(r"\w+", f"{box.title} {' '.join(box.new)}"):
            assert word.lower() in alternative.lower(), word


def test_no_plot_is_without_a_test():
    from mha_lab import plot

    functions = [name for name, item in vars(plot).items() if inspect.isfunction(item)]
    public = [n for n in functions if n[0] != "_" and getattr(plot, n).__module__ == plot.__name__]
    tried = text("tests/test_plot.py")
    assert len(public) > 5
    assert [name for name in public if f"plot.{name}(" not in tried] == ["style"]  # it draws nothing


def test_no_explorable_is_without_a_module_a_name_and_an_example():
    from mha_lab import explore
    from tests.explore import examples

    folder = ROOT / "mha_lab" / "explore"
    pages = {path.stem for path in folder.glob("*.js")} - {"shared"}
    sides = {path.stem[1:] for path in folder.glob("_[a-z]*.py")} - {"widget"}
    assert pages == sides == set(explore.__all__) == set(examples.ALL)


@pytest.fixture
def drawn():
    """The picture, laid out as it will be saved."""
    import matplotlib.pyplot as plt

    from mha_lab import plot
    from tools.architecture import architecture

    with plt.rc_context():
        plot.style()
        figure = architecture()
        figure.canvas.draw()
        yield figure
        plt.close(figure)


def test_in_the_picture_no_words_are_small_cut_or_on_top_of_each_other(drawn):
    (ax,) = drawn.axes
    inside = [words.get_window_extent() for words in ax.texts if words.get_text()]
    assert len(inside) > 30
    assert all(words.get_fontsize() >= 10 for words in ax.texts if words.get_text())
    for i, one in enumerate(inside):
        assert drawn.bbox.contains(one.x0, one.y0)
        assert drawn.bbox.contains(one.x1, one.y1)
        for other in inside[i + 1 :]:
            assert not one.overlaps(other)


def test_in_the_picture_words_stay_in_their_boxes_and_clear_of_arrows(drawn):
    from tools.architecture import BOXES, CHAPTERS, HANDED, IMPORTED

    (ax,) = drawn.axes
    arrows = [np.linspace(*ends, 200) for ends in (*IMPORTED.values(), *HANDED, CHAPTERS)]
    in_a_box = 0
    for words in ax.texts:
        if not words.get_text():
            continue  # an arrow
        (x0, y0), (x1, y1) = ax.transData.inverted().transform(words.get_window_extent())
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        for box in BOXES.values():
            left, low = box.x - box.width / 2, box.y - box.height / 2
            if left < x < left + box.width and low < y < low + box.height:
                in_a_box += 1
                assert left + 0.1 < x0 < x1 < left + box.width - 0.1, words.get_text()
                assert low < y0 < y1 < low + box.height, words.get_text()
        for arrow in arrows:
            inside = (x0 < arrow[:, 0]) & (arrow[:, 0] < x1) & (y0 < arrow[:, 1]) & (arrow[:, 1] < y1)
            assert not inside.any(), words.get_text()
    assert in_a_box == sum(1 + len(box.lines) + len(box.new) for box in BOXES.values())


def test_in_the_picture_boxes_are_apart_and_name_their_modules():
    from tools.architecture import BOXES, GROUPS

    boxes = list(BOXES.values())
    for i, one in enumerate(boxes):
        for other in boxes[i + 1 :]:
            apart_x = abs(one.x - other.x) > (one.width + other.width) / 2
            apart_y = abs(one.y - other.y) > (one.height + other.height) / 2
            assert apart_x or apart_y, (one.title, other.title)
    for name, modules in GROUPS.items():
        words = re.findall(r"\w+", " ".join([BOXES[name].title, *BOXES[name].lines]))
        assert set(modules) <= set(words), name


def test_every_arrow_of_the_picture_goes_from_box_to_box():
    from tools.architecture import BOXES, CHAPTERS, FRAME, HANDED, IMPORTED

    def at_the_edge_of(box, point):
        across = abs(abs(point[0] - box.x) - box.width / 2) < 1e-6
        along = abs(abs(point[1] - box.y) - box.height / 2) < 1e-6
        within_x = abs(point[0] - box.x) <= box.width / 2 + 1e-6
        within_y = abs(point[1] - box.y) <= box.height / 2 + 1e-6
        return (across and within_y) or (along and within_x)

    for (giver, importer), (start, end) in IMPORTED.items():
        assert at_the_edge_of(BOXES[giver], start), (giver, importer)
        assert at_the_edge_of(BOXES[importer], end), (giver, importer)
    for start, end in (*HANDED, CHAPTERS):
        assert any(at_the_edge_of(box, start) for box in (*BOXES.values(), FRAME))
        assert any(at_the_edge_of(box, end) for box in BOXES.values())


WRONG_IMPORTS = {
    "attention.py": "from mha_lab import plot\n",
    "masks.py": "import mha_lab.multihead\n",
    "heads.py": "def late():\n    from mha_lab.check import check\n",
    "plot.py": "from mha_lab.explore import mask\n",
}


@pytest.mark.parametrize("module", WRONG_IMPORTS)
def test_an_import_against_the_flow_is_seen(tmp_path, module):
    from tools.architecture import PACKAGE, architecture, imports

    package = tmp_path / "mha_lab"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert imports(package) == imports()
    with (package / module).open("a", encoding="utf-8") as file:
        file.write(WRONG_IMPORTS[module])
    with pytest.raises(ValueError, match="imported and not drawn: "):
        architecture(package)


def test_a_module_without_a_place_in_the_picture_is_seen(tmp_path):
    from tools.architecture import imports

    (tmp_path / "new.py").write_text("import torch\n")
    with pytest.raises(ValueError, match="new is in no box"):
        imports(tmp_path)
