"""What every test starts from and leaves behind."""

import os
from collections import Counter

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import config

matplotlib.use("Agg")  # no test opens a window
os.environ["MHA_LAB_PROGRESS"] = "0"  # right answers of tests, and of what they start, are nobody's progress

# The same examples on every run: a pull request fails because of its change, and not by chance.
# `pytest --hypothesis-profile=default tests/test_bad_input.py` looks for new ones.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


def pytest_configure(config):
    """Nothing was named: run what is fast."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.markexpr:
        config.option.markexpr = "not (slow or browser or grading or training or colab or hub)"


# With `--dist loadfile`, each of them runs in one process: it must not begin when the others are done.
LONGEST = "test_exercise_tool.py", "test_site.py", "test_jupyter.py", "test_report_page.py", "test_firefox.py"


def pytest_collection_modifyitems(items):
    """The longest files first, the others in their order."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def pytest_terminal_summary(terminalreporter):
    """Why tests were not run and how to get what is missing; how far from its peers the layer was at most."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason, count in Counter(report.longrepr[2] for report in skipped).items():
        terminalreporter.write_line(f"not run, {count} tests: {reason.removeprefix('Skipped: ')}")
    largest = {}
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name.startswith("largest difference"):
                largest[name] = max(value, largest.get(name, 0.0))
    for name, value in largest.items():
        terminalreporter.write_line(f"{name}: {value:.1e}")


TOO_SLOW = """\
too slow: a time limit was over. It is ten times what an idle machine needs, or more: look at what hangs,
or at what else this machine does."""


def pytest_runtest_makereport(call):
    """A child, a page or a cell that took too long says so in plain words."""
    if call.excinfo and "Timeout" in call.excinfo.typename:
        call.excinfo.value.add_note(TOO_SLOW)


@pytest.fixture(autouse=True)
def shapes_are_checked(request):
    """In every call, but for tests that pass wrong arguments or trace the code."""
    disable = request.node.get_closest_marker("unchecked") is not None
    config.update("jaxtyping_disable", disable)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def same_start():
    """The same random numbers for each test, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def browser():
    """One Chromium for all tests of a file."""
    from bench.browser import open_chromium

    with open_chromium() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def firefox():
    """One Firefox for all tests of a file, where less motion is asked for."""
    from bench.firefox import CALM, Firefox

    with Firefox(CALM) as firefox:
        yield firefox


@pytest.fixture(autouse=True)
def close_figures():
    """No figure outlives its test."""
    yield
    plt.close("all")
