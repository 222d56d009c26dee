"""The pictures: what they show, read as numbers, labels and scale, never as pixels."""

import base64
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb

from mha_lab import causal_mask, plot

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
    weights = (WEIGHTS + 0.25) / 2
    ax = plot.attention_heatmap(weights, ["dog", "saw"], ["a", "dog", "cat"])
    np.testing.assert_array_equal(drawn_values(ax), weights.numpy())
    assert [label.get_text() for label in ax.get_yticklabels()] == ["dog", "saw"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "dog", "cat"]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("query", "key")
    assert ax.yaxis_inverted(), "row 0 stands on top"
    assert ax.collections[0].get_clim() == (0.0, 1.0), "whatever the weights"


def test_numbers_stand_in_the_cells_and_can_be_read_on_dark_blue():
    ax = plot.attention_heatmap(WEIGHTS)
    assert drawn_texts(ax) == ["0.50", "0.25", "0.25", "0.00", "1.00", "0.00"]
    assert [text.get_color() for text in ax.texts] == ["black"] * 4 + ["white", "black"]


@pytest.mark.parametrize("value", [0.0, 0.3, 0.5, 0.71, 0.72, 0.8, 1.0])
def test_numbers_have_the_contrast_that_wcag_asks_for(value):
    ax = plot.attention_heatmap(torch.full((1, 1), value))
    background = plt.get_cmap(plot.PALETTE)(value)[:3]
    light = sorted((luminance(background), luminance(to_rgb(ax.texts[0].get_color()))))
    assert (light[1] + 0.05) / (light[0] + 0.05) >= 4.5


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


def test_a_mask_broadcasts():
    data = plot.heatmap_data(WEIGHTS, mask=torch.tensor([True, False, True]))
    assert data.hidden.tolist() == [[False, True, False]] * 2


def test_nan_is_red_and_says_so():
    ax = plot.attention_heatmap(torch.tensor([[float("nan"), 1.0]]))
    assert covers(ax) == [(to_rgb(plot.NAN_COLOUR), (0.0, 0.0), None)]
    assert drawn_texts(ax) == ["NaN", "1.00"]


def test_weights_in_training_can_be_drawn():
    weights = torch.softmax(torch.randn(2, 3, dtype=torch.bfloat16, requires_grad=True), dim=-1)
    np.testing.assert_array_equal(plot.heatmap_data(weights).values, weights.detach().double().numpy())


def test_labels_are_text_and_never_formulas():
    ax = plot.attention_heatmap(WEIGHTS, ["$x^2$", "a_b"], ["1", "2", "3"])
    ax.figure.canvas.draw()
    label = ax.get_yticklabels()[0]
    assert label.get_text() == r"\$x^2\$", "matplotlib shows an escaped dollar sign as a dollar sign"
    assert plot.heatmap_data(WEIGHTS, ["$x^2$", "a_b"]).query_labels == ["$x^2$", "a_b"]


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
    assert len(axes) == 3
    for ax, head in zip(axes, weights, strict=True):
        np.testing.assert_array_equal(drawn_values(ax), head.numpy())
        assert ax.collections[0].get_clim() == (0.0, 1.0)
    assert [ax.get_title() for ax in axes] == ["head 0", "head 1", "head 2"]
    bars = [ax for ax in axes[0].figure.axes if ax.get_label() == "<colorbar>"]
    assert len(bars) == 1


def test_a_mask_for_each_head_stays_with_its_head():
    mask = torch.stack([causal_mask(2), ~causal_mask(2).flip(0)])
    axes = plot.head_heatmaps(torch.full((2, 2, 2), 0.5), mask=mask)
    assert [[position for _, position, _ in covers(ax)] for ax in axes] == [
        [(1.0, 0.0)],
        [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)],
    ]


def test_contributions_stand_beside_their_sum_on_one_scale():
    contributions = torch.tensor([[[1.0, -2.0, 0.0]], [[0.5, -3.0, 0.0]]])
    axes = plot.contribution_heatmaps(contributions, ["saw"], ["noun", "verb", "size"])
    shown = [drawn_values(ax).tolist() for ax in axes]
    assert shown == [[[1.0, -2.0, 0.0]], [[0.5, -3.0, 0.0]], [[1.5, -5.0, 0.0]]]
    assert {ax.collections[0].get_clim() for ax in axes} == {(-5.0, 5.0)}
    assert [ax.get_title() for ax in axes] == ["head 0 writes", "head 1 writes", "sum: the output"]
    assert [label.get_text() for label in axes[2].get_xticklabels()] == ["noun", "verb", "size"]
    assert axes[2].get_label() == "sum: the output: 1 by 3, largest -5.00, for saw at verb."


def test_the_memory_map_by_hand():
    # x is 0..11 in three rows of four. Head 1 owns columns 2 and 3: 2 3, 6 7, 10 11.
    data = plot.memory_map_data(n=3, num_heads=2, d_k=2)
    assert data.stored.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert data.right.tolist() == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]
    assert data.wrong.tolist() == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
    assert data.token.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert data.misplaced.sum() == 8


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
    assert not any(patch.get_hatch() for patch in axes[1].patches)


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
    assert metadata == {"image/png": {"alt": described}}
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


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: plot.attention_heatmap(torch.ones(2, 3, 4)), ValueError, "weights[0, 0] is one head"),
        (lambda: plot.attention_heatmap(torch.ones(3)), ValueError, "axis missing"),
        (lambda: plot.attention_heatmap([[1.0]]), TypeError, "torch.tensor(weights)"),
        (lambda: plot.attention_heatmap(torch.ones(2, 3, dtype=torch.long)), TypeError, "weights.float()"),
        (lambda: plot.attention_heatmap(torch.ones(0, 3)), ValueError, "at least one token"),
        (
            lambda: plot.attention_heatmap(WEIGHTS, ["a"]),
            ValueError,
            "query_labels: expected 2 labels, got 1",
        ),
        (lambda: plot.attention_heatmap(WEIGHTS, None, "abc"), TypeError, "key_labels.split()"),
        (lambda: plot.attention_heatmap(WEIGHTS, mask=torch.ones(2)), TypeError, "mask_from_additive"),
        (lambda: plot.attention_heatmap(WEIGHTS, mask=torch.ones(2, dtype=torch.bool)), ValueError, "(2,)"),
        (lambda: plot.head_heatmaps(WEIGHTS), ValueError, "weights[0] is one sample"),
        (lambda: plot.head_heatmaps(torch.ones(0, 2, 3)), ValueError, "at least one head"),
        (lambda: plot.head_heatmaps(WEIGHTS[None], titles=["a", "b"]), ValueError, "titles: expected 1"),
        (lambda: plot.head_heatmaps(WEIGHTS[None], columns=0), ValueError, "columns: expected at least 1"),
        (lambda: plot.head_heatmaps(WEIGHTS[None], axes=[1, 2]), ValueError, "one for each of 1 heads"),
        (lambda: plot.contribution_heatmaps(WEIGHTS), ValueError, "(heads, n, d_model)"),
        (lambda: plot.contribution_heatmaps(WEIGHTS[None], ["a"]), ValueError, "expected 2 labels, got 1"),
        (lambda: plot.contribution_heatmaps(WEIGHTS[None], axes=[1]), ValueError, "expected 2, one for each"),
        (lambda: plot.contribution_heatmaps(WEIGHTS[None, :, :0]), ValueError, "at least one head"),
        (lambda: plot.memory_map(0, 2, 2), ValueError, "n: expected at least 1, got 0"),
        (lambda: plot.memory_map(3, 2.0, 2), TypeError, "Use //"),
        (lambda: plot.memory_map(3, 2, 2, token_labels=["a"]), ValueError, "expected 3 labels, got 1"),
        (lambda: plot.memory_map(3, 2, 2, axes=[1]), ValueError, "expected three, got 1"),
        (lambda: plot.show(plt.figure()), ValueError, "a description of the picture in words"),
    ],
)
def test_wrong_arguments_get_a_clear_error(call, error, said):
    with pytest.raises(error) as caught:
        call()
    assert said in str(caught.value)
