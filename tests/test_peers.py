"""The layer against Keras', with the same weights, inputs and masks; ``test_multihead`` has PyTorch's layer.

The largest difference is printed when the tests are done.
"""

import os

import pytest
import torch

from mha_lab import MultiHeadAttention
from tests.references import mask_of_kind

pytestmark = pytest.mark.slow  # Keras takes long to load

os.environ.setdefault("KERAS_BACKEND", "torch")

KINDS = ["none", "keys", "causal", "padding", "both", "each sample and head"]
# batch, heads, d_k, n_q, n_k: primes that differ, so that no axis can stand for another
SHAPES = [(2, 3, 5, 7, 7), (3, 2, 7, 5, 11), (5, 7, 2, 3, 3), (2, 5, 3, 11, 13)]


def inputs(seed, batch, heads, d_k, n_q, n_k):
    """A layer in float64 with biases that are not 0, a query, and a context that is another where it can."""
    torch.manual_seed(seed)
    layer = MultiHeadAttention(heads * d_k, heads).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=0.5)
    query = torch.randn(batch, n_q, heads * d_k, dtype=torch.float64)
    context = query if n_q == n_k else torch.randn(batch, n_k, heads * d_k, dtype=torch.float64)
    return layer, query, context


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_keras_layer(shape, kind, seed, request):
    keras = pytest.importorskip("keras")
    layer, query, context = inputs(seed, *shape)
    batch, heads, d_k, n_q, n_k = shape
    mask = mask_of_kind(kind, batch, heads, n_q, n_k)
    whole = None if mask is None else mask.expand(batch, heads, n_q, n_k)
    theirs = keras.layers.MultiHeadAttention(heads, d_k, dtype="float64", flash_attention=False)
    theirs.build(query.shape, context.shape)
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    width = heads * d_k
    carried = [p.weight.T.reshape(width, heads, d_k) for p in projections]
    carried = [x for w, p in zip(carried, projections, strict=True) for x in (w, p.bias.reshape(heads, d_k))]
    carried += [layer.out_proj.weight.T.reshape(heads, d_k, width), layer.out_proj.bias]
    theirs.set_weights([x.detach().numpy() for x in carried])
    found = theirs(query, context, attention_mask=whole, return_attention_scores=True)
    pairs = zip(layer(query, context, mask=mask), found, strict=True)
    largest = max((ours - theirs).abs().max().item() for ours, theirs in pairs)
    request.node.user_properties.append(("largest difference from keras.layers.MultiHeadAttention", largest))
    assert largest < 1e-12
