"""The checks of a layer's options and inputs, before anything is computed."""

from torch import Tensor, nn

from mha_lab import _expect as expect


def layer_sizes(d_model: int, num_heads: int, *others: int | None) -> tuple[int, ...]:
    """A layer's sizes as whole numbers; the ``others`` are those of ``names``, or ``None`` for the usual."""
    d_model = expect.whole_number("d_model", d_model)
    num_heads = expect.whole_number("num_heads", num_heads)
    if None in others[1:3]:
        expect.divides("num_heads", num_heads, "d_model", d_model)
    names = "num_kv_heads", "d_k", "d_v", "qdim", "kdim", "vdim"
    usual = num_heads, d_model // num_heads, d_model // num_heads, d_model, d_model, d_model
    sizes = [
        none if size is None else expect.whole_number(name, size)
        for name, size, none in zip(names, others, usual, strict=True)
    ]
    expect.divides("num_kv_heads", sizes[0], "num_heads", num_heads)
    return d_model, num_heads, *sizes


def expect_options(
    num_heads: int, transform: object, score: object, mask: object, dtype: object, **flags: object
) -> None:
    """The options of a layer that are no numbers have the right types."""
    for name, value in flags.items():
        expect.flag(name, value)
    expect.function("transform", transform, "(query, key) -> (query, key)")
    expect.function("score", score, "(query, key) -> scores")
    expect.function("mask", mask, "(n_query, n_key, *, device) -> mask")
    scored = getattr(score, "num_heads", num_heads)
    if scored != num_heads:
        expect.fail(ValueError, "score", f"one with num_heads = {num_heads}, as the layer", scored)
    if dtype is not None:
        expect.float_dtype("dtype", dtype)


def batch_first_inputs(
    layer: nn.Module,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    name: str = "query",
    **flags: object,
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value, checked before anything is computed, and with the batch first.

    Each tensor is checked once, even if it is all three; the caller knows the query as ``name``. The
    ``flags`` are ``True`` or ``False``.
    """
    for flag, given in flags.items():
        expect.flag(flag, given)
    key = query if key is None else key
    value = key if value is None else value
    sequence_axis, batch_axis, order = (-2, 0, "batch, n") if layer.batch_first else (0, 1, "n, batch")
    inputs = (
        (name, query, "qdim", False),
        ("key", key, "kdim", key is query),
        ("value", value, "vdim", value is key),
    )
    for name, x, width, checked in inputs:
        if not checked:
            expect.tensor(name, x, f"({order}, {width}) or (n, {width})", min_rank=2, max_rank=3)
            expect.floating(name, x, embedded=True)
            expect.sequence(name, x, sequence_axis)
        elif name == "value" and layer.vdim != layer.kdim:
            expected = f"a tensor of width vdim = {layer.vdim}"
            expect.fail(ValueError, name, expected, "none, which means value = key", "Pass value as well.")
        expect.width(name, x, width, getattr(layer, width))
    tensors = {name: x for name, x, _, checked in inputs if not checked}
    expect.fits("q_proj", layer.q_proj, **tensors)
    if len(tensors) > 1:
        expect.same_batch(batch_axis, **tensors)
    n_query, n_key = query.shape[sequence_axis], key.shape[sequence_axis]
    if value.shape[sequence_axis] != n_key:
        got, expected = expect.shape(value.shape), f"as many tokens as key, {n_key}"
        expect.fail(ValueError, "value", expected, got, "Do key and value come from one sequence?")
    if mask is not None:
        batch = () if query.ndim == 2 else (query.shape[batch_axis],)
        expect.mask_for(mask, (*batch, layer.num_heads, n_query, n_key), query.device)
    return layer._order(query), layer._order(key), layer._order(value)
