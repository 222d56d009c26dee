"""The indexer: by loop, against DeepSeek's modules, and what its choice keeps of the full weights."""

import pytest
import torch

from mha_course.chapters.sparse import (
    choose,
    chosen_weight,
    index_scores,
    joined_entries,
    narrowed,
    recall,
)
from mha_lab import causal_mask
from tests.references import assert_close

BATCH, HEADS, N_Q, N_K, D = 2, 3, 5, 11, 7


def test_scores_are_those_of_the_loop():
    query, key = torch.randn(BATCH, HEADS, N_Q, D).double(), torch.randn(BATCH, N_K, D).double()
    weight = torch.randn(BATCH, HEADS, N_Q).double()
    scores = index_scores(query, key, weight)
    for b in range(BATCH):
        for i in range(N_Q):
            for j in range(N_K):
                expected = sum(
                    weight[b, h, i] * max(torch.dot(query[b, h, i], key[b, j]), 0) for h in range(HEADS)
                )
                assert_close(scores[b, i, j], expected, 1e-10)


def test_the_chosen_are_the_best_of_the_visible():
    scores, mask = torch.randn(BATCH, N_K, N_K), causal_mask(N_K)
    chosen = choose(scores, 4, mask)
    for b in range(BATCH):
        for i in range(N_K):
            best = sorted(range(i + 1), key=lambda j: -scores[b, i, j].item())[:4]
            assert chosen[b, i].nonzero().flatten().tolist() == sorted(best)
    assert torch.equal(choose(scores, N_K + 2, mask), mask.expand_as(scores))
    assert choose(scores, 3).sum(dim=-1).unique().tolist() == [3]


def test_a_choice_by_the_weights_themselves_keeps_most():
    weights = torch.randn(BATCH, N_Q, N_K).softmax(dim=-1)
    best, worst = choose(weights, 4), choose(-weights, 4)
    assert_close(recall(weights, best), torch.ones(BATCH, N_Q), 0)
    assert_close(recall(weights, worst), torch.zeros(BATCH, N_Q), 0)
    assert_close(chosen_weight(weights, best), weights.topk(4, dim=-1).values.sum(dim=-1), 1e-6)
    assert (chosen_weight(weights, worst) < chosen_weight(weights, best)).all()


def test_recall_is_that_of_the_loop():
    weights, chosen = torch.rand(BATCH, N_Q, N_K), torch.rand(BATCH, N_Q, N_K) < 0.4
    chosen[..., 0] = True
    rows = recall(weights, chosen).flatten(), weights.flatten(0, 1), chosen.flatten(0, 1)
    for found, row, seen in zip(*rows, strict=True):
        mine = set(seen.nonzero().flatten().tolist())
        best = sorted(range(N_K), key=lambda j: -row[j].item())[: len(mine)]
        assert found.item() == pytest.approx(len(mine.intersection(best)) / len(mine))


def test_an_indexer_of_full_width_has_the_layers_dot_products_and_a_narrow_one_the_best_approximation():
    query, key = torch.randn(BATCH, HEADS, N_Q, D).double(), torch.randn(BATCH, HEADS, N_K, D).double()
    q, k = narrowed(query, key, HEADS * D)
    assert_close(q @ k.unsqueeze(1).mT, query @ key.mT, 1e-9)
    side_by_side = key.transpose(1, 2).flatten(2).flatten(0, 1)
    values = torch.linalg.svdvals(side_by_side)
    kept = narrowed(query, key, 4)[1]
    assert_close(kept.square().sum(), values[:4].square().sum(), 1e-9)


def test_it_chooses_what_the_indexer_of_deepseek_v32_chooses():
    """Its queries and keys, with its norm and its rotation, scored and chosen by our two functions."""
    theirs = pytest.importorskip("transformers.models.deepseek_v32.modeling_deepseek_v32")
    from transformers import DeepseekV32Config

    config = DeepseekV32Config(
        hidden_size=22, num_hidden_layers=1, index_n_heads=HEADS, index_head_dim=12, index_topk=4,
        q_lora_rank=13, qk_rope_head_dim=4,
    )  # fmt: skip
    indexer = theirs.DeepseekV32Indexer(config, 0)
    for parameter in indexer.parameters():
        torch.nn.init.normal_(parameter)
    x, latent = torch.randn(BATCH, N_K, 22), torch.randn(BATCH, N_K, 13)
    angles = theirs.DeepseekV32RotaryEmbedding(config)(x, torch.arange(N_K).expand(BATCH, -1))
    mask = causal_mask(N_K)
    additive = torch.zeros(N_K, N_K).masked_fill(~mask, -torch.inf)
    indices = indexer(x, latent, angles, additive, None).long()
    query = indexer.wq_b(latent).view(BATCH, N_K, HEADS, 12)
    key = indexer.k_norm(indexer.wk(x))[:, :, None]
    q_rot, k_rot = theirs.apply_rotary_pos_emb(query[..., :4], key[..., :4], *angles, unsqueeze_dim=2)
    query = torch.cat([q_rot, query[..., 4:]], dim=-1).transpose(1, 2)
    key = torch.cat([k_rot, key[..., 4:]], dim=-1)[:, :, 0]
    chosen = choose(index_scores(query, key, indexer.weights_proj(x).mT), 4, mask)
    expected = torch.zeros(BATCH, N_K, N_K, dtype=torch.bool).scatter(-1, indices, True) & mask
    assert torch.equal(chosen, expected)


def test_scores_are_those_of_deepseek_v4(record_property):
    theirs = pytest.importorskip("transformers.models.deepseek_v4.modeling_deepseek_v4")
    from transformers import DeepseekV4Config

    config = DeepseekV4Config(hidden_size=22, num_hidden_layers=1, index_n_heads=HEADS, index_head_dim=D)
    scorer = theirs.DeepseekV4IndexerScorer(config)
    query, key, x = torch.randn(BATCH, N_Q, HEADS, D), torch.randn(BATCH, N_K, D), torch.randn(BATCH, N_Q, 22)
    expected = scorer(query, key, x)
    ours = index_scores(query.transpose(1, 2), key, scorer.weights_proj(x).mT) / (D * HEADS) ** 0.5
    largest = (ours - expected).abs().max().item()
    record_property("largest difference, DeepseekV4IndexerScorer", largest)
    assert largest < 2e-6


def test_joined_entries_are_those_of_the_loop_and_of_no_later_token():
    entry, score = torch.randn(BATCH, N_K, D).double(), torch.randn(BATCH, N_K, D).double()
    joined = joined_entries(entry, score, 4)
    assert joined.shape == (BATCH, 2, D)
    for b in range(BATCH):
        for w in range(2):
            for c in range(D):
                tokens = range(4 * w, 4 * w + 4)
                sizes = [score[b, j, c].exp() for j in tokens]
                mean = sum(size * entry[b, j, c] for size, j in zip(sizes, tokens, strict=True)) / sum(sizes)
                assert_close(joined[b, w, c], mean, 1e-10)
    other = torch.cat([entry[:, :8], torch.randn(BATCH, 3, D).double()], dim=1)
    assert torch.equal(joined_entries(other, score, 4), joined)


def test_joined_entries_are_those_of_deepseek_v4(record_property):
    theirs = pytest.importorskip("transformers.models.deepseek_v4.modeling_deepseek_v4")
    from transformers import DeepseekV4Config

    every = {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}
    config = DeepseekV4Config(hidden_size=22, head_dim=8, num_hidden_layers=1, compress_rates=every)
    original = theirs.DeepseekV4HCACompressor(config)
    torch.nn.init.normal_(original.position_bias)
    x, at = torch.randn(BATCH, N_K, 22), torch.arange(N_K).expand(BATCH, N_K)
    expected, bias = original(x, None, at, None, 0)
    score = original.gate_proj(x) + original.position_bias.repeat(3, 1)[:N_K]
    ours = original.kv_norm(joined_entries(original.kv_proj(x), score, 4))
    angles = original.rotary_emb(ours, position_ids=4 * at[:, :2], layer_type="compress")
    ours = theirs.apply_rotary_pos_emb(ours.unsqueeze(1), *angles)
    largest = (ours - expected).abs().max().item()
    record_property("largest difference, DeepseekV4HCACompressor", largest)
    assert largest < 2e-6
    readable = torch.arange(2) < (torch.arange(N_K)[:, None] + 1) // 4
    assert torch.equal(bias[0, 0] == 0, readable)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: index_scores(torch.ones(3, 5, 7), torch.ones(11, 7), torch.ones(5, 3)), "weight"),
        (lambda: index_scores(torch.ones(3, 5, 7), torch.ones(11, 6), torch.ones(3, 5)), "key"),
        (lambda: choose(torch.ones(5, 11), 0), "k"),
        (lambda: choose(torch.ones(5, 11), 2, torch.ones(5, 11)), "mask"),
        (lambda: recall(torch.ones(5, 11), torch.ones(5, 11)), "mask"),
        (lambda: narrowed(torch.ones(3, 5, 7), torch.ones(3, 11, 7), 22), "width"),
        (lambda: joined_entries(torch.ones(11, 7), torch.ones(11, 6), 4), "score"),
        (lambda: joined_entries(torch.ones(11, 7), torch.ones(11, 7), 0), "every"),
    ],
)
def test_what_does_not_fit_gets_a_sentence(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
