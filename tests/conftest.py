"""What every test starts from and leaves behind."""

from collections import Counter

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from hypothesis import settings

matplotlib.use("Agg")  # no test opens a window

# The same examples on every run: a pull request goes red for what it changed, not by the dice.
# `pytest --hypothesis-profile=default tests/test_bad_input.py` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")


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


@pytest.fixture(autouse=True)
def same_start():
    """The same random numbers for each test, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def close_figures():
    """No figure outlives its test."""
    yield
    plt.close("all")
