"""Questions of chapter 16: what a matrix reads back, what fades, what is erased, what is read."""

import torch

from mha_course.chapters.delta import decayed_linear_attention, delta_rule
from mha_course.quiz import Question, from_mistakes

SECTIONS = {
    "read_of_two_writes": "1 A matrix in place of the cache",
    "share_after_decays": "2 Let the matrix fade",
    "read_after_erasing": "3 Erase, then write",
    "numbers_read": "7 Keep all, read few",
}
ANGLES = ((0.6, 0.8), (0.8, 0.6), (0.28, 0.96), (0.96, 0.28))


def read_of_two_writes(rng):
    """What a query reads if two keys are not orthogonal."""
    (x, y), one, two = (ANGLES[0], 4, 10) if rng is None else (
        ANGLES[rng.below(4)], 2 * (1 + rng.below(4)), 10 * (1 + rng.below(3))
    )  # fmt: skip
    key = torch.tensor([[1.0, 0.0], [x, y]])
    outputs, _ = decayed_linear_attention(key[:1].expand(2, 2), key, torch.tensor([[one], [two]]).float())
    return Question(
        text="A state of zeros gets two keys with their values, as the product of key and value, added up. "
        f"The first key is (1, 0), and its value is {one}. The second key is ({x}, {y}), and its value is "
        f"{two}. What does the query (1, 0) read?",
        answer=round(outputs[-1].item(), 2),
        wrong={
            "This is the value of the first key. The second key counts, too.": float(one),
            "The second value counts with its dot product, and not as a whole.": float(one + two),
            "No softmax divides the sum by the weights.": round((one + x * two) / (1 + x), 2),
        },
        because=f"The dot products with the two keys are 1 and {x}, so the query reads {one} + {x} · {two}.",
        section=SECTIONS["read_of_two_writes"],
    )


def share_after_decays(rng):
    """How much of a write is left after some tokens."""
    decay = [0.5, 0.5, 0.8, 0.5]
    if rng is not None:
        decay = [(2 + rng.below(7)) / 10 for _ in range(4)]
        while len({decay[0], *decay[1:]}) < 3:
            decay = [(2 + rng.below(7)) / 10 for _ in range(4)]
    ideas = {
        "own-decay-counts": "The write of token 0 does not fade by the decay of token 0: it comes after it.",
        "last-decay-left-out": "The matrix fades first, and is read afterwards: the last decay counts, too.",
        "power-of-the-readers-decay": "Each token in between has a decay of its own.",
        "only-the-readers-decay": "The matrix also faded at the tokens in between.",
    }
    answer, wrong = from_mistakes(
        "decay_matrix", (torch.tensor(decay),), ideas, lambda matrix: round(matrix[-1, 0].item(), 4)
    )
    return Question(
        text="Four tokens have the decays " + ", ".join(map(str, decay)) + ". At each token, the state first "
        "fades, then the token writes, then it reads. What share of the write of token 0 does token 3 read?",
        answer=answer,
        wrong=wrong,
        because=f"The state fades after this write at the tokens 1, 2 and 3: {decay[1]} · {decay[2]} · "
        f"{decay[3]}.",
        section=SECTIONS["share_after_decays"],
    )


def read_after_erasing(rng):
    """What a query reads if one key comes twice, with the delta rule."""
    one, two, rate = (8, 4, 0.5) if rng is None else (
        4 * (2 + rng.below(4)), 4 * (7 + rng.below(4)), (0.25, 0.5, 0.75)[rng.below(3)]
    )  # fmt: skip
    key = torch.tensor([[1.0, 0.0]])
    state = torch.tensor([[float(one)], [0.0]])
    output, _ = delta_rule(key, key, torch.tensor([[float(two)]]), torch.tensor([[rate]]), None, state)
    ideas = {
        "only-adds": "This adds a part of the new value, and erases nothing.",
        "rate-ignored": "This is the new value. With this rate, a part of the old one stays.",
        "writes-all": "This erases a part, and writes the whole value.",
        "erases-all": "This erases all, and writes a part.",
    }
    _, wrong = from_mistakes(
        "delta_step", (state, key[0], torch.tensor([float(two)]), rate, 1.0), ideas, lambda s: s[0, 0].item()
    )
    return Question(
        text=f"A key of length 1 reads {one} from the state. Now a token with the same key writes the "
        f"value {two}, by the delta rule, with rate {rate} and without decay. What does this key read "
        "afterwards?",
        answer=output.item(),
        wrong=wrong,
        because=f"The share {rate} of {one} is erased, and the same share of {two} is written.",
        section=SECTIONS["read_after_erasing"],
    )


def numbers_read(rng):
    """What one layer with an indexer reads for one more token."""
    entry, index, chosen, n = 500, 100, 2000, 100_000
    if rng is not None:
        entry, index = 100 * (3 + rng.below(4)), 20 * (1 + rng.below(4))
        chosen, n = 1000 * (1 + rng.below(3)), 10_000 * (2 + rng.below(5))
    ideas = {
        "index-keys-not-read": "To choose, the layer reads the index keys, too.",
        "index-keys-of-the-chosen": "To choose, the layer reads the index keys of all tokens.",
        "reads-all": "Of the entries, only the chosen ones are read.",
    }
    answer, wrong = from_mistakes(
        "kept_and_read", (1, entry, index, chosen, n), ideas, lambda numbers: f"{numbers[1]:,}"
    )
    return Question(
        text=f"A layer keeps an entry of {entry} numbers and an index key of {index} numbers for each "
        f"token. Its indexer chooses {chosen:,} tokens. The text has {n:,} tokens. How many numbers does "
        "the layer read for one more token?",
        answer=answer,
        wrong=wrong,
        because=f"All index keys are {n:,} · {index} numbers, and the chosen entries are {chosen:,} · "
        f"{entry}.",
        section=SECTIONS["numbers_read"],
    )
