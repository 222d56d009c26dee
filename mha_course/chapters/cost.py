"""The cost of attention: counts of operations and bytes, and measurements of time and memory.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 4, table 1 (``n² · d`` for each layer).
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import linear_regression, median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
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


def measure_time(
    runs: Mapping[str, Callable[[], object]], *, rounds: int = 5, finish: Callable[[], object] | None = None
) -> dict[str, float]:
    """The median time of each run, in seconds.

    The runs take turns, so that a slow second hits all of them. One round before the others is not counted:
    a first call pays for what later calls find ready.

    Args:
        runs: functions without arguments, by their names.
        rounds: how often each is timed.
        finish: called after each run, before the clock is read; on a GPU, ``torch.cuda.synchronize``.

    Returns:
        Seconds by the names in ``runs``.

    >>> list(measure_time({"sum": lambda: sum(range(99))}))
    ['sum']
    """
    expect.whole_number("rounds", rounds)
    for name, run in runs.items():
        _callable(f"runs[{name!r}]", run)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if finish is not None:
                finish()
            if turn > 0:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(found) for name, found in seconds.items()}


def measure_memory(run: Callable[[], object]) -> int:
    """The most bytes that PyTorch held at once for a run on the CPU, on top of what it held before.

    PyTorch's profiler lists each piece of memory that is taken (a positive number of bytes) and given back
    (a negative one). The peak is the highest point of the running sum.

    Args:
        run: a function without arguments.

    Returns:
        Bytes, the same in every call. 0 if the run took no memory.

    >>> measure_memory(lambda: torch.zeros(1000, 1000))
    4000000
    """
    _callable("run", run)
    # acc_events: without it, some versions of PyTorch print a warning
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        run()
    events = profiler.profiler.kineto_results.events()
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    return max(itertools.accumulate(changes), default=0)


def kept_for_backward(run: Callable[[], object]) -> int:
    """The bytes that autograd keeps for the backward pass of a run; a tensor kept twice counts once.

    Args:
        run: a function without arguments, whose tensors require gradients.

    Returns:
        Bytes, of whole storages: a view counts as the tensor that it shows.

    >>> x = torch.ones(5, requires_grad=True)
    >>> kept_for_backward(lambda: x.exp())  # it keeps its result
    20
    """
    _callable("run", run)
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    return sum(storages.values())


def growth_exponent(x: Sequence[int | float], y: Sequence[int | float]) -> float:
    """The ``a`` for which ``y = c · x^a`` fits best: the slope of a line through the logarithms.

    Args:
        x: positive numbers, at least two different ones.
        y: as many positive numbers.

    Returns:
        The exponent, by least squares.

    >>> round(growth_exponent([1, 2, 4], [5, 20, 80]), 6)
    2.0
    """
    for name, values in (("x", x), ("y", y)):
        if min(values, default=0) <= 0:
            expect.fail(ValueError, name, "positive numbers", list(values))
    if len(x) != len(y) or len(set(x)) < 2:
        expect.fail(ValueError, "x", f"{len(y)} numbers, at least two of them different", list(x))
    return linear_regression([math.log(a) for a in x], [math.log(b) for b in y]).slope


def _callable(name: str, value: object) -> None:
    if not callable(value):
        expect.fail(TypeError, name, "a function without arguments", repr(value))
