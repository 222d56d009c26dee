"""Pictures to move, and questions: each computes in the browser, and Python gets its state as tensors.

They are anywidgets: the ES modules beside this file also run on a plain web page, without a kernel.
If no script can run, a picture of the same state replaces them.
"""

from mha_course.explore._flow import flow
from mha_course.explore._heads import heads
from mha_course.explore._mask import mask
from mha_course.explore._model import model
from mha_course.explore._online_softmax import online_softmax
from mha_course.explore._positions import positions
from mha_course.explore._predict import predict
from mha_course.explore._query import query
from mha_course.explore._scaling import scaling
from mha_course.explore._split import split
from mha_course.explore._state import state
from mha_course.explore._training import training

__all__ = [
    "flow", "heads", "mask", "model", "online_softmax", "positions", "predict", "query", "scaling", "split",
    "state", "training",
]  # fmt: skip
