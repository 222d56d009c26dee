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
    """One line for each reason why tests were not run, which says how to get what is missing."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason, count in Counter(report.longrepr[2] for report in skipped).items():
        terminalreporter.write_line(f"not run, {count} tests: {reason.removeprefix('Skipped: ')}")


@pytest.fixture(autouse=True)
def same_start():
    """The same random numbers for each test, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def close_figures():
    """No figure outlives its test."""
    yield
    plt.close("all")
