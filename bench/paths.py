"""What each path of ``mha_lab.attention._path`` costs: peak memory, and time beside the fused path.

And causal attention without a mask of all queries and keys, beside PyTorch's function.
"""

import json
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.memory import in_a_fresh_process, peak_bytes
from bench.side_by_side import ratio, verdict
from mha_course.chapters.modern import ModernAttention
from mha_lab import causal_mask, scaled_dot_product_scores
from mha_lab.attention import _attend
from mha_lab.masks import SlidingWindow

HEADS, D_K, N, ROUNDS = 8, 64, 1024, 15
N_MEMORY = 2048
FUSED = {"need_weights": False}
CASES = {
    "score": {"score": scaled_dot_product_scores},
    "fused": FUSED,
    "fused, shared": FUSED | {"repeats": 4},
    "fused, d_v = d_k / 2": FUSED | {"d_v": D_K // 2},
    "fused, sinks": FUSED | {"sinks": torch.zeros(HEADS)},
    "fused, dropout": FUSED | {"dropout_p": 0.1},
    "in place, or weights": {},
    "in place, or weights, shared": {"repeats": 4},
    "weights, sinks": {"sinks": torch.zeros(HEADS)},
    "weights, dropout": {"dropout_p": 0.1},
}


N_CAUSAL, ONE_HEAD, LIMIT = 8192, 64, 1.1
CAUSAL = {
    "is_causal=True": {},
    "window=64": {"mask": SlidingWindow(64)},
    "sinks": {"sinks": True},
}


def sdpa(query: Tensor, key: Tensor, value: Tensor) -> None:
    """PyTorch's function alone."""
    F.scaled_dot_product_attention(query, key, value, is_causal=True)


@torch.no_grad()
def causal(name: str) -> Callable[[int], None]:
    """Attention of one head between the projections, over the first tokens of ``N_CAUSAL``."""
    tensors = [torch.randn(1, 1, N_CAUSAL, ONE_HEAD) for _ in range(3)]
    layer = ModernAttention(ONE_HEAD, 1, **CAUSAL.get(name, {}))

    @torch.no_grad()
    def run(count: int = N_CAUSAL) -> None:
        given = [x[..., :count, :] for x in tensors]
        if name == "sdpa":
            sdpa(*given)
        else:
            layer.attend(*given, None, need_weights=False, is_causal=True)

    return run


def made(name: str, n: int, masked: bool, gradient: bool) -> Callable[[int], None]:
    """One pass over the first tokens of ``n``, as many as it is asked for."""
    options = dict(CASES[name])
    sizes = (HEADS, D_K), (HEADS // options.get("repeats", 1), D_K)
    sizes += ((sizes[1][0], options.pop("d_v", D_K)),)
    tensors = [torch.randn(1, heads, n, width, requires_grad=gradient) for heads, width in sizes]
    mask = causal_mask(n) if masked else None

    def run(count: int = n) -> None:
        given = [x[..., :count, :] for x in tensors]
        seen = None if mask is None else mask[:count, :count]
        output, _ = _attend(*given, seen, D_K**-0.5, **options)
        if gradient:
            output.sum().backward()

    return run


def measure(name: str, masked: bool, gradient: bool) -> int:
    """Bytes that one pass needs in addition to its inputs and PyTorch itself."""
    run = causal(name) if name in ("sdpa", *CAUSAL) else made(name, N_MEMORY, masked, gradient)
    run(64)  # loads what is loaded only once
    before = peak_bytes()
    run()
    return peak_bytes() - before


def report() -> None:
    """Each case with and without a mask and a gradient (forward + backward)."""
    print(f"{HEADS} heads, d_k {D_K}; peak memory in numbers for each head, query and key (n {N_MEMORY});")
    print(f"time / fused on as much (n {N}), median of {ROUNDS} rounds (quartiles)")
    unit = HEADS * N_MEMORY**2 * 4
    for gradient in (False, True):
        for masked in (False, True):
            print(f"{'forward + backward' if gradient else 'forward'}, {'causal' if masked else 'no mask'}")
            fused = made("fused", N, masked, gradient)
            for name in CASES:
                size = in_a_fresh_process("bench.paths", name=name, masked=masked, gradient=gradient)
                middle, low, high = ratio(made(name, N, masked, gradient), fused, ROUNDS)
                print(f"  {name:30} {size / unit:5.2f}  {middle:5.2f} ({low:.2f} to {high:.2f})", flush=True)

    _report_causal()


def _report_causal() -> None:
    print(f"one head, d_k {ONE_HEAD}, n {N_CAUSAL}, no gradient: F.sdpa(is_causal=True), then ours / it")
    sizes = {
        name: in_a_fresh_process("bench.paths", name=name, masked=False, gradient=False)
        for name in ("sdpa", *CAUSAL)
    }
    print(f"  {'F.sdpa':30} {sizes['sdpa'] / 2**20:5.1f} MiB")
    for name in CAUSAL:
        middle, low, high = ratio(causal(name), causal("sdpa"), ROUNDS)
        said = verdict(middle, LIMIT) if name == "is_causal=True" else ""
        size = f"{sizes[name] / 2**20:5.1f} MiB"
        print(f"  {name:30} {size}  {middle:5.2f} ({low:.2f} to {high:.2f})  {said}", flush=True)


if __name__ == "__main__":
    print(measure(**json.loads(sys.argv[1])))
