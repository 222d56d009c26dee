"""One list of dependencies: pyproject.toml. The other files say the same, and the code needs no more."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from rattler import BuildString, MatchSpec, PackageRecord

import mha_lab

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
# Where conda-forge's name differs: a build without CUDA, and one without a window toolkit.
CONDA_NAMES = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base"}
IMPORT_NAMES = {"py-rattler": "rattler", "pyyaml": "yaml"}
# Colab in August 2026.
COLAB = {"torch": "2.11.0", "numpy": "2.1.0", "matplotlib": "3.10.0", "seaborn": "0.13.2", "einops": "0.8.0"}


def requirements(*groups):
    """``{name: Requirement}`` of the core (no group named) or of extras."""
    lines = PROJECT["dependencies"] if not groups else []
    for group in groups:
        lines = lines + PROJECT["optional-dependencies"][group]
    return {canonicalize_name(r.name): r for r in map(Requirement, lines)}


CORE, EXTRAS = requirements(), requirements("lab", "dev", "class", "pretrained")
PIP_ONLY = requirements("browser", "site", "project")  # not in environment.yml
PINS = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
}


def test_the_core_is_these_nine():
    arrays, pictures = {"torch", "numpy", "einops", "jaxtyping"}, {"matplotlib", "seaborn", "anywidget"}
    assert set(CORE) == arrays | pictures | {"tqdm", "safetensors"}


@pytest.mark.parametrize("name", [*CORE, *EXTRAS, *PIP_ONLY])
def test_bounds_are_lower_bounds_only(name):
    requirement = (CORE | EXTRAS | PIP_ONLY)[name]
    assert [s.operator for s in requirement.specifier] == [">="]
    assert requirement.marker is None
    assert requirement.url is None


def test_nothing_is_listed_twice():
    listed = [
        canonicalize_name(Requirement(line).name)
        for lines in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
        for line in lines
    ]
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("name", COLAB)
def test_colab_meets_the_core(name):
    assert Version(COLAB[name]) in CORE[name].specifier


@pytest.mark.parametrize("name", [*CORE, *EXTRAS, *PIP_ONLY])
def test_the_pins_meet_the_bounds(name):
    assert Version(PINS[name]) in (CORE | EXTRAS | PIP_ONLY)[name].specifier


def test_pytorch_is_pinned_to_a_release_without_a_local_part():
    assert PINS["torch"] == "2.13.0"


# environment.yml, read by conda's own parser


def conda_specs():
    """``{conda name: MatchSpec}`` of everything but Python and pip."""
    lines = [line for line in ENVIRONMENT["dependencies"] if isinstance(line, str)]
    specs = {re.match(r"[\w-]+", line)[0]: MatchSpec(line, strict=True) for line in lines}
    return {name: spec for name, spec in specs.items() if name not in ("python", "pip")}


def takes(spec, name, version):
    """Whether conda would install this version of this package for the spec."""
    build = BuildString("0")
    record = PackageRecord(name=name, version=version, build=build, build_number=0, subdir="noarch")
    return spec.matches(record)


def test_conda_gets_the_same_names():
    assert set(conda_specs()) == {CONDA_NAMES.get(name, name) for name in CORE | EXTRAS}


def probes(bound):
    """Versions just below a bound, at it, and above it."""
    release = list(Version(bound).release)
    above = [*release, 1]
    major = [release[0] + 1, 0]
    position = max(i for i, part in enumerate(release) if part)
    below = [*release[:position], release[position] - 1, 99]
    return [".".join(map(str, parts)) for parts in (below, release, above, major)]


@pytest.mark.parametrize("name", [*CORE, *EXTRAS])
def test_conda_gets_the_same_ranges(name):
    requirement = (CORE | EXTRAS)[name]
    spec = conda_specs()[CONDA_NAMES.get(name, name)]
    (bound,) = requirement.specifier
    answers = [version in requirement.specifier for version in probes(bound.version)]
    assert answers == [False, True, True, True]
    conda_name = CONDA_NAMES.get(name, name)
    assert [takes(spec, conda_name, version) for version in probes(bound.version)] == answers
    assert str(spec.version) == str(requirement.specifier)
    assert spec.build is None
    assert spec.channel is None


def test_conda_gets_an_explicit_python_and_only_conda_forge():
    assert ENVIRONMENT["name"] == "mha-lab"
    assert ENVIRONMENT["channels"] == ["conda-forge", "nodefaults"]
    python = next(line for line in ENVIRONMENT["dependencies"] if str(line).startswith("python"))
    spec = MatchSpec(python, strict=True)
    assert takes(spec, "python", "3.11.7")
    assert not takes(spec, "python", "3.12.0")
    assert Version("3.11.7") in Requirement(f"python{PROJECT['requires-python']}").specifier


def test_the_package_itself_comes_by_pip():
    assert "pip" in ENVIRONMENT["dependencies"]
    assert [line for line in ENVIRONMENT["dependencies"] if isinstance(line, dict)] == [{"pip": ["-e ."]}]


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
    return found - sys.stdlib_module_names - {"mha_lab", "tests", "tools", "bench"}


def import_names(listed):
    return {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in listed}


# What these bring along and hand out as part of their own interface.
BROUGHT = {
    "jupyter_client": "ipykernel", "IPython": "ipykernel", "PIL": "matplotlib",
    "nbconvert": "nbgrader", "traitlets": "nbgrader",
    "huggingface_hub": "transformers", "tokenizers": "transformers",
}  # fmt: skip


def test_the_package_imports_the_core_and_what_a_kernel_always_has():
    in_class = imported("mha_lab/grading")
    always = {"IPython", "traitlets"}  # with a kernel, and with anywidget
    optional = {"transformers", "huggingface_hub"}  # the extra "pretrained", imported when it is needed
    assert imported("mha_lab") - in_class - always - optional <= import_names(CORE)
    assert {BROUGHT.get(name, name) for name in in_class} <= import_names(CORE | EXTRAS)


def test_tools_and_tests_import_what_is_listed():
    found = {BROUGHT.get(name, name) for name in imported("tools", "tests", "bench")}
    assert found <= import_names(CORE | EXTRAS | PIP_ONLY)


def test_nothing_is_listed_that_nothing_uses():
    files = [ROOT / name for name in ("Makefile", "CONTRIBUTING.md", ".pre-commit-config.yaml")]
    files += (ROOT / "docs" / "site").glob("*.py")
    files += [
        path for folder in ("mha_lab", "tools", "tests", "bench") for path in (ROOT / folder).rglob("*.py")
    ]
    text = "\n".join(p.read_text(encoding="utf-8") for p in [*files, *(ROOT / "notebooks").glob("*.ipynb")])
    plugins = {
        "pytest-xdist": "-n 2", "nbval": "--nbval", "jupyterlab": "jupyter lab",
        "build": '"-m", "build"', "twine": '"-m", "twine"',
        "pre-commit-hooks": "check-added-large-files", "detect-secrets": "detect-secrets-hook",
        "import-linter": "lint-imports", "check-jsonschema": "bin/check-jsonschema",
    }  # fmt: skip
    for name in CORE | EXTRAS | PIP_ONLY:
        word = plugins.get(name, IMPORT_NAMES.get(name, name.replace("-", "_")))
        assert word in text, name


def test_importing_the_package_loads_torch_and_nothing_heavier():
    program = (
        "import sys, torch; before = set(sys.modules); import mha_lab; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"matplotlib", "seaborn", "IPython", "ipywidgets", "anywidget", "pandas", "scipy", "einops"}
    assert not set(done.stdout.split()) & heavy


# The files that name the project


def test_version_and_licence_agree_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == mha_lab.__version__
    assert " AND ".join(citation["license"]) == PROJECT["license"]
    for name in PROJECT["license-files"]:
        assert (ROOT / name).read_text(encoding="utf-8").strip()
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]


def test_ci_runs_both_halves_and_skips_nothing():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert ci[-5:] == [
        "export MHA_LAB_SKIP_NOTHING=1",
        "failed=0",
        "make test || failed=1",
        "make test-all || failed=1",
        "exit $failed",
    ]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    nothing_skipped = {"MHA_LAB_SKIP_NOTHING": "1"}
    assert steps[-2:] == [{"run": f"make {half}", "env": nothing_skipped} for half in ("test", "test-all")]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make test " in readme
    assert "`make test-all`" in readme
