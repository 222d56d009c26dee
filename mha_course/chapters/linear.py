"""Linear attention: features of queries and keys in place of the softmax, and a state that does not grow.

The softmax needs the score of every pair of tokens. If a weight is a dot product of features instead, the
keys and values can be summed once, into a matrix, and every query reads from this matrix.

Source: Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive Transformers with Linear
Attention" (arXiv 2006.16236), sections 3.2 to 3.4.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mha_lab import _expect as expect

FeatureMap = Callable[[Float[Tensor, "*batch n d_k"]], Float[Tensor, "*batch n features"]]


class LinearState(NamedTuple):
    """What is kept of all tokens so far: it does not grow with their number.

    ``memory``: the sum of ``feature_map(key) value^T``, ``(..., features, d_v)``. ``normaliser``: the sum of
    ``feature_map(key)``, ``(..., features)``.
    """

    memory: Float[Tensor, "*batch features d_v"]
    normaliser: Float[Tensor, "*batch features"]


def elu_plus_one(x: Float[Tensor, "*batch d_k"]) -> Float[Tensor, "*batch d_k"]:
    """``elu(x) + 1``: ``x + 1`` for positive ``x``, else ``exp(x)``; as many features as ``x`` is wide.

    Args:
        x: any shape.

    Returns:
        The same shape, nothing below 0.

    Source: Katharopoulos et al. 2020, section 3.2.1, equation 7.

    >>> elu_plus_one(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([0.3679, 1.0000, 3.0000])
    """
    expect.floating("x", expect.tensor("x", x, "(..., d_k)", min_rank=0))
    return F.elu(x) + 1


def linear_attention(
    query: Float[Tensor, "*#batch n_q d_k"],
    key: Float[Tensor, "*#batch n_k d_k"],
    value: Float[Tensor, "*#batch n_k d_v"],
    *,
    feature_map: FeatureMap = elu_plus_one,
    causal: bool = True,
) -> Float[Tensor, "*batch n_q d_v"]:
    """Attention of all queries at once, without the weight of any pair of tokens.

    With ``f = feature_map``, ``S = sum_j f(key[j]) value[j]^T`` and ``z = sum_j f(key[j])``:

    ``output[i] = f(query[i])^T S / f(query[i])^T z``.

    If ``causal``, ``j`` goes from 0 to ``i``; then each query has an ``S`` of its own, and the call holds
    ``n * features * d_v`` numbers. Else there is one ``S`` for all queries. In both cases time grows with
    ``n`` and not with ``n²``. There is no scale ``1 / sqrt(d_k)``.

    Args:
        query: ``(..., n_q, d_k)``.
        key: ``(..., n_k, d_k)``.
        value: ``(..., n_k, d_v)``, one row for each key.
        feature_map: a callable ``(..., n, d_k) -> (..., n, features)`` that returns nothing below 0.
        causal: whether a query sees only the keys up to its own position; then ``n_q`` and ``n_k`` are equal.

    Returns:
        ``(..., n_q, d_v)``; zeros for a query whose features have no feature in common with any key's.

    Source: Katharopoulos et al. 2020, section 3.2, equations 4 to 6; section 3.3, equations 8 to 12.

    >>> linear_attention(torch.ones(5, 4), torch.ones(5, 4), torch.ones(5, 2)).shape
    torch.Size([5, 2])
    """
    expect.query_key_and_value(query, key, value, None)
    _same_length(query, key, causal)
    f_q, f_k = _features("query", query, feature_map), _features("key", key, feature_map)
    if not causal:
        return _divided(f_q @ (f_k.mT @ value), f_q @ f_k.sum(dim=-2, keepdim=True).mT)
    memory = (f_k.unsqueeze(-1) * value.unsqueeze(-2)).cumsum(dim=-3)  # (..., n, features, d_v)
    return _read(f_q, LinearState(memory, f_k.cumsum(dim=-2)))


def linear_attention_recurrent(
    query: Float[Tensor, "*#batch n d_k"],
    key: Float[Tensor, "*#batch n d_k"],
    value: Float[Tensor, "*#batch n d_v"],
    state: LinearState | None = None,
    *,
    feature_map: FeatureMap = elu_plus_one,
) -> tuple[Float[Tensor, "*batch n d_v"], LinearState]:
    """The same as ``linear_attention(..., causal=True)``, one token after the other, as a recurrent network.

    For each token, with ``f = feature_map``: ``S ← S + f(key) value^T``, ``z ← z + f(key)``, and
    ``output = f(query)^T S / f(query)^T z``. Each token takes the same time, however many came before it.

    Args:
        query: ``(..., n, d_k)``, of new tokens.
        key: ``(..., n, d_k)``.
        value: ``(..., n, d_v)``.
        state: what an earlier call returned; ``None`` means that there are no earlier tokens.
        feature_map: as in ``linear_attention``.

    Returns:
        ``(output, state)``: ``(..., n, d_v)``, and ``S`` and ``z`` after the last token. The state that was
        passed in does not change.

    Source: Katharopoulos et al. 2020, section 3.4, equations 16 to 20.

    >>> x = torch.ones(5, 4)
    >>> output, state = linear_attention_recurrent(x, x, torch.ones(5, 2))
    >>> output.shape, state.memory.shape, state.normaliser.shape
    (torch.Size([5, 2]), torch.Size([4, 2]), torch.Size([4]))
    """
    expect.query_key_and_value(query, key, value, None)
    _same_length(query, key, causal=True)
    f_q, f_k = _features("query", query, feature_map), _features("key", key, feature_map)
    widths = f_k.shape[-1], value.shape[-1]
    if state is None:
        state = LinearState(f_k.new_zeros(widths), f_k.new_zeros(widths[0]))
    _expect_state(state, widths, query, key, value)
    outputs = []
    for q, k, v in zip(f_q.unbind(-2), f_k.unbind(-2), value.unbind(-2), strict=True):
        state = LinearState(state.memory + k.unsqueeze(-1) * v.unsqueeze(-2), state.normaliser + k)
        outputs.append(_read(q, state))
    return torch.stack(outputs, dim=-2), state


def linear_attention_weights(
    query: Float[Tensor, "*#batch n_q d_k"],
    key: Float[Tensor, "*#batch n_k d_k"],
    *,
    feature_map: FeatureMap = elu_plus_one,
    causal: bool = True,
) -> Float[Tensor, "*batch n_q n_k"]:
    """The weights that ``linear_attention`` implies and never computes: ``output = weights @ value``.

    ``weights[i, j] = f(query[i]) · f(key[j]) / sum_k f(query[i]) · f(key[k])`` over the visible keys. Here
    time and memory grow with ``n²``.

    Args:
        query, key, feature_map, causal: as in ``linear_attention``.

    Returns:
        ``(..., n_q, n_k)``; each row sums to 1, or to 0 if the output is zeros.

    Source: Katharopoulos et al. 2020, section 3.2, equation 4; section 3.3, equation 8.

    >>> linear_attention_weights(torch.zeros(2, 1), torch.tensor([[0.0], [2.0]]), causal=False)
    tensor([[0.2500, 0.7500],
            [0.2500, 0.7500]])
    """
    expect.query_and_key(query, key)
    _same_length(query, key, causal)
    scores = _features("query", query, feature_map) @ _features("key", key, feature_map).mT
    scores = scores.tril() if causal else scores
    return _divided(scores, scores.sum(dim=-1, keepdim=True))


def largest_weights(
    key: Float[Tensor, "*batch n d_k"], *, feature_map: FeatureMap = elu_plus_one
) -> Float[Tensor, "*batch n"]:
    """For each key, a weight that no query can exceed: ``max_c f(key[j])_c / sum_k f(key[k])_c``.

    Each feature ``c`` divides 1 among the keys, in proportion to ``f(key[j])_c``; a query can only mix these
    divisions, and a mixture is never above the largest. Over all keys, the result sums to at most
    ``features``, so its mean is at most ``features / n``: of many keys, most can not be picked out. The
    softmax has no such limit: a query that is a large enough multiple of a key gives it a weight close to 1,
    if no other key is equal or longer. With ``elu_plus_one``, some query comes as close to the limit as you
    like: one that is large in the best feature ``c`` and very negative in the others.

    Args:
        key: ``(..., n, d_k)``, all visible.
        feature_map: as in ``linear_attention``.

    Returns:
        ``(..., n)``.

    Source: it follows from Katharopoulos et al. 2020, section 3.2, equation 4.

    >>> on_a_circle = torch.arange(32) * torch.pi / 16
    >>> key = 4 * torch.stack([on_a_circle.cos(), on_a_circle.sin()], dim=-1)  # all of length 4
    >>> round(largest_weights(key).max().item(), 3)
    0.084
    """
    expect.tensor("key", key, "(..., n, d_k)", min_rank=2)
    expect.floating("key", key)
    expect.sequence("key", key)
    features = _features("key", key, feature_map)
    return _divided(features, features.sum(dim=-2, keepdim=True)).amax(dim=-1)


def _read(f_q: Tensor, state: LinearState) -> Tensor:
    """``f_q^T S / f_q^T z``, for features ``(..., features)`` and a state with the same leading axes."""
    top = (f_q.unsqueeze(-2) @ state.memory).squeeze(-2)
    return _divided(top, (f_q * state.normaliser).sum(dim=-1, keepdim=True))


def _divided(top: Tensor, bottom: Tensor) -> Tensor:
    """The quotient; 0 where nothing is visible, so that top and bottom are 0."""
    return top / bottom.masked_fill(bottom == 0, 1.0)


def _features(name: str, x: Tensor, feature_map: object) -> Tensor:
    """``feature_map(x)``, if it can be a feature map."""
    if not callable(feature_map):
        expect.fail(TypeError, "feature_map", "a callable x -> features", repr(feature_map))
    features = feature_map(x)
    wanted = (
        f"a callable that returns floating-point features ({name}'s {expect.shape(x.shape[:-1])}, features)"
    )
    if not isinstance(features, Tensor) or features.dtype != x.dtype:
        got = features.dtype if isinstance(features, Tensor) else type(features).__name__
        expect.fail(TypeError, "feature_map", wanted, got)
    if features.shape[:-1] != x.shape[:-1] or features.shape[-1] == 0:
        expect.fail(ValueError, "feature_map", wanted, expect.shape(features.shape))
    if (features < 0).any():
        hint = "A weight can not be negative; elu(x) + 1 never is."
        expect.fail(ValueError, "feature_map", "features of at least 0", features.min().item(), hint)
    return features


def _same_length(query: Tensor, key: Tensor, causal: bool) -> None:
    """A query for each key, if a query sees the keys up to its own position."""
    if causal and query.shape[-2] != key.shape[-2]:
        expected = f"as many tokens as query, {query.shape[-2]}, if causal"
        expect.fail(ValueError, "key", expected, key.shape[-2], "Did you mean causal=False?")


def _expect_state(state: object, widths: tuple[int, int], query: Tensor, key: Tensor, value: Tensor) -> None:
    """``state`` comes from tokens of the same kind."""
    if not isinstance(state, LinearState):
        expect.fail(TypeError, "state", "the LinearState of an earlier call", type(state).__name__)
    if tuple(state.memory.shape[-2:]) != widths or state.normaliser.shape[-1:] != widths[:1]:
        expected = f"(..., features, d_v) = (..., {widths[0]}, {widths[1]}) and (..., {widths[0]})"
        got = f"{expect.shape(state.memory.shape)} and {expect.shape(state.normaliser.shape)}"
        expect.fail(ValueError, "state", expected, got, "Is it of another layer?")
    expect.same_kind(query=query, **{"state.memory": state.memory, "state.normaliser": state.normaliser})
    normaliser = state.normaliser.unsqueeze(-1)
    expect.leading(
        query=query, key=key, value=value, **{"state.memory": state.memory, "state.normaliser": normaliser}
    )
