"""Badges for README: a few words on a coloured ground. Drawn here, so no other host is asked for them."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

GROUND, INK = "#1f5a94", "#ffffff"
HEIGHT, LETTER, MARGIN = 0.22, 0.088, 0.12  # inches


def badge(text: str) -> Figure:
    """White words in a rounded box as high as a line of text."""
    width = LETTER * len(text) + 2 * MARGIN
    figure = plt.figure(figsize=(width, HEIGHT))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(0, HEIGHT))
    ax.axis("off")
    look = {"boxstyle": "round,pad=0,rounding_size=0.04", "facecolor": GROUND, "edgecolor": "none"}
    ax.add_patch(FancyBboxPatch((0, 0), width, HEIGHT, **look))
    ax.text(width / 2, HEIGHT / 2, text, ha="center", va="center_baseline", fontsize=9.5, color=INK)
    figure.patch.set_alpha(0)
    return figure
