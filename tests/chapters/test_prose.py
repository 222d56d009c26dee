"""The letters of the chapters' prose, and the previous-token heads that a model learns from them."""

import re
from pathlib import Path

import pytest
import torch

from mha_course.chapters import prose
from mha_course.chapters.language_model import ablate_head, next_token_loss, previous_token_score
from mha_course.chapters.prose import LETTERS, TEXT, decode, encode, excerpts, train

SEEDS = [pytest.param(seed, marks=pytest.mark.training if seed else pytest.mark.slow) for seed in range(5)]


def test_the_text_is_plain_sentences():
    lines = Path(prose.__file__).with_suffix(".txt").read_text(encoding="ascii").splitlines()
    assert " ".join(lines) == TEXT
    assert len(TEXT) > 100_000
    assert len(set(lines)) == len(lines)
    for line in lines:
        assert re.fullmatch(r"[A-Z][\w ,;:.'()?!-]*[.?!)]", line, re.ASCII), line
        assert "_" not in line


def test_letters_to_tokens_and_back():
    assert decode(encode(TEXT[:1000])) == TEXT[:1000]
    assert sorted(set(encode(TEXT).tolist())) == list(range(len(LETTERS)))
    assert encode("").shape == (0,)


def test_excerpts_are_pieces_of_what_is_not_trained_on():
    found = [decode(tokens) for tokens in excerpts(300, seed=5)]
    held_out = TEXT[len(TEXT) * 9 // 10 :]
    assert all(len(text) == 64 and text in held_out for text in found)
    assert len(set(found)) > 290
    assert torch.equal(excerpts(7, seed=5), excerpts(7, seed=5))
    seen = []

    def watch(step, model):
        if step == 0:
            model.register_forward_pre_hook(lambda _, inputs: seen.extend(map(decode, inputs[0])))

    train(progress=lambda steps: steps[:20], watch=watch)
    assert len(seen) == 20 * 16
    assert all(text in TEXT[: len(TEXT) * 9 // 10] for text in seen)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: encode("naïve"), ValueError, "'ï'"),
        (lambda: excerpts(0), ValueError, "count: expected at least 1"),
        (lambda: excerpts(1, seed=-1), ValueError, "seed: expected at least 0"),
        (lambda: train(steps=0), ValueError, "steps: expected at least 1"),
        (lambda: train(seed=1.5), TypeError, "seed"),
    ],
)
def test_what_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


@torch.no_grad()
def measured(model):
    """Loss, and the previous-token score of each head of each layer, on 200 excerpts."""
    tokens = excerpts(200, seed=9)
    logits, weights = model(tokens, need_weights=True)
    return next_token_loss(logits, tokens).item(), previous_token_score(weights).mean(dim=1)


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_of_letters_learns_previous_token_heads(seed):
    """Measured: scores 0.65 to 0.91, loss 1.40 to 1.42, and 1.51 to 1.76 without two heads."""
    model = train(seed)
    loss, scores = measured(model)
    assert loss < 1.5
    assert scores.max() > 0.6
    for tokens in (None, excerpts(100, seed=8)):  # zero and mean ablation
        cut = model
        for place in scores.flatten().topk(2).indices.tolist():
            cut = ablate_head(cut, *divmod(place, 8), tokens)
        assert loss + 0.05 < measured(cut)[0] < loss + 0.6
