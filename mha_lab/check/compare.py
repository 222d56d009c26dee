"""Is a result the expected one? In any style: tensor, NumPy array, list or number, in single precision."""

from typing import Any

import numpy as np

from mha_lab.check.sandbox import Plain

TOLERANCE = 1e-4  # of single precision after some sums; whole numbers must be exact
HALF = 2e-2
MOST_SHOWN = 24  # numbers of one tensor that are printed


def as_array(value: Any) -> np.ndarray | None:
    """Numbers as one array; ``None`` for what cannot stand for a tensor."""
    if isinstance(value, Plain):
        return value.array if value.array is not None and value.array.dtype.kind in "biuf" else None
    if isinstance(value, bool | int | float):
        try:
            return np.asarray(value, dtype=None if abs(value) < 2**53 else float)
        except OverflowError:
            return None
    if isinstance(value, tuple) and value:
        items = [as_array(item) for item in value]
        if all(item is not None and item.shape == items[0].shape for item in items):
            return np.stack(items)
    return None


def parts(expected: Any, got: Any) -> list[tuple[Any, Any]] | None:
    """Expected and got result by result, where several are asked for; ``None`` if their number differs."""
    if not isinstance(expected, tuple):
        return [(expected, got)]
    if isinstance(got, Plain) and got.array is not None and got.array.ndim:  # one tensor for some numbers
        if len(got.array) != len(expected):
            return None
        got = tuple(got.array)
        got = tuple(Plain("", item) if getattr(item, "ndim", 0) else item.item() for item in got)
    if not isinstance(got, tuple) or len(got) != len(expected):
        return None
    return list(zip(expected, got, strict=True))


def same(expected: Any, got: Any, tolerance: float = TOLERANCE) -> bool:
    """Equal shapes and values, up to rounding; NaN equals NaN, and ``True`` is no number."""
    pairs = parts(expected, got)
    return pairs is not None and all(_same(one, other, tolerance) for one, other in pairs)


def _same(expected: Any, got: Any, tolerance: float) -> bool:
    if isinstance(expected, tuple):
        return same(expected, got, tolerance)
    one, other = as_array(expected), as_array(got)
    if one is None or other is None:
        return type(expected) is type(got) and expected == got
    if one.shape != other.shape or (one.dtype == bool) != (other.dtype == bool):
        return False
    return close(one, other, tolerance)


def close(one: np.ndarray, other: np.ndarray, tolerance: float = TOLERANCE) -> bool:
    """Equal values up to rounding; where whole numbers are expected, the whole number."""
    if one.dtype.kind in "biu":
        return bool(np.allclose(other.astype(float), one.astype(float), atol=0, rtol=1e-6))
    one, other = one.astype(np.float64), other.astype(np.float64)
    return bool(np.allclose(other, one, atol=tolerance, rtol=tolerance, equal_nan=True))


def apart(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where two arrays of one shape differ."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    return ~np.isclose(other, one, atol=TOLERANCE, rtol=TOLERANCE, equal_nan=True)


def shape(value: Any) -> tuple[int, ...] | None:
    """The shape, where the value can stand for a tensor."""
    array = as_array(value)
    return None if array is None else array.shape


def kind(value: Any) -> str:
    """A result in words: what it is, and its shape."""
    if value is None:
        return "None"
    if isinstance(value, bool):
        return f"the single value {value}"
    if isinstance(value, int | float):
        return f"the single number {value:.4g}"
    if isinstance(value, tuple):
        if (size := shape(value)) is not None:
            return f"a list of numbers, shape {size}"
        if not value:
            return "an empty tuple"
        return f"{len(value)} results: " + "; ".join(kind(item) for item in value)
    if value.array is None:
        return value.dtype
    return f"a tensor of shape {tuple(value.array.shape)}" if value.array.ndim else _number(value.array)


def _number(array: np.ndarray) -> str:
    return f"a tensor of the single number {array.item():.4g}"


def sizes(arguments: tuple) -> list[int]:
    """How many numbers each tensor of a problem holds."""
    return [argument.numel() for argument in arguments if hasattr(argument, "numel")]
