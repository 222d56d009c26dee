"""Reasons of chapter 00: what the shipped model does without some of its heads."""

import pytest
import torch

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
