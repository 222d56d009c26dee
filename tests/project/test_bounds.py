"""The versions with which the checks of behaviour run beside the pins."""

import tomllib

from tests.notebooks.chapters import ROOT
from tools import bounds


def test_the_oldest_versions_hold_what_learners_install_at_its_bounds():
    extras = {"lab": ["jupyterlab>=4.2"], "class": [], "pretrained": [], "dev": ["PyYAML>=6.0"]}
    project = {"dependencies": ["torch>=2.6"], "optional-dependencies": extras}
    pins = "# pins\ntorch==2.13.0\npyyaml==6.0.3\nother==1.0\n"
    assert bounds.oldest(project, pins) == ["torch==2.6", "jupyterlab==4.2", "PyYAML==6.0.3"]


def test_every_requirement_of_the_project_is_in_the_oldest_versions_and_none_in_the_newest(capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    bounds.main("oldest")
    _, *oldest = capsys.readouterr().out.splitlines()
    listed = [line for lines in (project["dependencies"], *extras) for line in lines]
    assert {line.partition("==")[0] for line in oldest} == {line.partition(">=")[0] for line in listed}
    assert {line.replace(">=", "==") for line in project["dependencies"]} <= set(oldest)
    bounds.main("newest")
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")] == [""]
