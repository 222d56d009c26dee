"""Dot products of random vectors, and three ways to scale them."""

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import traitlets
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mha_course.explore._widget import COLOURS, MARKERS, Explorable, module
from mha_lab import _expect as expect
from mha_lab.attention import scaled_dot_product_scores

SAMPLES, MAX_D_K = 256, 512
WIDTHS = [2, 8, 32, 128, 512]  # where the learner's line has its points
SCALES = {
    "no scale": lambda d_k: 1.0,
    "1/sqrt(d_k)": lambda d_k: 1 / math.sqrt(d_k),
    "1/d_k": lambda d_k: 1 / d_k,
}
REACH = {"no scale": 100, "1/sqrt(d_k)": 5, "1/d_k": 5}  # where the axis of the scores ends
DASHES = dict(zip(SCALES, ("-", "-.", ":"), strict=True))


class Scaling(Explorable):
    """The result of ``explore.scaling``: the picture, its numbers as tensors, the prediction."""

    _esm = module("scaling")
    _n_k = traitlets.Int().tag(sync=True)
    _seed = traitlets.Int().tag(sync=True)
    _sample = traitlets.Int(0).tag(sync=True)
    _d_k = traitlets.Int().tag(sync=True)
    _scale = traitlets.Unicode().tag(sync=True)
    _drawn = traitlets.Dict().tag(sync=True)  # of a scale: the line that was drawn for it
    _shown = traitlets.List().tag(sync=True)  # the scales whose curve was asked for

    def __init__(self, **state: Any) -> None:
        super().__init__(**state)
        self._numbers = _normal(self._seed, (SAMPLES, 1 + self._n_k, MAX_D_K))

    @property
    def d_k(self) -> int:
        """The width of the query and of the keys, 2 to 512. Assigning changes the picture."""
        return self._d_k

    @d_k.setter
    def d_k(self, value: int) -> None:
        self._d_k = _width(value)

    @property
    def scale(self) -> str:
        """ "no scale", "1/sqrt(d_k)" or "1/d_k". Assigning chooses another."""
        return self._scale

    @scale.setter
    def scale(self, value: str) -> None:
        self._scale = _known(value)

    @property
    def sample(self) -> int:
        """Which of the 256 samples is shown, counted from 0. Assigning chooses another."""
        return self._sample

    @sample.setter
    def sample(self, value: int) -> None:
        if expect.whole_number("sample", value, at_least=0) >= SAMPLES:
            expect.fail(ValueError, "sample", f"one of the samples 0 to {SAMPLES - 1}", value)
        self._sample = value

    @property
    def query(self) -> Float[Tensor, "d_k"]:
        """The query of this sample: the first ``d_k`` of its 512 numbers."""
        return self._numbers[self._sample, 0, : self._d_k]

    @property
    def key(self) -> Float[Tensor, "n_k d_k"]:
        """The keys of this sample: the first ``d_k`` of their 512 numbers."""
        return self._numbers[self._sample, 1:, : self._d_k]

    @property
    def scores(self) -> Float[Tensor, "n_k"]:
        """The scaled dot products of this sample."""
        return self._all_scores(self._d_k)[self._sample]

    @property
    def weights(self) -> Float[Tensor, "n_k"]:
        """The softmax of ``scores``."""
        return torch.softmax(self.scores, dim=-1)

    @property
    def gradient(self) -> float:
        """The size of the gradient of ``weights`` with respect to ``scores``, for this sample."""
        return _size(self.weights).item()

    @property
    def mean_gradient(self) -> float:
        """The same size as the mean of all 256 samples: a point of the curve."""
        return self._mean(self._d_k)

    @property
    def prediction(self) -> Float[Tensor, "5"] | None:
        """What was drawn for this scale, at ``d_k`` = 2, 8, 32, 128 and 512; ``None`` if nothing was."""
        drawn = self._drawn.get(self._scale)
        return None if drawn is None else torch.tensor(drawn, dtype=torch.float64)

    def _all_scores(self, d_k: int, scale: str | None = None) -> Float[Tensor, "samples n_k"]:
        numbers = self._numbers[..., :d_k]
        factor = SCALES[scale or self._scale](d_k)
        return scaled_dot_product_scores(numbers[:, :1], numbers[:, 1:], scale=factor)[:, 0]

    def _mean(self, d_k: int, scale: str | None = None) -> float:
        return _size(torch.softmax(self._all_scores(d_k, scale), dim=-1)).mean().item()

    def describe(self) -> str:
        """The scores and weights in words, and the gradient once its curve was asked for."""
        pairs = zip(self.scores.tolist(), self.weights.tolist(), strict=True)
        rows = ", ".join(f"key {j} {score:.2f} ({weight:.3f})" for j, (score, weight) in enumerate(pairs))
        said = f"d_k = {self._d_k}, {self._scale}, sample {self._sample + 1} of {SAMPLES}."
        said += f" Scores (weights): {rows}."
        if self._scale not in self._shown:
            return f"{said} The curve of the gradient is hidden until you set a prediction."
        size, mean = f"{self.gradient:.3f}", f"{self.mean_gradient:.3f}"
        said += (
            f" The size of the gradient of the weights with respect to the scaled scores is {size} for this"
            f" sample. Its mean over {SAMPLES} samples is {mean}."
        )
        if "1/d_k" in self._shown:
            said += (
                f" With 1/d_k, every weight comes close to 1/{self._n_k} when d_k grows, whatever the keys."
            )
        return said

    def still(self) -> Figure:
        """Scores on a number line, weights as bars; the curves that were asked for, and the prediction."""
        figure, (line, bars, chart) = plt.subplots(
            1, 3, figsize=(9, 3.2), width_ratios=[3, 2, 4], layout="constrained"
        )
        scores, weights = self.scores.tolist(), self.weights.tolist()
        names = [f"■ key {j}: {score:.2f}" for j, score in enumerate(scores)]
        spread = math.sqrt(self._d_k) * SCALES[self._scale](self._d_k)
        reach = REACH[self._scale]
        line.axvspan(-spread, spread, color="0.85")
        line.axvline(0, color="0.6", linewidth=0.8)
        line.plot(self.scores.clamp(-reach, reach), names, MARKERS["key"], color=COLOURS["key"])
        line.tick_params(axis="y", labelcolor=COLOURS["key"])
        line.set(
            xlim=(-reach, reach),
            title=f"d_k = {self._d_k}, {self._scale}",
            xlabel="score (grey: ±1 standard deviation)",
        )
        drawn = bars.barh(range(self._n_k), weights, color=COLOURS["weight"])
        bars.bar_label(drawn, [f"{weight:.3f}" for weight in weights], padding=3)
        bars.set(xlim=(0, 1.5), xticks=[0, 1], yticks=[], xlabel="weight")
        for ax in (line, bars):
            ax.set_ylim(self._n_k - 0.5, -0.5)
        self._chart(chart)
        return figure

    def _chart(self, ax: Axes) -> None:
        widths = sorted({round(2 ** (1 + i / 8)) for i in range(65)})
        for name in self._shown:
            style = {"color": COLOURS["accent"], "linewidth": 3} if name == self._scale else {"color": "0.5"}
            style |= {"linestyle": DASHES[name], "label": f"mean, {name}"}
            ax.plot(widths, [self._mean(d_k, name) for d_k in widths], **style)
        if self._scale in self._shown:
            ax.plot(self._d_k, self.gradient, "o", color=COLOURS["accent"], label="this sample")
        if self.prediction is not None:
            ax.plot(
                WIDTHS, self.prediction, "--o", color="0.1", markerfacecolor="white", label="your prediction"
            )
        if ax.lines:
            ax.legend(fontsize=8, loc="upper center", ncols=2)
        else:
            ax.text(0.5, 0.5, "first, set your prediction", transform=ax.transAxes, ha="center")
        ax.set(xscale="log", xlim=(1.8, 570), ylim=(0, 0.72), xlabel="d_k", title="size of the gradient")
        ax.set_xticks(WIDTHS, [str(d_k) for d_k in WIDTHS])
        ax.set_yticks([0, 0.1, 0.2, 0.3, 0.4, 0.5])
        ax.minorticks_off()


def scaling(n_k: int = 6, *, d_k: int = 2, scale: str = "no scale", seed: int = 0) -> Scaling:
    """Why the root of ``d_k``: scores, weights and the gradient of the softmax while ``d_k`` grows.

    The entries of a query and of ``n_k`` keys are standard normal numbers, so a dot product has a standard
    deviation of ``sqrt(d_k)``. The learner drags ``d_k`` from 2 to 512 and scales the dot products in one of
    three ways: ``score = scale * (query @ key)`` with a scale of 1, 1/sqrt(d_k) or 1/d_k. The gradient
    of the weights ``w`` with respect to these scaled scores is ``diag(w) - outer(w, w)``, of shape
    ``(n_k, n_k)``; its size is the square root of the sum of its squared entries. A chart shows this size
    over ``d_k`` as the mean of 256 samples, after the learner has set a prediction.

    The browser and Python compute the same numbers from ``seed``; ``torch.manual_seed`` does not change them.
    The learner's state is in ``.d_k``, ``.scale``, ``.sample``, ``.query``, ``.key``, ``.scores``,
    ``.weights``, ``.gradient`` and ``.prediction``; tensors are float64.

    Args:
        n_k: the number of keys, 2 to 8.
        d_k: the width at the start, 2 to 512.
        scale: "no scale", "1/sqrt(d_k)" or "1/d_k", at the start.
        seed: which random numbers, a whole number below 2**31.

    Raises:
        TypeError: a size or a seed that is not a whole number.
        ValueError: a size out of its range, or a scale of another name.

    Source: Vaswani et al. 2017, section 3.2.1 and footnote 4.

    >>> from mha_course import explore
    >>> picture = explore.scaling(d_k=512)
    >>> torch.testing.assert_close(picture.scores, picture.key @ picture.query)
    >>> picture.weights.max() > 0.99, picture.prediction
    (tensor(True), None)
    """
    if expect.whole_number("n_k", n_k, at_least=2) > 8:
        expect.fail(ValueError, "n_k", "at most 8", n_k)
    if expect.whole_number("seed", seed, at_least=0) >= 2**31:
        expect.fail(ValueError, "seed", "a number below 2**31", seed)
    return Scaling(_n_k=n_k, _seed=seed, _d_k=_width(d_k), _scale=_known(scale))


def _width(value: int) -> int:
    if expect.whole_number("d_k", value, at_least=2) > MAX_D_K:
        expect.fail(ValueError, "d_k", f"at most {MAX_D_K}", value)
    return value


def _known(value: str) -> str:
    if value not in list(SCALES):
        expect.fail(ValueError, "scale", f"one of {', '.join(SCALES)}", repr(value))
    return value


def _size(weights: Float[Tensor, "... n_k"]) -> Float[Tensor, "..."]:
    """The Frobenius norm of the gradient of a softmax, from its weights."""
    gradient = torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]
    return torch.linalg.matrix_norm(gradient)


def _mix(x: np.ndarray) -> np.ndarray:
    """32 bits, well mixed; scaling.js has the same."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _normal(seed: int, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers, the same in the browser: a mixed counter, and the Box-Muller transform."""
    counter = np.arange(2 * math.prod(shape), dtype=np.uint32) * np.uint32(0x9E3779B9)
    bits = _mix(_mix(np.array([seed + 1], dtype=np.uint32)) + counter)
    first, second = ((bits + 0.5) / 2**32).reshape(-1, 2).T
    return torch.from_numpy(np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)).view(shape)
