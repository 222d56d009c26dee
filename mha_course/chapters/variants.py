"""Multi-head attention in five published forms, each rewritten here.

They compute the same thing, so their weights can be copied from one to another, to
``MultiHeadAttention`` and to ``torch.nn.MultiheadAttention`` (``copy_weights``). They differ in their
arguments and results. All masks are boolean, ``True`` = may attend; only their shapes differ.

The forms come from these sources: ``PackedAttention`` is in nanoGPT and LLMs-from-scratch,
``ThreeProjections`` in the Annotated Transformer, ``SizedAttention`` in an edition of Dive into Deep
Learning, ``BareAttention`` in NYU's Deep Learning course, ``SequenceFirstAttention`` in labml.ai's
annotated papers. The originals differ in masks, in what they return, in what they do with a query that may
attend to nothing, and in NYU's last matrix, which has a bias.

``forward`` does not check its inputs itself; the functions that it calls may.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab._convert import Take, weights_and_biases
from mha_lab.attention import masked_softmax, scaled_dot_product_attention
from mha_lab.heads import merge_heads, split_heads
from mha_lab.multihead import MultiHeadAttention, ScoreFunction


class PackedAttention(nn.Module):
    """One matrix for queries, keys and values; products by einsum; only the output is returned.

    ``q, k, v = x W_qkv``; ``output = softmax(q k^T / sqrt(d_k) + mask) v W_o``. Hidden scores are filled
    with ``-inf``, so a query that may attend to nothing returns NaN.

    Args:
        d_model: the width of input and output.
        num_heads: how many heads; it must divide ``d_model``.
        bias: whether the two matrices add a bias.
        dropout: the probability of dropping a weight, in training only.

    >>> PackedAttention(6, 3)(torch.ones(7, 5, 6)).shape
    torch.Size([7, 5, 6])
    """

    _projections = ("qkv_proj", "out_proj")

    def __init__(self, d_model: int, num_heads: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        expect.divides("num_heads", num_heads, "d_model", d_model)
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out_proj = nn.Linear(d_model, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch n d_model"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "batch n d_model"]:
        """Self-attention: there is one input, so there is no other sequence to attend to."""
        query, key, value = self.qkv_proj(x).unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        scores = torch.einsum("bihd,bjhd->bhij", query, key) / math.sqrt(query.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        weights = self.dropout(scores.softmax(dim=-1))
        return self.out_proj(torch.einsum("bhij,bjhd->bihd", weights, value).flatten(-2))


class ThreeProjections(nn.Module):
    """Three matrices; heads by view and transpose; ``(output, weights)`` are returned.

    Args:
        d_model: the width of all inputs and of the output.
        num_heads: how many heads; it must divide ``d_model``.
        bias: whether the four matrices add a bias.

    >>> output, weights = ThreeProjections(6, 3)(*[torch.ones(7, 5, 6)] * 3)
    >>> output.shape, weights.shape
    (torch.Size([7, 5, 6]), torch.Size([7, 3, 5, 5]))
    """

    _projections = MultiHeadAttention._projections

    def __init__(self, d_model: int, num_heads: int, *, bias: bool = True) -> None:
        super().__init__()
        expect.divides("num_heads", num_heads, "d_model", d_model)
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(d_model, d_model, bias=bias) for _ in range(4)
        )

    def forward(
        self,
        query: Float[Tensor, "batch n_q d_model"],
        key: Float[Tensor, "batch n_k d_model"],
        value: Float[Tensor, "batch n_k d_model"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "batch n_q d_model"], Float[Tensor, "batch heads n_q n_k"]]:
        """``mask`` broadcasts to ``(batch, heads, n_q, n_k)``."""
        pairs = ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        q, k, v = (split_heads(projection(x), self.num_heads) for projection, x in pairs)
        heads, weights = scaled_dot_product_attention(q, k, v, mask)
        return self.out_proj(merge_heads(heads)), weights


class SizedAttention(nn.Module):
    """Queries, keys and values of different widths; a mask of real tokens; any score.

    Args:
        query_size, key_size, value_size: the widths of the three inputs.
        num_hiddens: the width of all heads together, and of the output.
        num_heads: how many heads; it must divide ``num_hiddens``.
        bias: whether the four matrices add a bias.
        score: ``None`` for the scaled dot product, or a callable on heads such as
            ``AdditiveScore(num_hiddens // num_heads, hidden)``.

    >>> layer = SizedAttention(64, 128, 256, 256, num_heads=4)
    >>> layer(torch.ones(2, 3, 64), torch.ones(2, 5, 128), torch.ones(2, 5, 256)).shape
    torch.Size([2, 3, 256])
    """

    _projections = MultiHeadAttention._projections

    def __init__(
        self,
        query_size: int,
        key_size: int,
        value_size: int,
        num_hiddens: int,
        num_heads: int,
        *,
        bias: bool = False,
        score: ScoreFunction | None = None,
    ) -> None:
        super().__init__()
        expect.divides("num_heads", num_heads, "num_hiddens", num_hiddens)
        self.num_heads, self.score = num_heads, score
        self.q_proj = nn.Linear(query_size, num_hiddens, bias=bias)
        self.k_proj = nn.Linear(key_size, num_hiddens, bias=bias)
        self.v_proj = nn.Linear(value_size, num_hiddens, bias=bias)
        self.out_proj = nn.Linear(num_hiddens, num_hiddens, bias=bias)

    def forward(
        self,
        query: Float[Tensor, "batch n_q query_size"],
        key: Float[Tensor, "batch n_k key_size"],
        value: Float[Tensor, "batch n_k value_size"],
        real: Bool[Tensor, "batch n_k"] | None = None,
    ) -> Float[Tensor, "batch n_q num_hiddens"]:
        """``real`` is ``True`` where a key is a token and ``False`` where it is padding."""
        pairs = ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        q, k, v = (split_heads(projection(x), self.num_heads) for projection, x in pairs)
        mask = None if real is None else real[:, None, None, :]
        if self.score is None:
            heads, _ = scaled_dot_product_attention(q, k, v, mask)
        else:
            heads = masked_softmax(self.score(q, k), mask) @ v
        return self.out_proj(merge_heads(heads))


class BareAttention(nn.Module):
    """No biases; heads are split and grouped by two small methods; sizes can be logged.

    Args:
        d_model: the width of inputs and output.
        num_heads: how many heads; it must divide ``d_model``.

    >>> _ = BareAttention(6, 3)(*[torch.ones(7, 5, 6)] * 3, log=print)
    split    (7, 3, 5, 2)
    scores   (7, 3, 5, 5)
    output   (7, 3, 5, 2)
    grouped  (7, 5, 6)
    """

    _projections = ("w_q", "w_k", "w_v", "w_h")

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        expect.divides("num_heads", num_heads, "d_model", d_model)
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v, self.w_h = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def split(self, x: Float[Tensor, "batch n d_model"]) -> Float[Tensor, "batch heads n d_k"]:
        """Give each head its columns."""
        return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def group(self, x: Float[Tensor, "batch heads n d_k"]) -> Float[Tensor, "batch n d_model"]:
        """Put the columns side by side again."""
        return x.transpose(1, 2).contiguous().view(x.shape[0], x.shape[2], -1)

    def forward(
        self,
        query: Float[Tensor, "batch n_q d_model"],
        key: Float[Tensor, "batch n_k d_model"],
        value: Float[Tensor, "batch n_k d_model"],
        *,
        log: Callable[[str], object] | None = None,
    ) -> tuple[Float[Tensor, "batch n_q d_model"], Float[Tensor, "batch heads n_q n_k"]]:
        """``(output, weights)``; there is no mask. ``log`` is called with each intermediate size."""
        say = log or (lambda text: None)
        q, k, v = self.split(self.w_q(query)), self.split(self.w_k(key)), self.split(self.w_v(value))
        say(f"split    {tuple(q.shape)}")
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(2, 3)
        say(f"scores   {tuple(scores.shape)}")
        weights = scores.softmax(dim=-1)
        output = weights @ v
        say(f"output   {tuple(output.shape)}")
        grouped = self.group(output)
        say(f"grouped  {tuple(grouped.shape)}")
        return self.w_h(grouped), weights


class Prepare(nn.Module):
    """One projection and its split into heads: ``(n, batch, d_model)`` to ``(n, batch, heads, d_k)``.

    >>> Prepare(6, 3, bias=False)(torch.ones(5, 7, 6)).shape
    torch.Size([5, 7, 3, 2])
    """

    def __init__(self, d_model: int, num_heads: int, *, bias: bool) -> None:
        super().__init__()
        self.linear, self.num_heads = nn.Linear(d_model, d_model, bias=bias), num_heads

    def forward(self, x: Float[Tensor, "n batch d_model"]) -> Float[Tensor, "n batch heads d_k"]:
        """No transpose is needed: the heads are the second to last axis."""
        return self.linear(x).unflatten(-1, (self.num_heads, -1))


class SequenceFirstAttention(nn.Module):
    """The sequence is the first axis; the score is a method to override; the last weights are kept.

    Args:
        d_model: the width of inputs and output.
        num_heads: how many heads; it must divide ``d_model``.
        bias: whether the four matrices add a bias.

    ``weights`` are those of the last call, detached, ``(n_q, n_k, batch, heads)``; ``None`` before it.

    >>> layer = SequenceFirstAttention(6, 3)
    >>> layer(*[torch.ones(5, 7, 6)] * 3).shape, layer.weights.shape
    (torch.Size([5, 7, 6]), torch.Size([5, 5, 7, 3]))
    """

    _projections = ("query.linear", "key.linear", "value.linear", "output")

    def __init__(self, d_model: int, num_heads: int, *, bias: bool = True) -> None:
        super().__init__()
        expect.divides("num_heads", num_heads, "d_model", d_model)
        self.query, self.key, self.value = (Prepare(d_model, num_heads, bias=bias) for _ in range(3))
        self.output = nn.Linear(d_model, d_model, bias=bias)
        self.weights: Tensor | None = None

    def get_scores(
        self, query: Float[Tensor, "n_q batch heads d_k"], key: Float[Tensor, "n_k batch heads d_k"]
    ) -> Float[Tensor, "n_q n_k batch heads"]:
        """The scaled dot product; a subclass may return something else of this shape."""
        return torch.einsum("ibhd,jbhd->ijbh", query, key) / math.sqrt(query.shape[-1])

    def forward(
        self,
        query: Float[Tensor, "n_q batch d_model"],
        key: Float[Tensor, "n_k batch d_model"],
        value: Float[Tensor, "n_k batch d_model"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "n_q batch d_model"]:
        """``mask`` is ``(n_q, n_k, batch)``; the first and the last axis may be 1, to be broadcast."""
        q, k, v = self.query(query), self.key(key), self.value(value)
        scores = self.get_scores(q, k)
        if mask is not None:
            mask = self._checked(mask, scores.shape).movedim(1, -1)[:, :, None]
        weights = masked_softmax(scores.movedim(1, -1), mask).movedim(-1, 1)  # over the keys
        self.weights = weights.detach()
        return self.output(torch.einsum("ijbh,jbhd->ibhd", weights, v).flatten(-2))

    @staticmethod
    def _checked(mask: Tensor, scores_shape: torch.Size) -> Tensor:
        n_q, n_k, batch = scores_shape[:3]
        fits = mask.ndim == 3 and all(
            have in allowed for have, allowed in zip(mask.shape, ((1, n_q), (n_k,), (1, batch)), strict=True)
        )
        if not fits:
            expected = f"(n_q or 1, n_k, batch or 1) = ({n_q} or 1, {n_k}, {batch} or 1)"
            hint = "Is the batch axis first? In this layer it is last."
            expect.fail(ValueError, "mask", expected, expect.shape(mask.shape), hint)
        return mask


Layer = (
    PackedAttention
    | ThreeProjections
    | SizedAttention
    | BareAttention
    | SequenceFirstAttention
    | MultiHeadAttention
    | nn.MultiheadAttention
)


def parts(layer: Layer, take: Take = lambda p: p) -> list[Tensor]:
    """Weights of query, key, value and output, then their biases, if any, of any of these layers.

    ``take`` is called with each parameter: ``operator.attrgetter("grad")`` gives the gradients.

    >>> [tuple(p.shape) for p in parts(PackedAttention(6, 3, bias=False))]
    [(6, 6), (6, 6), (6, 6), (6, 6)]
    """
    return weights_and_biases(layer, take)


@torch.no_grad()
def copy_weights(source: Layer, target: Layer) -> None:
    """Copy the weights of one layer into another. A bias that the source does not have becomes 0.

    Raises:
        ValueError: widths differ, or the source has a bias other than 0 and the target has none.

    >>> one, other = PackedAttention(6, 3), MultiHeadAttention(6, 3)
    >>> copy_weights(one, other)
    >>> torch.equal(one.qkv_proj.weight[:6], other.q_proj.weight)
    True
    """
    given, taken = parts(source), parts(target)
    shapes = [[tuple(p.shape) for p in side[:4]] for side in (given, taken)]
    if shapes[0] != shapes[1]:
        expect.fail(ValueError, "target", f"matrices of shapes {shapes[0]}", shapes[1])
    if len(taken) == 4 and any(bias.any() for bias in given[4:]):
        hint = "The source has biases that are not 0."
        expect.fail(ValueError, "target", "a layer with biases", "one without", hint)
    biases = given[4:] or [torch.zeros_like(bias) for bias in taken[4:]]
    for old, new in zip(taken, given[:4] + biases[: len(taken) - 4], strict=True):
        old.copy_(new)
