"""Another processor, on this one: ``PYTHONSTARTUP=tools/noise.py``. A kernel runs this file first.

After each step of an optimizer, each parameter is multiplied by ``1 + eps * z``, where ``eps`` is the
rounding of its dtype and ``z`` is normal. Processors differ by about as much in a step, since they add in
different orders. What a chapter stores, and nbval compares, must stay the same.
"""

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

DICE = torch.Generator().manual_seed(0)  # the chapter's own random numbers stay as they are


@torch.no_grad()
def add_noise(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Change each parameter by about its rounding."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            z = torch.randn(parameter.shape, generator=DICE, dtype=parameter.dtype)
            parameter.mul_(1 + torch.finfo(parameter.dtype).eps * z)


register_optimizer_step_post_hook(add_noise)
