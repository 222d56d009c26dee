"""The layer against PyTorch's layer, and against the minimum that must be computed."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.side_by_side import ratio, verdict
from mha_lab import MultiHeadAttention

SIZES = ((2, 512, 512, 16), (1, 2048, 256, 8))  # batch, n, d_model, heads
ROUNDS = 40


class FourProjections(nn.Module):
    """Only four linear maps around PyTorch's fused attention."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, n, d_model = x.shape
        q, k, v = (p(x).view(batch, n, self.num_heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, n, d_model))


def forward(call: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    """One forward pass as in inference: no gradients."""

    @torch.no_grad()
    def run() -> None:
        call(x)

    return run


def forward_backward(call: Callable[[Tensor], Tensor], x: Tensor, upstream: Tensor) -> Callable[[], None]:
    """One step of training without the optimiser."""

    def run() -> None:
        call(x).backward(upstream)

    return run


def report() -> None:
    """Both settings of ``need_weights``, both sizes, forward and forward + backward."""
    print(f"threads: {torch.get_num_threads()}; ratio of times, median of {ROUNDS} rounds (quartiles)")
    for batch, n, d_model, heads in SIZES:
        x = torch.randn(batch, n, d_model)
        trained, upstream = x.clone().requires_grad_(), torch.randn(batch, n, d_model)
        ours = MultiHeadAttention(d_model, heads)
        torch_layer, bare = ours.to_torch(), FourProjections(d_model, heads)
        pairs = (
            (
                "weights kept / torch.nn.MultiheadAttention",
                lambda x, ours=ours: ours(x)[0],
                lambda x, layer=torch_layer: layer(x, x, x, average_attn_weights=False)[0],
                1.0,
            ),
            (
                "fused / four projections + F.sdpa",
                lambda x, ours=ours: ours(x, need_weights=False)[0],
                bare,
                1.02,
            ),
        )
        for name, mine, other, most in pairs:
            for step, timed in (("forward", forward), ("forward+backward", forward_backward)):
                training = step != "forward"
                for module in (ours, torch_layer, bare):
                    module.train(training)
                given = (trained, upstream) if training else (x,)
                middle, low, high = ratio(timed(mine, *given), timed(other, *given), ROUNDS)
                print(
                    f"batch {batch}, n {n:4}, d_model {d_model}, {heads:2} heads  {step:16}  {name:42} "
                    f"{middle:.3f} ({low:.3f} to {high:.3f})  {verdict(middle, most)}",
                    flush=True,
                )
