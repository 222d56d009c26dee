"""How peak memory grows with the length of the sequence, each length in a separate process."""

import json
import math
import re
import resource
import subprocess
import sys
from pathlib import Path

D_MODEL, HEADS = 256, 8
LENGTHS = (2048, 4096, 8192, 16384)
KEPT_LENGTHS = (1024, 2048, 4096)  # with the weights kept; longer ones would not fit on many machines


def peak_bytes() -> int:
    """The most memory that this process has used so far."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure(n: int, need_weights: bool, masked: bool, backward: bool) -> int:
    """Bytes that one pass needs in addition to the layer, its input and PyTorch itself."""
    import torch

    from mha_lab import MultiHeadAttention, padding_mask

    layer = MultiHeadAttention(D_MODEL, HEADS)
    x = torch.randn(1, n, D_MODEL)
    mask = padding_mask([n - n // 4], max_length=n) if masked else None

    def run(x: torch.Tensor, mask: torch.Tensor | None) -> None:
        with torch.set_grad_enabled(backward):
            output, _ = layer(x, mask=mask, need_weights=need_weights)
        if backward:
            output.sum().backward()

    run(x[:, :64], None if mask is None else mask[..., :64])  # loads what is loaded only once
    before = peak_bytes()
    run(x, mask)
    return peak_bytes() - before


def in_a_fresh_process(module: str = "bench.memory", **asked: object) -> int:
    """``measure`` of the module in a process without memory of earlier passes."""
    command = [sys.executable, "-m", module, json.dumps(asked)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def exponent(lengths: tuple[int, ...], sizes: list[int]) -> float:
    """The slope of ``log(bytes)`` over ``log(n)``, by least squares: 1 is linear, 2 quadratic."""
    xs, ys = [math.log(n) for n in lengths], [math.log(size) for size in sizes]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - mean_x) ** 2 for x in xs)


def report() -> None:
    """Fused against kept, forward and forward + backward, with and without padding hidden."""
    print(f"peak memory added by one pass, batch 1, d_model {D_MODEL}, {HEADS} heads; exponent of n")
    for need_weights, lengths in ((False, LENGTHS), (True, KEPT_LENGTHS)):
        for backward in (False, True):
            for masked in (False, True):
                sizes = [
                    in_a_fresh_process(n=n, need_weights=need_weights, masked=masked, backward=backward)
                    for n in lengths
                ]
                slope = exponent(lengths, sizes)
                print(
                    f"need_weights={need_weights!s:5}  {'forward+backward' if backward else 'forward':16}  "
                    f"{'padding hidden' if masked else 'no mask':14}  "
                    + "  ".join(
                        f"{n}: {size / 2**20:.0f} MiB" for n, size in zip(lengths, sizes, strict=True)
                    )
                    + f"  exponent {slope:.2f}"
                    + ("" if need_weights else f"  asked: linear  {'ok' if slope <= 1.1 else 'MISSED'}"),
                    flush=True,
                )


if __name__ == "__main__":
    print(measure(**json.loads(sys.argv[1])))
