"""Pictures that a learner can move: each computes in the browser, and Python gets its state as tensors.

They are anywidgets: the ES modules beside this file also run on a plain web page, without a kernel.
If no script can run, a picture of the same state replaces them.
"""

from mha_lab.explore._heads import heads
from mha_lab.explore._mask import mask
from mha_lab.explore._query import query
from mha_lab.explore._split import split

__all__ = ["heads", "mask", "query", "split"]
