"""Reasons of chapter 00: what the shipped model does without some of its heads."""

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

import mha_lab
from mha_course.chapters import story_model
from mha_course.chapters.language_model import ablate_head

MODEL = story_model.load()


def without(*heads):
    """The model without these heads, ``(layer, head)`` each."""
    cut = MODEL
    for layer, head in heads:
        cut = ablate_head(cut, layer, head)
    return cut


@torch.no_grad()
def share_of_first(model, verb):
    """How much of what head 0 of the second layer gives to both names goes to the first one."""
    tokens = story_model.encode(f"Ada {verb} Ben because")
    row = model(tokens[None], need_weights=True)[1][1, 0, 0, -1]
    return (row[1] / (row[1] + row[3])).item()


def test_the_second_layer_reads_what_the_first_one_wrote():
    """Without the heads of the first layer, no word carries the verb: two verbs look the same to the head.

    One of these heads is enough that it can, although at *because*, it hardly looks at the verb.
    """
    assert share_of_first(MODEL, "amused") > 0.9
    assert share_of_first(MODEL, "admired") < 0.1
    none = without(*[(0, head) for head in range(4)])
    assert share_of_first(none, "amused") == pytest.approx(share_of_first(none, "admired"), abs=1e-5)
    one = without(*[(0, head) for head in (0, 1, 3)])
    assert abs(share_of_first(one, "amused") - share_of_first(one, "admired")) > 0.1
    tokens = story_model.encode("Ada amused Ben because")
    assert MODEL(tokens[None], need_weights=True)[1][0, 0, 2, -1, 2] < 0.1


@pytest.mark.slow
def test_where_a_head_looks_does_not_say_how_much_the_model_needs_it():
    """Head 3 of the first layer looks at the verb, and head 2 hardly does; the model needs head 2."""
    right = {head: story_model.probe(without((0, head)), "pronoun", 400)["model"] for head in (2, 3)}
    assert right[3] > 0.94
    assert right[2] < 0.84


@torch.no_grad()
def test_head_2_hands_the_verb_over_before_because_and_not_there():
    """The two texts of a pair, which differ in the verb only, exchange what the head writes at some words."""
    asked = story_model.questions("pronoun", 200, 1)
    texts = [story_model.encode(text) for text, _, _ in asked]
    tokens, last = pad_sequence(texts, batch_first=True), torch.tensor([len(text) - 1 for text in texts])
    at_because = torch.arange(tokens.shape[1]) == last[:, None]
    other_text, cut = torch.arange(len(texts)) ^ 1, without((0, 2))

    def right(exchanged):
        x = MODEL._embed(tokens, 0)
        for layer, block in enumerate(MODEL.blocks):
            seen = block.norm_1(x)
            attended = block.attention(seen, is_causal=True)[0]
            if layer == 0:
                written = attended - cut.blocks[0].attention(seen, is_causal=True)[0]
                moved = written[other_text] - written
                attended = attended + moved * exchanged[..., None]
            x = block._add(x, attended)
        logits = MODEL._read_out(x)[range(len(texts)), last]
        ahead = [
            logits[row, [story_model.NUMBER[word] for word in answer]].logsumexp(dim=0)
            > logits[row, [story_model.NUMBER[word] for word in wrong]].logsumexp(dim=0)
            for row, (_, answer, wrong) in enumerate(asked)
        ]
        return torch.stack(ahead).float().mean()

    assert right(at_because) > 0.99
    assert right(~at_because) < 0.9


def test_rows_of_weights_are_equal_because_the_embeddings_are():
    """With another first number, the second *a* looks elsewhere."""
    x, (w_q, w_k, w_v) = mha_lab.toy.embeddings(), mha_lab.toy.single_head_weights()
    for first, same in ((1.0, True), (2.0, False)):
        x[3, 0] = first
        weights = mha_lab.scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v)[1]
        assert torch.allclose(weights[0], weights[3]) == same


@pytest.mark.parametrize("alike", [False, True])
def test_swapped_queries_and_keys_keep_the_shape_and_the_numbers_only_if_they_are_equal(alike):
    query, value = torch.randn(5, 3), torch.randn(5, 2)
    key = query.clone() if alike else torch.randn(5, 3)
    right, wrong = (
        mha_lab.scaled_dot_product_attention(*two, value)[0] for two in ((query, key), (key, query))
    )
    assert right.shape == wrong.shape
    assert torch.allclose(right, wrong) == alike
