"""English to train on: sentences of this course's own chapters, as letters, and a model that learns them.

``prose.txt`` has one sentence a line. It is a copy that was made once; it does not follow the chapters.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from mha_course.chapters.induction import fit
from mha_course.chapters.language_model import Decoder
from mha_lab import _expect as expect
from mha_lab.multihead import MultiHeadAttention
from mha_lab.scores import RelativePositionBias

TEXT = Path(__file__).with_suffix(".txt").read_text(encoding="ascii").replace("\n", " ").strip()
LETTERS = "".join(sorted(set(TEXT)))  # letters, digits, punctuation and the space
NUMBER = {letter: i for i, letter in enumerate(LETTERS)}
LENGTH = 64  # letters of an excerpt


def encode(text: str) -> Int64[Tensor, " n"]:
    """One token for each letter: ``(n,)``.

    Raises:
        ValueError: the chapters do not use one of the letters.

    >>> decode(encode("Which word?"))
    'Which word?'
    """
    for letter in text:
        if letter not in NUMBER:
            expect.fail(ValueError, "text", f"letters of {LETTERS!r}", repr(letter))
    return torch.tensor([NUMBER[letter] for letter in text], dtype=torch.long)


def decode(tokens: Int64[Tensor, " n"]) -> str:
    """The text of tokens: the inverse of ``encode``."""
    return "".join(LETTERS[i] for i in tokens.tolist())


def excerpts(count: int, seed: int = 0) -> Int64[Tensor, "count n"]:
    """Random excerpts of the last tenth of the text, which ``train`` does not use.

    Args:
        count: how many.
        seed: the same excerpts for the same seed.

    Returns:
        ``(count, 64)``; an excerpt may start and end inside a word.

    >>> len(decode(excerpts(3)[0]))
    64
    """
    expect.whole_number("count", count)
    expect.whole_number("seed", seed, at_least=0)
    return _cut(_split()[1], count, torch.Generator().manual_seed(seed))


def _split() -> tuple[Tensor, Tensor]:
    """What is trained on, and what is held out."""
    tokens = encode(TEXT)
    return tokens.tensor_split([len(tokens) * 9 // 10])


def _cut(tokens: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    start = torch.randint(len(tokens) - LENGTH + 1, (count, 1), generator=generator)
    return tokens[start + torch.arange(LENGTH)]


def train(
    seed: int = 0,
    steps: int = 700,
    *,
    progress: Callable[[range], Iterable[int]] = iter,
    watch: Callable[[int, Decoder], object] | None = None,
) -> Decoder:
    """A decoder of two layers with 8 heads each, trained to predict the next letter.

    The blocks have a network. All positions come from ``RelativePositionBias(num_heads=8, max_distance=8)``.

    Args:
        seed: of the first weights and of the excerpts.
        steps: how many batches of 16 excerpts.
        progress, watch: as in ``induction.train``.

    Returns:
        The model; the same one for the same seed and one thread.

    >>> train(steps=1).vocab_size == len(LETTERS)
    True
    """
    expect.whole_number("seed", seed, at_least=0)
    expect.whole_number("steps", steps)
    tokens, _ = _split()

    def draw() -> tuple[Tensor, Tensor]:
        batch = _cut(tokens, 16)
        return batch, torch.ones_like(batch, dtype=torch.bool)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Decoder(
            len(LETTERS),
            positions="none",
            attention=lambda _: MultiHeadAttention(64, 8, score=RelativePositionBias(8, 8)),
        )
        fit(model, draw, steps, lr=0.003, bias_lr=0.15, progress=progress, watch=watch)
    return model
