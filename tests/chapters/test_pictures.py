"""What the pictures of chapters 04, 08 and 09 show, and that their descriptions follow the numbers."""

import re
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from mha_course.chapters import pictures
from mha_lab import causal_mask, plot, positions
from tests.test_plot import smallest


@pytest.fixture(autouse=True)
def closed():
    plot.style()
    yield
    plt.close("all")


def test_a_frame_stands_where_the_future_leaks_and_nowhere_else():
    influence = torch.eye(3) + torch.tensor([[0.0, 0.0, 0.25], [0.75, 0.0, 0.0], [0.0, 0.0, 0.0]])
    (right, leak) = pictures.influence_maps(torch.stack([influence.tril(), influence]), ["right", "leak"])
    assert not right.patches
    [frame] = leak.patches
    assert frame.get_xy() == pytest.approx((1.54, -0.46)), "row 0, column 2"
    assert right.get_label().startswith("right: heatmap of influence, 0 leaks. ")
    assert leak.get_label() == (
        "leak: heatmap of influence, 1 leak. token 0 moves the outputs 0 by 1.00, 1 by 0.75; "
        "token 1 moves the outputs 1 by 1.00; token 2 moves the outputs 0 by 0.25, 2 by 1.00."
    )
    assert sorted(text.get_text() for text in leak.texts) == ["0.25", "0.75", "1.00", "1.00", "1.00"]


def test_rounding_is_no_influence():
    [ax] = pictures.influence_maps(torch.tensor([[[1.0, 5e-7], [0.0, 0.001]]]), ["small"])
    assert [text.get_text() for text in ax.texts] == ["1.00", "<.01"]
    assert "0 leaks" in ax.get_label()


@pytest.mark.parametrize(("block", "borders"), [(2, [2, 4]), (3, [3]), (5, []), (7, [])])
def test_a_thick_line_stands_between_two_blocks(block, borders):
    ax = pictures.blocks_of_keys(torch.eye(5), range(5), block, mask=causal_mask(5))
    assert [line.get_xdata()[0] for line in ax.lines] == borders
    sizes = re.findall(r"\d+", ax.get_label().partition("into blocks of ")[2])
    assert list(map(int, sizes)) == np.diff([0, *borders, 5]).tolist()
    assert "10 of 25 cells hidden" in ax.get_label()


def test_growth_is_fitted_and_told_for_each_function():
    lengths = [1, 2, 4, 8]
    table = {"square": [3 * n**2 for n in lengths], "line": [5 * n for n in lengths]}
    time, memory = pictures.growth_lines(lengths, {"ms": table, "MiB": {"line": table["line"]}})
    assert len(time.lines) == 4
    assert len(memory.lines) == 2
    assert time.get_label() == (
        "Log-log plot of ms for 1 to 8 tokens, with fitted lines. "
        "square: 3 to 192, exponent 2.0. line: 5 to 40, exponent 1.0."
    )
    np.testing.assert_allclose(time.lines[1].get_ydata(), table["square"])


def test_the_products_of_positions_are_told_by_distance():
    table = positions.sinusoidal_positions(12, 4)
    left, right = pictures.position_tables(table)
    changes = re.search(r"the sign changes ([\d, ]+) times", left.get_label())[1].split(", ")
    expected = [sum(a * b < 0 for a, b in pairwise(c)) for c in table.mT.tolist()]
    assert list(map(int, changes)) == expected
    assert "to within 0.00" in right.get_label()
    assert f" 1 {float(table[3] @ table[4]):.2f}, " in right.get_label()
    _, mixed = pictures.position_tables(table @ torch.diag(torch.tensor([1.0, 3.0, 1.0, 1.0])))
    assert "to within 0.00" not in mixed.get_label()


def test_arrows_are_turned_by_their_positions():
    axes = pictures.turned_arrows((2.0, 1.0), (1.5, -1.0), 0.4, [(3, 1), (7, 5), (1, 3)])
    told = [float(ax.get_label().rpartition(" ")[2].rstrip(".")) for ax in axes]
    turned = [
        positions.apply_rotary(torch.tensor([[2.0, 1.0], [1.5, -1.0]]), torch.tensor(at) * 0.4)
        for at in ([3, 1], [7, 5], [1, 3])
    ]
    assert told == pytest.approx([float(q @ k) for q, k in turned], abs=0.005)
    assert told[0] == told[1] != told[2]


def test_the_last_row_is_told_by_distance():
    weights = torch.softmax(positions.alibi_bias(8, 6)[0].masked_fill(~causal_mask(6), -torch.inf), dim=-1)
    [ax] = pictures.last_rows({"slope 1/2": weights})
    last = weights[-1].flip(0)
    assert ax.get_label().endswith(
        f"distance 0 {last[0]:.2f}, 1 {last[1]:.2f}, 4 {last[4]:.2f}, 5 {last[5]:.2f}."
    )


PICTURES = {
    "influence": lambda: pictures.influence_maps(torch.rand(3, 5, 5), list("abc")),
    "blocks": lambda: [pictures.blocks_of_keys(torch.eye(5), range(5), 2)],
    "growth": lambda: pictures.growth_lines([256, 512], {x: {"a": [1, 2]} for x in "ab"}),
    "tables": lambda: pictures.position_tables(positions.sinusoidal_positions(40, 16)),
    "arrows": lambda: pictures.turned_arrows((2.0, 1.0), (1.5, -1.0), 0.4, [(3, 1), (7, 5)]),
    "rows": lambda: pictures.last_rows({x: torch.eye(24) for x in "abc"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_text_has_11_pixels_on_a_page_of_736(name):
    figure = PICTURES[name]()[0].figure
    assert smallest(figure) * min(1, 736 / plot.png(figure)[1]["width"]) >= 11


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pictures.influence_maps(torch.ones(1, 2, 3), ["a"]), "as many columns as rows"),
        (lambda: pictures.influence_maps(torch.ones(1, 2, 2), ["a", "b"]), "titles: expected 1"),
        (lambda: pictures.blocks_of_keys(torch.eye(2), ["a", "b"], 0), "block: expected at least 1"),
        (lambda: pictures.growth_lines([1, 2], {}), "measured: expected at least one picture"),
        (lambda: pictures.growth_lines([1, 2], {"a": {"b": [1]}}), "x: expected 1 numbers"),
        (lambda: pictures.position_tables(torch.ones(2)), "axis missing"),
        (lambda: pictures.last_rows({}), "weights: expected at least one heatmap"),
    ],
)
def test_wrong_arguments_get_a_clear_error(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()
