"""What a rebuilt layer is made of beside linear maps and norms."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Projection(nn.Module):
    """Copies of linear maps and norms, each of which reads columns of the input or of earlier ones.

    Args:
        parts: a module, the columns that it reads, and into how many groups these are split.
        columns, factors: which columns are the result, and times what.
    """

    def __init__(
        self, parts: Sequence[tuple[nn.Module, Tensor, int]], columns: Tensor, factors: Tensor
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleList(part for part, *_ in parts)
        self.reads, self.groups = [reads for _, reads, _ in parts], [groups for *_, groups in parts]
        self.register_buffer("columns", columns)
        self.register_buffer("factors", factors)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., width)`` to ``(..., len(columns))``."""
        for part, reads, groups in zip(self.parts, self.reads, self.groups, strict=True):
            x = torch.cat([x, part(x[..., reads].unflatten(-1, (groups, -1))).flatten(-2)], dim=-1)
        return x[..., self.columns] * self.factors


class Each(nn.Module):
    """A transform by one module for queries and another for keys."""

    def __init__(self, query: nn.Module, key: nn.Module) -> None:
        super().__init__()
        self.query, self.key = query, key

    def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """The same shapes."""
        return self.query(query), self.key(key)


class Angles(nn.Module):
    """Turns the first numbers of each token by given angles, ``(n, pairs)``: positions on several axes."""

    def __init__(self, angles: Tensor, layout: str) -> None:
        super().__init__()
        self.layout = layout
        self.register_buffer("angles", angles)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        pairs = self.angles.shape[-1]
        x, rest = x.tensor_split([2 * pairs], dim=-1)
        x = torch.view_as_complex(in_pairs(x, self.layout).contiguous())
        turned = torch.view_as_real(x * torch.polar(torch.ones_like(self.angles), self.angles))
        turned = turned.flatten(-2) if self.layout == "pairs" else turned.mT.flatten(-2)
        return torch.cat([turned, rest], dim=-1)


class Times(nn.Module):
    """Multiplies by numbers that do not change: one for each head and token."""

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.register_buffer("factor", factor)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * self.factor


class Unit(nn.Module):
    """``x / |x|``."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return nn.functional.normalize(x, dim=-1)


class BiasedScore(nn.Module):
    """Scaled dot product plus a given number for each head, query and key."""

    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.num_heads = len(bias)
        self.register_buffer("bias", bias)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """``(..., heads, n_q, d_k)`` and ``(..., heads, n_k, d_k)`` to scores."""
        return query @ key.mT / math.sqrt(query.shape[-1]) + self.bias


def in_pairs(x: Tensor, layout: str) -> Tensor:
    """``(..., width)`` to ``(..., pairs, 2)``."""
    return x.unflatten(-1, (-1, 2)) if layout == "pairs" else x.unflatten(-1, (2, -1)).mT
