"""The report in a real browser: on a screen, on a phone and on paper."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from nbformat.v4 import new_code_cell, new_notebook

from bench.browser import needs_chromium
from mha_course.exercises import find
from mha_course.grading import report
from mha_course.grading.gradebook import Row
from tests.grading.simulated import CHAPTER, SEED, judged, pages, simulate
from tests.notebooks.chapters import NAMES, read

pytestmark = [pytest.mark.browser, needs_chromium]
PRINTED = re.compile(rb"/Type\s*/Page\b")


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Both pages about the simulated class, as files."""
    folder = tmp_path_factory.mktemp("report")
    for name, page in pages(simulate(SEED)).items():
        (folder / name).write_text(page, encoding="utf-8")
    return folder


@pytest.fixture
def opened(browser):
    """Opens a file; whatever it asks for or complains about is an error."""
    made = []

    def open_(file, width=1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.others = []
        made.append(page)
        page.on("console", lambda message: page.others.append(message.text))
        page.on("pageerror", lambda error: page.others.append(str(error)))
        page.on("request", lambda request: page.others.append(request.url[:80]))
        page.goto(file.as_uri())
        page.others = [
            other for other in page.others if other != file.as_uri() and other[:10] != "data:image"
        ]
        return page

    yield open_
    for page in made:
        page.close()


@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("name", [report.PAGE, report.WITH_NAMES])
def test_axe_finds_no_violation_and_nothing_is_cut_off_or_loaded(example, opened, name, width):
    page = opened(example / name, width)
    assert page.others == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    pictures = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
    assert [size > 100 for size in pictures] == [True] * (name == report.PAGE)
    found = Axe().run(page).response["violations"]
    assert [(rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in found] == []


def test_the_page_runs_no_script_even_if_one_gets_into_it(example, opened):
    file = example / "with-script.html"
    text = (example / report.PAGE).read_text(encoding="utf-8")
    file.write_text(
        text.replace("<main>", "<main><script>document.title = 'it ran'</script>"), encoding="utf-8"
    )
    page = opened(file)
    assert "it ran" not in page.title()
    assert any("Content Security Policy" in other for other in page.others)


def test_the_example_prints_on_two_pages(example, opened):
    page = opened(example / report.PAGE)
    assert len(PRINTED.findall(page.pdf(prefer_css_page_size=True))) == 2


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(CHAPTER)])
def test_every_chapter_prints_on_two_pages(name, opened, tmp_path):
    """With all first tries, dealt to a class; those of the short test are as many as are ever shown."""
    pool, chapter = judged(name[:2]), read(name)
    dealt = {
        f"s{i}": {exercise: made[i] for exercise, made in pool.items() if i < len(made)}
        for i in range(max(map(len, pool.values())))
    }
    rows = [
        Row(student, handed_in=True, outcomes={exercise: outcome for exercise, (_, outcome) in typed.items()})
        for student, typed in dealt.items()
    ]
    submitted = {
        student: new_notebook(cells=[new_code_cell(one.source) for one, _ in typed.values()])
        for student, typed in dealt.items()
    }
    most = {exercise: float(find(exercise).points) for exercise in pool}
    file = tmp_path / report.PAGE
    ticked = simulate(SEED).ticked()
    file.write_text(report.make(chapter, rows, most, submitted, ticked)[report.PAGE], encoding="utf-8")
    page = opened(file)
    # In chapter 11, few readers share a mistake.
    treated = page.locator("article").count()
    assert treated == report.TREATED or (name.startswith("11") and treated)
    assert len(PRINTED.findall(page.pdf(prefer_css_page_size=True))) == 2
