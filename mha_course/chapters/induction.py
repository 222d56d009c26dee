"""Texts in which a part is repeated, and a model of attention alone that learns to continue the repetition.

Each text is random but for its end, which repeats the part before it. Nothing but the text itself says what
comes next, so the model must look for the same token further back, and copy the token after it. Two heads,
one behind the other, do this: a previous-token head in the first layer, an induction head in the second.

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "Two-Layer
Attention-Only Transformers"; Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy

from mha_course.chapters.language_model import Decoder
from mha_lab import _expect as expect
from mha_lab.multihead import MultiHeadAttention
from mha_lab.scores import RelativePositionBias

VOCAB_SIZE, LENGTH = 64, 48  # different tokens, and tokens of a text
SHORTEST, LONGEST = 8, 24  # tokens of a repetition


def repeated(count: int, seed: int = 0) -> tuple[Int64[Tensor, "count n"], Bool[Tensor, "count n"]]:
    """Texts of 48 tokens; the last ``L`` repeat the ``L`` before them, ``L`` from 8 to 24.

    All tokens before the repetition are drawn from 64, so a token can come back by chance, too. Each text has
    its own ``L``.

    Args:
        count: how many texts.
        seed: the same texts for the same seed.

    Returns:
        ``(tokens, predictable)``, ``(count, 48)`` each: ``predictable`` is ``True`` at the tokens of the
        repetition, without its first token. Which token starts the repetition cannot be known.

    >>> tokens, predictable = repeated(1, seed=3)
    >>> length = predictable.sum() + 1
    >>> torch.equal(tokens[0, -length:], tokens[0, -2 * length : -length])
    True
    """
    expect.whole_number("count", count)
    return _repeated(count, torch.Generator().manual_seed(expect.whole_number("seed", seed, at_least=0)))


def _repeated(count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """``None`` is PyTorch's default generator."""
    length = torch.randint(SHORTEST, LONGEST + 1, (count, 1), generator=generator)
    drawn = torch.randint(VOCAB_SIZE, (count, LENGTH), generator=generator)
    i = torch.arange(LENGTH)
    return drawn.gather(1, torch.where(i >= LENGTH - length, i - length, i)), i > LENGTH - length


def predictable_loss(
    model: Decoder, tokens: Int[Tensor, "batch n"], predictable: Bool[Tensor, "batch n"]
) -> Float[Tensor, ""]:
    """The mean of ``-log p(token)``, in nats, over the tokens that can be predicted.

    Without a look at the text it is ``log(64) = 4.16`` at best.

    Args:
        model: a decoder; token ``i`` is predicted from the tokens before it.
        tokens: ``(batch, n)``.
        predictable: ``(batch, n)``, which tokens count; the first one of a text never does.

    Returns:
        One number.

    >>> tokens, predictable = repeated(5)
    >>> predictable_loss(Decoder(64), tokens, predictable) > 4
    tensor(True)
    """
    for name, value in (("tokens", tokens), ("predictable", predictable)):
        expect.tensor(name, value, "(batch, n)", min_rank=2, max_rank=2)
    expect.boolean("predictable", predictable, "True = counts.")
    if predictable.shape != tokens.shape or not predictable[:, 1:].any():
        wanted = f"shape {expect.shape(tokens.shape)}, with True somewhere after the first token"
        expect.fail(ValueError, "predictable", wanted, expect.shape(predictable.shape))
    logits, counts = model(tokens[:, :-1])[0], predictable[:, 1:]
    return cross_entropy(logits[counts], tokens[:, 1:][counts])


def induction_score(
    weights: Float[Tensor, "*batch texts heads n n"], tokens: Int[Tensor, "texts n"]
) -> Float[Tensor, "*batch heads"]:
    """How much a head looks at the token after an earlier occurrence of the query's token.

    The mean over all queries ``i`` whose token occurred earlier: for each, the sum of ``weights[i, j]`` over
    all keys ``j`` from 1 to ``i`` with ``tokens[j - 1] = tokens[i]``. 1 means that it looks nowhere else.

    Args:
        weights: ``(..., texts, heads, n, n)``.
        tokens: ``(texts, n)``, whose weights they are.

    Returns:
        ``(..., heads)``.

    Source: Olsson et al. 2022, appendix, "Head activation evaluators" (the prefix matching score; its
    sentence names the tokens that preceded, but what can be copied is the token after the occurrence).

    >>> tokens = torch.tensor([[5, 3, 5]])  # the last query should look at 3
    >>> induction_score(torch.tensor([[[[1, 0, 0], [0, 1, 0], [0.2, 0.7, 0.1]]]]), tokens)
    tensor([0.7000])
    """
    expect.tensor("tokens", tokens, "(texts, n)", min_rank=2, max_rank=2)
    expect.tensor("weights", weights, "(..., texts, heads, n, n)", min_rank=4)
    expect.floating("weights", weights)
    (texts, n), sizes = tokens.shape, weights.shape
    if (sizes[-4], *sizes[-2:]) != (texts, n, n):
        wanted = f"(..., texts = {texts}, heads, n = {n}, n = {n}), as tokens have them"
        expect.fail(ValueError, "weights", wanted, expect.shape(sizes))
    earlier = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    if not earlier.any():
        expect.fail(ValueError, "tokens", "a text in which a token occurs twice", "none")
    after = earlier.roll(1, dims=-1)  # the last column of ``earlier`` is empty: no query is later
    return (weights * after[:, None]).sum(dim=(-1, -2, -4)) / earlier.any(dim=-1).sum()


def train(
    seed: int = 0,
    steps: int = 1000,
    *,
    num_layers: int = 2,
    progress: Callable[[range], Iterable[int]] = iter,
    watch: Callable[[int, Decoder], object] | None = None,
) -> Decoder:
    """A decoder of attention alone, trained on fresh texts; the same one for the same seed and one thread.

    2 heads, and no network in the blocks. Positions are known to the first layer only, through
    ``RelativePositionBias(num_heads=2, max_distance=4)``; the later ones see tokens, and what earlier heads
    have written. The loss is ``predictable_loss``.

    Args:
        seed: of the first weights and of the texts.
        steps: how many batches of 32 texts.
        num_layers: how many blocks.
        progress: a function from the steps to the same steps, such as ``tqdm``.
        watch: called as ``watch(step, model)`` before each step.

    Returns:
        The model.

    >>> train(steps=1).vocab_size
    64
    """
    expect.whole_number("seed", seed, at_least=0)
    expect.whole_number("steps", steps)

    def attention(layer: int) -> MultiHeadAttention:
        return MultiHeadAttention(64, 2, score=None if layer else RelativePositionBias(2, 4))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Decoder(
            VOCAB_SIZE, num_layers=num_layers, positions="none", attention=attention, network=False
        )
        fit(model, lambda: _repeated(32), steps, lr=0.005, bias_lr=0.15, progress=progress, watch=watch)
    return model


def fit(
    model: Decoder,
    draw: Callable[[], tuple[Tensor, Tensor]],
    steps: int,
    *,
    lr: float,
    bias_lr: float,
    progress: Callable[[range], Iterable[int]] = iter,
    watch: Callable[[int, Decoder], object] | None = None,
) -> None:
    """Train ``model`` by ``predictable_loss``, with AdamW. The learning rate rises, then falls to 0.

    Args:
        model: changed in place.
        draw: returns the tokens of a batch, and which of them count.
        steps: how many batches.
        lr: the largest learning rate.
        bias_lr: the same for the biases of ``RelativePositionBias``: each of them is one number that has to
            change by several units, while the other weights change by fractions.
        progress, watch: as in ``train``.

    Source of the optimiser: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization",
    algorithm 2.

    >>> model, draw = Decoder(64), lambda: repeated(5)
    >>> fit(model, draw, 2, lr=0.01, bias_lr=0.01, watch=lambda step, model: print(step))
    0
    1
    """
    expect.whole_number("steps", steps)
    if not callable(progress):  # tqdm is a class
        expect.fail(TypeError, "progress", "a callable, such as tqdm", repr(progress))
    expect.function("watch", watch, "(step, model)")
    biases = [p for name, p in model.named_parameters() if name.endswith("score.bias")]
    others = [p for name, p in model.named_parameters() if not name.endswith("score.bias")]
    optimizer = torch.optim.AdamW([{"params": others}, {"params": biases}], lr=lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=[lr, bias_lr], total_steps=steps + 1, pct_start=0.1
    )
    for step in progress(range(steps)):
        if watch is not None:
            watch(step, model)
        loss = predictable_loss(model, *draw())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
