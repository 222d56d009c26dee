"""The versions with which the checks of behaviour run beside the pins."""

import tomllib

from tests.notebooks.chapters import ROOT
from tools import bounds


def test_the_oldest_versions_holds_what_learners_install_at_its_bounds():
    project = {
        "dependencies": ["torch>=2.6", "numpy>=2.0"],
        "optional-dependencies": {
            "lab": ["jupyterlab>=4.2"],
            "class": [],
            "pretrained": [],
            "dev": ["PyYAML>=6.0"],
        },
    }
    pins = "# pins\ntorch==2.13.0\npyyaml==6.0.3\nother==1.0\n"
    assert bounds.oldest(project, pins) == ["torch==2.6", "numpy==2.0", "jupyterlab==4.2", "PyYAML==6.0.3"]


def test_every_requirement_of_the_project_is_in_the_oldest_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = {
        line.partition(">=")[0] for lines in (project["dependencies"], *extras.values()) for line in lines
    }
    held = dict(line.split("==") for line in bounds.oldest(project, (ROOT / "constraints.txt").read_text()))
    assert set(held) == names
    assert {f"{name}>={held[name]}" for name in bounds.bounds(project["dependencies"])} == set(
        project["dependencies"]
    )


def test_the_newest_versions_holds_nothing(capsys):
    bounds.main("newest")
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")] == [""]
