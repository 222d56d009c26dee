"""A pytest plugin: says at once what failed and how to run that alone, and hands it on to ``tools.gate``."""

import os
import shlex
from pathlib import Path

import pytest


def command(nodeid: str) -> str:
    """The line that runs this test alone, or, for a cell, its whole chapter."""
    target = nodeid.partition("::")[0] if ".ipynb" in nodeid else nodeid
    return f"{os.environ['ALONE']} {shlex.quote(target)}"


class Alone:
    """Reports each failure when it happens, and each command once."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal
        self.said: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.say(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say(report.nodeid)

    def say(self, nodeid: str) -> None:
        """One line on the terminal, and one in the file that the summary of all parts is made from."""
        line = f"failed: {nodeid}\n    alone: {command(nodeid)}"
        if line not in self.said:
            self.said.add(line)
            self.terminal.write_line(f"\n{line}")
            if "FAILED" in os.environ:
                with Path(os.environ["FAILED"]).open("a", encoding="utf-8") as file:
                    file.write(line + "\n")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Only where results come together: pytest-xdist's workers report to it."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput") and "ALONE" in os.environ:
        config.pluginmanager.register(Alone(terminal))
