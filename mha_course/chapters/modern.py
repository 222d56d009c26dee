"""Today's attention layers, between the original's weights and ``MultiHeadAttention``.

Source: the modules of ``transformers``, ``models/NAME/modeling_NAME.py``.
"""

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha_course._expect import instance
from mha_lab import _expect as expect
from mha_lab._convert import expect_in_torch
from mha_lab.heads import _merge_heads
from mha_lab.masks import SlidingWindow
from mha_lab.multihead import MultiHeadAttention
from mha_lab.positions import Rotary, rotary_frequencies, yarn_attention_factor, yarn_frequencies
from mha_lab.scores import QueryKeyNorm, SoftcappedScore, TransformSequence

LAYERS = ("Llama", "Mistral", "Gemma2", "Gemma3", "Qwen3", "Qwen3Next", "GptOss")
GAIN_IS_STORED_MINUS_1 = ("Gemma3", "Qwen3Next")


class ModernAttention(MultiHeadAttention):
    """``MultiHeadAttention`` whose heads can attend to nothing, or write nothing.

    Args:
        d_model, num_heads, options: as in ``MultiHeadAttention``.
        sinks: whether each head learns the score of one more key, whose value is zero, so that a query can
            attend to none of the others: ``weights[i, j] = exp(s[i, j]) / (exp(sink) + sum(exp(s[i])))``.
            The sinks start at 0.
        gate: whether each head's output is multiplied by ``sigmoid(query W_g)`` before ``out_proj``.

    Source: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", section 2.2, and
    ``models/gpt_oss/modeling_gpt_oss.py`` in ``transformers`` (the sinks); Qiu et al. 2025, "Gated Attention
    for Large Language Models: Non-linearity, Sparsity, and Attention-Sink-Free", section 2.2 (the gate).

    >>> output, weights = ModernAttention(d_model=6, num_heads=3, sinks=True)(torch.zeros(7, 4, 6))
    >>> output.shape, round(weights[0, 0, 0].sum().item(), 4)  # four keys and a sink
    (torch.Size([7, 4, 6]), 0.8)
    """

    def __init__(
        self, d_model: int, num_heads: int, *, sinks: bool = False, gate: bool = False, **options: Any
    ) -> None:
        self._has_sinks, self._has_gate = expect.flag("sinks", sinks), expect.flag("gate", gate)
        super().__init__(d_model, num_heads, **options)

    def _make(self, *, bias: bool, **made: Any) -> None:
        super()._make(bias=bias, **made)
        width = self.num_heads * self.d_v
        self.gate_proj = nn.Linear(self.qdim, width, bias=bias, **made) if self._has_gate else None
        self.sinks = nn.Parameter(torch.zeros(self.num_heads, **made)) if self._has_sinks else None

    def reset_parameters(self) -> None:
        """Draw all weights anew, as at the start; ``transform``, ``score`` and ``mask`` stay as they are.

        Raises:
            TypeError: a projection is an adapter, quantized, or has a weight that is computed.
        """
        if self.gate_proj is not None:
            expect.own_weight("gate_proj", self.gate_proj)
        super().reset_parameters()
        if self.gate_proj is not None:
            self.gate_proj.reset_parameters()
        if self.sinks is not None:
            nn.init.zeros_(self.sinks)

    def _more(self) -> dict[str, Any]:
        return {"sinks": self.sinks}

    def _output(self, heads: Tensor, query: Tensor) -> Tensor:
        if self.gate_proj is None:
            return super()._output(heads, query)
        gated = _merge_heads(heads) * torch.sigmoid(self.gate_proj(query))
        return self._order(self.out_proj(gated))

    def to_torch(self) -> nn.MultiheadAttention:
        """As ``MultiHeadAttention.to_torch``, which has no sinks and no gate."""
        expect_in_torch(self, "sinks")
        expect_in_torch(self, "gate_proj")
        return super().to_torch()

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return super().extra_repr() + (", sinks" if self.sinks is not None else "")


def from_transformers(module: nn.Module) -> ModernAttention:
    """A copy of an attention layer of a published model, with the same weights, dtype and device.

    It has grouped keys and values, and, where the original has them, rotary positions, a window, normalised
    queries and keys, a soft cap, sinks, a gate. A scale other than ``1 / sqrt(d_k)`` becomes part of the
    query's weights, or of its gain if queries are normalised. Causal attention still needs its mask.

    Args:
        module: the attention layer of Llama, Mistral, Gemma 2 or 3, Qwen3, Qwen3-Next or GPT-OSS, as
            ``transformers`` has it, such as ``model.layers[0].self_attn``.

    Raises:
        TypeError: it is another layer.
        ValueError: its rotary frequencies follow another rule than the paper's, position interpolation or
            YaRN, as in Llama 3.1.
    """
    kind, config, d_k = _kind(module), module.config, module.head_dim
    transforms: list[nn.Module] = [_rotary(module)]
    if hasattr(module, "q_norm"):
        transforms.insert(0, QueryKeyNorm(d_k, eps=config.rms_norm_eps))
    cap = getattr(module, "attn_logit_softcapping", None)
    window = config.sliding_window if kind == "Mistral" else getattr(module, "sliding_window", None)
    layer = ModernAttention(
        config.hidden_size,
        config.num_attention_heads,
        d_k=d_k,
        d_v=d_k,
        num_kv_heads=config.num_key_value_heads,
        bias=module.o_proj.bias is not None,
        dropout=module.attention_dropout,
        transform=TransformSequence(*transforms),
        score=None if cap is None else SoftcappedScore(cap),
        mask=None if window is None else SlidingWindow(window),
        sinks=hasattr(module, "sinks"),
        gate=kind == "Qwen3Next",
    ).to(module.o_proj.weight)
    with torch.no_grad():
        for ours, theirs, factor, offset in _pairs(layer, module):
            ours.copy_(theirs * factor + offset)
    return layer.train(module.training)


def to_transformers(layer: MultiHeadAttention, module: nn.Module) -> None:
    """Write the weights of ``layer`` into ``module``: the inverse of ``from_transformers``.

    Args:
        layer: what ``from_transformers(module)`` returned, perhaps trained since; it does not change.
        module: the published layer; its weights are overwritten.

    Raises:
        TypeError: ``module`` is another layer.
        ValueError: the two do not have the same shapes; nothing has changed.
    """
    instance("layer", layer, MultiHeadAttention)
    _kind(module)
    pairs = list(_pairs(layer, module))
    with torch.no_grad():
        for ours, theirs, factor, offset in pairs:
            theirs.copy_((ours - offset) / factor)


def group_kv_heads(layer: MultiHeadAttention, num_kv_heads: int) -> MultiHeadAttention:
    """A copy whose query heads share keys and values: each group's projections are the mean of its heads'.

    ``W_k[g] = mean of W_k[h] over the heads h of group g``, and so for ``W_v`` and the biases. Before it is
    trained again, the copy computes something else.

    Args:
        layer: with any options; it does not change.
        num_kv_heads: how many heads of keys and values are left; it divides the number that there are.

    Returns:
        The copy.

    Raises:
        TypeError: also if ``k_proj`` or ``v_proj`` is no plain ``torch.nn.Linear``: an adapter, or a computed
            weight.

    Source: Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
    Checkpoints", sections 2.1 (the mean, for one head) and 2.2 (for groups).

    >>> group_kv_heads(MultiHeadAttention(d_model=6, num_heads=3), 1).k_proj.weight.shape
    torch.Size([2, 6])
    """
    instance("layer", layer, MultiHeadAttention)
    num_kv_heads = expect.whole_number("num_kv_heads", num_kv_heads)
    expect.own_weight("layer.k_proj", layer.k_proj)
    expect.own_weight("layer.v_proj", layer.v_proj)
    expect.divides("num_kv_heads", num_kv_heads, "the layer's num_kv_heads", layer.num_kv_heads)
    grouped = copy.deepcopy(layer)
    grouped.num_kv_heads = num_kv_heads
    for projection in (grouped.k_proj, grouped.v_proj):
        for parameter in filter(lambda p: p is not None, (projection.weight, projection.bias)):
            heads = parameter.data.unflatten(0, (num_kv_heads, layer.num_kv_heads // num_kv_heads, -1))
            parameter.data = heads.mean(dim=1).flatten(0, 1)
        projection.out_features = len(projection.weight)
    return grouped


def align_kv_heads(
    layer: MultiHeadAttention, num_kv_heads: int, x: Float[Tensor, "*batch n d_model"]
) -> MultiHeadAttention:
    """A copy that computes the same, with heads whose mean loses less: each is turned onto its group's first.

    ``R_h = argmin of |K_h R^T - K_first|^2`` over the orthogonal ``R``, for the keys ``K_h`` of ``x``; then
    ``W_k[h]`` and ``W_q[h]`` become ``R_h W_k[h]`` and ``R_h W_q[h]``, so that no score changes. In the same
    way a head's values are turned, and ``W_o`` undoes it.

    Args:
        layer: as many KV heads as heads; no ``transform``, ``score`` or gate; it does not change.
        num_kv_heads: how many groups there will be; it divides the number of heads.
        x: what the layer gets on some texts, ``(..., n, d_model)``.

    Returns:
        The copy, for ``group_kv_heads``.

    Source: Jin et al. 2025, "Align Attention Heads Before Merging Them", abstract.

    >>> layer, x = MultiHeadAttention(d_model=6, num_heads=3), torch.randn(9, 6)
    >>> torch.allclose(align_kv_heads(layer, 1, x)(x)[0], layer(x)[0], atol=1e-5)
    True
    """
    expect.whole_number("num_kv_heads", num_kv_heads)
    expect.divides("num_kv_heads", num_kv_heads, "the layer's num_heads", layer.num_heads)
    for name in ("transform", "score", "gate_proj"):
        if getattr(layer, name, None) is not None:
            expect.fail(ValueError, "layer", "queries and keys that can be turned", f"a layer with {name}")
    if layer.num_kv_heads != layer.num_heads:
        expect.fail(ValueError, "layer", "a key and a value for each head", f"{layer.num_kv_heads} KV heads")
    aligned, group = copy.deepcopy(layer), layer.num_heads // num_kv_heads
    _, key, value = (some.transpose(-3, 0).flatten(1, -2) for some in layer.project(x, x, x))
    output = aligned.out_proj.weight.data.unflatten(1, (layer.num_heads, -1))
    with torch.no_grad():
        for h in range(layer.num_heads):
            first = h // group * group
            for some, projections in ((key, (aligned.k_proj, aligned.q_proj)), (value, (aligned.v_proj,))):
                left, _, right = torch.linalg.svd(some[first].mT @ some[h])
                turn = left @ right
                for parameter in (p for projection in projections for p in projection.parameters()):
                    heads = parameter.data.unflatten(0, (layer.num_heads, -1))
                    heads[h] = turn @ heads[h]
            output[:, h] = output[:, h] @ turn.mT
    return aligned


def _kind(module: object) -> str:
    """Which of ``LAYERS``."""
    name = type(module).__name__.removesuffix("Attention")
    if not isinstance(module, nn.Module) or name not in LAYERS:
        wanted = f"an attention layer of {', '.join(LAYERS)}, such as model.layers[0].self_attn"
        expect.fail(TypeError, "module", wanted, type(module).__name__)
    return name


def _rotary(module: nn.Module) -> Rotary:
    """Its rotary positions; in Gemma 3, they depend on the kind of layer."""
    rope = module.config.rope_parameters
    rope = rope.get(getattr(module, "layer_type", None), rope)
    kind, base, factor = rope["rope_type"], float(rope["rope_theta"]), rope.get("factor") or 1.0
    width = int(module.head_dim * rope.get("partial_rotary_factor", 1.0))
    if kind in ("default", "linear"):
        return Rotary(frequencies=rotary_frequencies(width, base=base, factor=factor), layout="halves")
    if kind != "yarn" or rope.get("mscale"):
        wanted = "'default', 'linear', or 'yarn' without mscale"
        expect.fail(ValueError, "rope_parameters", f"rope_type {wanted}", rope)
    frequencies = yarn_frequencies(
        width,
        factor,
        rope["original_max_position_embeddings"],
        base=base,
        beta_fast=rope.get("beta_fast") or 32,
        beta_slow=rope.get("beta_slow") or 1,
        truncate=rope.get("truncate", True),
    )
    attention_factor = rope.get("attention_factor") or yarn_attention_factor(factor)
    return Rotary(frequencies=frequencies, attention_factor=attention_factor, layout="halves")


def _pairs(layer: MultiHeadAttention, module: nn.Module) -> Iterator[tuple[Tensor, Tensor, float, float]]:
    """``(ours, theirs, factor, offset)`` with ``ours = theirs * factor + offset``, for all weights."""
    kind, scale = _kind(module), module.scaling * math.sqrt(module.head_dim)
    normed = hasattr(module, "q_norm")
    both = [
        (layer.q_proj, module.q_proj, 1.0 if normed else scale),
        (layer.k_proj, module.k_proj, 1.0),
        (layer.v_proj, module.v_proj, 1.0),
        (layer.out_proj, module.o_proj, 1.0),
    ]
    for ours, theirs, factor in both:
        for name in ("weight", "bias"):
            a, b = getattr(ours, name), getattr(theirs, name)
            if b is None:
                continue
            if kind == "Qwen3Next" and ours is layer.q_proj:  # for each head: its query, then its gate
                b, gates = b.unflatten(0, (layer.num_heads, 2, layer.d_k)).unbind(1)
                yield _same(getattr(layer.gate_proj, name).view_as(gates), gates), gates, 1.0, 0.0
                a = a.view_as(b)
            yield _same(a, b), b, factor, 0.0
    if normed:
        norm, offset = layer.transform[0], float(kind in GAIN_IS_STORED_MINUS_1)
        yield _same(norm.query_norm.weight, module.q_norm.weight), module.q_norm.weight, scale, offset * scale
        yield _same(norm.key_norm.weight, module.k_norm.weight), module.k_norm.weight, 1.0, offset
    if getattr(layer, "sinks", None) is not None:
        yield _same(layer.sinks, module.sinks), module.sinks, 1.0, 0.0


def _same(ours: Tensor, theirs: Tensor) -> Tensor:
    """``ours``, if both have one shape."""
    if ours.shape != theirs.shape:
        expect.fail(
            ValueError, "layer", f"weights of shape {expect.shape(theirs.shape)}", expect.shape(ours.shape)
        )
    return ours
