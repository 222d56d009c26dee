"""How fast each pair of a rotary embedding turns, and what this does to the scores."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mha_lab import _expect as expect


def rotary_frequencies(
    width: int,
    *,
    base: int | float = 10000.0,
    factor: int | float = 1.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, " pairs"]:
    """The angle by which each pair of numbers turns from one position to the next, for ``apply_rotary``.

    ``theta_i = base ** (-2i / width) / factor``. A pair makes a full turn in ``2 * pi / theta_i`` positions.

    Args:
        width: how many numbers of a head are turned, an even number.
        base: the larger it is, the slower the last pairs turn. ``base * factor ** (width / (width - 2))``
            is "NTK-aware" interpolation: the last pair is ``factor`` times slower, the first one as fast.
        factor: position interpolation: position ``m`` gets the angles that ``m / factor`` had, so a
            text ``factor`` times as long as those of the training has no larger angles than these.
        dtype, device: of the result, and of its computation.

    Returns:
        ``(width / 2,)``, the fastest first.

    Source: Su et al. 2021, section 3.2.2; Chen et al. 2023, "Extending Context Window of Large Language
    Models via Position Interpolation", section 2.3 (``factor``); Peng et al. 2023, section 3.1 (NTK-aware).

    >>> rotary_frequencies(4), rotary_frequencies(4, factor=4)
    (tensor([1.0000, 0.0100]), tensor([0.2500, 0.0025]))
    """
    width = expect.whole_number("width", width)
    _even("width", width)
    expect.float_dtype("dtype", dtype)
    base, factor = _above("base", base, 0), _above("factor", factor, 0)
    return _frequencies_of(width, base, dtype, device) / factor


def _frequencies_of(
    width: int, base: int | float, dtype: torch.dtype, device: torch.device | str | None = None
) -> Float[Tensor, " pairs"]:
    return float(base) ** (torch.arange(0, width, 2, dtype=dtype, device=device) / -width)


def yarn_frequencies(
    width: int,
    factor: int | float,
    length: int,
    *,
    base: int | float = 10000.0,
    beta_fast: int | float = 32,
    beta_slow: int | float = 1,
    truncate: bool = True,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, " pairs"]:
    """YaRN: pairs that turn often within the trained length stay as they are, slow ones are interpolated.

    ``theta_i * (1 - s_i) + theta_i / factor * s_i`` with ``s_i = clip((i - low) / (high - low), 0, 1)``.
    The number of the pair that makes ``r`` turns in ``length`` positions is
    ``pair(r) = width * ln(length / (2 * pi * r)) / (2 * ln(base))``. ``low`` is ``pair(beta_fast)`` rounded
    down, at least 0, and ``high`` is ``pair(beta_slow)`` rounded up, at most ``width - 1``. The authors' code
    and Hugging Face do this. In the text of the paper, ``s_i`` is linear in ``r`` and not in ``i``.

    Args:
        width, base, dtype, device: as in ``rotary_frequencies``.
        factor: how many times longer texts may be than those of the training.
        length: of the texts in the training, in tokens.
        beta_fast: a pair with this many turns or more stays as it is.
        beta_slow: a pair with this many turns or fewer is interpolated in full.
        truncate: whether ``low`` and ``high`` are rounded; GPT-OSS does not round them.

    Returns:
        ``(width / 2,)``, the fastest first. YaRN also needs ``yarn_attention_factor(factor)``.

    Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", version 2,
    section 3.2; for ``s_i``, the code that its authors published.

    >>> yarn_frequencies(8, 4, 1000) / rotary_frequencies(8)
    tensor([1.0000, 0.7500, 0.5000, 0.2500])
    """
    width = expect.whole_number("width", width)
    _even("width", width)
    length = expect.whole_number("length", length)
    expect.flag("truncate", truncate)
    expect.float_dtype("dtype", dtype)
    base, factor = _above("base", base, 1), _above("factor", factor, 0)
    beta_fast = _above("beta_fast", beta_fast, _above("beta_slow", beta_slow, 0))
    fast, slow = (
        width * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))
        for turns in (beta_fast, beta_slow)
    )
    if truncate:
        fast, slow = math.floor(fast), math.ceil(slow)
    low, high = max(fast, 0), min(slow, width - 1)
    share = (torch.arange(width // 2, dtype=dtype, device=device) - low) / max(high - low, 0.001)
    share = share.clamp(0, 1)
    plain = _frequencies_of(width, base, dtype, device)
    return plain * (1 - share) + plain / factor * share


def yarn_attention_factor(factor: int | float) -> float:
    """The factor of queries and of keys in YaRN, ``0.1 * ln(factor) + 1``, and 1 for a ``factor`` below 1.

    Scores are multiplied by its square, so the weights of far more keys stay sharp.

    Args:
        factor: as in ``yarn_frequencies``.

    Source: Peng et al. 2023, section 3.4.

    >>> round(yarn_attention_factor(4), 4)
    1.1386
    """
    return 0.1 * math.log(max(_above("factor", factor, 0), 1.0)) + 1.0


def mean_rotary_score(frequencies: Float[Tensor, " pairs"], n: int) -> Float[Tensor, " n"]:
    """How a score depends on the distance alone: ``mean over i of cos(m * theta_i)``, ``m = 0, ..., n - 1``.

    It is the dot product of a turned query and a turned key of ones, divided by their width. If the query
    equals the key and is random (standard normal), it is the mean of that dot product over the width.

    Args:
        frequencies: ``(pairs,)``, as from ``rotary_frequencies``.
        n: how many distances, counted from 0.

    Returns:
        ``(n,)``, 1 at distance 0.

    Source: Su et al. 2021, section 3.4.3, which shows the decay by another curve, from an upper bound of the
    score: the mean of ``|S_r|`` over ``r``, where ``S_r`` is the sum of the first ``r`` complex numbers of
    length 1 and angle ``m * theta_i``.

    >>> mean_rotary_score(rotary_frequencies(4), 3)
    tensor([1.0000, 0.7701, 0.2918])
    """
    _check_frequencies(frequencies)
    at = torch.arange(expect.whole_number("n", n), device=frequencies.device)
    return (at[:, None] * frequencies).cos().mean(dim=-1)


def _above(name: str, value: object, least: int | float) -> float:
    """``value`` as a float if it is a number above ``least``."""
    if expect.real_number(name, value) <= least:
        expect.fail(ValueError, name, f"a number above {least}", value)
    return float(value)


def _even(name: str, width: int) -> None:
    """Raise an error if ``width`` is 0 or odd: then its numbers do not form pairs."""
    if width == 0 or width % 2:
        expect.fail(ValueError, name, "an even number", width, "Positions turn pairs of numbers.")


def _check_frequencies(frequencies: object) -> None:
    """A number for each pair."""
    expect.tensor("frequencies", frequencies, "(pairs,)", min_rank=1, max_rank=1)
    expect.floating("frequencies", frequencies)
    if len(frequencies) == 0:
        expect.fail(ValueError, "frequencies", "at least one pair", "shape (0,)")
