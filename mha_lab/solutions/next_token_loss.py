"""Chapter 10: the loss of a language model."""

import torch
import torch.nn.functional as F

from mha_lab.check.exercise import Exercise, Mistake


def next_token_loss(logits, tokens):
    """``(batch, n, vocab)`` and ``(batch, n)`` to the mean of ``-log p(next token)``, ``()``."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def _problems(draw):
    yield torch.tensor([[[0.0, 3.0], [2.0, 0.0], [0.0, 9.0]]]), torch.tensor([[0, 1, 1]])
    for dtype in (torch.float32, torch.float64, torch.float64):
        batch, n, vocab = draw.primes(3)
        tokens = torch.tensor([[draw.below(vocab) for _ in range(n)] for _ in range(batch)])
        tokens[0, 0], tokens[0, -1] = 0, 1  # the ends differ
        yield 3 * draw.normal(batch, n, vocab, dtype=dtype), tokens
    yield torch.tensor([[[400.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]), torch.tensor([[0, 2]])


def _nats(logits, tokens):
    """``-log p`` of the token at each place."""
    return -torch.log_softmax(logits, dim=-1).gather(-1, tokens[..., None])[..., 0]


def _next(logits, tokens):
    return _nats(logits[:, :-1], tokens[:, 1:])


def _naive(logits, tokens):
    p = torch.softmax(logits[:, :-1], dim=-1).gather(-1, tokens[:, 1:, None])
    return -p.log().mean()


def _raised(logits, tokens):
    p = logits[:, :-1].exp()
    return -(p / p.sum(dim=-1, keepdim=True)).gather(-1, tokens[:, 1:, None]).log().mean()


STEP = "4 Train it"
SHIFT = "1 A text whose best loss is known"
EXERCISE = Exercise(
    answer=next_token_loss,
    chapter="10_small_language_model",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        "not-shifted": Mistake(
            "Your loss judges the logits after a token by that very token, which the model has just read.",
            SHIFT,
            (lambda x, t: _nats(x, t).mean(), lambda x, t: _nats(x[:, :-1], t[:, :-1]).mean()),
        ),
        "shifted-backwards": Mistake(
            "Your loss judges the logits after a token by the token before it: the shift goes the wrong way.",
            SHIFT,
            (
                lambda x, t: _nats(x[:, 1:], t[:, :-1]).mean(),
                lambda x, t: _nats(x, t.roll(1, dims=1)).mean(),
            ),
        ),
        "rolled-around": Mistake(
            "Your last logits are judged by the first token of the text: nothing comes after the last token.",
            SHIFT,
            (lambda x, t: _nats(x, t.roll(-1, dims=1)).mean(),),
        ),
        "summed": Mistake(
            "Your loss is a sum over predictions, so longer texts or larger batches cost more: average.",
            STEP,
            (
                lambda x, t: _next(x, t).sum(),
                lambda x, t: _next(x, t).sum(dim=1).mean(),
                lambda x, t: _next(x, t).mean(dim=1).sum(),
            ),
        ),
        "divided-by-n": Mistake(
            "Your sum is divided by n for each text, and only n - 1 predictions can be judged.",
            SHIFT,
            (lambda x, t: _next(x, t).sum() / t.numel(),),
        ),
        "sign-missing": Mistake(
            "Your function returns the mean log probability, which is negative; a loss is its opposite.",
            STEP,
            (lambda x, t: -_next(x, t).mean(),),
        ),
        "softmax-twice": Mistake(
            "Your function takes a softmax before the cross-entropy, which has one already: it wants logits.",
            STEP,
            (lambda x, t: _next(torch.softmax(x, dim=-1), t).mean(),),
        ),
        "softmax-over-positions": Mistake(
            "Your softmax runs over the positions; it belongs over the vocabulary.",
            STEP,
            (
                lambda x, t: -torch.log_softmax(x[:, :-1], 1).gather(-1, t[:, 1:, None]).mean(),
                lambda x, t: -torch.log_softmax(x, 1)[:, :-1].gather(-1, t[:, 1:, None]).mean(),
            ),
        ),
        "no-softmax": Mistake(
            "Your function averages the logits themselves: they become probabilities by a softmax first.",
            STEP,
            (lambda x, t: -x[:, :-1].gather(-1, t[:, 1:, None]).mean(),),
        ),
        "not-averaged": Mistake(
            "Your function returns a loss for each token or text; the mean of all is asked for.",
            STEP,
            (
                _next,
                lambda x, t: _next(x, t).flatten(),
                lambda x, t: _next(x, t).mean(dim=1),
                lambda x, t: _next(x, t).mean(dim=0),
            ),
        ),
        "unstable-softmax": Mistake(
            "Your formula is right on paper, and for large logits it gives infinity or NaN: use log_softmax.",
            STEP,
            (_naive, _raised),
        ),
    },
)
