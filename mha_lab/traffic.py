"""What PyTorch's operations move through memory, counted while they run."""

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Traffic(TorchDispatchMode):
    """Counts the bytes that operations read and write while it is on; ``bytes`` is the sum so far.

    Each operation reads its tensors and writes its result, once. What it moves inside itself is not
    seen, nor that a cache may spare a way to memory. Views move nothing.

    >>> import torch
    >>> x = torch.ones(3, 5)
    >>> with Traffic() as traffic:
    ...     _ = x.mT + x.mT
    >>> traffic.bytes  # two inputs and a result of 15 numbers, 4 bytes each
    180
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """What PyTorch calls in place of each operation."""
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        read = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        results = result if isinstance(result, tuple | list) else [result]
        written = [value for value in results if isinstance(value, Tensor)]
        places = {value.untyped_storage().data_ptr() for value in read}
        is_view = any(value.untyped_storage().data_ptr() in places for value in written)
        if operation._schema.is_mutable or not is_view:
            self.bytes += sum(value.numel() * value.element_size() for value in (*read, *written))
        return result
