"""A language model of words that has learned to look back, with the small grammar that it learned.

Two words depend on words further back. Whether a bat sings, as an animal, or breaks, as sports equipment,
is decided by the place: in the forest or in the shop. Whether "she" or "he" comes after "because" is decided
by the verb and the names: Ada amuses Ben because of what *she* does, and admires him because of what *he*
does (Hartshorne, O'Donnell and Tenenbaum 2015, "The Causes and Consequences Explicit in Verbs",
introduction). The word before and the place in the text do not give these answers away. Each
choice is made where its word stands, so the probability of every next word is known.

``python -m mha_course.chapters.story_model`` trains the shipped weights again and prints the probe.
"""

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int64
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from mha_course.chapters.language_model import Decoder, ablate_head
from mha_lab import _expect as expect

SHE, HE = ("Ada", "Cleo", "Eva", "Zoe"), ("Ben", "Dan", "Max", "Tom")
ANIMALS, THINGS = ("dog", "fox", "hen"), ("bell", "cup", "drum")
EITHER = ("bat", "crane", "mouse", "seal")  # an animal in a place of WILD, a thing in a place of TOWN
NOUNS = ANIMALS + THINGS + EITHER
WILD, TOWN = ("cave", "forest", "lake", "zoo"), ("factory", "garage", "office", "shop")
LIVES, BREAKS = ("ate", "jumped", "sang", "slept"), ("broke", "cracked", "leaked", "rusted")
FIRST = ("amused", "annoyed", "impressed", "surprised")  # because of the person before the verb
SECOND = ("admired", "feared", "liked", "thanked")  # because of the person after it
KINDS = ("big", "old", "small")
START = "\n"
WORDS = (START, *SHE, *HE, *ANIMALS, *THINGS, *EITHER, *WILD, *TOWN, *LIVES, *BREAKS, *FIRST, *SECOND)
WORDS += (*KINDS, "because", "he", "in", "she", "the", ".")
NUMBER = {word: i for i, word in enumerate(WORDS)}
LENGTH = 30  # tokens of a story
FILE = Path(__file__).with_suffix(".safetensors")

Say = Callable[[dict[str, float]], str]


def encode(text: str) -> Int64[Tensor, " n"]:
    """The tokens of a text: ``(n,)``, the line break that starts a story first.

    Raises:
        ValueError: the grammar does not have one of the words.

    >>> encode("the bat sang.")
    tensor([ 0, 50, 15, 29, 51])
    """
    words = [START, *re.findall(r"\w+|[^\w\s]", text)]
    for word in words:
        if word not in NUMBER:
            expect.fail(ValueError, "text", f"words of {WORDS[1:]}", repr(word))
    return torch.tensor([NUMBER[word] for word in words])


def decode(tokens: Int64[Tensor, " n"]) -> str:
    """The text of tokens, without line breaks: the inverse of ``encode``.

    >>> decode(encode("the bat sang."))
    'the bat sang.'
    """
    return " ".join(WORDS[i] for i in tokens.tolist()).replace(START, "").replace(" .", ".").strip()


def sample(
    count: int, seed: int = 0, *, length: int = LENGTH
) -> tuple[Int64[Tensor, "count n"], Float[Tensor, "count n"]]:
    """Stories, and how much choice the grammar had at each word.

    ``entropy = -sum over w of p(w | words before) log p(w | words before)``, in nats: 0 where the words
    before decide. Its mean is the lowest expected loss that a model can have.

    Args:
        count: how many stories.
        seed: the same stories for the same seed.
        length: all stories are cut off after so many tokens.

    Returns:
        ``(tokens, entropies)``, ``(count, length)`` each.

    >>> decode(sample(1, seed=3)[0][0])[:63]
    'small Ben impressed Cleo because he sang. big Ada liked old Eva'
    """
    expect.whole_number("count", count)
    expect.whole_number("seed", seed, at_least=0)
    expect.whole_number("length", length)
    dice, tokens, entropies = random.Random(seed), [], []

    def say(choices):  # no types: the tests would check them at each word
        if len(tokens) == wanted:
            raise _Stop
        word = dice.choices(list(choices), list(choices.values()))[0] if len(choices) > 1 else min(choices)
        tokens.append(NUMBER[word])
        entropies.append(-sum(p * math.log(p) for p in choices.values()))
        return word

    for wanted in range(length, (count + 1) * length, length):  # noqa: B007
        with suppress(_Stop):
            _story(say)
    return torch.tensor(tokens).view(count, length), torch.tensor(entropies).view(count, length)


class _Stop(Exception):
    """The story is long enough."""


def _even(words, share=1.0):
    """The same probability for each word, ``share`` in total."""
    words = list(words)
    return {word: share / len(words) for word in words}


def _story(say: Say) -> None:
    """A story without end; ``say`` gets the choices for the next word, and returns the chosen one."""

    def one_of(choices):  # half of all nouns and names have an adjective
        word = say(_even(KINDS, 0.5) | {word: p / 2 for word, p in choices.items()})
        return say(choices) if word in KINDS else word

    say({START: 1.0})
    while True:
        names = _even(SHE + HE)
        word = say(_even(KINDS, 0.25) | _even(names, 0.25) | {"in": 0.5})
        if word == "in":  # in the cave the old bat slept.
            say({"the": 1.0})
            wild = one_of(_even(WILD + TOWN)) in WILD
            say({"the": 1.0})
            noun = one_of(_even(EITHER, 0.6) | _even(ANIMALS + THINGS, 0.4))
            say(_even(LIVES if noun in ANIMALS or (noun in EITHER and wild) else BREAKS))
        else:  # small Ada amused Ben because she sang.
            first = say(names) if word in KINDS else word
            verb = say(_even(FIRST + SECOND))
            second = one_of(_even(name for name in names if name != first))
            say({"because": 1.0})
            say({"she" if (first if verb in FIRST else second) in SHE else "he": 1.0})
            say(_even(LIVES))
        say({".": 1.0})


def possible(sentence: str) -> bool:
    """Whether the grammar can write this sentence, which stands without its full stop.

    >>> possible("in the cave the old bat slept"), possible("in the shop the old bat slept")
    (True, False)
    """
    kind = f"(?:(?:{'|'.join(KINDS)}) )?"
    words = {name: "|".join(kinds) for name, kinds in (("lives", LIVES), ("breaks", BREAKS))}
    name, verb, place, noun = ("|".join(kinds) for kinds in (SHE + HE, FIRST + SECOND, WILD + TOWN, NOUNS))
    reason = rf"{kind}({name}) ({verb}) {kind}({name}) because (she|he) (?:{words['lives']})"
    if found := re.fullmatch(reason, sentence):
        first, verb, second, pronoun = found.groups()
        meant = first if verb in FIRST else second
        return first != second and (pronoun == "she") == (meant in SHE)
    event = rf"in the {kind}({place}) the {kind}({noun}) (?:({words['lives']})|{words['breaks']})"
    if found := re.fullmatch(event, sentence):
        place, noun, lives = found.groups()
        return bool(lives) == (noun in ANIMALS or (noun in EITHER and place in WILD))
    return False


def questions(task: str, count: int, seed: int = 1) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Pairs of texts that differ in the deciding word only, with the right next words and the others.

    One other sentence stands before, with a place, an animal or thing, and what it did.

    Args:
        task: "sense" (the place decides) or "pronoun" (the verb decides).
        count: how many texts; each answer is right in one text of a pair and wrong in the other.
        seed: the same texts for the same seed.

    Returns:
        ``(text, right, other)`` for each.

    >>> for text, right, other in questions("pronoun", 2):
    ...     print(text, right, other)
    in the lake the drum broke. old Ben amused Eva because ('he',) ('she',)
    in the lake the drum broke. old Ben thanked Eva because ('she',) ('he',)
    """
    if task not in ("sense", "pronoun"):
        expect.fail(ValueError, "task", "'sense' or 'pronoun'", repr(task))
    expect.whole_number("count", count)
    dice, found = random.Random(expect.whole_number("seed", seed, at_least=0)), []

    def maybe(word: str) -> str:
        return f"{dice.choice(KINDS)} {word}" if dice.random() < 0.5 else word

    while len(found) < count:
        place, noun = dice.choice(WILD + TOWN), dice.choice(EITHER + ANIMALS + THINGS)  # a sentence before
        alive = noun in ANIMALS or (noun in EITHER and place in WILD)
        before = f"in the {place} the {maybe(noun)} {dice.choice(LIVES if alive else BREAKS)}. "
        if task == "sense":
            start, end = f"in the {dice.choice(('', *KINDS))}", f"the {maybe(dice.choice(EITHER))}"
            pair = [(f"{start} {dice.choice(places)} {end}") for places in (WILD, TOWN)]
            answers = LIVES, BREAKS
        else:
            names = dice.sample([dice.choice(SHE), dice.choice(HE)], 2)
            start, end = maybe(names[0]), f"{maybe(names[1])} because"
            pair = [f"{start} {dice.choice(verbs)} {end}" for verbs in (FIRST, SECOND)]
            answers = (("she",), ("he",))[:: 1 if names[0] in SHE else -1]
        found += zip((before + " ".join(text.split()) for text in pair), answers, answers[::-1], strict=True)
    return found[:count]


@torch.no_grad()
def probe(model: Decoder, task: str, count: int = 400, seed: int = 1) -> dict[str, float]:
    """How often the model gives the right words more probability than the others.

    ``right = mean over texts of [sum of p(right words) > sum of p(other words)]``; if the sums are equal, the
    text counts as half right. The texts come in pairs with opposite answers, which differ in the deciding
    word only. Whoever does not read it is right in half of them.

    Args:
        model: a decoder of ``len(WORDS)`` tokens.
        task, count, seed: as in ``questions``; ``count`` should be even.

    Returns:
        ``model``; ``coin``, 0.5; ``bigram`` and ``trigram``, tables of which word follows one word, or two,
        counted in 1000 stories; ``grammar``, which is always right.

    >>> probe(load(), "sense", 20)["coin"]
    0.5
    """
    asked = questions(task, count, seed)
    texts = [encode(text) for text, _, _ in asked]
    rows, last = torch.arange(count), torch.tensor([len(text) - 1 for text in texts])
    tokens = pad_sequence(texts, batch_first=True)  # causal: what fills the end changes nothing
    one, two = tokens[rows, last], tokens[rows, last - 1]
    after_one, after_two = _tables()
    said = {"model": model(tokens)[0][rows, last], "bigram": after_one[one], "trigram": after_two[two, one]}
    right, other = (_one_of([question[answer] for question in asked]) for answer in (1, 2))
    share = {"coin": 0.5, "grammar": 1.0}
    for name, scores in said.items():
        a, b = (scores.masked_fill(~words, -torch.inf).logsumexp(dim=-1) for words in (right, other))
        share[name] = 0.5 * ((a > b).double() + (a >= b).double()).mean().item()
    return share


def _one_of(answers: Sequence[Iterable[str]]) -> Bool[Tensor, "texts vocab"]:
    """Which words each answer holds."""
    held = torch.zeros(len(answers), len(WORDS), dtype=torch.bool)
    for row, words in zip(held, answers, strict=True):
        row[[NUMBER[word] for word in words]] = True
    return held


@cache
def _tables() -> tuple[Tensor, Tensor]:
    """Which word follows one word, and which follows two, in 1000 stories."""
    tokens = sample(1000)[0]
    return _follows(tokens, 1), _follows(tokens, 2)


def _follows(tokens: Tensor, read: int) -> Tensor:
    """``log(1 + count)`` of each word after each ``read`` words; the next word is the last axis."""
    places = torch.zeros_like(tokens[:, read:])
    for i in range(read + 1):
        places = places * len(WORDS) + tokens[:, i : i + places.shape[1]]
    counts = torch.bincount(places.flatten(), minlength=len(WORDS) ** (read + 1))
    return (counts.view(*[len(WORDS)] * (read + 1)) + 1.0).log()


def shares_without(model: Decoder, heads: Iterable[tuple[int, int]]) -> tuple[float, float]:
    """The shares of right answers, "sense" and "pronoun", if some heads write nothing.

    Args:
        model: a decoder of ``len(WORDS)`` tokens; it does not change.
        heads: ``(layer, head)``, both counted from 0.

    Returns:
        Two of the numbers that ``probe`` gives.

    >>> shares_without(load(), [(1, 0)])
    (1.0, 0.8475)
    """
    for layer, head in heads:
        model = ablate_head(model, layer, head)
    return probe(model, "sense")["model"], probe(model, "pronoun")["model"]


def pairs_table(model: Decoder, layer: int) -> list[str]:
    """The shares without each pair of heads of a layer, as text: "sense" on the left, "pronoun" on the right.

    Row ``a``, column ``b`` is ``shares_without(model, [(layer, a), (layer, b)])``. On the diagonal, one head
    is removed.
    """
    count = model.blocks[layer].attention.num_heads
    found = {
        (a, b): shares_without(model, {(layer, a), (layer, b)}) for a in range(count) for b in range(a + 1)
    }
    columns = "".join(f"{b:6}" for b in range(count))
    lines = [f"layer {layer}   {'sense':{6 * count + 4}}pronoun", f"without {columns}    {columns}"]
    for a in range(count):
        rows = zip(*(found[max(a, b), min(a, b)] for b in range(count)), strict=True)
        lines.append(f"head {a}  " + "    ".join("".join(f"{share:6.2f}" for share in row) for row in rows))
    return lines


def train(seed: int = 0, steps: int = 1200, **options: object) -> Decoder:
    """A decoder of two layers, trained on 10000 stories; the same one for the same seed and one thread.

    The loss is the mean of ``-log p(next word)``. The learning rate rises to 0.005, then falls to 0.

    Args:
        seed: of the first weights and of the order of the stories.
        steps: how many batches of 32 stories.
        options: of ``Decoder``: other positions, other layers of attention.

    Returns:
        The model.

    >>> train(steps=1).vocab_size == len(WORDS)
    True
    """
    expect.whole_number("steps", steps)
    expect.whole_number("seed", seed, at_least=0)
    stories, _ = sample(10000)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Decoder(len(WORDS), max_length=LENGTH, **options)
        with torch.no_grad():
            model.token_embedding.weight.mul_(3)  # words start as strong as positions
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=0.005, total_steps=steps + 1, pct_start=0.1
        )
        for _ in range(steps):
            batch = stories[torch.randint(len(stories), (32,))]
            loss = cross_entropy(model(batch[:, :-1])[0].flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model


def save(model: Decoder, file: Path = FILE) -> None:
    """Write the weights of a model of this module, rounded to float16."""
    save_file({name: tensor.half() for name, tensor in model.state_dict().items()}, file)


def load(file: Path = FILE) -> Decoder:
    """The shipped model, made by ``train(steps=800)``; ``encode`` and ``decode`` are its tokenizer.

    >>> logits, weights = load()(encode("in the cave the bat")[None], need_weights=True)
    >>> logits.shape, weights.shape
    (torch.Size([1, 6, 52]), torch.Size([2, 1, 4, 6, 6]))
    """
    model = Decoder(len(WORDS), max_length=LENGTH)
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(file).items()})
    return model


if __name__ == "__main__":
    torch.set_num_threads(1)
    save(train(steps=800))
    for name in ("sense", "pronoun"):
        print(name, probe(load(), name))
