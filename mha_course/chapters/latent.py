"""Multi-head latent attention: one short vector for each token is kept, and keys and values come from it.

The cache of ``MultiHeadAttention.extend`` keeps the keys and values of all heads. Here it keeps
``kv_rank + d_rope`` numbers for each token, however many heads there are: a latent vector, from which the
keys and values of all heads are computed, and one key with rotary positions, which all heads share.

Sources: DeepSeek-AI 2024, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language
Model" (arXiv 2405.04434), section 2.1 and appendix C; DeepSeek-AI 2024, "DeepSeek-V3 Technical Report"
(arXiv 2412.19437), section 2.1.1.
"""

import math
import weakref
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_course._expect import instance
from mha_lab import _expect as expect
from mha_lab._frequencies import _even
from mha_lab.attention import _attend
from mha_lab.cache import savable
from mha_lab.heads import _merge_heads, _split_heads
from mha_lab.positions import _apply_rotary, _check_rotary


@savable
class LatentCache(NamedTuple):
    """All that is kept of earlier tokens.

    ``latent``: the normalised latent vectors, ``(..., n, kv_rank)``. ``rotary_key``: the shared keys, already
    turned by their positions, ``(..., n, d_rope)``. ``layer()`` is the layer that made it. The reference is
    weak: a cache does not keep its layer alive. A cache from a file has ``layer = None``, and every layer of
    its sizes takes it.
    """

    latent: Float[Tensor, "*batch n kv_rank"]
    rotary_key: Float[Tensor, "*batch n d_rope"]
    layer: weakref.ref[nn.Module] | None


# Of each head: without positions, and turned by positions.
Query = tuple[Float[Tensor, "*batch heads n d_nope"], Float[Tensor, "*batch heads n d_rope"]]


class LatentAttention(nn.Module):
    """Self-attention whose keys and values are computed from one latent vector for each token.

    For each token ``x`` and head ``i``, with the paper's names of the matrices; ``RoPE`` is ``apply_rotary``:

    * ``c = norm(x W_DKV)``, the latent vector, and ``k_R = RoPE(x W_KR)``, the shared key: the cache;
    * ``k_i = [c W_UK[i]; k_R]`` and ``v_i = c W_UV[i]``;
    * ``c_Q = norm(x W_DQ)`` and ``q_i = [c_Q W_UQ[i]; RoPE(c_Q W_QR[i])]``;
    * ``output = Concat(head_1, ..., head_h) W_O`` with ``head_i = attention(q_i, k_i, v_i)``; the scores are
      divided by ``sqrt(d_nope + d_rope)``.

    With ``q`` the first part of ``q_i``, ``q · (c W_UK[i])`` equals ``(q W_UK[i]^T) · c``: a query can be
    compared with the latent vectors themselves ("absorbed" form), which are the same for all heads. If
    ``c W_UK[i]`` had rotary positions, a rotation would stand between the two matrices, another one for each
    distance; so positions have numbers of their own, ``d_rope`` of them.

    Args:
        d_model: the width of input and output.
        num_heads: how many heads.
        kv_rank: the width of the latent vector of keys and values.
        q_rank: the width of the latent vector of queries; ``None`` means that there is none, as in
            DeepSeek-V2-Lite (DeepSeek-V2, appendix B.1): ``c_Q = x``.
        d_nope: the width of a head's queries and keys without positions.
        d_rope: the width of those with rotary positions, an even number.
        d_v: the width of a head's values; ``None`` means ``d_nope``.
        base, layout: as in ``apply_rotary``; ``"pairs"`` is DeepSeek's layout.
        bias: whether ``W_DQ``, ``W_DKV``, ``W_KR`` and ``W_O`` add a bias; DeepSeek's do not.

    ``norm`` is ``torch.nn.RMSNorm``. It is not in the formulas of the papers; they name it in DeepSeek-V2,
    section 3.1.2, and DeepSeek-V3, section 4.2, with scaling factors for the latent vectors. The code
    published with DeepSeek-V3, ``inference/model.py``, has the norms and no such factors.

    Source: DeepSeek-V2, section 2.1 and appendix C (equations 37 to 47); DeepSeek-V3, section 2.1.1.

    >>> layer = LatentAttention(d_model=6, num_heads=3, kv_rank=5, d_nope=4, d_rope=2)
    >>> output, weights = layer(torch.ones(7, 5, 6))
    >>> output.shape, weights.shape
    (torch.Size([7, 5, 6]), torch.Size([7, 3, 5, 5]))
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        kv_rank: int,
        q_rank: int | None = None,
        d_nope: int,
        d_rope: int,
        d_v: int | None = None,
        base: int | float = 10000.0,
        layout: Literal["pairs", "halves"] = "pairs",
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.d_model = d_model = expect.whole_number("d_model", d_model)
        self.num_heads = num_heads = expect.whole_number("num_heads", num_heads)
        self.kv_rank = kv_rank = expect.whole_number("kv_rank", kv_rank)
        self.q_rank = q_rank = None if q_rank is None else expect.whole_number("q_rank", q_rank)
        self.d_nope = d_nope = expect.whole_number("d_nope", d_nope)
        self.d_rope = d_rope = expect.whole_number("d_rope", d_rope)
        expect.flag("bias", bias)
        _even("d_rope", d_rope)
        self.d_v = d_nope if d_v is None else expect.whole_number("d_v", d_v)
        self.base, self.layout = base, layout
        _check_rotary(base, layout, None, 1.0)
        self.kv_down_proj = nn.Linear(d_model, kv_rank, bias=bias)  # W_DKV
        self.kv_norm = nn.RMSNorm(kv_rank, eps=1e-6)
        self.k_nope_proj = nn.Linear(kv_rank, num_heads * d_nope, bias=False)  # W_UK
        self.k_rope_proj = nn.Linear(d_model, d_rope, bias=bias)  # W_KR
        self.v_proj = nn.Linear(kv_rank, num_heads * self.d_v, bias=False)  # W_UV
        compressed = q_rank is not None
        self.q_down_proj = nn.Linear(d_model, q_rank, bias=bias) if compressed else nn.Identity()  # W_DQ
        self.q_norm = nn.RMSNorm(q_rank, eps=1e-6) if compressed else nn.Identity()
        self.q_nope_proj = nn.Linear(q_rank or d_model, num_heads * d_nope, bias=False)  # W_UQ
        self.q_rope_proj = nn.Linear(q_rank or d_model, num_heads * d_rope, bias=False)  # W_QR
        self.out_proj = nn.Linear(num_heads * self.d_v, d_model, bias=bias)  # W_O

    def forward(
        self,
        x: Float[Tensor, "*batch n d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        *,
        absorbed: bool = False,
    ) -> tuple[Float[Tensor, "*batch n d_model"], Float[Tensor, "*batch heads n n"]]:
        """Attend with all heads; positions are counted from 0.

        Args:
            x: ``(batch, n, d_model)``, or ``(n, d_model)`` without a batch.
            mask: boolean, ``True`` = may attend, broadcastable to ``(batch, num_heads, n, n)``.
            absorbed: see ``attend``.

        Returns:
            ``(output, weights)``: ``(batch, n, d_model)`` and ``(batch, num_heads, n, n)``.
        """
        expect.flag("absorbed", absorbed)
        self._check(x, min_rank=2)
        n = x.shape[-2]
        if mask is not None:
            expect.mask_for(mask, (*x.shape[:-2], self.num_heads, n, n), x.device)
        return self.attend(self.queries(x), self.compress(x), mask, absorbed=absorbed)

    def compress(self, x: Float[Tensor, "*batch n d_model"], start: int = 0) -> LatentCache:
        """``norm(x W_DKV)`` and ``RoPE(x W_KR)``; ``x`` is not checked, its first token is at ``start``."""
        latent, rotary_key = self.kv_norm(self.kv_down_proj(x)), self._turn(self.k_rope_proj(x), start)
        return LatentCache(latent, rotary_key, weakref.ref(self))

    def queries(self, x: Float[Tensor, "*batch n d_model"], start: int = 0) -> Query:
        """Of each head, ``c_Q W_UQ`` and ``RoPE(c_Q W_QR)``; ``x`` is not checked, as in ``compress``."""
        x = self.q_norm(self.q_down_proj(x))
        nope, rope = (_split_heads(proj(x), self.num_heads) for proj in (self.q_nope_proj, self.q_rope_proj))
        return nope, self._turn(rope, start)

    def keys_and_values(
        self, cache: LatentCache
    ) -> tuple[Float[Tensor, "*batch heads n d_qk"], Float[Tensor, "*batch heads n d_v"]]:
        """``[c W_UK; k_R]`` and ``c W_UV`` of all heads, which the absorbed form never computes."""
        nope, value = (_split_heads(p(cache.latent), self.num_heads) for p in (self.k_nope_proj, self.v_proj))
        rope = cache.rotary_key.unsqueeze(-3).expand(*nope.shape[:-1], -1)
        return torch.cat([nope, rope], dim=-1), value

    def attend(
        self,
        query: Query,
        cache: LatentCache,
        mask: Bool[Tensor, "..."] | None,
        *,
        absorbed: bool,
        need_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Float[Tensor, "*batch n_q d_model"], Float[Tensor, "*batch heads n_q n_k"] | None]:
        """Attention of ``query`` to all tokens in ``cache``, and ``W_O``; the inputs are not checked.

        With ``absorbed=False``, the keys and values of all heads are computed first. With ``absorbed=True``,
        ``W_UK`` moves to the query, ``[q W_UK^T; q_R] · [c; k_R]``, and ``W_UV`` to the output,
        ``(weights c) W_UV``: all heads attend to one key of ``kv_rank + d_rope`` numbers for each token, and
        average one value, ``c``. Both give the same numbers, up to rounding. The products are taken one
        after the other, as in the code that DeepSeek published; ``W_UQ W_UK^T`` is never computed.
        """
        scale = 1 / math.sqrt(self.d_nope + self.d_rope)
        options = {"need_weights": need_weights, "is_causal": is_causal}
        if absorbed:
            w_uk = self.k_nope_proj.weight.unflatten(0, (self.num_heads, self.d_nope))
            w_uv = self.v_proj.weight.unflatten(0, (self.num_heads, self.d_v))
            key = torch.cat(cache[:2], dim=-1).unsqueeze(-3)  # one head, for all; it starts with the value
            moved = torch.cat([query[0] @ w_uk, query[1]], dim=-1)
            value = cache.latent.unsqueeze(-3) if need_weights else key  # the fused path wants one width
            average, weights = _attend(moved, key, value, mask, scale, **options)
            heads = average[..., : self.kv_rank] @ w_uv.mT
        else:
            key, value = self.keys_and_values(cache)
            query = torch.cat(query, dim=-1)
            heads, weights = _attend(query, key, value, mask, scale, **options)
        return self.out_proj(_merge_heads(heads)), weights

    def _turn(self, x: Tensor, start: int) -> Tensor:
        positions = torch.arange(start, start + x.shape[-2], device=x.device)
        return _apply_rotary(x, positions, self.base, self.layout)

    def _check(self, x: Tensor, min_rank: int) -> None:
        wanted = "(batch, n, d_model)" + (" or (n, d_model)" if min_rank == 2 else "")
        expect.tensor("x", x, wanted, min_rank=min_rank, max_rank=3)
        expect.floating("x", x, embedded=True)
        expect.sequence("x", x)
        expect.width("x", x, "d_model", self.d_model)
        expect.fits("kv_down_proj", self.kv_down_proj, x=x)

    @classmethod
    def from_transformers(cls, module: nn.Module) -> "LatentAttention":
        """A copy of DeepSeek-V3's attention in ``transformers``, with its weights, dtype, device and mode.

        Its causal mask is not part of the weights: pass ``causal_mask(n)``. The published DeepSeek-V3 has
        positions that are scaled for long texts ("yarn"), which are refused here.

        Args:
            module: a ``DeepseekV3Attention``: ``model.layers[i].self_attn``.

        Raises:
            TypeError: ``module`` is not a ``DeepseekV3Attention``.
            ValueError: its rotary positions are scaled, or it drops weights in training.

        >>> from transformers import DeepseekV3Config, DeepseekV3Model
        >>> config = DeepseekV3Config(hidden_size=6, num_attention_heads=3, num_hidden_layers=1, vocab_size=7)
        >>> LatentAttention.from_transformers(DeepseekV3Model(config).layers[0].self_attn).num_heads
        3
        """
        layer = cls(**_options(module)).to(module.o_proj.weight)
        layer.kv_norm.eps = module.kv_a_layernorm.variance_epsilon
        if layer.q_rank is not None:
            layer.q_norm.eps = module.q_a_layernorm.variance_epsilon
        with torch.no_grad():
            for ours, theirs in _pairs(layer, module):
                ours.copy_(theirs)
        return layer.train(module.training)

    def to_transformers(self, module: nn.Module) -> None:
        """Write the weights of this layer into ``module``: the inverse of ``from_transformers``.

        Args:
            module: a ``DeepseekV3Attention`` of the same sizes; its weights are overwritten, in its dtype.

        Raises:
            TypeError: ``module`` is not a ``DeepseekV3Attention``.
            ValueError: its sizes, positions or norms are not those of this layer; nothing has changed.

        >>> from transformers import DeepseekV3Config, DeepseekV3Model
        >>> config = DeepseekV3Config(hidden_size=6, num_attention_heads=3, num_hidden_layers=1, vocab_size=7)
        >>> module = DeepseekV3Model(config).layers[0].self_attn
        >>> LatentAttention.from_transformers(module).to_transformers(module)
        """
        theirs = _options(module)
        ours = {name: getattr(self, name) for name in theirs if name != "bias"}
        ours |= {"bias": self.out_proj.bias is not None, "kv_norm.eps": self.kv_norm.eps}
        theirs["kv_norm.eps"] = module.kv_a_layernorm.variance_epsilon
        if self.q_rank is not None and theirs["q_rank"] is not None:
            ours["q_norm.eps"] = self.q_norm.eps
            theirs["q_norm.eps"] = module.q_a_layernorm.variance_epsilon
        for name, value in ours.items():
            if theirs[name] != value:
                expect.fail(ValueError, "module", f"a layer with {name} = {value}", theirs[name])
        with torch.no_grad():
            for ours, theirs in _pairs(self, module):
                theirs.copy_(ours)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        widths = f"d_nope={self.d_nope}, d_rope={self.d_rope}, d_v={self.d_v}"
        return f"num_heads={self.num_heads}, {widths}, base={self.base}, layout={self.layout!r}"


def _options(module: object) -> dict[str, object]:
    """The arguments with which ``LatentAttention`` has the sizes and the positions of ``module``."""
    if type(module).__name__ != "DeepseekV3Attention":
        hint = "It is model.layers[i].self_attn."
        expect.fail(TypeError, "module", "a DeepseekV3Attention", type(module).__name__, hint)
    config, rotary = module.config, module.config.rope_parameters
    kind = rotary.get("rope_type", "default")
    if kind != "default":
        hint = "Scaled positions turn by other angles."
        expect.fail(ValueError, "module", "rotary positions of rope_type 'default'", repr(kind), hint)
    if module.attention_dropout:
        expect.fail(ValueError, "module", "attention_dropout = 0", module.attention_dropout)
    return {
        "d_model": config.hidden_size,
        "num_heads": module.num_heads,
        "kv_rank": module.kv_lora_rank,
        "q_rank": module.q_lora_rank,
        "d_nope": module.qk_nope_head_dim,
        "d_rope": module.qk_rope_head_dim,
        "d_v": module.v_head_dim,
        "base": float(rotary["rope_theta"]),
        "layout": "pairs" if config.rope_interleave else "halves",
        "bias": module.o_proj.bias is not None,
    }


def _pairs(layer: LatentAttention, module: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """``(ours, theirs)`` for all weights: parts of the parameters themselves, in one shape."""
    compressed, heads = layer.q_rank is not None, layer.num_heads
    q_proj = module.q_b_proj if compressed else module.q_proj
    packed = [  # ours, theirs, and how often the parts of ours follow each other in theirs
        ((layer.kv_norm,), module.kv_a_layernorm, 1),
        ((layer.kv_down_proj, layer.k_rope_proj), module.kv_a_proj_with_mqa, 1),
        ((layer.k_nope_proj, layer.v_proj), module.kv_b_proj, heads),  # of the first head, of the second, ...
        ((layer.q_nope_proj, layer.q_rope_proj), q_proj, heads),
        ((layer.out_proj,), module.o_proj, 1),
    ]
    if compressed:
        packed += [((layer.q_norm,), module.q_a_layernorm, 1), ((layer.q_down_proj,), module.q_a_proj, 1)]
    pairs = []
    for ours, theirs, times in packed:
        for name, parameter in theirs.named_parameters():  # weight, and bias if there is one
            parts = [getattr(one, name).unflatten(0, (times, -1)) for one in ours]
            widths = [part.shape[1] for part in parts]
            pairs += zip(parts, parameter.unflatten(0, (times, -1)).split(widths, dim=1), strict=True)
    return pairs


def attend_with_latent_cache(
    layer: LatentAttention,
    x: Float[Tensor, "batch n_new d_model"],
    cache: LatentCache | None = None,
    *,
    absorbed: bool = True,
) -> tuple[Float[Tensor, "batch n_new d_model"], LatentCache]:
    """Causal self-attention of new tokens to all tokens so far, of which only ``LatentCache`` is kept.

    The result equals the last ``n_new`` rows of ``layer`` with a causal mask, called with the whole text.

    Args:
        layer: the layer.
        x: ``(batch, n_new, d_model)``, the new tokens.
        cache: the cache that an earlier call returned; ``None`` means that there are no earlier tokens.
        absorbed: ``False`` computes the keys and values of all tokens so far in each call; see
            ``LatentAttention.attend``.

    Returns:
        ``(output, cache)``: ``(batch, n_new, d_model)``, and ``(batch, n, kv_rank)`` and
        ``(batch, n, d_rope)`` for all ``n`` tokens so far. The cache that was passed in does not change.

    Source: DeepSeek-V2, sections 2.1.2 and 2.1.3, and appendix C.

    >>> layer = LatentAttention(d_model=6, num_heads=3, kv_rank=5, d_nope=4, d_rope=2)
    >>> output, cache = attend_with_latent_cache(layer, torch.ones(2, 7, 6))
    >>> output, cache = attend_with_latent_cache(layer, torch.ones(2, 1, 6), cache)
    >>> output.shape, cache.latent.shape, cache.rotary_key.shape
    (torch.Size([2, 1, 6]), torch.Size([2, 8, 5]), torch.Size([2, 8, 2]))
    """
    instance("layer", layer, LatentAttention)
    expect.flag("absorbed", absorbed)
    layer._check(x, min_rank=3)
    if cache is None:
        start, cache = 0, layer.compress(x)
    else:
        if not isinstance(cache, LatentCache):
            expect.fail(TypeError, "cache", "the LatentCache of an earlier call", type(cache).__name__)
        if cache.layer is not None and cache.layer() is not layer:
            hint = "Are the caches in the order of the layers?"
            expect.fail(ValueError, "cache", "a cache of this layer", "one of another layer", hint)
        start = cache.latent.shape[-2]
        wanted = [(len(x), start, width) for width in (layer.kv_rank, layer.d_rope)]
        if [tuple(part.shape) for part in cache[:2]] != wanted:
            got = " and ".join(expect.shape(part.shape) for part in cache[:2])
            hint = "Does the cache belong to this batch?"
            expect.fail(ValueError, "cache", f"shapes {wanted[0]} and {wanted[1]}", got, hint)
        expect.same_kind(x=x, **{"cache.latent": cache.latent, "cache.rotary_key": cache.rotary_key})
        new = layer.compress(x, start)
        kept = (torch.cat(both, dim=-2) for both in zip(cache[:2], new[:2], strict=True))
        cache = LatentCache(*kept, new.layer)
    how = {"absorbed": absorbed, "need_weights": False, "is_causal": x.shape[-2] > 1}
    output, _ = layer.attend(layer.queries(x, start), cache, None, **how)
    return output, cache


class CacheNumbers(NamedTuple):
    """How many numbers one layer keeps for each token, with four kinds of attention."""

    multi_head: int
    grouped_query: int
    multi_query: int
    latent: int


def cache_numbers(num_heads: int, d_head: int, *, num_groups: int, kv_rank: int, d_rope: int) -> CacheNumbers:
    """The numbers that one layer keeps for each token.

    * multi-head: ``2 num_heads d_head``, a key and a value of each head;
    * grouped-query: ``2 num_groups d_head``, a key and a value of each group of heads;
    * multi-query: ``2 d_head``, one key and one value;
    * latent: ``kv_rank + d_rope``, which depends neither on ``num_heads`` nor on ``d_head``.

    Args:
        num_heads: how many heads.
        d_head: the width of a head's keys and of its values.
        num_groups: how many groups of heads share a key and a value; it must divide ``num_heads``.
        kv_rank, d_rope: as in ``LatentAttention``.

    Returns:
        ``(multi_head, grouped_query, multi_query, latent)``.

    Source: DeepSeek-V2, section 2.1.4, table 1.

    >>> cache_numbers(128, 128, num_groups=8, kv_rank=512, d_rope=64)  # DeepSeek-V3; it has no groups
    CacheNumbers(multi_head=32768, grouped_query=2048, multi_query=256, latent=576)
    """
    sizes = {"num_heads": num_heads, "d_head": d_head, "num_groups": num_groups}
    for name, value in (sizes | {"kv_rank": kv_rank, "d_rope": d_rope}).items():
        expect.whole_number(name, value)
    expect.divides("num_groups", num_groups, "num_heads", num_heads)
    kept = (2 * count * d_head for count in (num_heads, num_groups, 1))
    return CacheNumbers(*kept, kv_rank + d_rope)
