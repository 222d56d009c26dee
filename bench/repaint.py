"""How long an explorable takes from a pointer's move to the finished layout, in headless Chromium."""

from tests.explore import examples, timing
from tests.explore.browser import CHROMIUM, open_chromium

MOVES = 300


def report() -> None:
    """Each at its largest size, with a kernel that answers and with one that is gone."""
    if CHROMIUM is None:
        print("no Chromium here: nothing measured")
        return
    with open_chromium() as browser:
        empty = browser.new_page()
        print(f"an empty page's own frame: {_frame(empty):.1f} ms")
        for name in examples.ALL:
            for dead in (False, True):
                page = timing.largest(browser, name, dead=dead)
                timing.median_and_late(page, name)  # the first moves compile
                median, late = timing.median_and_late(page, name, MOVES)
                good = median <= timing.MEDIAN and late <= timing.LATE
                print(
                    f"{name:6} kernel {'stopped' if dead else 'there  '}  median {median:4.1f} ms  "
                    f"95th percentile {late:4.1f} ms  asked: {timing.MEDIAN} and {timing.LATE}  "
                    + ("ok" if good else "MISSED"),
                    flush=True,
                )
                page.close()


def _frame(page) -> float:
    """The time between two frames: what the machine can do at best."""
    return page.evaluate(
        "() => new Promise((done) => requestAnimationFrame((a) => requestAnimationFrame((b) => done(b - a))))"
    )
