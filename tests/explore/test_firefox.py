"""Each explorable in Firefox: it shows what Chromium shows, at the start and after the same real input."""

import re

import pytest

from bench import examples
from bench.browser import DESK, PHONE, THEMES, needs_chromium, show
from bench.firefox import CALM, Firefox, needs_firefox

pytestmark = [pytest.mark.browser, needs_chromium, needs_firefox]

# The same chance in both browsers, and a count of what waits for the next frame.
BEGIN = """
let chance = 1;
Math.random = () => (chance = 16807 * chance % 2147483647) / 2147483647;
window.waiting = new Set();
const [request, cancel] = [requestAnimationFrame, cancelAnimationFrame];
window.nextFrame = () => new Promise(request);
window.requestAnimationFrame = (draw) => {
  const id = request((time) => { waiting.delete(id); draw(time); });
  waiting.add(id);
  return id;
};
window.cancelAnimationFrame = (id) => { waiting.delete(id); cancel(id); };
0"""
REST = "async () => { while (waiting.size) await nextFrame(); }"
SEEN = """() => {
  const all = document.createTreeWalker(document.querySelector(".mha")), seen = [JSON.stringify(model.all())];
  for (let node = all.nextNode(); node; node = all.nextNode()) {
    if (node.matches?.("input, select, textarea")) seen.push(node.checked ? "checked" : node.value);
    else if (node.nodeType === Node.TEXT_NODE && !node.parentElement.closest("select, textarea")
      && node.parentElement.checkVisibility()) seen.push(node.data);
  }
  return seen.join(" | ");
}"""
NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e-\d+)?")
SHARE = re.compile(r"0\.\d+")  # of a mixed colour: the browsers round it differently
COUNT = "(selector) => document.querySelectorAll(selector).length"
FOCUS = "([selector, i]) => document.querySelectorAll(selector)[i].focus()"
# In whole pixels; nothing if it cannot be pressed now.
MIDDLE = """([selector, i]) => {
  const one = document.querySelectorAll(selector)[i];
  if (!one?.checkVisibility() || one.disabled) return null;
  one.scrollIntoView({ block: "center", behavior: "instant" });
  const { left, top, width, height } = one.getBoundingClientRect();
  return [Math.round(left + width / 2), Math.round(top + height / 2)];
}"""
LOOK = """() => [...document.querySelectorAll(".mha, .mha :not(input)")].map((one) => {
  const style = getComputedStyle(one), about = [one.localName, one.getAttribute("class")];
  const names = ["color", "backgroundColor", "borderTopColor", "fill", "stroke", "touchAction"];
  return [...about, ...names.map((name) => style[name])].join(" ");
})"""
HANDLES = ".mha :is(.handle, [role=slider])"


class Finger:
    """On a page of Chromium; a page of Firefox has one."""

    def __init__(self, page):
        self._client, self._down, self._at = page.context.new_cdp_session(page), False, {}

    def _touch(self, kind, *points):
        self._client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def move(self, x, y):
        self._at = {"x": x, "y": y}
        if self._down:
            self._touch("touchMove", self._at)

    def down(self):
        self._down = True
        self._touch("touchStart", self._at)

    def up(self):
        self._down = False
        self._touch("touchEnd")


def every(page, selector):
    return [[selector, i] for i in range(page.evaluate(COUNT, selector))]


def press_buttons(page):
    """Each three times."""
    for button in every(page, ".mha button"):
        for _ in range(3):
            if middle := page.evaluate(MIDDLE, button):
                page.mouse.move(*middle)
                page.mouse.down()
                page.mouse.up()
                page.evaluate(REST)
        yield button


def drag(page, pointer, selector):
    for handle in every(page, selector)[:12]:
        if middle := page.evaluate(MIDDLE, handle):
            pointer.move(*middle)
            pointer.down()
            for way in (10, 20, 30):
                pointer.move(middle[0] + way, middle[1] + way // 3)
            pointer.up()
            pointer.move(1, 1)  # else Chromium reports a move, now or later, when something scrolls under it
            page.evaluate(REST)
            yield handle


def drag_with_a_mouse(page):
    yield from drag(page, page.mouse, f"{HANDLES}, .mha :is(svg, canvas, .cell)")


def drag_with_a_finger(page):
    yield from drag(page, page.finger, HANDLES)


def press_keys(page):
    for slider in every(page, ".mha :is([role=slider], [type=range], [type=number], :checked)"):
        page.evaluate(FOCUS, slider)
        for key in ("ArrowRight", "ArrowUp", "ArrowUp", "ArrowLeft", "ArrowDown"):
            page.keyboard.press(key)
            page.evaluate(REST)
        yield slider


def assert_same(ours, theirs):
    """The same words; numbers may differ by what a part of a pixel is worth."""
    assert NUMBER.sub("0", ours) == NUMBER.sub("0", theirs)
    ours, theirs = ([float(x.replace("−", "-")) for x in NUMBER.findall(text)] for text in (ours, theirs))
    assert ours == pytest.approx(theirs, rel=5e-3, abs=0.02)


@pytest.fixture
def both(browser, firefox):
    """Shows explorables in both, with less motion; whatever a console says is an error."""
    pages = []

    def shown_in_both(*given, device=DESK):
        pages.append(show(browser, *given, device=device | {"reduced_motion": "reduce"}))
        pages.append(show(firefox, *given, device=device))
        for page in pages:
            page.evaluate(BEGIN)
        return pages

    yield shown_in_both
    errors = [page.errors for page in pages]
    for page in pages:
        page.close()
    assert errors == [[], []]


@pytest.mark.parametrize("act", [press_buttons, drag_with_a_mouse, drag_with_a_finger, press_keys])
@pytest.mark.parametrize("name", examples.ALL)
def test_firefox_shows_what_chromium_shows(both, name, act):
    pages = both(examples.ALL[name](), device=PHONE if act is drag_with_a_finger else DESK)
    pages[0].finger = Finger(pages[0])
    assert_same(*[page.evaluate(SEEN) for page in pages])
    for ours, theirs in zip(*map(act, pages), strict=True):
        assert ours == theirs
        assert_same(*[page.evaluate(SEEN) for page in pages])


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", examples.ALL)
def test_firefox_has_the_same_colours_and_shows_all_on_a_phone(both, name, theme):
    chromium, firefox = both(examples.ALL[name](), theme, device=PHONE)
    ours, theirs = (
        [SHARE.sub(lambda x: f"{float(x[0]):.2f}", one) for one in page.evaluate(LOOK)]
        for page in (chromium, firefox)
    )
    assert theirs == ours
    assert firefox.evaluate("document.documentElement.scrollWidth") == 375


@pytest.mark.parametrize(("settings", "duration"), [({}, "0.6s"), (CALM, "0s")])
def test_nothing_moves_in_firefox_for_those_who_asked_for_that(settings, duration):
    with Firefox(settings) as firefox:
        page = show(firefox, examples.split())
        spot = "document.querySelector('.spot')"
        assert page.evaluate(f"getComputedStyle({spot}).transitionDuration") == duration
