"""The worked examples of the series: small tensors in which every number can be checked by hand.

Each function returns a new tensor, so changing one changes nothing elsewhere.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def tokens() -> list[str]:
    """The sentence of the whole series, ``n = 5`` tokens. It has the word "a" twice.

    >>> tokens()
    ['a', 'dog', 'saw', 'a', 'cat']
    """
    return ["a", "dog", "saw", "a", "cat"]


def features() -> list[str]:
    """What the ``d_model = 4`` numbers of an embedding mean.

    >>> features()
    ['article', 'noun', 'verb', 'size']
    """
    return ["article", "noun", "verb", "size"]


def embeddings(dtype: torch.dtype = torch.float32) -> Float[Tensor, "n d_model"]:
    """A vector for each token, ``(5, 4)``. Its columns are ``features()``; a dog is big, a cat small.

    >>> embeddings()[1]
    tensor([0., 1., 0., 1.])
    """
    vectors = {"a": [1, 0, 0, 0], "dog": [0, 1, 0, 1], "saw": [0, 0, 1, 0], "cat": [0, 1, 0, -1]}
    return torch.tensor([vectors[token] for token in tokens()], dtype=dtype)


def single_head_weights(
    dtype: torch.dtype = torch.float32,
) -> tuple[Float[Tensor, "d_model d_k"], Float[Tensor, "d_model d_k"], Float[Tensor, "d_model d_v"]]:
    """``(w_q, w_k, w_v)`` of one head, with ``d_model = 4``, ``d_k = 3`` and ``d_v = 2``.

    A key says "I am a noun", "I am a verb", "my size". An article asks for nouns, a noun asks for
    verbs, a verb asks for nouns and prefers big ones. A value is (noun or verb, size).

    >>> [tuple(w.shape) for w in single_head_weights()]
    [(4, 3), (4, 3), (4, 2)]
    """
    w_q = [[2, 0, 0], [0, 2, 0], [2, 0, 1], [0, 0, 0]]
    w_k = [[0, 0, 0], [2, 0, 0], [0, 2, 0], [0, 0, 1]]
    w_v = [[0, 0], [1, 0], [-1, 0], [0, 1]]
    return torch.tensor(w_q, dtype=dtype), torch.tensor(w_k, dtype=dtype), torch.tensor(w_v, dtype=dtype)


def multi_head_weights(
    dtype: torch.dtype = torch.float32,
) -> tuple[
    Float[Tensor, "d_model d_model"],
    Float[Tensor, "d_model d_model"],
    Float[Tensor, "d_model d_model"],
    Float[Tensor, "d_model d_model"],
]:
    """``(w_q, w_k, w_v, w_o)`` of two heads, each ``d_k = 2`` wide, with ``d_model = 4``.

    Head 0 owns the first two columns of ``w_q``, ``w_k`` and ``w_v``, head 1 the last two.
    The verb asks for the big animal in head 0 and for the small one in head 1; articles ask for
    nouns in head 0, nouns ask for the verb in head 1. Every value has the size in its second
    column, and ``w_o`` writes the two heads' sizes to different places.

    >>> [tuple(w.shape) for w in multi_head_weights()]
    [(4, 4), (4, 4), (4, 4), (4, 4)]
    """
    w_q = [[2, 0, 0, 0], [0, 0, 2, 0], [0, 2, 0, 2], [0, 0, 0, 0]]
    w_k = [[0, 0, 0, 0], [2, 0, 0, 0], [0, 0, 2, 0], [0, 2, 0, -2]]
    w_v = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]]
    w_o = [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0]]
    return tuple(torch.tensor(w, dtype=dtype) for w in (w_q, w_k, w_v, w_o))


def keys(dtype: torch.dtype = torch.float32) -> Float[Tensor, "n_k d_k"]:
    """Four keys along the axes, ``(4, 3)``; the last two are equal.

    Source of these numbers: the sanity check in notebook 15 (Transformer) of the course "Deep
    Learning", NYU, spring 2020 (repository Atcold/NYU-DLSP20).

    >>> keys()
    tensor([[10.,  0.,  0.],
            [ 0., 10.,  0.],
            [ 0.,  0., 10.],
            [ 0.,  0., 10.]])
    """
    return torch.tensor([[10, 0, 0], [0, 10, 0], [0, 0, 10], [0, 0, 10]], dtype=dtype)


def values(dtype: torch.dtype = torch.float32) -> Float[Tensor, "n_k d_v"]:
    """A value for each of ``keys()``, ``(4, 3)``. Source: as ``keys``.

    >>> values()
    tensor([[   1.,    0.,    0.],
            [  10.,    0.,    0.],
            [ 100.,    5.,    0.],
            [1000.,    6.,    0.]])
    """
    return torch.tensor([[1, 0, 0], [10, 0, 0], [100, 5, 0], [1000, 6, 0]], dtype=dtype)


def plane_keys(dtype: torch.dtype = torch.float32) -> Float[Tensor, "n_k d_k"]:
    """Three keys that can be drawn as arrows in the plane, ``n_k = 3`` and ``d_k = 2``.

    >>> plane_keys().tolist()
    [[4.0, 0.0], [0.0, 4.0], [-3.0, -3.0]]
    """
    return torch.tensor([[4, 0], [0, 4], [-3, -3]], dtype=dtype)


def plane_values(dtype: torch.dtype = torch.float32) -> Float[Tensor, "n_k d_v"]:
    """Their values, ``d_v = 1``. The middle one is the average of all three, and also of the other two.

    >>> plane_values().tolist()
    [[10.0], [20.0], [30.0]]
    """
    return torch.tensor([[10], [20], [30]], dtype=dtype)
