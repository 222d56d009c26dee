"""What chapter 00 says of one head of the shipped model."""

import pytest
import torch

from mha_course.chapters.story_model import FIRST, HE, SECOND, SHE, WORDS, encode, load, questions

MODEL = load()
TEXTS = [(text, right[0] == "she") for text, right, _ in questions("pronoun", 400)]


@torch.no_grad()
def looks_at(text, layer=1, head=0):
    """The words, and the row of the last one in one head."""
    tokens = encode(text)
    _, weights = MODEL(tokens[None], need_weights=True)
    return [WORDS[token] for token in tokens], weights[layer, 0, head, -1]


def test_the_head_looks_at_the_person_who_is_meant_in_each_text_of_the_probe():
    for text, she in TEXTS:
        words, row = looks_at(text)
        assert words[row.argmax()] in (SHE if she else HE), text


@pytest.mark.parametrize("verb", FIRST + SECOND)
def test_two_groups_of_verbs_send_the_head_to_two_names(verb):
    words, row = looks_at(f"Ada {verb} Ben because")
    assert words[row.argmax()] == ("Ada" if verb in FIRST else "Ben")
    assert row.max() > 0.9


def test_one_head_of_the_first_layer_looks_at_the_verb():
    words, row = looks_at("Ada amused Ben because", layer=0, head=3)
    assert words[row.argmax()] == "amused"
    assert row.max() > 0.5


def test_what_chapter_10_says_of_the_head_beside_it():
    words, row = looks_at("Ada amused Ben because", layer=1, head=3)
    found = dict(zip(words, row.tolist(), strict=True))
    assert found["Ben"] == pytest.approx(0.67, abs=0.005)
    assert found["amused"] == pytest.approx(0.06, abs=0.005)
