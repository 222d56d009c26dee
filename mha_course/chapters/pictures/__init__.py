"""Pictures of one chapter each. A picture describes itself, for ``plot.show``, from the numbers it draws."""

from mha_course.chapters.pictures.caches import cache_lines, own_key_heatmaps
from mha_course.chapters.pictures.cost import blocks_of_keys, growth_lines
from mha_course.chapters.pictures.heads import contribution_heatmaps
from mha_course.chapters.pictures.induction import head_scores, training_lines
from mha_course.chapters.pictures.language_model import measured_lines, named_bars
from mha_course.chapters.pictures.masks import influence_maps
from mha_course.chapters.pictures.positions import last_rows, position_tables, rotary_scores, turned_arrows
from mha_course.chapters.pictures.recall import asked_heatmaps, loss_curves

__all__ = [
    "asked_heatmaps",
    "blocks_of_keys",
    "cache_lines",
    "contribution_heatmaps",
    "growth_lines",
    "head_scores",
    "influence_maps",
    "last_rows",
    "loss_curves",
    "measured_lines",
    "named_bars",
    "own_key_heatmaps",
    "position_tables",
    "rotary_scores",
    "training_lines",
    "turned_arrows",
]
