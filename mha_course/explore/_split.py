"""Where each number goes when heads are split."""

import torch
import traitlets
from jaxtyping import Int
from matplotlib.figure import Figure
from torch import Tensor

from mha_course.explore._widget import Explorable, module
from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab.heads import split_heads

MAX_SIZES = {"n": 6, "num_heads": 4, "d_k": 4}
STEPS = ("memory", "view", "transpose", "merge")


class Split(Explorable):
    """The result of ``explore.split``: the picture, its sizes and its step, in both directions."""

    _esm = module("split")
    _n = traitlets.Int().tag(sync=True)
    _num_heads = traitlets.Int().tag(sync=True)
    _d_k = traitlets.Int().tag(sync=True)
    _step = traitlets.Unicode("memory").tag(sync=True)

    @property
    def step(self) -> str:
        """One of "memory", "view", "transpose" and "merge". Assigning goes there."""
        return self._step

    @step.setter
    def step(self, value: str) -> None:
        if value not in STEPS:
            expect.fail(ValueError, "step", f"one of {', '.join(STEPS)}", repr(value))
        self._step = value

    @property
    def x(self) -> Int[Tensor, "n d_model"]:
        """The tensor that is split: each number is its place in memory."""
        d_model = self._num_heads * self._d_k
        return torch.arange(self._n * d_model).view(self._n, d_model)

    @property
    def result(self) -> Int[Tensor, "..."]:
        """The result of the step that is shown, for ``x``."""
        split = split_heads(self.x, self._num_heads)
        return {"memory": self.x, "view": split.transpose(0, 1), "transpose": split, "merge": self.x}[
            self._step
        ]

    def describe(self) -> str:
        """The step and its shape."""
        return (
            f"{self._n} tokens of {self._num_heads * self._d_k} numbers, {self._num_heads} heads of "
            f"d_k = {self._d_k}, step {self._step}: shape {tuple(self.result.shape)}."
        )

    def still(self) -> Figure:
        """The memory map: the right split, and the bare view."""
        return plot.memory_map(self._n, self._num_heads, self._d_k)[0].figure


def split(n: int = 3, num_heads: int = 2, d_k: int = 2) -> Split:
    """The memory map of ``split_heads``, step by step, with the wrong bare view beside it.

    Args:
        n: tokens, 1 to 6.
        num_heads: heads, 1 to 4.
        d_k: numbers of a token in one head, 1 to 4.

    Raises:
        TypeError: not whole numbers.
        ValueError: too small or too large to draw.

    >>> from mha_course import explore
    >>> picture = explore.split(2, 2, 1)
    >>> picture.step = "transpose"
    >>> picture.result.tolist()
    [[[0], [2]], [[1], [3]]]
    """
    for name, value in {"n": n, "num_heads": num_heads, "d_k": d_k}.items():
        if expect.whole_number(name, value) > MAX_SIZES[name]:
            expect.fail(ValueError, name, f"at most {MAX_SIZES[name]}", value)
    return Split(_n=n, _num_heads=num_heads, _d_k=d_k)
