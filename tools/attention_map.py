"""The map of attention: which class of ``transformers`` has which features, as a page of the website."""

import html
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SIZES = "default_heads", "default_kv_heads", "default_d_k"
# What a row can be filtered by: the feature as a learner reads it, and the rows that have it.
FEATURES: dict[str, tuple[str, Callable[["DataFrame"], "Series"]]] = {
    "shared": ("fewer KV heads than heads", lambda t: t["default_kv_heads"] < t["default_heads"]),
    "latent": ("latent vectors", lambda t: t["latent"] == True),  # noqa: E712, as a row can have no answer
    "rotary": ("rotary positions", lambda t: t["positions"].notna()),
    "part": ("a part of a head turned", lambda t: t["share"] < 1),
    "some": (
        "layers without positions",
        lambda t: t["all_positions"].str.contains("none +", regex=False, na=False),
    ),
    "bias": ("position bias", lambda t: t["bias"].notna()),
    "window": (
        "window",
        lambda t: t["default_window"].notna() | t["masks"].str.contains("window|chunk|both sides", na=False),
    ),
    "norm": ("norm of queries and keys", lambda t: t["norm"].notna()),
    "cap": ("soft cap", lambda t: t["cap"].notna()),
    "sinks": ("sinks", lambda t: t["sinks"] == True),  # noqa: E712
    "gate": ("gate", lambda t: t["gate"] == True),  # noqa: E712
}
# The step that explains a feature: its chapter and heading.
STEPS = {
    "heads": ("03_splitting_heads", "1 What one head cannot do"),
    "shared": ("12_smaller_caches", "2 One key for several query heads"),
    "latent": ("12_smaller_caches", "9 Appendix: Latent attention"),
    "rotary": ("09_scores_and_positions", "5 Rotary: turn queries and keys"),
    "base": ("13_longer_texts", "5 Rotary positions at other lengths"),
    "yarn": ("13_longer_texts", "10 Appendix: YaRN, pair by pair"),
    "pairs": ("09_scores_and_positions", "11 Appendix: From one layout to the other"),
    "part": ("15_read_a_model", "3 GPT-NeoX: one matrix, and a part that turns"),
    "some": ("16_a_state_in_place_of_a_cache", "11 Appendix: Layers without positions"),
    "bias": ("09_scores_and_positions", "3 A learned number for each distance"),
    "alibi": ("09_scores_and_positions", "4 ALiBi: a penalty for distance"),
    "window": ("12_smaller_caches", "4 Only the last tokens"),
    "norm": ("13_longer_texts", "Normalise queries and keys"),
    "cap": ("13_longer_texts", "Cap the scores"),
    "sinks": ("13_longer_texts", "2 A learned sink"),
    "gate": ("13_longer_texts", "4 A head that has nothing to say"),
    "packed": ("06_five_ways", "1 One matrix for three projections"),
    "scale": ("01_single_head_attention", "5 Why divide by the square root of d_k?"),
    "census": ("15_read_a_model", "8 Any other file"),
}
HEADINGS = "Class", "Year", "Heads", "Width", "Positions in the layer", "Window", "More"


def shown(table: "DataFrame") -> "DataFrame":
    """The rows of the map, the newest first: what our layer equals, and all text decoders."""
    some = table[(table["result"] == "equal") | (table["kind"] == "text decoder")]
    return some.sort_values(
        ["year", "folder", "class"], ascending=[False, True, True], ignore_index=True, key=_order
    )


def features(table: "DataFrame") -> "DataFrame":
    """For each row, whether it has each of ``FEATURES``."""
    return table.assign(**{name: has for name, (_, has) in FEATURES.items()})[list(FEATURES)].astype(bool)


def by_year(table: "DataFrame") -> tuple["DataFrame", "Series"]:
    """Of the text decoders of each year that our layer equals: the share with each feature; how many."""
    some = table[(table["kind"] == "text decoder") & (table["result"] == "equal") & table["year"].notna()]
    groups = features(some).groupby(some["year"].astype(int))
    return groups.mean(), groups.size()


def page(text: str, table: "DataFrame", link: Callable[[str, str], str]) -> str:
    """The page's text with its form, its table and its list of steps; ``link`` leads to a chapter's step."""
    some = shown(table)
    left = len(table) - len(some)
    parts = {
        "numbers": f"{len(some)} of the {len(table)} classes of transformers {table['version'][0]} are here; "
        f"the other {left} are no text decoders, or have no attention that could be compared.",
        "form": form(some),
        "table": _table(some, link),
        "steps": "\n".join(
            f"- {label}: [{STEPS[name][1]}]({STEPS[name][0]}.ipynb#{link(*STEPS[name]).partition('#')[2]})"
            for name, (label, _) in FEATURES.items()
        ),
    }
    for name, part in parts.items():
        if (place := f"<!-- {name} -->") not in text:
            raise ValueError(f"docs/map_of_attention.md: expected {place}")
        text = text.replace(place, part)
    return text


def form(some: "DataFrame") -> str:
    """The filters, which ``docs/site/_static/map.js`` shows and obeys."""
    kinds, years = sorted(set(some["kind"])), sorted(set(some["year"].dropna().astype(int)), reverse=True)
    options = [
        _select("kind", "Kind", ["all", *kinds], "text decoder"),
        _select("year", "Year", ["all", *years], "all"),
    ]
    chips = "".join(
        f'<label><input type="checkbox" name="has" value="{name}"> {label}</label>'
        for name, (label, _) in FEATURES.items()
    )
    return (
        '<form class="map-filters" hidden><label>Name <input type="search" name="name"></label>'
        f"{''.join(options)}<fieldset><legend>Has all of</legend>{chips}</fieldset>"
        '<p><output></output> <button type="reset">All filters off</button></p></form>'
    )


def _select(name: str, label: str, values: list[Any], chosen: str) -> str:
    options = "".join(f"<option{' selected' if one == chosen else ''}>{one}</option>" for one in values)
    return f'<label>{label} <select name="{name}">{options}</select></label>'


def _table(some: "DataFrame", link: Callable[[str, str], str]) -> str:
    """Roles are named, since a phone shows each row as a block, which is no table to a browser."""
    heads = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in HEADINGS)
    rows = "\n".join(
        _row(row, has, link)
        for row, has in zip(some.to_dict("records"), features(some).to_dict("records"), strict=True)
    )
    return (
        f'<table class="map" role="table"><thead role="rowgroup"><tr role="row">{heads}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody></table>'
    )


def _row(row: dict[str, Any], has: dict[str, bool], link: Callable[[str, str], str]) -> str:
    def step(name: str, text: str) -> str:
        return f'<a href="{html.escape(link(*STEPS[name]))}">{html.escape(text)}</a>'

    year = "" if math.isnan(row["year"]) else f"{row['year']:.0f}"
    cells = [
        year,
        _joined(_heads(row, has, step)),
        _whole(row["default_d_k"]),
        _joined(_positions(row, has, step)),
        _joined(_window(row, has, step)),
        _joined(_more(row, has, step)),
    ]
    named = zip(HEADINGS[1:], cells, strict=True)
    body = "".join(
        f'<td role="cell" data-is="{name}">{cell}</td>' if cell else '<td role="cell"></td>'
        for name, cell in named
    )
    told = " ".join(name for name, yes in has.items() if yes)
    name = f"{row['folder']}.{row['class']}"
    return (
        f'<tr role="row" data-name="{name}" data-kind="{row["kind"]}" data-year="{year}" data-has="{told}">'
        f'<th role="rowheader" scope="row">{_breaks(row["class"])} '
        f"<small>{row['folder']} · {row['kind']}</small></th>{body}</tr>"
    )


Step = Callable[[str, str], str]


def _heads(row: dict[str, Any], has: dict[str, bool], step: Step) -> Iterator[str]:
    heads, kv_heads = (_whole(row[name]) for name in SIZES[:2])
    if has["shared"]:
        yield step("shared", f"{heads}, {kv_heads} KV")
    elif heads:
        yield step("heads", heads)
    elif row["kv_heads"] < row["heads"]:  # of the small model; not a number if there is none
        yield step("shared", "shared keys")
    else:
        yield step("heads", "a key each")


def _positions(row: dict[str, Any], has: dict[str, bool], step: Step) -> Iterator[str]:
    if has["rotary"]:
        yield step("rotary", row["positions"])
    bases = row["default_base"], row["default_window_base"]
    if has["rotary"] and math.isnan(bases[0]):  # none in the configuration
        bases = (row["base"],)
    if told := " and ".join(filter(None, map(_whole, bases))):
        yield step("base", f"base {told}")
    if has["part"]:
        yield step("part", f"{row['share']:.0%} of a head")
    if has["some"]:
        yield step("some", "none in some layers")
    if row["layout"] == "pairs":
        yield step("pairs", "pairs")
    if row["scaling"] == "yarn":
        yield step("yarn", "YaRN")
    if has["bias"]:
        yield step(
            "alibi" if row["bias"] == "ALiBi" else "bias", row["bias"].replace("table", "table of biases")
        )
    if row["result"] == "equal" and not has["rotary"] and not has["bias"]:
        yield "none"


def _window(row: dict[str, Any], has: dict[str, bool], step: Step) -> Iterator[str]:
    if has["window"]:
        masks = str(row["masks"])
        kind = "chunks" if "chunk" in masks else "both sides" if "both" in masks else ""
        yield step("window", " ".join(filter(None, (_whole(row["default_window"]), kind))) or "window")


def _more(row: dict[str, Any], has: dict[str, bool], step: Step) -> Iterator[str]:
    if has["norm"]:
        yield step("norm", f"{row['norm'].replace('Unit', 'unit length')} of q, k")
    for name, text in (("sinks", "sinks"), ("gate", "gate"), ("cap", "cap"), ("latent", "latent vectors")):
        if has[name]:
            yield step(name, text)
    if row["result"] == "equal" and row["scale"] != "1/sqrt(d_k)":
        yield step("scale", "another scale")
    if row["packed"] == True:  # noqa: E712
        yield step("packed", "one matrix")
    if row["result"] != "equal":
        yield step("census", f"not rebuilt: {row['reason']}")


def _joined(parts: Iterable[str]) -> str:
    """With commas, none of which begins a line."""
    *before, last = [*parts] or [""]
    return " ".join([*(f"<span>{one},</span>" for one in before), last])


def _whole(number: float) -> str:
    return "" if math.isnan(number) else f"{number:,.0f}"


def _breaks(name: str) -> str:
    """The name of a class with places where a line may end."""
    return "".join(f"<wbr>{c}" if c.isupper() and i else c for i, c in enumerate(name))


def _order(column: "Series") -> "Series":
    return column.str.lower() if column.name == "folder" else column
