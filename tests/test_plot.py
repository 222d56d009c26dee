"""The pictures: what they show, read as numbers, labels and scale, never as pixels."""

import base64
import io
import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib import font_manager
from matplotlib.collections import PatchCollection
from matplotlib.colors import rgb_to_hsv, to_rgb
from matplotlib.figure import Figure
from PIL import Image

from mha_course.chapters import pictures
from mha_lab import _texts, causal_mask, plot, toy

WEIGHTS = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])


def drawn_values(ax):
    """The numbers behind the coloured cells; NaN where a cell is left out."""
    return np.ma.filled(ax.collections[0].get_array(), np.nan)


def drawn_texts(ax):
    return [text.get_text() for text in ax.texts]


def covers(ax):
    """The rectangles laid over cells: colour and (column, row) of each."""
    return [
        (to_rgb(collection.get_facecolor()[0]), tuple(path.vertices[0]), collection.get_hatch())
        for collection in ax.collections
        if isinstance(collection, PatchCollection)
        for path in collection.get_paths()
    ]


def test_a_heatmap_shows_the_weights_with_queries_as_rows():
    weights = ((WEIGHTS + 0.25) / 2).bfloat16().requires_grad_()  # as in training
    ax = plot.attention_heatmap(weights, ["dog", "saw"], ["a", "dog", "cat"])
    np.testing.assert_array_equal(drawn_values(ax), weights.detach().double().numpy())
    assert [label.get_text() for label in ax.get_yticklabels()] == ["dog", "saw"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "dog", "cat"]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("query", "key")
    assert ax.yaxis_inverted(), "row 0 stands on top"
    assert ax.collections[0].get_clim() == (0.0, 1.0), "whatever the weights"


UNREADABLE = (
    "a contrast of {:.2f}, and 4.5 are needed: change the colours of PALETTE (LIGHT in mha_lab/_colours.py), "
    "or DARK_BELOW and the limit in plot.write_number, which choose black or white"
)


def test_numbers_stand_in_the_cells_and_can_be_read_on_a_dark_one():
    ax = plot.attention_heatmap(WEIGHTS)
    assert drawn_texts(ax) == ["0.50", "0.25", "0.25", "0.00", "1.00", "0.00"]
    assert [text.get_color() for text in ax.texts] == ["black"] * 4 + ["white", "black"]


@pytest.mark.parametrize("value", [0.0, 0.3, 0.5, 0.71, 0.72, 0.8, 1.0])
def test_numbers_have_the_contrast_that_wcag_asks_for(value):
    ax = plot.attention_heatmap(torch.full((1, 1), value))
    background = plt.get_cmap(plot.PALETTE)(value)[:3]
    light = sorted((luminance(background), luminance(to_rgb(ax.texts[0].get_color()))))
    contrast = (light[1] + 0.05) / (light[0] + 0.05)
    assert contrast >= 4.5, UNREADABLE.format(contrast)


def as_on_a_dark_page(rgb):
    """What docs/site/_static/style.css makes of a colour: CSS Filter Effects 1, "invert" and "hue-rotate"."""
    light, ground = np.asarray(rgb), np.array([0x14, 0x18, 0x1E]) / 255
    dark = np.clip(light + 1 - 2 * light @ [0.213, 0.715, 0.072], 0, 1)
    return dark + ground * (1 - dark)


def test_numbers_have_this_contrast_on_a_dark_page_too():
    """A number that has an edge is read against the edge."""
    ax = plot.attention_heatmap(torch.linspace(0, 1, 101)[None], annotate=True)
    contrasts = []
    for value, text in zip(np.linspace(0, 1, 101), ax.texts, strict=True):
        around = np.array(plt.get_cmap(plot.PALETTE)(value)[:3])
        if text.get_path_effects():
            around = around + 0.6 * (1 - around)
        light = sorted(luminance(as_on_a_dark_page(rgb)) for rgb in (around, to_rgb(text.get_color())))
        contrasts.append((light[1] + 0.05) / (light[0] + 0.05))
    assert min(contrasts) >= 4.5, UNREADABLE.format(min(contrasts))


@pytest.mark.parametrize("role", plot.ROLES)
def test_a_role_keeps_its_hue_and_its_contrast_in_both_themes(role):
    light = np.array(to_rgb(plot.ROLES[role][0]))
    dark = as_on_a_dark_page(light)
    hues = [rgb_to_hsv(rgb)[0] for rgb in (light, dark)]
    assert abs(hues[0] - hues[1]) < 0.03
    assert 1.05 / (luminance(light) + 0.05) >= 4.5
    assert (luminance(dark) + 0.05) / (luminance(as_on_a_dark_page(np.ones(3))) + 0.05) >= 4.5


def luminance(rgb):
    """Relative luminance, WCAG 2.2, "relative luminance"."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_palette_gets_darker_all_the_way():
    lights = [luminance(plt.get_cmap(plot.PALETTE)(x)[:3]) for x in np.linspace(0, 1, 101)]
    assert all(a > b for a, b in itertools.pairwise(lights))


def test_many_cells_get_no_numbers():
    assert drawn_texts(plot.attention_heatmap(torch.full((11, 11), 1 / 11))) == []
    assert len(drawn_texts(plot.attention_heatmap(torch.full((11, 11), 1 / 11), annotate=True))) == 121
    assert drawn_texts(plot.attention_heatmap(WEIGHTS, annotate=False)) == []


def test_a_hidden_cell_is_hatched_and_a_zero_is_not():
    mask = torch.tensor([[True, True, False], [True, True, True]])
    ax = plot.attention_heatmap(WEIGHTS, mask=mask)
    assert covers(ax) == [(to_rgb(plot.HIDDEN_COLOUR), (2.0, 0.0), "////")]
    assert np.isnan(drawn_values(ax)[0, 2])
    assert drawn_values(ax)[1, 2] == 0.0
    assert drawn_texts(ax) == ["0.50", "0.25", "0.00", "1.00", "0.00"]
    data = plot.heatmap_data(WEIGHTS, mask=torch.tensor([True, False, True]))  # it broadcasts
    assert data.hidden.tolist() == [[False, True, False]] * 2


def test_nan_is_red_and_says_so():
    ax = plot.attention_heatmap(torch.tensor([[float("nan"), 1.0]]))
    assert covers(ax) == [(to_rgb(plot.NAN_COLOUR), (0.0, 0.0), None)]
    assert drawn_texts(ax) == ["NaN", "1.00"]


def test_labels_are_text_and_never_formulas():
    ax = plot.attention_heatmap(WEIGHTS, ["$x^2$", "a_b"], ["1", "2", "3"])
    ax.figure.canvas.draw()
    label = ax.get_yticklabels()[0]
    assert (label.get_text(), label.get_parse_math()) == ("$x^2$", False)
    assert plot.heatmap_data(WEIGHTS, ["$x^2$", "a_b"]).query_labels == ["$x^2$", "a_b"]


def touching(labels):
    """Pairs of neighbours whose drawn texts overlap."""
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    return [i for i, (a, b) in enumerate(itertools.pairwise(boxes)) if a.overlaps(b)]


@pytest.mark.parametrize(
    ("n", "heads"), [(12, 1), (46, 1), (64, 1), (200, 1), (512, 1), (20, 3), (64, 5), (100, 12)]
)
def test_labels_of_any_number_of_tokens_do_not_touch(n, heads):
    plot.style()
    words = [f"word{i}" for i in range(n)]
    weights = torch.full((heads, n, n), 1 / n)
    axes = plot.head_heatmaps(weights, words) if heads > 1 else [plot.attention_heatmap(weights[0], words)]
    axes[0].figure.canvas.draw()
    for ax in axes:
        for axis in (ax.xaxis, ax.yaxis):
            assert touching(axis.get_ticklabels()) == []
            shown = [label.get_text() for label in axis.get_ticklabels()]
            assert shown == [words[int(place)] for place in axis.get_ticklocs()]
            assert len(shown) >= min(n, 10)


def test_a_large_heatmap_has_no_patch_for_each_cell():
    mask = causal_mask(300)
    ax = plot.attention_heatmap(mask / mask.sum(-1, keepdim=True), mask=mask)
    (cover,) = (each for each in ax.collections if isinstance(each, PatchCollection))
    at = [path.get_extents().bounds for path in cover.get_paths()]
    assert at == [(row + 1, row, 299 - row, 1) for row in range(299)]


def test_long_labels_are_shortened_in_the_middle_and_described_whole():
    word = "antidisestablishmentarian"
    ax = plot.attention_heatmap(torch.eye(2), [word, "b"])
    assert ax.get_yticklabels()[0].get_text() == "antidi…arian"
    assert word in ax.get_label()


def test_whitespace_and_numbers_of_a_tensor_can_be_seen():
    given = ["\n", "\t", " ", " dog", "a b", "", "\u200b"]
    shown = ["↵", "⇥", "␣", "␣dog", "a b", "", "\\u200b"]
    assert plot.heatmap_data(torch.eye(7), given).query_labels == shown
    for tokens in (torch.tensor([101, 7]), [torch.tensor(101), torch.tensor(7)], np.array([101, 7])):
        assert plot.heatmap_data(torch.eye(2), tokens).query_labels == ["101", "7"]


DOLLARS = "$5_$"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot.attention_heatmap(torch.eye(2), [DOLLARS, DOLLARS], title=DOLLARS),
        lambda: plot.head_heatmaps(torch.eye(2)[None], [DOLLARS, "b"], titles=[DOLLARS])[0],
        lambda: pictures.contribution_heatmaps(torch.ones(1, 2, 2), [DOLLARS, "b"], [DOLLARS, "b"])[0],
        lambda: plot.memory_map(2, 1, 2, token_labels=[DOLLARS, "b"])[0],
        lambda: plot.attention_flow(torch.eye(2), *torch.ones(3, 2, 1), [DOLLARS, "b"]).axes[0],
        lambda: pictures.cache_lines([1, 2], {DOLLARS: [1, 2]}, {DOLLARS: DOLLARS}),
        lambda: pictures.named_bars({DOLLARS: [1], "b": [2]}, [DOLLARS], ylabel=DOLLARS, level=(DOLLARS, 1)),
        lambda: pictures.measured_lines([1, 2], {DOLLARS: [1, 2]}, xlabel=DOLLARS, ylabel=DOLLARS),
        lambda: plot.lines([1, 2], {DOLLARS: [1, 2]}, DOLLARS, DOLLARS),
        lambda: pictures.loss_curves({DOLLARS: [[1.0]]}, DOLLARS, mark=(DOLLARS, 1.0)),
        lambda: pictures.rotary_scores({DOLLARS: torch.ones(1)}, 2),
        lambda: pictures.training_lines([1], {DOLLARS: [1.0]}),
        lambda: pictures.head_scores(torch.eye(2), DOLLARS),
        lambda: pictures.asked_heatmaps({DOLLARS: torch.eye(2)}, torch.tensor([[0, 1], [0, 1]]))[0],
    ],
)
def test_no_text_of_a_caller_is_a_formula(draw):
    """As a formula, this one is an error."""
    plot.png(draw().figure)


@pytest.mark.parametrize(
    ("labels", "fonts"), [(["你", "好"], "Noto Sans CJK"), (["好", "🚀"], "Noto Emoji and Noto Sans CJK")]
)
def test_letters_that_no_font_has_get_one_sentence(monkeypatch, labels, fonts):
    monkeypatch.setattr(_texts, "_fonts", list)
    with pytest.warns(UserWarning, match="no font of this machine has") as told:
        plot.png(plot.attention_heatmap(torch.eye(2), labels).figure)
    (said,) = {str(one.message) for one in told}
    advice = f"install {fonts}, or another font that has, and restart the kernel"
    assert said == f"no font of this machine has {' '.join(labels)}: {advice}"


def test_matplotlibs_own_font_has_the_signs_of_whitespace(monkeypatch):
    """And so has every machine."""
    monkeypatch.setattr(_texts, "_fonts", list)
    plot.png(plot.attention_heatmap(torch.eye(4), ["\n", "\t", "\r", " "]).figure)


def found(family):
    """The file of a font."""
    return font_manager.findfont(font_manager.FontProperties(family=[family]))


def test_a_font_of_the_machine_that_has_the_letters_is_used(monkeypatch):
    """The usual font is one that Matplotlib brings and that lacks the letter; another one has it."""
    monkeypatch.setitem(plt.rcParams, "font.family", ["cmtt10"])
    assert ord("ш") not in _texts._letters(found("cmtt10"))
    ax = plot.attention_heatmap(torch.eye(2), ["ш", "b"])
    usual, other = plt.rcParams["font.family"]
    assert usual == "cmtt10"
    assert ord("ш") in _texts._letters(found(other))
    assert not any("resort" in name.lower() for _, name in _texts._fonts())
    assert ax.get_yticklabels()[0].get_fontfamily() == [usual, other]


def test_one_list_labels_both_sides_of_a_square():
    data = plot.heatmap_data(torch.eye(2), ["the", "cat"])
    assert data.key_labels == ["the", "cat"]
    assert plot.heatmap_data(WEIGHTS, ["the", "cat"]).key_labels == ["0", "1", "2"]


def test_a_heatmap_draws_where_it_is_told_to():
    fig, (left, right) = plt.subplots(1, 2)
    assert plot.attention_heatmap(WEIGHTS, ax=right, cbar=False) is right
    assert not left.collections
    assert len(fig.axes) == 2, "no colour bar"


def test_heads_share_one_scale_and_one_colour_bar():
    weights = torch.stack([WEIGHTS, WEIGHTS.flip(0), WEIGHTS])
    axes = plot.head_heatmaps(weights, columns=2)
    for ax, head in zip(axes, weights, strict=True):
        np.testing.assert_array_equal(drawn_values(ax), head.numpy())
        assert ax.collections[0].get_clim() == (0.0, 1.0)
    assert [ax.get_title() for ax in axes] == ["head 0", "head 1", "head 2"]
    assert [ax.get_label() for ax in axes[0].figure.axes].count("<colorbar>") == 1


def test_a_mask_for_each_head_stays_with_its_head():
    mask = torch.stack([causal_mask(2), ~causal_mask(2).flip(0)])
    axes = plot.head_heatmaps(torch.full((2, 2, 2), 0.5), mask=mask)
    assert [[position for _, position, _ in covers(ax)] for ax in axes] == [
        [(1.0, 0.0)],
        [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)],
    ]


def test_contributions_stand_beside_their_sum_on_one_scale():
    contributions = torch.tensor([[[1.0, -2.0, 0.0]], [[0.5, -3.0, 0.0]]])
    axes = pictures.contribution_heatmaps(contributions, ["saw"], ["noun", "verb", "size"])
    shown = [drawn_values(ax).tolist() for ax in axes]
    assert shown == [[[1.0, -2.0, 0.0]], [[0.5, -3.0, 0.0]], [[1.5, -5.0, 0.0]]]
    assert {ax.collections[0].get_clim() for ax in axes} == {(-5.0, 5.0)}
    (bar,) = {*axes[0].figure.axes} - {*axes}
    assert (bar.get_xlim(), bar.get_xlabel()) == ((-5.0, 5.0), "contribution")
    assert [ax.get_title() for ax in axes] == ["head 0 writes", "head 1 writes", "sum: the output"]
    assert [label.get_text() for label in axes[2].get_xticklabels()] == ["noun", "verb", "size"]
    assert axes[2].get_label() == "sum: the output: 1 by 3, largest -5.00, for saw at verb."


@pytest.mark.parametrize(
    ("most", "limit"), [(0.0, 1), (0.03, 0.05), (1.0, 1), (1.01, 2), (5.1, 10), (200, 200)]
)
def test_the_scale_of_contributions_ends_at_a_round_number(most, limit):
    axes = pictures.contribution_heatmaps(torch.tensor([[[-most, 0.0, 0.0]]], dtype=torch.float64))
    assert axes[0].collections[0].get_clim() == pytest.approx((-limit, limit))


FLOW = (toy.embeddings(), *toy.single_head_weights(), toy.tokens())


def test_the_flow_shows_the_numbers_of_all_seven_tensors():
    tensors = plot.attention_flow_data(*FLOW[:4])
    assert tensors["weights"].sum(dim=-1).tolist() == pytest.approx([1.0] * 5)
    torch.testing.assert_close(tensors["output"], tensors["weights"] @ tensors["value"])
    (ax,) = plot.attention_flow(*FLOW).axes
    texts = drawn_texts(ax)
    assert "scores (5, 5)\n= query @ key.mT / sqrt(3)" in texts
    assert "?" not in texts
    wanted = [f"{number:.2f}" for number in tensors["weights"].flatten().tolist()]
    title = next(i for i, text in enumerate(texts) if text.startswith("weights"))
    drawn = [text for text in texts[title - 30 : title] if text not in toy.tokens()]
    assert drawn == wanted
    assert "saw 0.04, 0.67, 0.04, 0.04, 0.21" in ax.get_label()
    assert "query (5, 3) = x @ w_q: a 2, 0, 0; dog 0, 2, 0; saw 2, 0, 1" in ax.get_label()


@pytest.mark.parametrize("known", [[], [*plot.attention_flow_data(*FLOW[:4])]])
def test_no_arrow_of_the_flow_crosses_a_text(known):
    plot.style()
    figure = plot.attention_flow(*FLOW, known=known)
    figure.canvas.draw()
    (ax,) = figure.axes
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()]
    arrows = [text.arrow_patch for text in ax.texts if getattr(text, "arrow_patch", None)]
    assert (len(boxes) > 100, len(arrows)) == (True, 8)
    for arrow in arrows:
        begin, end = arrow.get_path().transformed(arrow.get_transform()).vertices[[0, 2]]
        along = [begin + share * (end - begin) for share in np.linspace(0, 1, 200)]
        assert not [box for box in boxes for point in along if box.contains(*point)]


def test_the_flow_keeps_back_what_is_still_to_be_computed():
    (ax,) = plot.attention_flow(*FLOW, known=["x", "query"]).axes
    texts = drawn_texts(ax)
    assert texts.count("?") == 15 + 10 + 25 + 25 + 10
    assert not any("softmax" in text or "sqrt" in text for text in [*texts, ax.get_label()])
    assert "weights (5, 5), shares, 1 in each row: no numbers yet." in ax.get_label()


def test_rotary_scores_are_lines_with_the_trained_length_marked():
    given = {"plain": torch.tensor([1.0, 0.1]), "$slow$": torch.tensor([0.25])}
    ax = pictures.rotary_scores(given, 3, n=7)
    *lines, mark = ax.get_lines()
    for line, theta in zip(lines, given.values(), strict=True):
        expected = [np.mean([np.cos(m * t) for t in theta.tolist()]) for m in range(7)]
        np.testing.assert_allclose(line.get_ydata(), expected, atol=1e-6)
    assert mark.get_xdata() == [3, 3]
    assert drawn_texts(ax) == ["trained length 3"]
    assert len({line.get_linestyle() for line in lines}) == 2
    assert "plain: 1.00 at 0, -0.02 at 3, 0.89 at 6; lowest -0.02 at 3." in ax.get_label()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["plain", r"\$slow\$"]
    assert pictures.rotary_scores(given, 3, ax=ax) is ax


RUNS = {"one head": [[2.0, 0.7], [2.0, 0.75]], "two heads": [[2.0, 0.1], [2.0, 0.4], [2.0, 1.5]]}


def test_loss_curves_draw_every_run_and_say_where_it_ends():
    ax = pictures.loss_curves(RUNS, "two lookups", mark=("ln 2", 0.69))
    *drawn, marked = ax.lines
    assert [line.get_ydata().tolist() for line in drawn] == [run for runs in RUNS.values() for run in runs]
    assert [line.get_linestyle() for line in drawn] == ["-"] * 2 + ["--"] * 3
    assert list(marked.get_ydata()) == [0.69, 0.69]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one head", "two heads"]
    assert ax.get_label() == (
        "two lookups: loss against training step. one head (2 runs, solid): all end near ln 2; two heads "
        "(3 runs, dashed): 1 end near 0, 1 end between 0 and ln 2, 1 end above ln 2. The mean of all losses "
        "is smallest for two heads."
    )


def test_the_end_of_a_curve_is_its_last_tenth():
    falls = [2.0] * 18 + [0.2, 0.0]
    assert pictures.recall.loss_curves_data({"a": [falls], "b": [[*falls, 2.0]]}) == {
        "a": "all end near 0",
        "b": "all end above 0",
    }


def test_heads_that_answer_questions_are_described_by_the_records_asked_for():
    asked = torch.tensor([[0, 2], [2, 1]])
    heads = {
        "one": torch.tensor([[0.5, 0.0, 0.4], [0.2, 0.35, 0.45]]),
        "first": torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.1, 0.9]]),
        "mixed": torch.tensor([[0.3, 0.0, 0.7], [0.0, 0.95, 0.05]]),
    }
    axes = pictures.asked_heatmaps(heads, asked, ["A, C", "C, B"], list("ABC"))
    for ax, rows in zip(axes, heads.values(), strict=True):
        np.testing.assert_array_equal(drawn_values(ax), rows.double().numpy())
    assert [ax.get_label() for ax in axes] == [
        "one: in every row, the two records asked for have nearly the same weight.",
        "first: in every row, nearly all weight is on the record asked for first.",
        "mixed: in 1 row, the record asked for second has the larger of two unequal weights; in 1 row, "
        "nearly all weight is on the record asked for second.",
    ]


def test_five_rotary_rules_have_five_kinds_of_lines():
    ax = pictures.rotary_scores({str(i): torch.tensor([0.1 * i]) for i in range(5)}, 3)
    assert len({str(line._unscaled_dash_pattern) for line in ax.get_lines()[:5]}) == 5


def test_training_lines_show_and_tell_what_was_measured():
    given = {"$loss$": [4.0, 2.0, 0.5], "score": [0.0, 0.25, -1.0]}
    ax = pictures.training_lines([0, 25, 50], given)
    assert [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in ax.lines] == [
        ([0, 25, 50], numbers) for numbers in given.values()
    ]
    assert len({(line.get_marker(), line.get_linestyle()) for line in ax.lines}) == 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [r"\$loss\$", "score"]
    assert ax.get_ylim()[0] == -1, "no number is cut off"
    assert ax.get_label() == (
        "Lines over the training steps 0 to 50: $loss$ 4.00 at 0, 2.00 at 25, 0.50 at 50; "
        "score 0.00 at 0, 0.25 at 25, -1.00 at 50."
    )
    told = pictures.training_lines(range(0, 1000, 25), {"loss": [4.0] * 40}, ax=ax).get_label()
    assert told.count(" at ") <= 10, "a long training is told in a few numbers"


def test_head_scores_have_a_row_for_each_layer_and_tell_the_highest_head_of_each():
    scores = torch.tensor([[0.5, 0.57, 0.1], [0.91, 0.0, 0.2]])
    ax = pictures.head_scores(scores.requires_grad_(), "induction score")
    np.testing.assert_array_equal(drawn_values(ax), scores.detach().double().numpy())
    assert [label.get_text() for label in ax.get_yticklabels()] == ["layer 0", "layer 1"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["head 0", "head 1", "head 2"]
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("induction score", "", "")
    assert ax.get_label() == (
        "induction score of 2 layers by 3 heads. Highest in layer 0: 0.57, head 1; in layer 1: 0.91, head 0."
    )


def test_lines_are_described_from_their_numbers():
    names = {"falls": [4.0, 2.0, 1.0], "rises": [1.0, 2.0, 4.0], "bends": [1.0, -3.0, 0.9]}
    ax = plot.lines([0, 10, 20], names, "place", "height", levels={"the middle": 2.5})
    assert [line.get_ydata().tolist() for line in ax.lines[:3]] == list(names.values())
    assert len({line.get_linestyle() for line in ax.lines[:3]}) == 3
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(names)
    assert ax.lines[3].get_ydata() == [2.5, 2.5]
    assert ax.get_label() == (
        "Lines of height against place, from 0 to 20. falls: from 4 to 1. rises: from 1 to 4. "
        "bends: from 1 to 0.9, lowest -3 at 10. falls and rises cross at 10, at a height of 2. "
        "A dashed line is the middle, 2.5."
    )
    _, given = plt.subplots()
    marked = plot.lines([1, 2], {"a": [1, 2], "b": [3, 4]}, "x", "y", markers="os", ax=given)
    assert marked is given
    assert marked.get_legend() is None
    assert [line.get_marker() for line in marked.lines] == ["o", "s"]


def test_lines_cross_where_they_are_seen_to_cross():
    """On a logarithmic axis, the middle of 1 and 100 is 10."""
    _, ax = plt.subplots()
    ax.set_xscale("log")
    said = plot.lines([1, 100], {"falls": [3, 1], "rises": [1, 3]}, "place", "height", ax=ax).get_label()
    assert said.endswith("falls and rises cross at 10, at a height of 2.")


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ([0.0, 4.0], [1.0, 1.0], [(0.25, 1.0)]),  # between two points
        ([3.0, 1.0, 0.0], [0.0, 1.0, 2.0], [(1.0, 1.0)]),  # at a point of both
        ([0.0, 1.0, 0.0], [1.0, 1.0, 1.0], []),  # they touch
        ([2.0, 1.0, 1.0], [0.0, 1.0, 1.0], []),  # they meet and stay together
        ([0.0, 2.0, 0.0], [1.0, 1.0, 1.0], [(0.5, 1.0), (1.5, 1.0)]),
    ],
)
def test_lines_cross_where_their_order_changes(one, other, found):
    assert plot.crossings(range(len(one)), torch.tensor(one), torch.tensor(other)) == found


@pytest.mark.parametrize("num_heads", [1, 3])
def test_the_right_split_keeps_every_token_in_every_head(num_heads):
    data = plot.memory_map_data(n=5, num_heads=num_heads, d_k=7)
    for head in data.right:
        assert data.token[head].tolist() == [[i] * 7 for i in range(5)]
    assert data.misplaced.any() == (num_heads > 1)


def test_the_memory_map_draws_number_colour_and_hatch():
    axes = plot.memory_map(n=3, num_heads=2, d_k=2, token_labels=["a", "$b", "c"])
    numbers = [[int(t) for t in drawn_texts(ax) if t.isdigit()] for ax in axes]
    assert numbers == [[*range(12)], [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11], [*range(12)]]
    colours = [[patch.get_facecolor() for patch in ax.patches] for ax in axes]
    assert len(set(colours[0])) == 3
    assert [colours[0].index(c) // 4 for c in colours[1]] == [0, 0, 1, 1, 2, 2] * 2
    hatched = [patch.get_hatch() is not None for patch in axes[2].patches]
    assert hatched == plot.memory_map_data(3, 2, 2).misplaced.flatten().tolist()
    assert hatched.count(True) == 8
    assert not any(patch.get_hatch() for patch in axes[1].patches)


KEPT = {"top": [64, 512], "level": [60, 60], "same": [64, 512]}


def test_a_line_shows_its_bytes_and_has_its_name_beside_its_end():
    ax = pictures.cache_lines([1024, 8192], KEPT, {"top": "all", "level": "window", "same": "all"})
    assert [line.get_ydata().tolist() for line in ax.lines] == list(KEPT.values())
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-"]
    assert ax.lines[0].get_color() == ax.lines[2].get_color() != ax.lines[1].get_color()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["all", "window"]
    ends = {name: (8192, values[-1]) for name, values in KEPT.items()}
    assert {text.get_text(): text.xy for text in ax.texts} == ends
    assert ax.get_label() == (
        "Lines of the bytes of the cache against the tokens, both logarithmic, from 1024 to 8192 tokens: "
        "top 64 bytes to 512 bytes; same 64 bytes to 512 bytes; level 60 bytes to 60 bytes."
    )


def test_a_line_that_ends_early_has_its_name_and_a_mark_there():
    ax = pictures.cache_lines([512, 1024, 8192], {"whole": [64, 128, 512], "early": [32, 64]})
    whole, early = ax.lines
    assert (early.get_xdata().tolist(), early.get_ydata().tolist()) == ([512, 1024], [32, 64])
    assert (whole.get_marker(), early.get_marker(), early.get_markevery()) == ("", "o", [-1])
    assert {text.get_text(): text.xy for text in ax.texts} == {"whole": (8192, 512), "early": (1024, 64)}
    assert ax.get_label().endswith("whole 64 bytes to 512 bytes; early 32 bytes to 64 bytes at 1024 tokens.")


def test_bars_are_drawn_and_described_from_the_same_numbers():
    one = pictures.named_bars({"": [1.386, -0.0]}, ["ate", "."], ylabel="nats")
    assert [bar.get_height() for bar in one.patches] == [1.386, 0]
    assert one.get_label() == "Bars of the nats: ate 1.39, . 0.00."
    assert one.get_legend() is None
    heights = {"zero": [0.85, 0.5], "mean": [0.78, 1.0]}
    two = pictures.named_bars(heights, ["head 0", "head 1"], ylabel="share", level=("coin", 0.5))
    assert [bar.get_height() for bar in two.patches] == [0.85, 0.5, 0.78, 1.0]
    assert drawn_texts(two) == ["0.85", "0.50", "0.78", "1.00"]
    assert two.get_label() == (
        "Bars of the share: zero: head 0 0.85, head 1 0.50; mean: head 0 0.78, head 1 1.00. "
        "A line marks coin, 0.5."
    )
    left, right = two.patches[0], two.patches[2]  # of the same name: beside each other
    assert left.get_x() + left.get_width() == pytest.approx(right.get_x())
    assert two.lines[0].get_ydata() == [0.5, 0.5]


def test_measured_lines_are_drawn_and_described_from_the_same_numbers():
    measured = {"whole text": [0.1, 0.42], "cache": [0.1, 0.2]}
    ax = pictures.measured_lines([64, 128], measured, xlabel="words", ylabel="time (s)")
    assert [line.get_ydata().tolist() for line in ax.lines] == list(measured.values())
    assert len({(line.get_marker(), line.get_linestyle()) for line in ax.lines}) == 2
    assert ax.get_label() == (
        "Lines of the time (s) against the words, at 64, 128: whole text 0.1, 0.42; cache 0.1, 0.2."
    )


def test_own_key_heatmaps_say_the_largest_weight_and_the_diagonal():
    weights = torch.tensor([[[0.25, 0.75], [0.5, 0.5]], [[1.0, 0.0], [0.125, 0.875]]])
    axes = pictures.own_key_heatmaps(weights, ["a", "b"], ["x", "y"])
    assert [ax.get_label() for ax in axes] == [
        "a: 2 queries by 2 keys, largest weight 0.75, own key 0.25 to 0.50.",
        "b: 2 queries by 2 keys, largest weight 1.00, own key 0.88 to 1.00.",
    ]
    assert drawn_texts(axes[0]) == []


def test_names_are_clear_of_each_other_and_those_with_room_stay_at_their_ends():
    heights = pictures.caches.cache_lines_data({**KEPT, "alone": [1, 2**20], "next": [60, 61]})
    gap = 20 / 26
    logs = {name: np.log2(height) for name, height in heights.items()}
    assert heights["alone"] == pytest.approx(2**20)
    assert logs["same"] - logs["top"] == pytest.approx(gap)
    assert logs["same"] + logs["top"] == pytest.approx(2 * 9)
    assert logs["next"] - logs["level"] == pytest.approx(gap)
    assert logs["next"] + logs["level"] == pytest.approx(np.log2(60 * 61))
    assert sorted(heights, key=heights.get) == ["level", "next", "top", "same", "alone"]


def test_the_description_says_what_the_picture_shows():
    mask = torch.tensor([[True, True, False], [True, True, True]])
    data = plot.heatmap_data(WEIGHTS, ["dog", "saw"], ["a", "dog", "cat"], mask=mask)
    assert plot.describe(data, "head 0") == (
        "head 0: heatmap of weights, 2 queries by 3 keys. "
        "dog: a 0.50, dog 0.25; saw: dog 1.00. 1 of 6 cells hidden."
    )


@pytest.mark.parametrize(
    ("weights", "mask", "said"),
    [
        (torch.full((1, 4), 0.25), None, "0: 0.25 everywhere."),
        (torch.full((1, 2), float("nan")), None, "0: NaN."),
        (torch.zeros(1, 2), torch.tensor([False, False]), "0: all hidden. 2 of 2 cells hidden."),
        (torch.full((17, 2), 0.5), None, "15: 0.50 everywhere; 1 more queries."),
    ],
)
def test_the_description_of_special_rows(weights, mask, said):
    assert plot.describe(plot.heatmap_data(weights, mask=mask)).endswith(said)


@pytest.fixture
def displayed(monkeypatch):
    shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda data, metadata, raw: shown.append((data, metadata, raw))
    )
    return shown


def test_show_stores_the_description_and_closes_the_figure(displayed):
    ax = plot.attention_heatmap(WEIGHTS, ["dog", "saw"], ["a", "dog", "cat"])
    plot.show(ax)
    [(data, metadata, raw)] = displayed
    described = plot.describe(plot.heatmap_data(WEIGHTS, ["dog", "saw"], ["a", "dog", "cat"]))
    about = metadata["image/png"]
    assert about["alt"] == described
    assert plt.imread(io.BytesIO(base64.b64decode(data["image/png"]))).shape[:2] == pytest.approx(
        (2 * about["height"], 2 * about["width"]), abs=1
    ), "two pixels for each of the page's"
    assert data["text/plain"] == described
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert raw
    assert not plt.fignum_exists(ax.figure.number)


def test_show_takes_a_figure_an_array_of_axes_and_a_text(displayed):
    axes = plot.head_heatmaps(torch.stack([WEIGHTS, WEIGHTS]))
    plot.show(axes)
    fig, _ = plt.subplots()
    plot.show(fig, "a line that rises")
    texts = [metadata["image/png"]["alt"] for _, metadata, _ in displayed]
    assert texts[0].startswith("head 0: heatmap")
    assert "head 1: heatmap" in texts[0]
    assert "colorbar" not in texts[0]
    assert texts[1] == "a line that rises"


def test_a_file_knows_its_smallest_letters():
    """An exponent is smaller than the text around it; what is not drawn does not count."""
    figure, ax = plt.subplots(dpi=100)
    ax.set_axis_off()
    ax.text(0, 0, "", fontsize=1)
    ax.text(0, 0, "hidden", fontsize=2, visible=False)
    ax.text(0, 0, "text", fontsize=9)
    sizes = [smallest(figure)]
    ax.text(0, 0, "$10^{3}$", fontsize=9)
    sizes.append(smallest(figure))
    assert sizes == [12.5, 8.8]


def test_a_file_has_the_colours_with_a_meaning_beside_a_large_picture_with_many_others():
    figure, ax = plt.subplots(dpi=100)
    ax.imshow(np.random.default_rng(0).random((90, 90, 3)))
    for i, role in enumerate(plot.ROLES):
        ax.add_patch(plt.Rectangle((10 * i, 10), 3, 3, color=plot.ROLES[role][0]))
    drawn = Image.open(io.BytesIO(plot.png(figure)[0])).convert("RGB")
    plt.close(figure)
    colours = {colour for _, colour in drawn.getcolors()}
    assert {tuple(round(255 * x) for x in to_rgb(colour)) for colour, _ in plot.ROLES.values()} <= colours


def smallest(figure):
    return float(Image.open(io.BytesIO(plot.png(figure)[0])).info["smallest"])


X = torch.ones(5, 4)
PICTURES = {
    "one head": lambda: plot.attention_heatmap(torch.eye(10)),
    "many heads": lambda: plot.head_heatmaps(torch.eye(8).expand(6, 8, 8)),
    "many heads without numbers": lambda: plot.head_heatmaps(torch.eye(15).expand(6, 15, 15)),
    "contributions": lambda: pictures.contribution_heatmaps(torch.ones(2, 5, 4)),
    "memory": lambda: plot.memory_map(3, 2, 2),
    "layer": plot.layer_shapes,
    "flow": lambda: plot.attention_flow(X, *torch.ones(3, 4, 3), toy.tokens()),
    "lines": lambda: pictures.cache_lines([1024, 2048], {"a model": [2**20, 2**21]}, {"a model": "all keys"}),
    "any lines": lambda: plot.lines([0, 1], {"a": [0, 1]}, "place", "height"),
    "losses": lambda: pictures.loss_curves(RUNS, "two lookups", mark=("ln 2", 0.69)),
    "asked": lambda: pictures.asked_heatmaps({"a": torch.eye(6), "b": torch.eye(6)}, torch.ones(6, 2).long()),
    "rotary": lambda: pictures.rotary_scores({"plain": torch.ones(1)}, 2),
    "bars": lambda: pictures.named_bars({"a": [1.0, 2.0], "b": [2.0, 1.0]}, ["x", "y"], ylabel="size"),
    "measured": lambda: pictures.measured_lines([1, 2], {"a": [1.0, 2.0]}, xlabel="words", ylabel="time (s)"),
    "own": lambda: pictures.own_key_heatmaps(torch.eye(32).expand(2, 32, 32), ["a", "b"], range(32)),
    "training": lambda: pictures.training_lines([0, 25], {"loss": [4.0, 0.1], "score": [0.0, 1.0]}),
    "scores of heads": lambda: pictures.head_scores(torch.eye(8)[:2], "previous-token score"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_text_has_11_pixels_on_a_page_of_736(name):
    """The website's column is that wide beside both lists, in a window of 1280 pixels."""
    plot.style()
    drawn = PICTURES[name]()
    figure = drawn if isinstance(drawn, Figure) else np.asarray(drawn).reshape(-1)[0].figure
    content, size = plot.png(figure)
    assert smallest(figure) * min(1, 736 / size["width"]) >= 11
    assert Image.open(io.BytesIO(content)).convert("RGB").getpixel((0, 0)) == (255, 255, 255), (
        "the page's ground"
    )


ASKED = torch.tensor([[0, 1], [1, 0]])
FIVE = dict(zip("abcde", "abcde", strict=True))


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: plot.attention_heatmap(torch.ones(2, 3, 4)), ValueError, "weights[0, 0] is one head"),
        (lambda: plot.attention_heatmap(torch.ones(3)), ValueError, "axis missing"),
        (lambda: pictures.head_scores(torch.ones(3), "score"), ValueError, "(layers, heads)"),
        (lambda: pictures.training_lines([25, 0], {"loss": [1, 2]}), ValueError, "larger than the last"),
        (lambda: pictures.training_lines([0, 25], {"loss": [1]}), ValueError, "2 numbers, one a step"),
        (lambda: pictures.training_lines([0], {}), ValueError, "1 to 4 lines"),
        (lambda: plot.attention_heatmap(torch.ones(2, 3, dtype=torch.long)), TypeError, "weights.float()"),
        (lambda: plot.attention_heatmap(torch.ones(0, 3)), ValueError, "at least one token"),
        (lambda: plot.attention_heatmap(WEIGHTS, ["a"]), ValueError, "query_labels: expected 2 labels"),
        (lambda: plot.attention_heatmap(WEIGHTS, None, "abc"), TypeError, "key_labels.split()"),
        (
            lambda: plot.attention_heatmap(torch.eye(2), {"a", "b"}),
            TypeError,
            "a list of labels, got one set",
        ),
        (lambda: plot.attention_heatmap(torch.eye(2), {"a": 1, "b": 2}), TypeError, "got one dict"),
        (lambda: plot.attention_heatmap(torch.eye(2), (x for x in "ab")), TypeError, "got one generator"),
        (lambda: plot.attention_heatmap(torch.eye(2), torch.tensor(3)), TypeError, "got one int"),
        (lambda: plot.attention_heatmap(WEIGHTS, mask=torch.ones(2, dtype=torch.bool)), ValueError, "(2,)"),
        (lambda: plot.head_heatmaps(WEIGHTS), ValueError, "weights[0] is one sample"),
        (lambda: plot.head_heatmaps(torch.ones(0, 2, 3)), ValueError, "at least one head"),
        (lambda: plot.head_heatmaps(WEIGHTS[None], titles=["a", "b"]), ValueError, "titles: expected 1"),
        (lambda: plot.head_heatmaps(WEIGHTS[None], columns=0), ValueError, "columns: expected at least 1"),
        (lambda: plot.head_heatmaps(WEIGHTS[None], axes=[1, 2]), ValueError, "one for each of 1 heads"),
        (lambda: pictures.contribution_heatmaps(WEIGHTS), ValueError, "(heads, n, d_model)"),
        (
            lambda: pictures.contribution_heatmaps(WEIGHTS[None], ["a"]),
            ValueError,
            "expected 2 labels, got 1",
        ),
        (
            lambda: pictures.contribution_heatmaps(WEIGHTS[None], axes=[1]),
            ValueError,
            "expected 2, one for each",
        ),
        (lambda: pictures.contribution_heatmaps(WEIGHTS[None, :, :0]), ValueError, "at least one head"),
        (lambda: plot.attention_flow(FLOW[0][None], *FLOW[1:4]), ValueError, "x[0] is one sample"),
        (lambda: plot.attention_flow(FLOW[0], *FLOW[1:3], FLOW[3].mT), ValueError, "w_v: expected 4 rows"),
        (lambda: plot.attention_flow(*FLOW[:4], known=["q"]), ValueError, "known: expected names out of x"),
        (lambda: pictures.rotary_scores({}, 3), ValueError, "frequencies: expected at least one rule"),
        (lambda: pictures.rotary_scores({"a": WEIGHTS}, 3), ValueError, "(pairs,)"),
        (
            lambda: pictures.rotary_scores({"a": WEIGHTS[0]}, 3, n=3),
            ValueError,
            "n: expected at least 4, got 3",
        ),
        (lambda: plot.memory_map(0, 2, 2), ValueError, "n: expected at least 1, got 0"),
        (lambda: plot.memory_map(3, 2.0, 2), TypeError, "Use //"),
        (lambda: plot.memory_map(3, 2, 2, token_labels=["a"]), ValueError, "expected 3 labels, got 1"),
        (lambda: plot.memory_map(3, 2, 2, axes=[1]), ValueError, "expected three, got 1"),
        (lambda: pictures.cache_lines([2, 1], {"a": [1, 2]}), ValueError, "each larger than the last"),
        (lambda: pictures.cache_lines([1, 2], {}), ValueError, "kept: expected at least one line"),
        (
            lambda: pictures.cache_lines([1, 2], {"a": [1, 2, 3]}),
            ValueError,
            "kept['a']: expected up to 2 positive",
        ),
        (lambda: pictures.cache_lines([1, 2], {"a": [0, 1]}), ValueError, "kept['a']: expected up to 2"),
        (lambda: pictures.cache_lines([1, 2], {x: [1, 2] for x in FIVE}, FIVE), ValueError, "at most 4 diff"),
        (lambda: plot.lines([1, 1], {"a": [1, 2]}, "x", "y"), ValueError, "x: expected at least two numbers"),
        (lambda: plot.lines([1, 2], {}, "x", "y"), ValueError, "heights: expected 1 to 4 lines, got 0"),
        (
            lambda: plot.lines([1, 2], {name: [1, 2] for name in FIVE}, "x", "y"),
            ValueError,
            "1 to 4 lines, got 5",
        ),
        (lambda: plot.lines([1, 2], {"a": [1, math.nan]}, "x", "y"), ValueError, "2 finite numbers"),
        (lambda: plot.lines([1, 2], {"a": [1]}, "x", "y"), ValueError, "heights['a']: expected 2 finite"),
        (lambda: pictures.loss_curves({}), ValueError, "curves: expected 1 to 4 names, got 0"),
        (lambda: pictures.loss_curves({"a": [[]]}), ValueError, "curves['a']: expected at least one run"),
        (lambda: pictures.asked_heatmaps({}, ASKED), ValueError, "weights: expected at least one head"),
        (
            lambda: pictures.asked_heatmaps({"a": WEIGHTS}, ASKED[:1]),
            ValueError,
            "asked: expected (2, 2), got",
        ),
        (lambda: pictures.named_bars({}, ["a"], ylabel="y"), ValueError, "at least one kind of bar"),
        (
            lambda: pictures.named_bars({"k": [1]}, "ab", ylabel="y"),
            ValueError,
            "heights['k']: expected 2, one for",
        ),
        (lambda: pictures.measured_lines([1], {}, xlabel="x", ylabel="y"), ValueError, "1 to 4 lines, got 0"),
        (
            lambda: pictures.measured_lines([1, 2], {"a": [1]}, xlabel="x", ylabel="y"),
            ValueError,
            "measured['a']: expected 2, one for each place",
        ),
        (lambda: plot.show(plt.figure()), ValueError, "a description of the picture in words"),
    ],
)
def test_wrong_arguments_get_a_clear_error(call, error, said):
    with pytest.raises(error) as caught:
        call()
    assert said in str(caught.value)
