"""How long an explorable takes from a pointer's move to the finished layout, at its largest size."""

import statistics

import torch

from mha_lab import explore
from tests.explore.browser import show

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
