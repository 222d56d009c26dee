"""Checks of arguments that must fit one another: sizes, leading axes, masks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mha_lab._expect._alone import boolean, dense, fail, floating, same_kind, sequence, shape, tensor


def leading(**tensors: Tensor) -> tuple[int, ...]:
    """The common shape of all axes but the last two, which must broadcast."""
    (first, reference), *others = tensors.items()
    common = tuple(reference.shape[:-2])
    for name, other in others:
        joined = _broadcast(common, tuple(other.shape[:-2]))
        if joined is None:
            expected = f"leading axes that broadcast with {first}'s {shape(common)}"
            hint = "Do both have the same batch, and are heads split in both or in neither?"
            fail(ValueError, name, expected, shape(other.shape), hint)
        common = joined
    return common


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(m != n and m != 1 and n != 1 for m, n in zip(a, b, strict=True)):
        return None
    return tuple(n if m == 1 else m for m, n in zip(a, b, strict=True))


def width(name: str, value: Tensor, size_name: str, size: int) -> None:
    """The last axis of ``value`` has ``size`` numbers."""
    if value.shape[-1] != size:
        expected = f"a last axis of {size_name} = {size}"
        fail(ValueError, name, expected, f"{value.shape[-1]}, from shape {shape(value.shape)}")


def divides(name: str, value: int, whole_name: str, whole: int) -> None:
    """``whole`` can be divided into ``value`` equal parts."""
    if whole == 0 or whole % value:
        possible = ", ".join(str(part) for part in range(1, whole + 1) if whole % part == 0)
        fail(
            ValueError,
            name,
            f"a number that divides {whole_name} = {whole}",
            value,
            f"Possible: {possible or 'none'}.",
        )


def same_batch(axis: int = 0, **tensors: Tensor) -> None:
    """All tensors have a batch axis with the same number of samples, or none has one."""
    (first, reference), *others = tensors.items()
    for name, other in others:
        if other.ndim != reference.ndim:
            expected = f"as many axes as {first}, {reference.ndim}"
            fail(
                ValueError,
                name,
                expected,
                f"rank {other.ndim}, shape {shape(other.shape)}",
                "Is the batch axis missing in one?",
            )
        if other.ndim == 3 and other.shape[axis] != reference.shape[axis]:
            expected = f"the batch size of {first}, {reference.shape[axis]}"
            fail(
                ValueError,
                name,
                expected,
                f"{other.shape[axis]}, from shape {shape(other.shape)}",
                "Is batch_first right?",
            )


def function(name: str, value: object, wanted: str) -> None:
    """``value`` is ``None`` or a callable, and not a class passed instead of an instance."""
    if value is not None and (isinstance(value, type) or not callable(value)):
        hint = f"Did you mean {value.__name__}(...)?" if isinstance(value, type) else ""
        got = f"a Tensor of shape {shape(value.shape)}" if isinstance(value, Tensor) else repr(value)
        fail(TypeError, name, f"None or a callable {wanted}", got, hint)


def scored(scores: object, target: Sequence[int]) -> Tensor:
    """The result of the caller's own ``score``, if it has the shape of the weights."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        got = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        wanted = f"(batch, heads, query, key) = {shape(target)}"
        fail(TypeError, "score", f"a callable that returns a floating-point tensor {wanted}", got)
    if tuple(scores.shape) != tuple(target):
        wanted = f"(batch, heads, query, key) = {shape(target)}"
        hint = "score gets (batch, heads, n, d_k) tensors; queries are rows, keys are columns."
        fail(ValueError, "score", f"a callable that returns {wanted}", shape(scores.shape), hint)
    return scores


def transformed(both: object, query: Sequence[int], key: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The result of a ``transform``, if it is two tensors of the same shapes as its arguments."""
    two = isinstance(both, tuple) and len(both) == 2 and all(isinstance(x, Tensor) for x in both)
    if not two or (tuple(both[0].shape), tuple(both[1].shape)) != (tuple(query), tuple(key)):
        wanted = f"a callable that returns (query, key) of shapes {shape(query)} and {shape(key)}"
        if not two:
            fail(TypeError, "transform", wanted, type(both).__name__)
        fail(ValueError, "transform", wanted, f"{shape(both[0].shape)} and {shape(both[1].shape)}")
    return both


def query_and_key(query: object, key: object) -> tuple[int, ...]:
    """Scores can be computed from both; returns the leading axes of the scores."""
    same_width(query, key)
    return leading(query=query, key=key)


def same_width(query: object, key: object) -> None:
    """Each query has a dot product with each key; the leading axes may differ."""
    tensor("query", query, "(..., n_q, d_k)", min_rank=2)
    tensor("key", key, "(..., n_k, d_k)", min_rank=2)
    floating("query", query)
    floating("key", key)
    same_kind(query=query, key=key)
    sequence("query", query)
    sequence("key", key)
    if query.shape[-1] == 0:
        fail(ValueError, "query", "a width d_k of at least 1", shape(query.shape))
    if key.shape[-1] != query.shape[-1]:
        got = f"{key.shape[-1]}, from shape {shape(key.shape)}"
        transposed = key.shape[-2] == query.shape[-1]
        hint = "Was key transposed already?" if transposed else "Were both projected to d_k?"
        fail(ValueError, "key", f"the width of query, d_k = {query.shape[-1]}", got, hint)


def query_key_and_value(
    query: object, key: object, value: object, mask: object
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The leading axes of the scores and of the output, if the inputs of attention fit together."""
    batch = query_and_key(query, key)
    tensor("value", value, "(..., n_k, d_v)", min_rank=2)
    floating("value", value)
    same_kind(query=query, value=value)
    if value.shape[-2] != key.shape[-2]:
        expected = f"one row for each key, (..., {key.shape[-2]}, d_v)"
        fail(ValueError, "value", expected, shape(value.shape), "Do key and value come from one sequence?")
    batch_out = leading(query=query, key=key, value=value)
    if mask is not None:
        mask_for(mask, (*batch, query.shape[-2], key.shape[-2]), query.device)
    return batch, batch_out


def mask_for(mask: object, target: Sequence[int], device: torch.device) -> None:
    """``mask`` is boolean, on ``device``, and broadcasts to the scores' shape ``target``."""
    if not isinstance(mask, Tensor):
        tensor("mask", mask, f"that broadcasts to {_axes(target)}", min_rank=0)
    dense("mask", mask)
    if mask.dtype != torch.bool:
        if mask.is_floating_point():
            hint = "For a mask of 0 and -inf, did you mean mask_from_additive(mask)?"
        else:
            hint = "Did you mean mask.bool(), with True where a query may attend?"
        boolean("mask", mask, hint)
    if mask.device != device:
        fail(
            ValueError,
            "mask",
            f"the device of the scores, {device}",
            mask.device,
            "Did you mean mask.to(device)?",
        )
    sizes, wanted = tuple(mask.shape), tuple(target)
    extra = len(sizes) - len(wanted)
    tail = wanted[len(wanted) - len(sizes) :] if extra < 0 else wanted
    if extra > 0 or any(m != n and m != 1 for m, n in zip(sizes, tail, strict=True)):
        fail(
            ValueError,
            "mask",
            f"a shape that broadcasts to {_axes(wanted)}",
            shape(sizes),
            _hint(sizes, wanted),
        )


def _axes(target: Sequence[int]) -> str:
    """``(batch, heads, query, key) = (2, 3, 5, 7)``: the axes of the scores by name, and their sizes."""
    names = {2: "(query, key)", 3: "(batch, query, key)", 4: "(batch, heads, query, key)"}
    return f"{names.get(len(target), '(..., query, key)')} = {shape(target)}"


def _hint(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """The likely mistake, if a mask has shape ``sizes`` and should have ``wanted``."""
    n_query, n_key = wanted[-2:]
    batch = wanted[0] if len(wanted) > 2 else None
    if len(wanted) == 4 and sizes == (batch, n_key):
        return (
            "A row of visible keys for each sample: did you mean padding_mask(lengths), "
            "or mask[:, None, None, :]?"
        )
    if len(wanted) == 3 and sizes == (batch, n_key):
        return "A row of visible keys for each sample: did you mean mask[:, None, :]?"
    if len(wanted) == 4 and sizes == (batch, n_query, n_key):
        return "A mask for each sample needs an axis for the heads: did you mean mask[:, None]?"
    if len(wanted) == 4 and sizes == (batch * wanted[1], n_query, n_key):
        return (
            "torch.nn.MultiheadAttention's mask for each head? Did you mean "
            f"mask_from_blocked(mask).view{shape(wanted)}?"
        )
    if len(sizes) == len(wanted) + 1 and sizes[-3:-2] == (1,):
        return "The scores have no heads axis: did you mean mask.squeeze(-3)?"
    if len(sizes) >= 2 and sizes[-2:] == (n_key, n_query) and n_query != n_key:
        return "Queries are rows and keys are columns: did you mean mask.mT?"
    return "Queries are rows and keys are columns; an axis of size 1 is repeated."
