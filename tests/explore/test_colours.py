"""The grammar of colour: one palette in both themes, readable, and apart for those who see fewer colours."""

import json
import re
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

import mha_course
from bench import examples
from bench.browser import THEMES, needs_chromium
from mha_course.explore._widget import COLOURS, shared
from mha_lab import _colours, plot

FOLDER = Path(mha_course.__file__).parent / "explore"
ROLES = ("query", "key", "value")
# Of JupyterLab, of the website's dark theme (pydata-sphinx-theme) and of VS Code's.
GROUNDS = {"light": ["#ffffff"], "dark": ["#111111", "#14181e", "#1f1f1f"]}
# Table 1 of Machado, Oliveira and Fernandes 2009, "A Physiologically-based Model for Simulation of Color
# Vision Deficiency", doi:10.1109/TVCG.2009.113, severity 1.0; for linear sRGB.
VISIONS = {
    "all cones": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)  # IEC 61966-2-1
VARIABLES = """(names) => Object.fromEntries(names.map((name) =>
  [name, getComputedStyle(document.querySelector(".mha")).getPropertyValue(`--${name}`)]))"""
# Colours as the screen has them, however they are written, or a canvas's first pixel; the last one is on top.
SEEN = """window.seen = (...layers) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const paper = canvas.getContext("2d", { willReadFrequently: true });
  for (const layer of layers) {
    if (layer instanceof HTMLCanvasElement) paper.drawImage(layer, 0, 0, 1, 1, 0, 0, 1, 1);
    else [paper.fillStyle = layer, paper.fillRect(0, 0, 1, 1)];
  }
  return [...paper.getImageData(0, 0, 1, 1).data].slice(0, 3);
}; 0"""


def linear(rgb):
    """sRGB without its gamma; WCAG 2.2, "relative luminance", has the same formula."""
    c = np.array(rgb) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def parsed(colour):
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def luminance(rgb):
    return float(linear(rgb) @ XYZ[1])


def contrast(a, b):
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def lab(colour, vision):
    """CIELAB, D65, of a colour as this vision has it."""
    x = XYZ @ np.clip(np.array(VISIONS[vision]) @ linear(parsed(colour)), 0, 1) / XYZ.sum(axis=1)
    f = np.where(x > (6 / 29) ** 3, np.cbrt(x), x / 3 / (6 / 29) ** 2 + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(a, b):
    """The CIE 1976 difference, as the vision that has the smallest one sees it; 2.3 is just noticeable."""
    return min(np.linalg.norm(lab(a, vision) - lab(b, vision)) for vision in VISIONS)


def test_the_modules_have_no_colours_of_their_own():
    """But for the grey of thin lines."""
    sources = [*{*FOLDER.glob("*.js")} - {FOLDER / "colours.js"}, *FOLDER.glob("_*.py")]
    own = {each for source in sources for each in re.findall(r"#[0-9a-f]{6}\b", source.read_text("utf-8"))}
    assert own == {"#808080"}


def test_stills_live_pictures_and_the_website_have_one_source():
    """The first and the last colour of each ramp, the colours of roles and tokens, the accent of the site."""
    ends = [to_hex(plot.PALETTE(x)) for x in (0.0, 1.0)] + [to_hex(plot.SIGNED(x)) for x in (0.0, 1.0)]
    assert ends == ["#ffffff", *(COLOURS[name] for name in ("weight", "minus", "plus"))]
    assert {role: colour for role, (colour, _) in plot.ROLES.items()} == {r: COLOURS[r] for r in ROLES}
    right = plot.memory_map(6, 1, 1)[1]
    drawn = [to_hex(cell.get_facecolor()) for cell in right.patches]
    plt.close(right.figure)
    assert drawn == list(_colours.TOKENS)
    assert all(json.dumps(part) in shared() for part in (_colours.LIGHT, _colours.DARK, _colours.TOKENS))
    style = (Path(__file__).parents[2] / "docs/site/_static/style.css").read_text(encoding="utf-8")
    for theme, colours in (("light", _colours.LIGHT), ("dark", _colours.DARK)):
        assert f'html[data-theme="{theme}"] {{ --accent: {colours["accent"]}; }}' in style


def test_token_colours_stay_apart_in_every_vision():
    """Their labels come first; the six colours are those of Okabe and Ito."""
    assert min(apart(a, b) for a, b in combinations(_colours.TOKENS, 2)) >= 15


class TestPicturesOnADarkPage:
    """What the website's style makes of a picture's colours: SVG's feColorMatrix, without its alpha."""

    GROUND = "#14181e"  # the website's

    @pytest.fixture
    def dark(self):
        style = (Path(__file__).parents[2] / "docs/site/_static/style.css").read_text(encoding="utf-8")
        rows = np.array(re.search(r"feColorMatrix values='([^']+)'", style)[1].split(), dtype=float).reshape(
            4, 5
        )
        assert rows[3].tolist() == [0, 0, 0, 1, 0]
        assert (rows[:3, 3] == 0).all()
        return lambda colour: to_hex(np.clip(rows[:3, [0, 1, 2, 4]] @ [*mpl.colors.to_rgb(colour), 1], 0, 1))

    def test_jupyter_has_the_same_matrix(self):
        website, jupyter = (
            re.search(r"filter: url\(.+\);", file.read_text(encoding="utf-8"))[0]
            for file in (FOLDER.parents[1] / "docs/site/_static/style.css", FOLDER / "jupyter.css")
        )
        assert jupyter == website

    def test_white_is_the_ground_and_text_is_readable(self, dark):
        assert dark("white") == self.GROUND
        assert contrast(parsed(dark("black")), parsed(self.GROUND)) >= 15
        plot.style()
        text = mpl.rcParams["text.color"]
        fills = [dark(0.45 * np.array(mpl.colors.to_rgb(token)) + 0.55) for token in _colours.TOKENS]
        grounds = [
            self.GROUND,
            *fills,
            dark(plot.PALETTE(0.2)),
            dark(plot.SIGNED(0.4)),
            dark(plot.SIGNED(0.6)),
        ]
        assert min(contrast(parsed(dark(text)), parsed(ground)) for ground in grounds) >= 4.5

    def test_the_colours_are_near_those_of_the_dark_theme_and_as_far_apart(self, dark):
        found = {name: dark(colour) for name, colour in _colours.LIGHT.items()}
        assert max(apart(found[name], _colours.DARK[name]) for name in found) < 8
        assert min(contrast(parsed(colour), parsed(self.GROUND)) for colour in found.values()) >= 4.5
        assert min(apart(found[a], found[b]) for a, b in combinations(ROLES, 2)) >= 30
        assert min(apart(found[role], found["weight"]) for role in ROLES) >= 20
        assert apart(found["minus"], found["plus"]) >= 50

    def test_a_ramp_stays_a_ramp_and_lines_are_seen(self, dark):
        for ramp in (plot.PALETTE, lambda x: plot.SIGNED(0.5 + x / 2), lambda x: plot.SIGNED(0.5 - x / 2)):
            lights = [luminance(parsed(dark(ramp(x)))) for x in np.linspace(0, 1, 21)]
            assert all(a < b for a, b in pairwise(lights))
        plot.style()
        lines = [to_hex(colour) for colour in mpl.rcParams["axes.prop_cycle"].by_key()["color"]]
        assert len(lines) == 6
        assert min(contrast(parsed(line), [255] * 3) for line in lines) >= 2.7
        assert min(contrast(parsed(dark(line)), parsed(self.GROUND)) for line in lines) >= 3
        cones = "all cones"  # who sees fewer colours has the dashes, too
        for shown in (lambda colour: colour, dark):
            pairs = combinations([lab(shown(line), cones) for line in lines[:4]], 2)
            assert min(np.linalg.norm(a - b) for a, b in pairs) >= 50


@pytest.mark.browser
@needs_chromium
class TestInABrowser:
    @pytest.fixture(params=THEMES)
    def theme(self, request):
        return request.param

    @pytest.fixture
    def palette(self, shown, theme):
        return shown(examples.heads(), theme).evaluate(VARIABLES, list(COLOURS))

    def test_the_stills_have_the_light_theme(self, palette, theme):
        assert (palette == COLOURS) == (theme == "light")

    def test_every_colour_is_readable_on_the_ground(self, palette, theme):
        """As a text: each is a letter's, a number's or a shape's somewhere. Marks need 3 only."""
        found = {n: min(contrast(parsed(c), parsed(g)) for g in GROUNDS[theme]) for n, c in palette.items()}
        assert min(found.values()) >= 4.5, found

    def test_colours_stay_apart_in_every_vision(self, palette):
        found = {pair: apart(*(palette[name] for name in pair)) for pair in combinations(palette, 2)}
        assert min(found[pair] for pair in combinations(ROLES, 2)) >= 30, found
        assert min(found[role, "weight"] for role in ROLES) >= 20, found
        assert found["minus", "plus"] >= 50, found

    def test_the_ramp_begins_at_the_ground_and_its_numbers_are_readable(self, shown, theme):
        page = shown(examples.heads(), theme)
        page.evaluate(SEEN)
        steps = page.evaluate("""() => Array.from({ length: 201 }, (_, i) => {
          const cell = document.querySelector(".large td[style]");
          cell.style.setProperty("--w", i / 200);
          const { color, backgroundColor } = getComputedStyle(cell);
          return [seen(backgroundColor), seen(color)];
        })""")
        assert steps[0][0] == parsed(GROUNDS[theme][0])
        assert steps[-1][0] == parsed(page.evaluate(VARIABLES, ["weight"])["weight"])
        assert min(contrast(*step) for step in steps) >= 4.5
        lights = [luminance(ground) for ground, _ in steps]
        assert all((a > b) == (theme == "light") for a, b in pairwise(lights[::4]))

    @pytest.mark.parametrize("name", ["heads", "model"])
    def test_maps_have_the_ramp_and_follow_the_theme(self, shown, name):
        """The map's pixel of the first weight, on the ground, beside the theme's colour for it."""
        page = shown(examples.ALL[name](), "light")
        page.evaluate(SEEN)
        weight = page.evaluate("module.numbers ? module.numbers(model.get('_weights'))[0] : 1")
        for theme in ("light", "dark"):
            page.evaluate("(theme) => document.body.setAttribute('style', theme)", THEMES[theme])
            page.locator(f".mha[data-dark={str(theme == 'dark').lower()}]").wait_for()
            found = page.evaluate("""() =>
              seen(getComputedStyle(document.body).backgroundColor, document.querySelector(".map canvas"))""")
            full, ground = (
                np.array(parsed(colour))
                for colour in (page.evaluate(VARIABLES, ["weight"])["weight"], GROUNDS[theme][0])
            )
            np.testing.assert_allclose(found, ground + weight * (full - ground), atol=3)

    def test_the_theme_is_known_at_once_and_outside_a_page_later(self, shown, theme):
        """No flash of the other theme; some front ends put an explorable into the page after it was drawn."""
        page = shown(examples.heads(), theme)
        now, light, later = page.evaluate("""async () => {
          const [here, there] = [0, 1].map(() => document.createElement("div"));
          document.body.append(here);
          for (const el of [here, there]) module.default.render({ model, el });
          const now = here.firstChild.dataset.dark;
          const paper = there.querySelector("canvas").getContext("2d");
          document.body.append(there);
          await new Promise((done) => setTimeout(done, 300));
          const [, , blue] = paper.getImageData(0, 0, 1, 1).data; // more of it in the dark theme
          return [now, blue > 200, there.firstChild.dataset.dark];
        }""")
        assert now == later == str(theme == "dark").lower()
        assert light == (theme == "dark")

    @pytest.mark.parametrize("name", examples.ALL)
    def test_a_shape_in_a_text_has_the_colour_of_what_it_stands_for(self, shown, theme, name):
        """And is not read aloud."""
        page = shown(examples.ALL[name](), theme)
        page.evaluate(SEEN)
        found = page.evaluate("""() => {
          const texts = document.createTreeWalker(document.querySelector(".mha"), NodeFilter.SHOW_TEXT);
          const found = [];
          while (texts.nextNode()) {
            const { data, parentElement: own } = texts.currentNode, style = getComputedStyle(own);
            const ink = own.namespaceURI.endsWith("svg") ? style.fill : style.color;
            if (/[●■▲]/.test(data)) found.push([data, seen(ink), own.getAttribute("aria-hidden")]);
          }
          return found;
        }""")
        palette = page.evaluate(VARIABLES, list(ROLES))
        inks = {shape: parsed(palette[role]) for shape, role in zip("●■▲", ROLES, strict=True)}
        assert all((ink, quiet) == (inks[shape], "true") for shape, ink, quiet in found)
        assert found or name.startswith(("predict", "split", "training"))
