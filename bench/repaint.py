"""The time from a pointer's move to the finished layout of the largest explorables, in headless Chromium."""

import statistics

import torch

from mha_lab import explore
from tools import examples
from tools.browser import CHROMIUM, open_chromium, show

MOVES = 300
MEDIAN, LATE = 16, 33  # ms: a frame, and two
MOVE = """(all, i) => {
  const box = all[0].getBoundingClientRect(), at = { bubbles: true, pointerId: 1, isPrimary: true };
  at.clientX = box.left + box.width * ((i * 37) % 97) / 97;
  at.clientY = box.top + box.height * ((i * 53) % 89) / 89;
  all[0].dispatchEvent(new PointerEvent("pointermove", at));
}"""
# Each move presses one cell and drags into the next; both change.
PAINT = """(all, i) => {
  const at = { bubbles: true, pointerId: 1, isPrimary: true };
  all[(i * 74) % 256].dispatchEvent(new PointerEvent("pointerdown", at));
  all[(i * 74 + 1) % 256].dispatchEvent(new PointerEvent("pointerenter", at));
}"""
STEP = "(all, i) => all[i % 6 < 3 ? 1 : 0].click()"  # Next three times, Back three times
TIMES = """async ([act, selector, moves]) => {
  const all = document.querySelectorAll(selector), times = [], once = eval(act);
  for (let i = 0; i < moves; i += 1) {
    await new Promise(requestAnimationFrame);
    const start = performance.now();
    once(all, i);
    document.body.getBoundingClientRect(); // style and layout are done
    times.push(performance.now() - start);
  }
  return times;
}"""


def _largest():
    torch.manual_seed(0)
    weights = torch.randn(16, 128, 128).softmax(-1)
    angle = torch.arange(8.0)
    keys = 4 * torch.stack([angle.cos(), angle.sin()], dim=1)
    return {
        "query": (explore.query(keys, torch.randn(8, 4)), MOVE, "svg"),
        "heads": (explore.heads(weights, [f"t{i}" for i in range(128)]), MOVE, ".map"),
        "mask": (explore.mask(torch.randn(16, 16)), PAINT, ".cell"),
        "split": (explore.split(6, 4, 4), STEP, "button"),
    }


def largest(browser, name, *, dead):
    """A page with the explorable at its largest size, as while dragging."""
    page = show(browser, _largest()[name][0], dead=dead)
    page.evaluate("SVGElement.prototype.hasPointerCapture = () => true")
    return page


def median_and_late(page, name, moves=60):
    """The median and the 95th percentile over some moves, in ms."""
    _, act, selector = _largest()[name]
    times = page.evaluate(TIMES, [act, selector, moves])
    return statistics.median(times), statistics.quantiles(times, n=20)[-1]


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
                page = largest(browser, name, dead=dead)
                median_and_late(page, name)  # the first moves compile
                median, late = median_and_late(page, name, MOVES)
                good = median <= MEDIAN and late <= LATE
                print(
                    f"{name:6} kernel {'stopped' if dead else 'there  '}  median {median:4.1f} ms  "
                    f"95th percentile {late:4.1f} ms  asked: {MEDIAN} and {LATE}  "
                    + ("ok" if good else "MISSED"),
                    flush=True,
                )
                page.close()


def _frame(page) -> float:
    """The time between two frames: the best that the machine can do."""
    return page.evaluate(
        "() => new Promise((done) => requestAnimationFrame((a) => requestAnimationFrame((b) => done(b - a))))"
    )
