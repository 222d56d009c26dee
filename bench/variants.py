"""Today's layers beside PyTorch's function on the same tensors, and one new token with a long cache."""

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.side_by_side import ratio
from mha_course.chapters.latent import LatentAttention, attend_with_latent_cache
from mha_course.chapters.modern import ModernAttention
from mha_lab import MultiHeadAttention, causal_mask
from mha_lab.heads import merge_heads
from mha_lab.masks import SlidingWindow
from mha_lab.scores import QueryKeyNorm, SoftcappedScore

BATCH, N, D_MODEL, HEADS, N_CACHED, ROUNDS = 1, 1024, 512, 8, 4096, 30
OPTIONS = {
    "none": {},
    "num_kv_heads=2": {"num_kv_heads": 2},
    "num_kv_heads=1": {"num_kv_heads": 1},
    "window=128": {"mask": SlidingWindow(128)},
    "sinks": {"sinks": True},
    "QueryKeyNorm": {"transform": QueryKeyNorm(D_MODEL // HEADS)},
    "SoftcappedScore (weights kept)": {"score": SoftcappedScore(50.0)},
}
# Keys as wide as values: with other widths, PyTorch's function has no fused kernel on a CPU.
LATENT = {"kv_rank": 128, "q_rank": 192, "d_nope": 32, "d_rope": 32, "d_v": 64}


def sdpa(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """PyTorch's function; keys and values may have fewer heads, which it does not repeat before."""
    return F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=key.shape[1] != query.shape[1])


@torch.no_grad()
def report() -> None:
    """Ratios of times: median of ``ROUNDS`` rounds, and quartiles."""
    x, mask = torch.randn(BATCH, N, D_MODEL), causal_mask(N)
    print(f"between the projections, causal, n {N}, {HEADS} heads: need_weights=False / F.sdpa, same tensors")
    for name, options in OPTIONS.items():
        layer = ModernAttention(D_MODEL, HEADS, **options)
        qkv = layer.project(x, x, x)
        _line(
            name,
            lambda layer=layer, qkv=qkv: layer.attend(*qkv, mask, False),
            lambda qkv=qkv: sdpa(*qkv, mask),
        )
    print("the same with the output projection")
    for name in ("none", "gate"):
        layer = ModernAttention(D_MODEL, HEADS, gate=name == "gate")
        qkv = layer.project(x, x, x)
        _line(
            name,
            lambda layer=layer, qkv=qkv: layer._output(layer.attend(*qkv, mask, False)[0], x),
            lambda layer=layer, qkv=qkv: layer.out_proj(merge_heads(sdpa(*qkv, mask))),
        )
    latent = LatentAttention(D_MODEL, HEADS, **LATENT)
    query, cache = latent.queries(x), latent.compress(x)
    qkv = (torch.cat(query, dim=-1), *latent.keys_and_values(cache))
    for absorbed in (False, True):
        _line(
            f"latent, absorbed={absorbed} (weights kept)",
            lambda absorbed=absorbed: latent.attend(query, cache, mask, absorbed=absorbed),
            lambda: latent.out_proj(merge_heads(sdpa(*qkv, mask))),
        )
    _one_new_token(latent)


def _one_new_token(latent: LatentAttention) -> None:
    x, past = torch.randn(BATCH, 1, D_MODEL), torch.randn(BATCH, N_CACHED, D_MODEL)
    print(f"one new token, {N_CACHED} in the cache, {HEADS} heads: with the projections / F.sdpa alone")
    steps = {}
    for kv_heads in (8, 2, 1):
        layer = MultiHeadAttention(D_MODEL, HEADS, num_kv_heads=kv_heads)
        _, cache = layer.extend(past)
        query, key, value = layer.project(x, x, x)
        qkv = (query, torch.cat([cache.key, key], dim=-2), torch.cat([cache.value, value], dim=-2))
        steps[kv_heads] = lambda layer=layer, cache=cache: layer.extend(x, cache)
        _line(
            f"num_kv_heads={kv_heads}, attention alone",
            lambda layer=layer, qkv=qkv: layer.attend(*qkv, None, False),
            lambda qkv=qkv: sdpa(*qkv),
        )
        _line(f"num_kv_heads={kv_heads}, extend", steps[kv_heads], lambda qkv=qkv: sdpa(*qkv))
    latent_cache = latent.compress(past)
    query, all_kept = latent.queries(x, N_CACHED), attend_with_latent_cache(latent, x, latent_cache)[1]
    qkv = (torch.cat(query, dim=-1), *latent.keys_and_values(all_kept))
    for absorbed in (False, True):
        _line(
            f"latent, absorbed={absorbed}",
            lambda absorbed=absorbed: attend_with_latent_cache(latent, x, latent_cache, absorbed=absorbed),
            lambda: sdpa(*qkv),
        )
    print(f"the same step, fewer key and value heads / {HEADS}")
    for kv_heads in (2, 1):
        _line(f"num_kv_heads={kv_heads}", steps[kv_heads], steps[8])


def _line(name, ours, theirs) -> None:
    middle, low, high = ratio(ours, theirs, ROUNDS)
    print(f"{name:38} {middle:.2f} ({low:.2f} to {high:.2f})", flush=True)
