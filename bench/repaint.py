"""The time from a pointer's move to the finished layout of the largest explorables, in headless browsers."""

import contextlib
import statistics

import torch

from bench.browser import CHROMIUM, open_chromium, show
from bench.firefox import FIREFOX, Firefox
from mha_course import explore
from mha_course.chapters import recall, story_model
from mha_course.chapters.language_model import Decoder
from mha_course.explore._model import MAX_SIZES

MOVES = 300
MEDIAN, LATE = 16, 33  # ms: a frame, and two
PRESSED = {"split"}  # buttons only: the next press comes when the numbers have stopped (0.6 s)
PRESS = 50, 100  # ms: a reader sees no delay (the RAIL model of web.dev)
MOVE = """(all, i) => {
  const box = all[0].getBoundingClientRect(), at = { bubbles: true, pointerId: 1, isPrimary: true };
  at.clientX = box.left + box.width * ((i * 37) % 97) / 97;
  at.clientY = box.top + box.height * ((i * 53) % 89) / 89;
  all[0].dispatchEvent(new PointerEvent("pointermove", at));
}"""
# The pointer of these events is none that a browser knows.
CAPTURE = """const all = Element.prototype;
all.hasPointerCapture = all.setPointerCapture = all.releasePointerCapture = () => true;"""
# Each move presses one cell and drags into the next; both change.
PAINT = """(all, i) => {
  const at = { bubbles: true, pointerId: 1, isPrimary: true };
  all[(i * 74) % 256].dispatchEvent(new PointerEvent("pointerdown", at));
  all[(i * 74 + 1) % 256].dispatchEvent(new PointerEvent("pointerenter", at));
}"""
SCRUB = "(all, i) => model.set('_at', 6 * ((i * 37) % 97) / 97)"
SCORE = "(all, i) => model.set('_scores', model.get('_scores').with(i % 12, ((i * 37) % 97) / 16 - 3))"
SHIFT = "(all, i) => model.set('_at', [(i * 7) % 32, (i * 11) % 32])"
# d_k goes up and down, with all curves on the chart.
SLIDE = """(all, i) => {
  model.set("_shown", ["no scale", "1/sqrt(d_k)", "1/d_k"]);
  model.set("_d_k", 2 + (i * 37) % 511);
}"""
FADE = "(all, i) => model.set('_decay', ((i * 37) % 97) / 97)"
SEEK = "(all, i) => model.set('_step', model.get('_steps')[(i * 37) % model.get('_steps').length])"
STEP = "(all, i) => all[i % 6 < 3 ? 1 : 0].click()"  # Next three times, Back three times
# Each key changes the first word of 30, so that no token is kept, with the silent head or without.
KEY = """(all, i) => {
  all[0].value = (i % 2 ? "Ada" : "Eva") + all[0].value.slice(3);
  all[0].dispatchEvent(new InputEvent("input"));
}"""
# The same at 64 tokens, the most that any model may read: the first word, or the last, becomes another.
WORD = """(all, i) => {
  const words = all[0].value.trim().split(" ");
  words[%s] = i %% 2 ? "Ada" : "Eva";
  all[0].value = `${words.join(" ")} `;
  all[0].dispatchEvent(new InputEvent("input"));
}"""
SET = """(all, i) => {
  all[i % 8].value = ((i * 37) % 97) / 97;
  all[i % 8].dispatchEvent(new InputEvent("input"));
}"""
# From the first word to the last, a word in each frame, with all that is drawn.
WRITE = """async (name) => {
  const named = (text) => [...document.querySelectorAll("button")]
    .find((one) => one.textContent.startsWith(text));
  model.set("_tokens", [0]);
  const start = performance.now();
  named(name).click();
  while (model.get("_tokens").length < 30) await new Promise(requestAnimationFrame);
  return 1000 * (model.get("_tokens").length - 1) / (performance.now() - start);
}"""
WORDS = 30  # words a second that a reader should see written
TIMES = """async ([act, selector, moves, rest]) => {
  const all = document.querySelectorAll(selector), times = [], once = eval(act);
  for (let i = 0; i < moves; i += 1) {
    if (rest) await new Promise((done) => setTimeout(done, rest));
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
    angle, names = torch.arange(8.0), list("abcdefgh")
    keys = 4 * torch.stack([angle.cos(), angle.sin()], dim=1)
    tokens = story_model.sample(1, seed=3)[0][0]
    live = explore.model(story_model.load(), story_model)
    live.text, live.silenced = (
        story_model.decode(tokens).replace("small Ben", "Ada", 1) + " because",
        [(1, 0)],
    )
    return {
        "query": (explore.query(keys, torch.randn(8, 4)), MOVE, "svg"),
        "heads": (explore.heads(weights, [f"t{i}" for i in range(128)]), MOVE, ".map"),
        "mask": (explore.mask(torch.randn(16, 16)), PAINT, ".cell"),
        "split": (explore.split(6, 4, 4), STEP, "button"),
        "model": (live, KEY, "textarea"),
        "model, 64 tokens, first word": (_longest(), WORD % "0", "textarea"),
        "model, 64 tokens, last word": (_longest(), WORD % "words.length - 1", "textarea"),
        "flow": (explore.flow(names, *torch.randn(3, 2, 8, 4), torch.randn(8, 8)), SCRUB, ".mha"),
        "online_softmax": (
            explore.online_softmax(2 * torch.randn(12), torch.randn(12, 3), block=1, step=12, rescaled="o"),
            SCORE,
            ".mha",
        ),
        "positions": (explore.positions(*torch.randn(2, 8), kind="sinusoidal", base=100), SHIFT, ".mha"),
        "scaling": (explore.scaling(8), SLIDE, ".mha"),
        "state": (explore.state(torch.randn(8, 4), torch.randn(8, 3), step=8), FADE, ".mha"),
        "predict": (explore.predict("How much?", [0.125] * 8, {}, labels=names), SET, "[type=range]"),
        "training": (explore.training(*_trainings()), SEEK, ".mha"),
    }


def _longest():
    """An untrained model of the shipped one's sizes, with room for 64 tokens, and a text that fills it."""
    shipped = story_model.load()
    attention = shipped.blocks[0].attention
    long = Decoder(
        shipped.vocab_size, d_model=attention.d_model, num_heads=attention.num_heads,
        num_layers=len(shipped.blocks), max_length=MAX_SIZES["tokens"],
    )  # fmt: skip
    picture = explore.model(long, story_model)
    picture._tokens = [0, *(1 + torch.randint(shipped.vocab_size - 1, (MAX_SIZES["tokens"] - 1,))).tolist()]
    return picture


def _trainings():
    """Eight questions about eight records; three models with four heads in all, at 60 moments."""
    one = torch.arange(8)
    problems = recall.RecallBatch(*2 * [one.expand(8, 8)], torch.stack([one, one.roll(1)], dim=1))
    runs = [
        recall.Recording(
            steps=torch.arange(0, 300, 5),
            losses=torch.rand(60),
            right=torch.rand(60),
            looked=torch.rand(60, heads, 2),
            weights=torch.randn(60, heads, 8, 8).softmax(-1),
            answers=torch.randint(8, (60, 8, 2)),
            sure=torch.rand(60, 8, 2),
        )
        for heads in (1, 1, 2)
    ]
    return problems, {0: runs}


def largest(browser, name, *, dead):
    """A page with the explorable at its largest size, as while dragging."""
    page = show(browser, _largest()[name][0], dead=dead)
    page.evaluate(CAPTURE)
    return page


def median_and_late(page, name, moves=60):
    """The median and the 95th percentile over some moves, in ms."""
    _, act, selector = _largest()[name]
    pressed = name in PRESSED
    times = page.evaluate(TIMES, [act, selector, moves // 5 if pressed else moves, 700 if pressed else 0])
    return statistics.median(times), statistics.quantiles(times, n=20)[-1]


def report() -> None:
    """Each at its largest size in each browser, with a kernel that answers and with one that is gone."""
    browsers = {"Chromium": (CHROMIUM, open_chromium), "Firefox": (FIREFOX, Firefox)}
    with contextlib.ExitStack() as opened:
        found = {name: opened.enter_context(start()) for name, (path, start) in browsers.items() if path}
        for browser in browsers:
            frame = f"{_frame(found[browser]):.1f} ms" if browser in found else "not here, so not measured"
            print(f"{browser}: an empty page's own frame: {frame}")
        print(f"asked of each move: a median of {MEDIAN} ms, a 95th percentile of {LATE} ms")
        print(f"asked of each press, from rest ({', '.join(PRESSED)}): {PRESS[0]} ms and {PRESS[1]} ms")
        for name in _largest():
            for dead in (False, True):
                row = [f"{browser} {_measured(found[browser], name, dead)}" for browser in found]
                print(f"{name:28} kernel {'stopped' if dead else 'there  '}  {'   '.join(row)}", flush=True)


def _measured(browser, name, dead) -> str:
    """One explorable in one browser: median, 95th percentile, and whether both are small enough."""
    page = largest(browser, name, dead=dead)
    median_and_late(page, name)  # the first moves compile
    median, late = median_and_late(page, name, MOVES)
    limits = PRESS if name in PRESSED else (MEDIAN, LATE)
    said, good = f"{median:5.1f} {late:5.1f} ms", median <= limits[0] and late <= limits[1]
    if name == "model":
        speed = page.evaluate(WRITE, "Write up to")
        said, good = f"{said}, {speed:.0f} words a second of {WORDS}", good and speed >= WORDS
    assert page.errors == []
    page.close()
    return f"{said} {'ok    ' if good else 'MISSED'}"


def _frame(browser) -> float:
    """The time between two frames: the best that the machine can do."""
    page = browser.new_page()
    found = page.evaluate(
        "() => new Promise((done) => requestAnimationFrame((a) => requestAnimationFrame((b) => done(b - a))))"
    )
    page.close()
    return found
