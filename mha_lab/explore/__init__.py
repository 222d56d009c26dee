"""Pictures that a learner can move: each computes in the browser, and its state comes back as tensors.

They are anywidgets: the ES modules beside this file also run on a plain web page, without a kernel.
Where no script runs, a picture of the same state stands in their place.
"""

from mha_lab.explore._heads import heads
from mha_lab.explore._mask import mask
from mha_lab.explore._query import query
from mha_lab.explore._split import split

__all__ = ["heads", "mask", "query", "split"]
