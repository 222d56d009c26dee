"""Checks of one argument by itself, and of what a projection can take."""

import math
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_tracing = getattr(torch._C, "_is_tracing", lambda: False)


def fail(error: type[Exception], what: str, expected: str, got: object, hint: str = "") -> NoReturn:
    """Raise ``error`` in the one format that all messages of this package share."""
    raise error(f"{what}: expected {expected}, got {got}.{' ' + hint if hint else ''}")


def shape(size: Sequence[int]) -> str:
    """A shape as the documentation writes it: ``(2, 5, 4)``."""
    return str(tuple(size))


def whole_number(name: str, value: object, *, at_least: int = 1) -> int:
    """``value`` if it is an ``int`` that is large enough (NumPy's count, a ``bool`` does not)."""
    if not isinstance(value, int | torch.SymInt) and isinstance(value, Integral):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
        if _tracing() and isinstance(value, Tensor):  # a size, which may be another in other calls
            return value
        got = f"shape {shape(value.shape)}" if isinstance(value, Tensor) else repr(value)
        hint = "Did a division with / make a float? Use //." if isinstance(value, float) else ""
        fail(TypeError, name, "an int", f"{type(value).__name__} {got}", hint)
    if value < at_least:
        fail(ValueError, name, f"at least {at_least}", value)
    return value


def real_number(name: str, value: object) -> int | float:
    """``value`` if it is a finite number of Python or NumPy."""
    if not isinstance(value, int | float) and isinstance(value, Real):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = "Call .item() on a tensor of one element." if isinstance(value, Tensor) else ""
        fail(TypeError, name, "a number", type(value).__name__, hint)
    if not abs(value) <= sys.float_info.max:  # NaN, an infinity, or an int that is too large for a float
        fail(ValueError, name, "a finite number", value)
    return value


def scale(value: object, width: int) -> int | float:
    """The factor for dot products over ``width`` numbers; ``None`` means ``1 / sqrt(width)``."""
    return 1.0 / math.sqrt(width) if value is None else real_number("scale", value)


def flag(name: str, value: object) -> bool:
    """``value`` if it is ``True`` or ``False``: ``bool("False")`` is ``True``."""
    if not isinstance(value, bool):
        got = f"a Tensor of shape {shape(value.shape)}" if isinstance(value, Tensor) else repr(value)
        fail(TypeError, name, "True or False", got)
    return value


def probability(name: str, value: object) -> int | float:
    """``value`` if it can be the probability of dropping a weight: at least 0 and below 1."""
    value = real_number(name, value)
    if not 0.0 <= value < 1.0:
        fail(ValueError, name, "a probability p with 0 <= p < 1", value)
    return value


def float_dtype(name: str, value: object, hint: str = "Did you mean torch.float32?") -> None:
    """``value`` is a dtype of real numbers with a fraction."""
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        fail(TypeError, name, "a floating-point torch.dtype", repr(value), hint)


def tensor(name: str, value: object, wanted: str, *, min_rank: int, max_rank: int | None = None) -> Tensor:
    """``value`` if it is a tensor of an allowed rank; ``wanted`` names the shape in words."""
    if not isinstance(value, Tensor):
        hint = "" if value is None else f"Did you mean torch.tensor({name})?"
        fail(TypeError, name, f"a torch.Tensor of shape {wanted}", type(value).__name__, hint)
    if value.layout is not torch.strided or value.is_nested:
        dense(name, value)
    if value.ndim < min_rank or (max_rank is not None and value.ndim > max_rank):
        missing = min_rank - value.ndim
        hint = f"Is an axis missing? {name}[None] adds one." if missing > 0 else "Is there an axis too many?"
        got = f"rank {value.ndim}, shape {shape(value.shape)}"
        fail(ValueError, name, f"a tensor of shape {wanted}", got, hint)
    return value


def dense(name: str, value: Tensor) -> None:
    """All numbers of ``value`` are stored, and its axes have one size each."""
    if value.is_nested:
        hint = "Did you mean torch.nested.to_padded_tensor(...), with padding_mask(lengths)?"
        fail(TypeError, name, "a dense tensor", "a nested one", hint)
    if value.layout is not torch.strided:
        fail(TypeError, name, "a dense tensor", value.layout, f"Did you mean {name}.to_dense()?")


def floating(name: str, value: Tensor, *, embedded: bool = False) -> None:
    """``value`` has a floating-point dtype; ``embedded`` tokens are what a layer gets beside its mask."""
    if not value.is_floating_point():
        hint = f"Did you mean {name}.{'real' if value.is_complex() else 'float()'}?"
        if embedded and value.dtype == torch.bool:
            hint = "Is this a mask? Pass mask=..."
        elif embedded and not value.is_complex():
            hint = "Are these token ids? A layer gets vectors: torch.nn.Embedding makes them."
        fail(TypeError, name, "a floating-point dtype", value.dtype, hint)


def boolean(name: str, value: Tensor, hint: str) -> None:
    """``value`` is a boolean tensor."""
    if value.dtype != torch.bool:
        fail(TypeError, name, "a boolean tensor (dtype torch.bool)", value.dtype, hint)


def sequence(name: str, value: Tensor, axis: int = -2) -> None:
    """The sequence axis of ``value`` has at least one token."""
    if value.shape[axis] == 0:
        got = f"shape {shape(value.shape)}, whose sequence is empty"
        fail(ValueError, name, "at least one token", got, "Was every token filtered out before this call?")


def same_kind(**tensors: Tensor) -> None:
    """All tensors share one device and one dtype (under autocast, dtypes may differ)."""
    (first, reference), *others = tensors.items()
    for name, other in others:
        if other.device != reference.device:
            hint = f"Did you mean {name}.to({first}.device)?"
            fail(ValueError, name, f"the device of {first}, {reference.device}", other.device, hint)
        if other.dtype != reference.dtype and not autocast(reference):
            hint = f"Did you mean {name}.to({first}.dtype)?"
            fail(TypeError, name, f"the dtype of {first}, {reference.dtype}", other.dtype, hint)


def autocast(x: Tensor) -> bool:
    """Whether operations on ``x`` choose a dtype of their own; to ask that of the meta device is an error."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def in_transform() -> bool:
    """Whether ``torch.func``, a compiler or a tracer runs: what Python reads of a tensor may not be kept."""
    return torch.compiler.is_compiling() or _tracing() or _transforms()


def forward_mode() -> bool:
    """Whether tensors may carry tangents, inside of ``forward_ad.dual_level()`` or ``torch.func.jvp``."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def readable(x: Tensor) -> bool:
    """Whether Python can look at the numbers of ``x``: else a check of them must be left out."""
    return not in_transform() and not x.is_meta and type(x) in (Tensor, nn.Parameter)


def fits(name: str, projection: nn.Module, **tensors: Tensor) -> None:
    """All tensors have the device and dtype that a plain ``Linear`` needs.

    Of anything else in its place (an adapter, a quantized matrix, a computed weight), nothing is known.
    """
    if type(projection) is nn.Linear and (weight := projection.weight).is_floating_point():
        tensors = {f"{name}.weight": weight, **tensors}
    same_kind(**tensors)


def linear(name: str, projection: nn.Module) -> None:
    """``projection`` computes what its weight and bias say: a ``Linear``, whose weight may be computed."""
    if not _is_linear(projection):
        hint = "Merge or remove adapters and quantization first."
        fail(TypeError, name, "a torch.nn.Linear", type(projection).__name__, hint)


def _is_linear(projection: nn.Module) -> bool:
    return getattr(type(projection), "forward", None) is nn.Linear.forward


def own_weight(name: str, projection: nn.Module) -> None:
    """``projection`` is a ``Linear`` whose weight and bias are parameters: what is written there is used."""
    own = _is_linear(projection) and all(
        part is None or isinstance(part, nn.Parameter) for part in (projection.weight, projection.bias)
    )
    if not own:
        kind = type(projection).__name__
        hint = "Merge or remove adapters, parametrizations and quantization first."
        fail(TypeError, name, "a torch.nn.Linear whose weight is a parameter", kind, hint)
