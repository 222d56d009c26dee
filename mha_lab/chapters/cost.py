"""The cost of attention: counts of the layer's operations and bytes, and of the bytes that PyTorch moves.

Raises: every function here checks its arguments before it computes anything. It raises ``TypeError`` for a
wrong type or dtype, and ``ValueError`` for a shape, size, number or device that does not fit. A function
says more only if it can raise for another reason.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 4, table 1 (``n² · d`` for each layer).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mha_lab import _expect as expect


class AttentionFlops(NamedTuple):
    """Floating-point operations of one forward pass; ``sum(...)`` is the whole layer.

    ``projections``: of query, key, value and output. ``scores``: query times key. ``weighted_sum``:
    weights times value.
    """

    projections: int
    scores: int
    weighted_sum: int


class AttentionBytes(NamedTuple):
    """Bytes of the layer's inputs, ``inputs``, and of the weights of all heads, ``weights``."""

    inputs: int
    weights: int


def attention_flops(
    n_query: int, d_model: int, *, n_key: int | None = None, batch: int = 1
) -> AttentionFlops:
    """Multiplications and additions in the matrix products of one multi-head attention layer.

    A product of ``(a, b)`` with ``(b, c)`` counts ``2abc``: one multiplication and one addition for
    each of its terms. So, for each sample,

    * ``projections = 2 d_model² (2 n_query + 2 n_key)``: four matrices ``(d_model, d_model)``; query and
      output are applied to ``n_query`` tokens, key and value to ``n_key``;
    * ``scores = weighted_sum = 2 n_query n_key d_model``: all heads together are ``d_model`` wide, so their
      number does not matter.

    With ``n_query = n_key = n`` this is ``8 n d_model² + 4 n² d_model``, and the second term is the larger
    one beyond ``n = 2 d_model``. Biases, the scale, the softmax and the savings of a mask are not counted.
    Forward and backward together count three times as much.

    Args:
        n_query: number of queries.
        d_model: width of query, key, value and output.
        n_key: number of keys; ``None`` means ``n_query``.
        batch: number of samples.

    Returns:
        ``(projections, scores, weighted_sum)``, whole numbers.

    Source: Vaswani et al. 2017, section 3.2.2 (the layer) and section 4, table 1.

    >>> attention_flops(5, 4)
    AttentionFlops(projections=640, scores=200, weighted_sum=200)
    """
    expect.whole_number("n_query", n_query)
    expect.whole_number("d_model", d_model)
    expect.whole_number("batch", batch)
    n_key = n_query if n_key is None else expect.whole_number("n_key", n_key)
    products = 2 * batch * n_query * n_key * d_model
    return AttentionFlops(2 * batch * d_model**2 * (2 * n_query + 2 * n_key), products, products)


def attention_bytes(
    n_query: int,
    d_model: int,
    num_heads: int,
    *,
    n_key: int | None = None,
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
) -> AttentionBytes:
    """Bytes of a layer's input, and of the weights if they are kept.

    With ``s`` bytes for a number,

    * ``inputs = s · batch · n_query · d_model``, plus ``s · batch · n_key · d_model`` if the keys come
      from another sequence. After the projections, query, key, value and output each have this size;
    * ``weights = s · batch · num_heads · n_query · n_key``.

    In self-attention the weights are ``n / d_k`` times as large as the input.

    Args:
        n_query: number of queries.
        d_model: width of the tokens.
        num_heads: how many heads; it must divide ``d_model``.
        n_key: number of keys; ``None`` means self-attention, with one input.
        batch: number of samples.
        dtype: of the numbers; ``torch.float32`` takes 4 bytes for each.

    Returns:
        ``(inputs, weights)``, whole numbers.

    Source: counted from the shapes in Vaswani et al. 2017, section 3.2.2.

    >>> attention_bytes(4096, 512, 8)
    AttentionBytes(inputs=8388608, weights=536870912)
    """
    expect.whole_number("n_query", n_query)
    expect.whole_number("d_model", d_model)
    expect.whole_number("num_heads", num_heads)
    expect.divides("num_heads", num_heads, "d_model", d_model)
    expect.whole_number("batch", batch)
    if not isinstance(dtype, torch.dtype):
        expect.fail(TypeError, "dtype", "a torch.dtype", repr(dtype), "Did you mean torch.float32?")
    tokens = n_query if n_key is None else n_query + expect.whole_number("n_key", n_key)
    size = dtype.itemsize * batch
    return AttentionBytes(size * tokens * d_model, size * num_heads * n_query * (n_key or n_query))


class Traffic(TorchDispatchMode):
    """Counts the bytes that operations read and write while it is active; ``bytes`` is the sum so far.

    Each operation reads its tensors and writes its result, once. Bytes that it moves internally
    are not counted, and savings by a cache are ignored. Views move nothing.

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
        """PyTorch calls this instead of each operation."""
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
