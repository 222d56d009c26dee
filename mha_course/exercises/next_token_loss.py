"""Chapter 10: the loss of a language model."""

import math

import torch

from mha_course.chapters import language_model
from mha_course.exercises import Exercise, deviations
from mha_course.exercises._results import IsThere


def next_token_loss(logits, tokens):
    """``(batch, n, vocab)`` and ``(batch, n)`` to the mean of ``-log p(next token)``, ``()``."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def _problems(rng):
    yield torch.tensor([[[0.5, 3.0], [2.0, 1.0], [0.0, 4.0]]]), torch.tensor([[0, 1, 1]])
    logits = [
        [[1.0, 0.0, 2.0], [3.0, 1.5, 0.5]],
        [[0.0, 2.5, 1.0], [-1.0, 4.0, 2.0]],
        [[2.0, 0.5, -1.0], [0.0, 1.0, 3.0]],
    ]
    yield torch.tensor(logits), torch.tensor([[0, 2], [1, 0], [2, 1]])
    for _ in range(3):
        batch, n, vocab = rng.primes(3)
        tokens = torch.tensor([[rng.below(vocab) for _ in range(n)] for _ in range(batch)])
        tokens[0, 0], tokens[0, -1] = 0, 1  # the ends differ
        yield 3 * rng.normal(batch, n, vocab), tokens
    yield torch.tensor([[[400.0, 0.0, 1.0], [0.0, 2.0, 0.0]]]), torch.tensor([[0, 2]])
    yield torch.tensor([[[0.5, 3.0], [2.0, 1.0], [0.0, 4.0]]]), torch.tensor([[0, 1, 1]]), True


def _call(answer, logits, tokens, trained=False):
    """The loss, and for a training, whether it has a gradient with respect to the logits."""
    if not trained:
        return answer(logits, tokens)
    try:
        before, leaf = tokens.clone(), logits.clone().requires_grad_()
        loss = answer(leaf, tokens)
    except RuntimeError as error:
        if "requires grad" not in str(error):
            raise
        return answer(logits, tokens), torch.tensor(False)  # in NumPy
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
        return loss, torch.tensor(False)
    try:
        (gradient,) = torch.autograd.grad(loss.sum(), leaf, allow_unused=True)
    except RuntimeError:  # something was changed in place; if it was the tokens, that is said elsewhere
        return loss.detach(), torch.tensor(not torch.equal(tokens, before))
    return loss.detach(), torch.tensor(gradient is not None)


def _next(logits, tokens):
    return logits[:, :-1], tokens[:, 1:]


def _nats(logits, tokens):
    """``-log p`` of the token at each place."""
    return -torch.log_softmax(logits, dim=-1).gather(-1, tokens[..., None])[..., 0]


def _raised(logits, tokens):
    p = logits.exp() / logits.exp().sum(dim=-1, keepdim=True)
    return -p.gather(-1, tokens[..., None])[..., 0].log()


def _build(pair=_next, nats=_nats, reduce=lambda loss, tokens: loss.mean(), give=lambda loss: loss):
    return lambda logits, tokens: give(reduce(nats(*pair(logits, tokens)), tokens))


STEP = "4 Train it"
SHIFT = "1 Texts with a known best loss"
KNOBS = {
    "pair": {
        "not-shifted": (
            "Your loss compares the logits after a token with that same token, which the model has just "
            "read.",
            SHIFT,
            (lambda x, t: (x, t), lambda x, t: (x[:, :-1], t[:, :-1]), lambda x, t: (x[:, 1:], t[:, 1:])),
        ),
        "shifted-backwards": (
            "Your loss compares the logits after a token with the token before it: the shift goes the wrong "
            "way.",
            SHIFT,
            (lambda x, t: (x[:, 1:], t[:, :-1]),),
        ),
        "rolled-around": (
            "Your last logits are compared with the first token of the text: nothing comes after the last "
            "token.",
            SHIFT,
            (lambda x, t: (x, t.roll(-1, dims=1)),),
        ),
        "rolled-backwards": (
            "Your loss compares the logits with the token before, and the first logits with the last token "
            "of the text.",
            SHIFT,
            (lambda x, t: (x, t.roll(1, dims=1)),),
        ),
        "shifted-after-flattening": (
            "Your shift comes after the flattening, so the last logits of a text are compared with the "
            "first token of the next text.",
            STEP,
            (lambda x, t: (x.flatten(0, 1)[:-1], t.flatten()[1:]),),
        ),
        "shifted-along-the-batch": (
            "Your shift goes along the batch, the first axis; the tokens of a text lie along the second.",
            SHIFT,
            (lambda x, t: (x[:-1], t[1:]), lambda x, t: (x, t.roll(-1, dims=0))),
        ),
        "vocabulary-not-swapped": (
            "Your logits are put into the shape (batch, vocab, n) with `view` or `reshape`, which mixes the "
            "logits of different tokens; `transpose(1, 2)` or `.mT` swaps the two axes.",
            STEP,
            (
                lambda x, t: (x[:, :-1].reshape(len(x), x.shape[2], -1).mT, t[:, 1:]),
                lambda x, t: (x.reshape(len(x), x.shape[2], -1).mT[:, :-1], t[:, 1:]),
            ),
        ),
        "two-ahead": (
            "Your loss compares the logits with the token after the next one: the shift is one place too "
            "far.",
            SHIFT,
            (lambda x, t: (x[:, :-2], t[:, 2:]),),
        ),
        "only-the-last-prediction": (
            "Your loss uses only one prediction for each text, the last; all of them count.",
            SHIFT,
            (lambda x, t: (x[:, -2], t[:, -1]),),
        ),
        "labels-padded-with-0": (
            "Your labels end with a 0 that is no token of the text, and the last logits are compared with "
            "it. Nothing is known about what comes after the last token: leave these logits out.",
            SHIFT,
            (lambda x, t: (x, torch.nn.functional.pad(t[:, 1:], (0, 1))),),
        ),
        "first-text-only": (
            "Your loss uses only the first text of the batch.",
            STEP,
            (lambda x, t: (x[0, :-1], t[0, 1:]),),
        ),
    },
    "nats": {
        "softmax-twice": (
            "Your function takes a softmax of the logits, and then another of the result: cross_entropy and "
            "log_softmax already take one, and expect logits.",
            STEP,
            (lambda x, t: _nats(torch.softmax(x, dim=-1), t),),
        ),
        "logarithm-missing": (
            "Your function averages -p, not -log p: the logarithm is missing.",
            STEP,
            (lambda x, t: -torch.softmax(x, dim=-1).gather(-1, t[..., None])[..., 0],),
        ),
        "softmax-over-positions": (
            "Your softmax runs over the positions; it should run over the vocabulary, the last axis.",
            STEP,
            (lambda x, t: -torch.log_softmax(x, -2).gather(-1, t[..., None])[..., 0],),
        ),
        "averaged-over-the-vocabulary": (
            "Your function averages -log p over the whole vocabulary; pick the entry of the next token.",
            STEP,
            (lambda x, t: -torch.log_softmax(x, dim=-1).mean(dim=-1),),
        ),
        "no-softmax": (
            "Your function averages the logits themselves: make them probabilities with a softmax first.",
            STEP,
            (
                lambda x, t: -x.gather(-1, t[..., None])[..., 0],
                lambda x, t: x.gather(-1, t[..., None])[..., 0],
            ),
        ),
        "sign-missing": (
            "Your function returns the mean log probability, which is negative; a loss is minus that.",
            STEP,
            (lambda x, t: -_nats(x, t),),
        ),
        "bits": (
            "Your logarithm has base 2 or 10; use the natural logarithm.",
            STEP,
            (lambda x, t: _nats(x, t) / math.log(2), lambda x, t: _nats(x, t) / math.log(10)),
        ),
        "labels-smoothed": (
            "Your labels are smoothed, as by `label_smoothing`: a part of the loss comes from all other "
            "tokens. The mean of -log p of the next token alone is asked for.",
            STEP,
            (lambda x, t: 0.9 * _nats(x, t) - 0.1 * torch.log_softmax(x, dim=-1).mean(dim=-1),),
        ),
        "unstable-softmax": (
            "Your formula is right on paper, but exp overflows or underflows for large logits: use "
            "log_softmax.",
            STEP,
            (_raised, lambda x, t: -torch.softmax(x, dim=-1).gather(-1, t[..., None])[..., 0].log()),
        ),
    },
    "reduce": {
        "summed": (
            "Your loss is a sum over predictions, so longer texts or larger batches cost more: average.",
            STEP,
            (
                lambda loss, t: loss.sum(),
                lambda loss, t: loss.sum(dim=-1).mean(),
                lambda loss, t: loss.mean(dim=-1).sum(),
            ),
        ),
        "divided-by-all-tokens": (
            "Your sum is divided by the number of tokens; each text has one prediction fewer than tokens.",
            SHIFT,
            (lambda loss, t: loss.sum() / t.numel(),),
        ),
        "token-0-left-out": (
            "Your loss leaves out all predictions whose next token is token 0, as `ignore_index=0` does. "
            "There is no padding here: token 0 is a token like all others.",
            STEP,
            (
                lambda loss, t: loss[t[:, 1:] != 0].mean(),
                lambda loss, t: loss.sum() / (t[:, 1:] != 0).sum(),
            ),
        ),
        "divided-by-one-text": (
            "Your sum over the batch is divided by the predictions, or tokens, of one text.",
            STEP,
            (lambda loss, t: loss.sum() / (t.shape[1] - 1), lambda loss, t: loss.sum() / t.shape[1]),
        ),
        "divided-by-the-batch": (
            "Your sum is divided by the number of texts, not by the number of predictions.",
            STEP,
            (lambda loss, t: loss.sum() / len(t),),
        ),
        "not-averaged": (
            "Your function returns a loss for each prediction, text or position; it should return the mean "
            "of all.",
            STEP,
            (
                lambda loss, t: loss,
                lambda loss, t: loss.flatten(),
                lambda loss, t: loss.mean(dim=-1),
                lambda loss, t: loss.mean(dim=0),
            ),
        ),
        "averaged-before-the-logarithm": (
            "Your function averages the probabilities, and takes the logarithm of the mean; it should "
            "return the mean of -log p.",
            STEP,
            (lambda loss, t: -loss.neg().exp().mean().log(),),
        ),
        "perplexity": (
            "Your function returns exp of the loss, which is called perplexity.",
            STEP,
            (lambda loss, t: loss.mean().exp(),),
        ),
    },
    "give": {
        "no-gradient": (
            "Your loss is cut off from the logits, so training gets no gradient from it. Return the tensor "
            "itself, without `item()`, `detach()` or NumPy.",
            STEP,
            (lambda loss: loss.detach(),),
        ),
    },
}
EXERCISE = Exercise(
    answer=next_token_loss,
    chapter="10_small_language_model",
    section=STEP,
    points=1,
    problems=_problems,
    results=("loss", IsThere("gradient")),
    call=_call,
    same_as=(language_model.next_token_loss,),
    mistakes=deviations(_build, KNOBS),
)
