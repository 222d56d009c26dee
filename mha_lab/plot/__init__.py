"""Pictures of attention: weights as heatmaps, the memory layout of split heads, the layer's shapes.

Queries are rows, keys are columns, and all heads have one scale from 0 to 1. In every heatmap

* a cell with a colour of ``PALETTE`` is a weight, from white for 0 to the darkest for 1, with the colours of
  the live pictures;
* a grey, hatched cell is hidden by the mask, which is not the same as a weight of 0;
* a red cell that says NaN is not a number.

Wherever a query, a key or a value is drawn, ``ROLES`` gives its colour and its sign.

Each picture is made in two steps: ``..._data`` computes the numbers, and can be tested; the
function without ``_data`` draws them. A picture also has a description in words, made from the same
numbers, for readers who cannot see it: ``show`` stores it beside the picture.

Pictures of one chapter only are in ``mha_course.chapters.pictures``.
"""

from typing import Any

from mha_lab import _moved
from mha_lab.plot._flow import attention_flow, attention_flow_data
from mha_lab.plot._heatmap import HeatmapData, attention_heatmap, describe, head_heatmaps, heatmap_data
from mha_lab.plot._layer import MemoryMap, layer_shapes, memory_map, memory_map_data
from mha_lab.plot._lines import crossings, lines
from mha_lab.plot._page import (
    HIDDEN_COLOUR,
    NAN_COLOUR,
    PALETTE,
    ROLES,
    SIGNED,
    png,
    show,
    style,
    write_number,
)

__all__ = [
    "HIDDEN_COLOUR",
    "NAN_COLOUR",
    "PALETTE",
    "ROLES",
    "SIGNED",
    "HeatmapData",
    "MemoryMap",
    "attention_flow",
    "attention_flow_data",
    "attention_heatmap",
    "crossings",
    "describe",
    "head_heatmaps",
    "heatmap_data",
    "layer_shapes",
    "lines",
    "memory_map",
    "memory_map_data",
    "png",
    "show",
    "style",
    "write_number",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    return _moved.picture(name)
