"""What an attention layer of another library computes while it runs: its inputs, products and softmax."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mha_course._expect import instance

MOST_PARTS = 60  # a module with more parts is a model, and not one layer


@dataclass
class Call:
    """One call of one module: its tensors by name, what its parts got and gave, and its attention."""

    module: nn.Module
    inputs: dict[str, Tensor]
    parts: list[tuple[nn.Module, Tensor, Tensor]] = field(default_factory=list)
    steps: list[tuple[str, Tensor, Tensor, Tensor]] = field(default_factory=list)
    attends: bool = False
    output: Tensor | None = None
    alone: bool = False


@contextmanager
def observed(model: nn.Module) -> Iterator[list[Call]]:
    """While it is open, each call of a module that computes attention itself is added to the list.

    Such a module is the innermost one with a ``Linear`` in which a softmax, or PyTorch's attention, runs.

    >>> layer = nn.TransformerEncoderLayer(6, 3, 7, batch_first=True).train()
    >>> with observed(layer) as calls:
    ...     output = layer(torch.randn(2, 5, 6))
    >>> [type(call.module).__name__ for call in calls]
    ['MultiheadAttention']

    Raises:
        TypeError: ``model`` is no module.
    """
    instance("model", model, nn.Module)
    stack: list[Call] = []
    found: list[Call] = []

    def enter(module: nn.Module, args: tuple, kwargs: dict) -> None:
        small = sum(1 for _ in module.modules()) <= MOST_PARTS
        stack.append(
            Call(module, dict(_tensors(module, args, kwargs)) if small and any(module.children()) else {})
        )

    def leave(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        call = stack.pop()
        first = _first(output)
        if call.attends:
            call.output = None if first is None else first.detach().clone()
            found.append(call)
        elif first is not None and not any(module.children()):
            given = args[0] if args else next(iter(kwargs.values()), None)
            if isinstance(given, Tensor):
                part = module, given.detach().clone(), first.detach().clone()
                for outer in stack:
                    if outer.inputs:
                        outer.parts.append(part)

    def step(kind: str, *tensors: Tensor) -> None:
        kept = tuple(x.detach().clone() for x in tensors)
        layers = [call for call in stack if call.inputs and _has_projection(call.module)]
        for call in layers:
            call.steps.append((kind, *kept))
        if kind == "softmax" and layers:
            layers[-1].attends = True

    hooks = [
        hook
        for module in model.modules()
        for hook in (
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave, with_kwargs=True),
        )
    ]
    try:
        with _Steps(step):
            yield found
    finally:
        for hook in hooks:
            hook.remove()


class _Steps(TorchFunctionMode):
    """Tells ``step`` of matrix products and of each softmax over the last axis."""

    def __init__(self, step: Callable[..., None]) -> None:
        super().__init__()
        self.step = step

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name == "scaled_dot_product_attention":
            return self._kernel(*args, **kwargs)
        result = function(*args, **kwargs)
        if name in ("matmul", "__matmul__", "bmm"):
            first, second = (*args, *kwargs.values())[:2]
            if min(first.ndim, second.ndim) > 2:
                self.step("product", first, second.mT, result)
        elif name == "baddbmm":
            batches = [*args, *(kwargs[n] for n in ("batch1", "batch2") if n in kwargs)]
            self.step("product", batches[1], batches[2].mT, result)
            self.step("sum", result, result, result)
        elif name == "einsum" and len(args) == 3:
            for first, second, product in _by_letters(*args, result):
                self.step("product", first, second, product)
        elif name == "multi_head_attention_forward":
            self.step("softmax", args[0], args[0], args[0])
        elif name in ("softmax", "_softmax") and isinstance(result, Tensor):
            axis = kwargs.get("dim", args[1] if len(args) > 1 else -1)
            if axis in (-1, result.ndim - 1) and result.ndim > 2:
                self.step("softmax", args[0] if args else kwargs["input"], result, result)
        return result

    def _kernel(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        if enable_gqa:
            times = query.shape[-3] // key.shape[-3]
            key, value = (x.repeat_interleave(times, -3) for x in (key, value))
        product = query @ key.mT
        scores = product * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None:
            hidden = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -1e30) if hidden else scores + attn_mask
        weights = scores.softmax(-1)
        result = weights @ value
        self.step("product", query, key, product)
        self.step("softmax", scores, weights, weights)
        self.step("product", weights, value.mT, result)
        return result


def _by_letters(
    equation: str, first: Tensor, second: Tensor, result: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """``einsum`` as a matrix product, if it is one: one axis is summed, each tensor has one of its own."""
    sides, _, out = equation.replace(" ", "").partition("->")
    letters = sides.split(",")
    summed = set(letters[0]) & set(letters[1]) - set(out)
    own = [set(one) - set(other) for one, other in (letters, letters[::-1])]
    if "." in sides or len(summed) != 1 or [len(x) for x in own] != [1, 1]:
        return
    (inner,), ((row,), (column,)) = summed, own
    lead = [letter for letter in out if letter not in (row, column)]
    shared = [letter for letter in lead if letter in letters[0] and letter in letters[1]]
    if shared != lead:
        return
    if out.find(row) > out.find(column) and out[-2:] == column + row:  # the second holds the rows
        letters, row, column, first, second = letters[::-1], column, row, second, first
    a = first.permute([letters[0].index(x) for x in (*lead, row, inner)])
    b = second.permute([letters[1].index(x) for x in (*lead, column, inner)])
    yield a, b, result.permute([out.index(x) for x in (*lead, row, column)])


def _tensors(module: nn.Module, args: tuple, kwargs: dict) -> Iterator[tuple[str, Tensor]]:
    """The floating-point and boolean tensors among the arguments, by name."""
    names = [name for name in inspect.signature(module.forward).parameters]
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        for i, one in enumerate(value if isinstance(value, tuple | list) else (value,)):
            if isinstance(one, Tensor) and one.ndim > 1:
                yield (name if one is value else f"{name}[{i}]"), one.detach().clone()


def _has_projection(module: nn.Module) -> bool:
    kinds = nn.Linear | nn.Conv1d | nn.Conv2d
    return any(type(part).__name__ == "Conv1D" or isinstance(part, kinds) for part in module.modules())


def _first(output: Any) -> Tensor | None:
    """The first tensor of what a module returns."""
    if isinstance(output, Tensor):
        return output
    parts = (
        output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else ()
    )
    return next((one for one in map(_first, parts) if one is not None), None)
