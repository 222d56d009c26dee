"""Weights from PyTorch's layer into ours, and back."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from mha_lab import _expect as expect

Take = Callable[[Tensor], Tensor]


class Converts:
    """The part of ``MultiHeadAttention`` that knows ``torch.nn.MultiheadAttention``."""

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> Self:
        """A copy of PyTorch's layer: the same weights, dtype, device, training mode and frozen parameters.

        Its masks are different: in PyTorch's boolean masks, ``True`` = hidden; convert them with
        ``mask_from_blocked``.

        Raises:
            TypeError: ``module`` is not a ``torch.nn.MultiheadAttention``.
            ValueError: it was made with ``add_bias_kv`` or ``add_zero_attn``, which add a key
                that belongs to no token.

        >>> from mha_lab import MultiHeadAttention
        >>> MultiHeadAttention.from_torch(nn.MultiheadAttention(6, 3)).num_heads
        3
        """
        if not isinstance(module, nn.MultiheadAttention):
            expect.fail(TypeError, "module", "a torch.nn.MultiheadAttention", type(module).__name__)
        expect.linear("module.out_proj", module.out_proj)
        if module.bias_k is not None or module.add_zero_attn:
            expected = "a layer without add_bias_kv and add_zero_attn"
            expect.fail(ValueError, "module", expected, "one that adds a key that belongs to no token")
        layer = cls(
            module.embed_dim,
            module.num_heads,
            kdim=module.kdim,
            vdim=module.vdim,
            bias=module.in_proj_bias is not None,
            dropout=module.dropout,
            batch_first=module.batch_first,
        ).to(module.out_proj.weight)
        _copy(weights_and_biases(module), weights_and_biases(layer))
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(_of_torch(module, name).requires_grad)
        return layer.train(module.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """PyTorch's layer with a copy of these weights: the inverse of ``from_torch``.

        Raises:
            TypeError: a projection is no ``torch.nn.Linear``, but an adapter, or quantized.
            ValueError: PyTorch's layer has no ``score``, ``transform`` or ``mask``, no ``qdim`` other than
                ``d_model``, no heads of a width other than ``d_model // num_heads``, as many key and value
                heads as query heads, and four biases or none.

        >>> from mha_lab import MultiHeadAttention
        >>> MultiHeadAttention(6, 3).to_torch().num_heads
        3
        """
        d_k = self.d_model // self.num_heads
        wanted = {"qdim": self.d_model, "d_k": d_k, "d_v": d_k, "num_kv_heads": self.num_heads}
        wanted |= dict.fromkeys(("score", "transform", "mask"))
        for name, value in wanted.items():
            expect_in_torch(self, name, value)
        projections = {name: self.get_submodule(name) for name in self._projections}
        for name, projection in projections.items():
            expect.linear(name, projection)
        biased = [name for name, projection in projections.items() if projection.bias is not None]
        if len(biased) not in (0, len(projections)):
            expect.fail(ValueError, "bias", "one in each of the four projections, or in none", f"{biased}")
        module = nn.MultiheadAttention(
            self.d_model,
            self.num_heads,
            dropout=self.dropout,
            bias=bool(biased),
            kdim=self.kdim,
            vdim=self.vdim,
            batch_first=self.batch_first,
        ).to(self.out_proj.weight)
        _copy(weights_and_biases(self), weights_and_biases(module))
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        for name, projection in projections.items():
            for kind in ("weight", "bias") if biased else ("weight",):
                if getattr(projection, kind).requires_grad:
                    _of_torch(module, f"{name}.{kind}").requires_grad_()
        return module.train(self.training)


def expect_in_torch(layer: nn.Module, name: str, value: int | None = None) -> None:
    """The layer's ``name`` is ``value``, the only one that PyTorch's layer can have."""
    if (given := getattr(layer, name)) != value:
        got = type(given).__name__ if isinstance(given, nn.Module | Tensor) else repr(given)
        expect.fail(ValueError, name, f"{value}, the only value in PyTorch's layer", got)


def weights_and_biases(layer: nn.Module, take: Take = lambda p: p) -> list[Tensor]:
    """The weights of query, key, value and output, then their biases, if any.

    ``take`` gets each parameter. One that holds query, key and value is cut into three afterwards.
    """
    if isinstance(layer, nn.MultiheadAttention):
        inputs = layer.in_proj_weight, layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight
        weights = *(p for p in inputs if p is not None), layer.out_proj.weight
        biases = layer.in_proj_bias, layer.out_proj.bias
    else:
        projections = [layer.get_submodule(name) for name in layer._projections]
        weights, biases = ([getattr(one, kind) for one in projections] for kind in ("weight", "bias"))
    parts = []
    for *inputs, output in (weights, biases):
        if output is not None:
            parts += [part for p in inputs for part in take(p).chunk(3 // len(inputs))]
            parts.append(take(output))
    return parts


def _of_torch(module: nn.MultiheadAttention, name: str) -> nn.Parameter:
    """PyTorch's parameter that holds what ``name`` is in our layer."""
    projection, kind = name.split(".")
    if projection == "out_proj":
        return getattr(module.out_proj, kind)
    packed = getattr(module, f"in_proj_{kind}")
    return getattr(module, f"{projection}_{kind}") if packed is None else packed


@torch.no_grad()
def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
