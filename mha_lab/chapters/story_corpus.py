"""Very small stories from a grammar whose probabilities are known exactly.

Two people have things, give them away and ask for them; animals nap and sing. Many words depend on a
word further back: who has a thing now, which colour it has, whether a name takes "she" or "he",
whether a sentence begins with one animal or with several. A table of neighbouring letters cannot
know these; a model that looks back can.

The text is made here, by these rules and a seed: nothing is read or downloaded. Each choice is made at
the word where it appears, so the probability of every letter given all letters before it is known, and
with it the lowest loss that a model can reach.

Raises: every function here checks its arguments before it computes anything. It raises ``TypeError`` for a
wrong type or dtype, and ``ValueError`` for a shape, size, number or device that does not fit. A function
says more only if it can raise for another reason.
"""

import math
import random
from collections.abc import Callable, Iterable

from mha_lab import _expect as expect

SHE = ("Ada", "Cleo", "Eva", "Gita", "Nora", "Zoe")
HE = ("Ben", "Dan", "Finn", "Hugo", "Max", "Tom")
COLOURS = ("black", "blue", "green", "pink", "red", "white", "yellow")
THINGS = (
    *("ball", "bell", "boat", "book", "cup", "doll", "drum", "hat"),
    *("key", "kite", "lamp", "map", "pen", "ring", "rope", "shell"),
)
ONE = ("bird", "cat", "dog", "duck", "frog", "hen")
MANY = ("birds", "cats", "dogs", "ducks", "frogs", "hens")
DOES, DO, DID = (
    ("hops", "naps", "runs", "sings"),
    ("hop", "nap", "run", "sing"),
    ("hid", "napped", "sang", "sat"),
)

END = 0.3  # the probability that a story is over after an event
START = "\n"  # comes before each story, and after the last

Say = Callable[[dict[str, float]], str]


def sample(count: int, seed: int = 0) -> str:
    """Stories, one on each line; the same ones for the same ``seed`` on every machine.

    Args:
        count: how many.
        seed: another seed gives other stories.

    Returns:
        The text, with a line break before each story and after the last.

    >>> sample(1, seed=1)
    '\\nCleo has a white pen. Gita has a pink drum. who has the drum? Gita.\\n'
    """
    expect.whole_number("count", count)
    expect.whole_number("seed", seed, at_least=0)
    dice = random.Random(seed)
    said = [START]

    def say(choices: dict[str, float]) -> str:
        piece, left = "", dice.random() if len(choices) > 1 else 0.0
        for piece, probability in choices.items():  # noqa: B007
            left -= probability
            if left < 0:
                break
        said.append(piece)
        return piece

    for _ in range(count):
        _story(say)
    return "".join(said)


def surprisals(text: str) -> list[float]:
    """How surprising each letter is, given all letters before it, in nats: exactly.

    ``surprisal = -log p(letter | all letters before)`` under the grammar. The mean over a long text is
    its entropy per letter: no model that predicts from what came before has a lower expected loss.

    Args:
        text: a line break, then stories as ``sample`` writes them. The text may end anywhere.

    Returns:
        A number for each letter. The first line break costs 0. The first letter that the grammar
        cannot produce costs ``inf``, and so do all letters after it.

    Raises:
        TypeError: ``text`` is not a string.
        ValueError: ``text`` does not begin with a line break.

    Source: Shannon 1948, "A Mathematical Theory of Communication", section 7.

    >>> [round(nats, 2) for nats in surprisals("\\nAda says")]
    [0.0, 2.48, 0.0, 0.0, 0.0, inf, inf, inf, inf]
    """
    if not isinstance(text, str):
        expect.fail(TypeError, "text", "a str", type(text).__name__)
    if not text.startswith(START):
        expect.fail(ValueError, "text", "a line break, then stories", repr(text[:10]))
    found = [0.0]

    def say(choices: dict[str, float]) -> str:
        said = ""
        while said not in choices:
            if len(found) == len(text):
                raise _Stop
            before = sum(choices.values())
            said += text[len(found)]
            choices = {piece: p for piece, p in choices.items() if piece.startswith(said)}
            if not choices:
                raise _Stop
            found.append(math.log(before / sum(choices.values())))
        return said

    try:
        while True:
            _story(say)
    except _Stop:
        return found + [math.inf] * (len(text) - len(found))


class _Stop(Exception):
    """The text is over, or the grammar cannot produce its next letter."""


def _even(pieces: Iterable[str], share: int | float = 1.0) -> dict[str, float]:
    """The same probability for each piece, ``share`` in total."""
    pieces = list(pieces)
    return {piece: share / len(pieces) for piece in pieces}


def _story(say: Say) -> None:
    """One story after its line break, up to and including the next line break.

    ``say`` gets the choices for the next piece of text, with their probabilities, and returns the
    chosen piece; no choice is the beginning of another. In ``sample``, ``say`` draws pieces, and the result
    is a story. In ``surprisals``, it reads a text, and the result is the text's probabilities.
    """

    def just(piece: str) -> None:
        say({piece: 1.0})

    def one_of(words: Iterable[str], end: str = " ") -> str:
        return say(_even(word + end for word in words)).removesuffix(end)

    owner: dict[str, str] = {}
    colour: dict[str, str] = {}
    cast: list[str] = []
    for _ in range(2):  # Ada has a red kite. Ben has a blue drum.
        cast.append(one_of(name for name in SHE + HE if name not in cast))
        just("has a ")
        its_colour = one_of(COLOURS)
        thing = one_of((t for t in THINGS if t not in owner), end=".")
        owner[thing], colour[thing] = cast[-1], its_colour
        if len(cast) == 1:
            just(" ")

    events = _even((f" {name} " for name in cast), 0.5) | {" who ": 0.3, " the ": 0.2}
    ending = {START: END} | {piece: (1 - END) * p for piece, p in events.items()}
    first = say(events)
    while first != START:
        name = first.strip()
        if name == "who":  # who has the kite? Ben.
            just("has the ")
            just(f"{owner[one_of(owner, end='? ')]}.")
        elif name == "the":
            words = _even(owner, 0.5) | _even(ONE + MANY, 0.5)
            word = say({f"{word} ": p for word, p in words.items()}).strip()
            if word in owner:  # the kite is red.
                just(f"is {colour[word]}.")
            else:  # the dogs near the cat nap.
                just("near the ")
                one_of(ONE + MANY)
                one_of(DOES if word in ONE else DO, end=".")
        else:
            its = [thing for thing in owner if owner[thing] == name]
            act = {"gives the ": 0.7, "ran home and ": 0.3} if its else {"ran home and ": 1.0}
            if say(act) == "gives the ":  # Ada gives the kite to Ben.
                other = cast[1 - cast.index(name)]
                owner[one_of(its)] = other
                just(f"to {other}.")
            else:  # Ada ran home and she sang.
                just("she " if name in SHE else "he ")
                one_of(DID, end=".")
        first = say(ending)
