"""One list of dependencies: pyproject.toml. The other files say the same, and the code needs no more."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler import MatchSpec

import mha_lab
from tests.colab import like_colab
from tests.notebooks.chapters import ROOT
from tools.sync import published

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
# Where conda-forge's name differs: a build without CUDA, and one without a window toolkit.
CONDA_NAMES = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base"}
IMPORT_NAMES = {"pillow": "PIL", "py-rattler": "rattler", "pyyaml": "yaml", "websocket-client": "websocket"}
COLAB = {each.name: each for each in map(Requirement, like_colab.COLAB) if each.specifier}


def requirements(*groups):
    """``{name: Requirement}`` of the core (no group named) or of extras."""
    lines = [line for group in groups for line in PROJECT["optional-dependencies"][group]]
    found = [Requirement(line) for line in (lines if groups else PROJECT["dependencies"])]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


CORE, LAB = requirements(), requirements("lab")  # what a learner needs, and so what environment.yml has
EXTRAS = requirements(*PROJECT["optional-dependencies"])
ALL = CORE | EXTRAS
PINS = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(r"(?m)^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text())
}


@pytest.mark.parametrize("name", ALL)
def test_bounds_are_lower_bounds_only_and_the_pins_meet_them(name):
    assert [s.operator for s in ALL[name].specifier] == [">="]
    assert (ALL[name].marker, ALL[name].url) == (None, None)
    assert PINS[name] in ALL[name].specifier
    assert PINS[name].local is None


def test_chapter_12_names_the_pinned_transformers():
    text = (ROOT / "notebooks/12_smaller_caches.ipynb").read_text(encoding="utf-8")
    assert re.findall(r"version (\S+), as in our `constraints.txt`", text) == [str(PINS["transformers"])]


def test_nothing_is_listed_twice():
    lists = (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    assert sum(map(len, lists)) == len(ALL)


@pytest.mark.parametrize("name", sorted(COLAB.keys() & CORE.keys()))
def test_colab_meets_the_core(name):
    (pin,) = COLAB[name].specifier
    assert pin.version.replace(".*", ".0") in CORE[name].specifier


def test_conda_gets_the_same_ranges_an_explicit_python_and_the_package_by_pip():
    assert ENVIRONMENT["name"] == "mha-lab"
    assert ENVIRONMENT["channels"] == ["conda-forge", "nodefaults"]
    *lines, by_pip = ENVIRONMENT["dependencies"]
    assert by_pip == {"pip": ["-e ."]}
    specs = {re.match(r"[\w-]+", line)[0]: MatchSpec(line, strict=True) for line in lines}
    python, pip = specs.pop("python"), specs.pop("pip")
    assert (str(python.version), str(pip.version)) == ("3.11.*", "None")
    assert "3.11.7" in SpecifierSet(PROJECT["requires-python"])
    assert all(spec.build is None and spec.channel is None for spec in specs.values())
    wanted = {CONDA_NAMES.get(name, name): str(r.specifier) for name, r in (CORE | LAB).items()}
    assert {name: str(spec.version) for name, spec in specs.items()} == wanted


# What the code imports


def imported(*folders):
    """Top-level names that the files import, the standard library and our own left out."""
    found = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {"mha_course", "mha_lab", "tests", "tools", "bench"}


def import_names(listed):
    return {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in listed}


# What these bring along and hand out as part of their own interface.
BROUGHT = {
    "jupyter_client": "ipykernel", "IPython": "ipykernel", "jupyterlab_server": "jupyterlab",
    "markupsafe": "jinja2", "nbconvert": "nbgrader", "traitlets": "nbgrader", "bs4": "pydata_sphinx_theme",
    "huggingface_hub": "transformers", "tokenizers": "transformers", "pandas": "seaborn",
}  # fmt: skip


def test_the_package_imports_the_core_and_what_a_kernel_always_has():
    in_class = imported("mha_course/grading")
    always = {"IPython", "traitlets"}  # with a kernel, and with anywidget
    optional = {"transformers", "huggingface_hub"}  # the extra "pretrained", imported when it is needed
    found = imported("mha_lab", "mha_course") - in_class - always - optional
    assert {BROUGHT.get(name, name) for name in found} <= import_names(CORE)
    assert {BROUGHT.get(name, name) for name in in_class} <= import_names(CORE | EXTRAS)


def test_the_finished_pieces_need_torch_and_what_draws():
    drawing = {"IPython", "PIL", "matplotlib", "numpy", "seaborn"}
    assert imported("mha_lab") == {"jaxtyping", "torch"} | drawing


def test_tools_and_tests_import_what_is_listed():
    found = {BROUGHT.get(name, name) for name in imported("tools", "tests", "bench")}
    assert found <= import_names(ALL)


def test_nothing_is_listed_that_nothing_uses():
    files = [ROOT / name for name in ("Makefile", "CONTRIBUTING.md", ".pre-commit-config.yaml")]
    for folder in ("mha_lab", "mha_course", "tools", "tests", "bench", "docs/site"):
        files += (ROOT / folder).rglob("*.py")
    files += (ROOT / "notebooks").glob("*.ipynb")
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    text += (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.pytest.ini_options]")[2]
    plugins = {
        "pytest-xdist": "-n 2", "pytest-rerunfailures": "--reruns", "nbval": "--nbval",
        "jupyterlab": "jupyter lab",
        "build": '"-m", "build"', "twine": '"-m", "twine"',
        "pre-commit-hooks": "check-added-large-files", "detect-secrets": "detect-secrets-hook",
        "import-linter": "lint-imports", "check-jsonschema": "bin/check-jsonschema",
    }  # fmt: skip
    words = {name: plugins.get(name, IMPORT_NAMES.get(name, name.replace("-", "_"))) for name in ALL}
    assert [name for name, word in words.items() if word not in text] == []


def test_importing_the_package_loads_torch_and_nothing_heavier():
    program = (
        "import sys, torch; before = set(sys.modules); import mha_lab, mha_course; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    heavy = {"matplotlib", "seaborn", "IPython", "ipywidgets", "anywidget", "pandas", "scipy", "einops"}
    assert not set(done.stdout.split()) & heavy


# The files that name the project


def test_version_and_licence_agree_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == mha_lab.__version__
    assert " AND ".join(citation["license"]) == PROJECT["license"]
    for name in PROJECT["license-files"]:
        assert (ROOT / name).read_text(encoding="utf-8").strip()
    address = PROJECT["urls"]["Repository"]
    assert citation.get("repository-code") == (address if published(address) else None)


def lanes(target):
    """The parts that a target of the Makefile runs one after another."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return re.search(rf"(?m)^{target}: .*\n\t\$\(LANES\) (.+)$", makefile)[1].split()


def test_ci_runs_what_gates_and_the_workflow_all_parts_and_nothing_is_skipped():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    assert job["steps"][-1] == {"run": "${{ matrix.command }}", "env": {"MHA_LAB_SKIP_NOTHING": "1"}}
    matrix = job["strategy"]["matrix"]
    commands = {*matrix["command"], *(one["command"] for one in matrix["include"])}
    assert commands == {"make test", *(f"make {lane}" for lane in lanes("test-all"))}
    assert "export MHA_LAB_SKIP_NOTHING=1" in ci
    assert [line for line in ci if line.startswith("make")] == ["make test"] == ci[-1:]


def test_the_guide_names_every_part():
    """Each target of the Makefile that tests, and those that ``make test`` runs, has its row."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `make ([\w-]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    parts = {*re.findall(r"(?m)^(test-[\w-]+):.*##", makefile), *lanes("test")} - {"test-all"}
    assert sorted(rows) == sorted(parts)
    assert {"test-fast", "test-processors", "lint"} <= parts
