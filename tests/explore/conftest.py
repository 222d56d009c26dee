"""A page for an explorable."""

import pytest

from bench.browser import show


@pytest.fixture
def shown(browser):
    """Shows explorables on pages; whatever the console says is an error."""
    pages = []
    yield lambda *given, **named: pages.append(show(browser, *given, **named)) or pages[-1]
    for page in pages:
        assert page.errors == []
        page.close()
