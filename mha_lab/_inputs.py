"""The checks of a layer's inputs, before anything is computed."""

from torch import Tensor, nn

from mha_lab import _expect as expect


def batch_first_inputs(
    layer: nn.Module,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    name: str = "query",
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value, checked before anything is computed, and with the batch first.

    Each tensor is checked once, even if it is all three; the caller knows the query as ``name``.
    """
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
