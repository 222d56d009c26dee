"""Results as plain data, and whether one is the expected one: a tensor, a NumPy array, a list or a number."""

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

TOLERANCE = 1e-4  # for single precision after some sums; whole numbers must be exact
HALF = 2e-2
HALVES = "float16", "bfloat16"
USUAL = torch.float32, torch.bool, torch.int64
MAX_SHOWN = 24  # numbers of one tensor that are printed
MAX_BYTES = 32 * 2**20  # of one result
MAX_RESULTS = 8
MAX_WORDS = 2000  # characters of an error


@dataclass(frozen=True)
class Plain:
    """An array's content and dtype, or, in words, a value that cannot be read as a tensor.

    ``source`` says in words what held the numbers, if no tensor did: see ``foreign``.
    """

    dtype: str
    array: np.ndarray | None = None
    source: str = ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one problem.

    ``kind`` is ``returned``, ``raised``, ``stub``, ``too slow`` or ``died``; ``value`` is the result, or the
    exception's name and text. ``inputs`` are the arguments after the call. ``where``, ``reads``,
    ``code`` and ``xor`` are what ``trace`` says about the answer.
    """

    kind: str
    value: Any = None
    inputs: Any = None
    where: dict[str, Any] = field(default_factory=dict)
    reads: tuple[tuple[str, tuple[int, ...] | str], ...] = ()
    code: str = ""
    xor: bool = False


@dataclass(frozen=True, eq=False)
class Trial:
    """One problem, the expected result, and the outcome of an answer."""

    problem: tuple
    expected: Any
    outcome: Outcome

    @property
    def got(self) -> Any:
        """The answer's result."""
        return self.outcome.value


class Many(str):
    """The name of a result in the plural: the weights *are* right."""

    __slots__ = ()


class IsNaN(str):
    """The name of what may be NaN: the result says so for each place, or is ``False`` if it is missing."""

    __slots__ = ()


class IsThere(str):
    """The name of what may be missing; the result tells whether it is there."""

    __slots__ = ()


def words(error: BaseException) -> str:
    """The exception's name, and its text on the lines after it."""
    return f"{type(error).__name__}\n{error}"[:MAX_WORDS]


def plain(value: Any, depth: int = 0) -> Any:
    """A result as numbers, ``Plain`` and short tuples of them."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is int and abs(value) >= 2**63:
        return Plain("a very large whole number")
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, Tensor):
        try:
            return _plain_tensor(value)
        except Exception:  # on the meta device, sparse, nested, or of a class that refuses
            return Plain("a tensor of an unusual kind")
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and fits(value.shape, value.dtype):
        return Plain(str(value.dtype), value.copy(), "a NumPy array")
    if type(value) in (tuple, list):
        if len(value) <= MAX_RESULTS and depth < 3:
            return tuple(plain(item, depth + 1) for item in value)
        return _plain_list(value)
    if type(value).__module__ == "torch.return_types" and hasattr(value, "indices"):
        return Plain(f"both results of `{type(value).__name__}` (values and indices)")
    return Plain(f"a {type(value).__name__}"[:80])


def _plain_tensor(value: Tensor) -> Plain:
    """Its dtype, shape and numbers, whatever a subclass says about them."""
    usual = type(value) is Tensor and value.is_cpu and value.dtype in USUAL and value.numel() < 2**16
    if usual and not value.is_neg():  # the same as below, in a fifth of the time
        return Plain(str(value.dtype).removeprefix("torch."), value.detach().numpy().copy())
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        whole = Tensor.detach(value).as_subclass(Tensor).cpu()
        name = str(whole.dtype).removeprefix("torch.")
        if math.prod(max(1, size) for size in whole.shape) * whole.element_size() > MAX_BYTES:
            return Plain("a tensor that is too large")
        if whole.dtype in (torch.bfloat16, torch.float16):
            whole = whole.float()
        return Plain(name, whole.resolve_conj().resolve_neg().contiguous().numpy().copy())


def fits(shape: Sequence[int], dtype: Any) -> bool:
    """Arrays without numbers may be too large, too: ``(10**9, 0)`` is."""
    return math.prod(max(1, size) for size in shape) * np.dtype(dtype).itemsize <= MAX_BYTES


def _plain_list(value: Any) -> Plain:
    """A long list of numbers as an array."""
    try:
        array = np.asarray(value)
    except Exception:
        array = np.asarray(None)
    if array.dtype.kind in "biuf" and array.nbytes <= MAX_BYTES:
        return Plain(str(array.dtype), array, "a list")
    return Plain(f"a {type(value).__name__}")


def is_a(value: Any, name: str) -> bool:
    """The result was an object of the class of this name, which cannot be read as a tensor."""
    return isinstance(value, Plain) and value.array is None and value.dtype == f"a {name}"


def as_array(value: Any) -> np.ndarray | None:
    """Numbers as one array; ``None`` for a value that cannot be read as a tensor."""
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
    """The pairs of an expected and a returned result; ``None`` if their numbers differ."""
    if not isinstance(expected, tuple):
        return [(expected, got)]
    if isinstance(got, Plain) and got.array is not None and got.array.ndim:  # one tensor for several numbers
        wanted = [shape(one) for one in expected]
        if len(got.array) != len(expected) or not (() in wanted or {got.array.shape[1:]} == set(wanted)):
            return None
        source, got = got.source, tuple(got.array)
        got = tuple(Plain("", item, source) if getattr(item, "ndim", 0) else item.item() for item in got)
    if not isinstance(got, tuple) or len(got) != len(expected):
        return None
    return list(zip(expected, got, strict=True))


def foreign(expected: Any, got: Any) -> str:
    """A NumPy array, a list or half precision where a tensor of float32 or of booleans is expected, in words.

    An empty string for a tensor of full precision, for single numbers, such as low and high of an interval,
    and where whole numbers, such as places, are expected.
    """
    if isinstance(expected, tuple):
        return next(filter(None, (foreign(*pair) for pair in parts(expected, got) or ())), "")
    if not isinstance(expected, Plain) or expected.array is None or expected.array.dtype.kind not in "bf":
        return ""
    if isinstance(got, tuple):
        single = expected.array.ndim == 1 and all(isinstance(item, Plain) and not item.source for item in got)
        return "" if single else "a list"
    if not isinstance(got, Plain):
        return ""
    return got.source or (got.dtype if got.dtype in HALVES else "")


def halved(value: Any) -> str:
    """The half precision that all fractions of a result fit into; an empty string if they need more."""
    arrays = [as_array(item) for item in (value if isinstance(value, tuple) else (value,))]
    tensors = [
        torch.from_numpy(a.astype(np.float64)) for a in arrays if a is not None and a.dtype.kind == "f"
    ]
    for name in HALVES if tensors else ():
        if all(torch.equal(one, one.to(getattr(torch, name)).double()) for one in tensors):
            return name
    return ""


def same(expected: Any, got: Any, tolerance: float = TOLERANCE) -> bool:
    """Equal shapes and values, up to rounding; NaN equals NaN, and ``True`` is not a number."""
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
    """Equal values up to rounding; expected whole numbers must be exact."""
    if one.dtype.kind in "biu":
        return bool(np.allclose(other.astype(float), one.astype(float), atol=0, rtol=1e-6))
    return bool(_near(one, other, tolerance).all())


def _near(one: np.ndarray, other: np.ndarray, tolerance: float) -> np.ndarray:
    """Where they are equal up to rounding, as ``np.isclose`` says it in three times the time."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf
        near = abs(other - one) <= tolerance + tolerance * abs(one)
    if (finite := np.isfinite(one)).all():
        return near
    return near & finite | (one == other) | (one != one) & (other != other)


def apart(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where two arrays of one shape differ."""
    return ~_near(one, other, TOLERANCE)


def shape(value: Any) -> tuple[int, ...] | None:
    """The shape, if the value can be read as a tensor."""
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


def brief(values: list) -> str:
    """A list in words; of a long one only the beginning."""
    short = reprlib.Repr()
    short.maxlist, short.maxlong = MAX_SHOWN, 20
    return short.repr(values)


def sizes(arguments: tuple) -> list[int]:
    """The number of entries in each tensor of a problem."""
    return [argument.numel() for argument in arguments if hasattr(argument, "numel")]
