"""One explorable in one browser, in every run of the tests; test_page has the others."""

import pytest

from bench import examples
from bench.browser import needs_chromium


@needs_chromium
def test_the_query_follows_the_pointer(shown):
    page = shown(examples.ALL["query"](), dead=True)
    plane = page.locator("svg").bounding_box()
    middle = plane["x"] + plane["width"] / 2, plane["y"] + plane["height"] / 2
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 95, middle[1])
    reach = page.evaluate("model.get('_reach')")
    assert page.evaluate("model.get('_query')") == pytest.approx([reach / 2, 0], abs=0.02 * reach)
    row = page.locator("tbody tr").first.inner_text().split()
    page.mouse.up()
    page.mouse.move(*middle)
    assert page.locator("tbody tr").first.inner_text().split() == row  # let go: it stays
    assert row[-1] > "0.9"
    assert "key 0 has the largest weight" in page.get_by_role("status").inner_text()
