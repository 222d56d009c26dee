"""Sphinx's settings for the website; ``tools/site.py`` copies them beside the pages that it makes ready."""

import re
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

from mha_lab import __version__
from tools.sync import Chapter, address, chapter_paths, launch, published

project = "mha_lab"
release = __version__
author = "the authors of mha_lab"
language = "en"
smartquotes = False
extensions = ["myst_nb", "sphinx_copybutton"]
templates_path = ["_templates"]
exclude_patterns = ["_static", "_templates"]

# The text is what JupyterLab shows: its anchors, its formulas, and none of MyST's own signs.
nb_execution_mode = "off"
nb_code_prompt_show = "Show the {type}"
nb_code_prompt_hide = "Hide the {type}"
myst_heading_anchors = 4
myst_heading_slug_func = "tools.site.anchor"
myst_enable_extensions = ["dollarmath"]
myst_disable_syntax = ["myst_role", "myst_target", "myst_line_comment", "myst_block_break"]
myst_update_mathjax = False

html_theme = "pydata_sphinx_theme"
html_title = "mha_lab"
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_js_files = [("host.js", {"defer": "defer"})]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_domain_indices = False
html_sidebars = {"**": ["contents.html"]}
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "mha_lab"},
    "navbar_center": [],
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "icon_links": [{"name": "Repository", "url": address(), "icon": "fa-solid fa-code"}]
    if published(address())
    else [],
    "article_header_start": [],
    "article_header_end": ["steps.html", "launch.html"],
    "secondary_sidebar_items": ["page-toc"],
    "primary_sidebar_end": [],
    "footer_start": ["licence.html"],
    "footer_end": [],
    "search_bar_text": "Search the chapters",
    "show_toc_level": 2,
    "back_to_top_button": False,
}
# Copied is what was typed, not what came out.
copybutton_selector = "div:not(.output) > div.highlight > pre"


UNDER = re.compile(r"<msub>(\s*<munder>.*?</munder>\s*<mtext>[^<]*</mtext>\s*)</msub>", re.DOTALL)
NAMED = re.compile(r"<mi>(\w{2,})</mi>\s*<mo>&ApplyFunction;</mo>")
SPACE = '<mspace width="0.17em"/>'


def mathml(formula: str, block: bool) -> str:
    """A formula as MathML, which browsers draw themselves: no script, no other host."""
    drawn = tex2mathml(formula, as_block=block)
    # docutils writes the text of an underbrace beside the brace, and functions without a space: "c tanh x".
    return NAMED.sub(f"{SPACE}<mi>\\1</mi>{SPACE}", UNDER.sub(r"<munder>\1</munder>", drawn))


def inline(translator: nodes.NodeVisitor, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), False))
    raise nodes.SkipNode


def block(translator: nodes.NodeVisitor, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{mathml(node.astext(), True)}</div>')
    raise nodes.SkipNode


def mark_short(app: Sphinx, tree: nodes.document, name: str) -> None:
    """Short code, such as `-inf` or `0.25 b + r`: the style keeps it in one line."""
    for code in tree.findall(nodes.literal):
        if len(code.astext()) <= 16:
            code["classes"].append("whole")


def about_page(app: Sphinx, name: str, template: str, context: dict, tree: nodes.document | None) -> None:
    """Where a chapter opens, and the minutes of each beside its title."""
    minutes = {f"{path.stem}.html": Chapter.read(path).minutes for path in chapter_paths(Path(app.srcdir))}

    def timed(link: re.Match[str]) -> str:
        own = minutes.get(f"{name}.html" if link[1] == "#" else link[1])
        return link[0] + (f'<span class="minutes">{own} min</span>' if own else "")

    context["timed"] = lambda listed: re.sub(r'<a [^>]*href="([^"]*)">.*?</a>', timed, str(listed))
    if Path(app.srcdir, f"{name}.ipynb").exists():
        context["launch"] = launch(address(), f"notebooks/{name}.ipynb") if published(address()) else {}
        context["notebook"] = f"notebooks/{name}.ipynb"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("doctree-resolved", mark_short)
    app.connect("html-page-context", about_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
