"""What chapter 00 says of one head of the shipped model."""

import pytest
import torch

from mha_lab.chapters.story_model import FIRST, HE, SECOND, SHE, WORDS, encode, load, questions

MODEL = load()
TEXTS = [(text, right[0] == "she") for text, right, _ in questions("pronoun", 400)]


@torch.no_grad()
def looks_at(text):
    """The words, and the row of the last one in head 0 of layer 1."""
    tokens = encode(text)
    _, weights = MODEL(tokens[None], need_weights=True)
    return [WORDS[token] for token in tokens], weights[1, 0, 0, -1]


def test_the_head_looks_at_the_person_who_is_meant_in_each_text_of_the_probe():
    for text, she in TEXTS:
        words, row = looks_at(text)
        assert words[row.argmax()] in (SHE if she else HE), text


@pytest.mark.parametrize("verb", FIRST + SECOND)
def test_two_groups_of_verbs_send_the_head_to_two_names(verb):
    words, row = looks_at(f"Ada {verb} Ben because")
    assert words[row.argmax()] == ("Ada" if verb in FIRST else "Ben")
    assert row.max() > 0.9
