"""Layers of two kinds: chunks by loop, and both kinds against Llama 4's layer and mask."""

import math

import pytest
import torch

from mha_course.chapters.without_positions import TemperatureByPosition, chunk_mask
from mha_lab import MultiHeadAttention, causal_mask
from mha_lab.positions import Rotary
from mha_lab.scores import QueryKeyNorm, TransformSequence
from tests.references import assert_close

BATCH, N, CHUNK, EVERY = 2, 11, 4, 3
HEADS, KV_HEADS, D_K, D_MODEL = 6, 2, 8, 20


@pytest.mark.parametrize(("n_query", "n_key"), [(N, N), (3, N), (1, 8), (1, 9)])
def test_chunks_are_those_of_the_loop(n_query, n_key):
    mask = chunk_mask(n_query, n_key, chunk=CHUNK)
    for i in range(n_query):
        p = n_key - n_query + i
        own = [j for j in range(n_key) if j <= p and j // CHUNK == p // CHUNK]
        assert mask[i].nonzero().flatten().tolist() == own


def test_a_query_has_the_factor_of_its_position_with_earlier_keys_too():
    query, key = torch.rand(BATCH, 3, 2, 5) + 0.5, torch.randn(BATCH, 1, N, 5)
    warmer, same = TemperatureByPosition(every=EVERY, rise=0.2)(query, key)
    assert torch.equal(same, key)
    for i, p in enumerate((N - 2, N - 1)):
        factor = 1 + 0.2 * math.log(1 + (p + 1) // EVERY)
        assert_close(warmer[..., i, :], factor * query[..., i, :], 1e-6)


@pytest.mark.parametrize("layer_idx", [0, 3])
def test_both_kinds_are_those_of_llama_4(layer_idx, record_property):
    theirs = pytest.importorskip("transformers.models.llama4.modeling_llama4")
    from transformers import Llama4TextConfig
    from transformers.masking_utils import create_causal_mask, create_chunked_causal_mask

    config = Llama4TextConfig(
        hidden_size=D_MODEL,
        num_hidden_layers=4,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=D_K,
        attention_chunk_size=CHUNK,
        floor_scale=EVERY,
        rope_parameters={"rope_type": "default", "rope_theta": 700.0},
        attn_implementation="eager",
    )
    original = theirs.Llama4TextAttention(config, layer_idx).eval()
    near = layer_idx == 0
    assert bool(original.use_rope) == near
    turn = TransformSequence(Rotary(base=700), QueryKeyNorm(D_K, eps=config.rms_norm_eps))
    ours = MultiHeadAttention(
        D_MODEL,
        HEADS,
        num_kv_heads=KV_HEADS,
        d_k=D_K,
        d_v=D_K,
        bias=False,
        transform=turn if near else TemperatureByPosition(every=EVERY),
    )
    for mine, its in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o")):
        getattr(ours, f"{mine}_proj").weight.data = getattr(original, f"{its}_proj").weight.data * 4
        getattr(original, f"{its}_proj").weight.data *= 4
    x = torch.randn(BATCH, N, D_MODEL)
    at = torch.arange(N)[None]
    make = create_chunked_causal_mask if near else create_causal_mask
    given = make(config=config, inputs_embeds=x, attention_mask=None, past_key_values=None, position_ids=at)
    mask = chunk_mask(N, chunk=CHUNK) if near else causal_mask(N)
    assert torch.equal(given[0, 0] == 0, mask)
    with torch.no_grad():
        expected, _ = original(x, theirs.Llama4TextRotaryEmbedding(config)(x, at), given)
        found, _ = ours(x, mask=mask)
    largest = (found - expected).abs().max().item()
    record_property(f"largest difference, Llama4TextAttention, layer {layer_idx}", largest)
    assert largest < 1e-5 < expected.abs().mean()


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: chunk_mask(4, chunk=0), "^chunk: expected at least 1"),
        (lambda: TemperatureByPosition(every=0), "^every: expected at least 1"),
        (lambda: TemperatureByPosition(rise="fast"), "^rise: expected"),
    ],
)
def test_bad_input_gets_one_sentence(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()
