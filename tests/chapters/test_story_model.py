"""The shipped model knows what decides, no table of neighbours does, and training finds it from any seed."""

import copy
import re
import statistics

import pytest
import torch

from mha_course.chapters import language_model, story_model
from mha_course.chapters.language_model import ablate_head, generate
from mha_course.chapters.story_model import (
    EITHER,
    FILE,
    FIRST,
    LENGTH,
    LIVES,
    SECOND,
    SHE,
    START,
    TOWN,
    WILD,
    WORDS,
    decode,
    encode,
    load,
    probe,
    questions,
    sample,
    save,
    train,
)
from mha_lab import AdditiveScore, MultiHeadAttention
from mha_lab.scores import RotaryScore
from tests.notebooks.chapters import read
from tests.references import assert_close

TASKS = ["sense", "pronoun"]


def test_text_and_tokens_and_back():
    text = "in the cave the old bat slept. Ada amused Ben because"
    assert decode(encode(text)) == text
    assert encode("")[0] == WORDS.index(START)
    assert len(set(WORDS)) == len(WORDS)


def test_stories_by_hand():
    """The entropy of each choice is that of its probabilities, and no story breaks a rule."""
    tokens, entropies = sample(300, seed=5)
    assert tokens.shape == entropies.shape == (300, LENGTH)
    assert torch.equal(tokens[:7], sample(7, seed=5)[0])
    longer, _ = sample(2, seed=5, length=97)
    assert longer.shape == (2, 97)
    assert torch.equal(longer[0, :LENGTH], tokens[0])
    assert (longer == WORDS.index(START)).sum(dim=1).tolist() == [1, 1]
    for story in tokens:
        for sentence in decode(story).split(".")[:-1]:  # the last one is cut off, or empty
            words = [word for word in sentence.split() if word not in ("big", "old", "small")]
            if words[0] == "in":
                alive = words[4] in ("dog", "fox", "hen") or (words[4] in EITHER and words[2] in WILD)
                assert (words[5] in LIVES) == alive
            else:
                first, verb, second, _, pronoun, _ = words
                assert (pronoun == "she") == ((first if verb in FIRST else second) in SHE)
    start = -sum(n * p * torch.tensor(p).log() for n, p in ((1, 0.5), (3, 0.25 / 3), (8, 0.25 / 8)))
    torch.testing.assert_close(entropies[:, 1], start.expand(300))
    decided = torch.isin(tokens, encode("she he because")[1:])
    assert decided.any()
    assert not entropies[decided].any()


@pytest.mark.parametrize("task", TASKS)
def test_pairs_differ_in_the_deciding_word_and_have_opposite_answers(task):
    both = {"sense": (WILD, TOWN), "pronoun": (FIRST, SECOND)}[task]
    asked = questions(task, 40)
    for (text, right, other), (twin, twin_right, twin_other) in zip(asked[::2], asked[1::2], strict=True):
        assert (right, other) == (twin_other, twin_right)
        [(word, swapped)] = [(a, b) for a, b in zip(text.split(), twin.split(), strict=True) if a != b]
        assert word in both[0]
        assert swapped in both[1]


def test_possible_sentences_are_those_that_the_grammar_writes():
    for story in sample(300, seed=5)[0]:
        for sentence in decode(story).split(". ")[:-1]:
            assert story_model.possible(sentence), sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "in the cave the bat broke",
        "in the old shop the big mouse sang",
        "in the shop the dog leaked",
        "in the cave the bell ate",
        "in the bat the cave ate",
        "in the old old cave the bat ate",
        "in the cave the bat",
        "Ada amused Ben because he sang",
        "Ada admired Ben because she sang",
        "Ada amused Ada because she sang",
        "Ada amused Ben because she broke",
        "Ada amused Ben because she sang in the cave",
        "",
    ],
)
def test_impossible_sentences_break_one_rule(sentence):
    assert not story_model.possible(sentence)


def test_the_table_of_pairs_holds_the_shares_of_its_rows_and_columns():
    model = load()
    lines = story_model.pairs_table(model, 1)
    assert len({len(line) for line in lines[1:]}) == 1
    shares = [line[8:] for line in lines[2:]]
    for a, b in ((0, 0), (3, 0), (1, 2)):
        changed = ablate_head(ablate_head(model, 1, a), 1, b)
        for task, start in (("sense", 0), ("pronoun", 28)):
            share = probe(changed, task)["model"]
            for row, column in ((a, b), (b, a)):
                at = start + 6 * column
                assert shares[row][at : at + 6] == f"{share:6.2f}"


@pytest.mark.parametrize("task", TASKS)
def test_the_shipped_model_knows_what_neighbours_do_not(task):
    assert FILE.stat().st_size <= 250_000
    found = probe(load(), task, 200)
    assert found["model"] >= 0.95
    assert found["trigram"] == found["bigram"] == found["coin"] == 0.5


def test_the_tables_count_which_word_follows_by_a_loop():
    tokens = sample(30, seed=3)[0]
    for before in (1, 2):
        counts = torch.zeros([len(WORDS)] * (before + 1))
        for story in tokens.tolist():
            for i in range(len(story) - before):
                counts[tuple(story[i : i + before + 1])] += 1
        assert torch.equal(story_model._follows(tokens, before), (counts + 1).log())


def test_a_model_with_equal_probabilities_is_half_right():
    """A tie is not an answer: it counts as half."""
    model = load()
    model.token_embedding.weight.data.zero_()
    assert probe(model, "sense", 20)["model"] == 0.5


@pytest.mark.parametrize("task", TASKS)
def test_without_attention_the_shipped_model_is_a_coin(task):
    model = load()
    for layer in range(2):
        for head in range(4):
            model = ablate_head(model, layer, head)
    assert probe(model, task, 100)["model"] == 0.5


def test_saved_and_loaded_within_float16(tmp_path):
    """float16 keeps 11 binary digits of each weight."""
    model, tokens = train(seed=1, steps=5), sample(20, seed=9)[0]
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    torch.testing.assert_close(again(tokens)[0], model(tokens)[0], atol=0.02, rtol=0)
    for kept, weight in zip(again.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(kept, weight, atol=1e-7, rtol=2.0**-11)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: encode("the cat sang."), ValueError, "'cat'"),
        (lambda: questions("owner", 2), ValueError, "'sense' or 'pronoun'"),
        (lambda: sample(0), ValueError, "at least 1"),
        (lambda: sample(1, length=0), ValueError, "length: expected at least 1"),
        (lambda: train(steps=1.5), TypeError, "an int"),
        (lambda: train(seed=-1), ValueError, "at least 0"),
    ],
)
def test_what_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


POSITIONS = r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) to ([\d.]+) \| ([\d.]+) to ([\d.]+) \| (.*) \|$"


def positions_table():
    """The rows of step 16 of chapter 10: mean, its interval, smallest, largest, the losses of five seeds."""
    cells = {cell.id: cell.source for cell in read("10_small_language_model").cells}
    rows = re.findall(POSITIONS, cells["ch10-16-why"], re.MULTILINE)
    return {
        kind: [*map(float, numbers), [float(loss) for loss in seeds.split(", ")]]
        for kind, *numbers, seeds in rows
    }


def test_the_positions_table_of_chapter_10_adds_up():
    """What its text says of the ranges, too: two kinds overlap, but for rotary and three others."""
    table = positions_table()
    assert sorted(table) == ["alibi", "learned", "none", "relative", "rotary", "sinusoidal"]
    for mean, low, high, smallest, largest, losses in table.values():
        assert len(losses) == 5
        assert abs(mean - sum(losses) / 5) <= 0.00005 + 1e-9
        assert (smallest, largest) == (min(losses), max(losses))
        half = 2.776 * statistics.stdev(losses) / 5**0.5  # Student's t with 4 degrees of freedom
        assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.0001)
    assert max(row[1] for row in table.values()) < min(row[2] for row in table.values())  # all overlap
    apart = {(a, b) for a in table for b in table if table[a][4] < table[b][3]}
    assert apart == {("rotary", other) for other in ("learned", "sinusoidal", "none")}


def chapter_10():
    """What the cell of step 16 defines; ``models`` collects those whose loss it measures."""
    cells = {cell.id: cell.source for cell in read("10_small_language_model").cells}
    held_out, entropy = sample(1000, seed=7)
    chapter = {"MultiHeadAttention": MultiHeadAttention, "story_model": story_model, "models": []}
    chapter["floor"] = entropy[:, 1:].mean().item()

    def loss_of(model):
        chapter["models"].append(model)
        return language_model.next_token_loss(model(held_out)[0], held_out).item()

    chapter["loss_of"] = loss_of
    exec(cells["ch10-16-train"].split("\n\n\nkind, seed")[0], chapter)
    return chapter


@torch.no_grad()
def assert_cached_equals_whole(model):
    """Logits in float64, in pieces of several sizes, and what is written."""
    exact, tokens = copy.deepcopy(model).double(), sample(20, seed=8)[0]
    whole, _ = exact(tokens)
    for pieces in ([1] * LENGTH, [7, 1, 1, 21]):
        found, caches = [], None
        for piece in tokens.split(pieces, dim=1):
            logits, caches = exact.extend(piece, caches)
            found.append(logits)
        assert_close(torch.cat(found, dim=1), whole, 1e-10)
    one, other = (generate(exact, tokens[:, :3], 20, temperature=0, use_cache=use) for use in (True, False))
    assert torch.equal(one, other)


KINDS = "none", "learned", "sinusoidal", "relative", "alibi", "rotary"
NOT_LEARNED = {
    (kind, 4) for kind in ("none", "sinusoidal", "learned", "relative")
}  # all pronouns, by step 800
TRAININGS = [
    pytest.param(
        kind,
        seed,
        marks=pytest.mark.slow if (kind in ("none", "rotary") and not seed) else pytest.mark.training,
    )
    for kind in KINDS
    for seed in range(5)
]


@pytest.mark.unchecked
@pytest.mark.parametrize(("kind", "seed"), TRAININGS)
def test_training_with_other_positions_gives_the_table_of_chapter_10(kind, seed):
    """Each loss in step 16, by the functions of its cell, within what other rounding changes."""
    chapter, said = chapter_10(), positions_table()[kind][-1][seed]
    assert set(chapter["positions"]) == set(positions_table()) == set(KINDS)
    assert abs(chapter["measure_loss_above"](kind, seed) - said) <= max(0.003, 0.2 * said)
    (model,) = chapter["models"]
    assert (probe(model, "pronoun")["model"] < 1) == ((kind, seed) in NOT_LEARNED)
    if seed == 0:
        assert_cached_equals_whole(model)


@pytest.mark.training
@pytest.mark.unchecked
@pytest.mark.parametrize(("name", "seed"), [*(("additive", seed) for seed in range(5)), ("rotary", 0)])
def test_training_with_the_other_scores_of_chapter_09(name, seed):
    """Rotary positions as a score are the transform in other words, so they learn the same.

    The additive score has no positions: by step 800 it got each sense right, and 52 % of the pronouns.
    """
    make = {"additive": lambda: AdditiveScore(16, 16), "rotary": RotaryScore}[name]
    model = train(seed, 800, positions="none", attention=lambda _: MultiHeadAttention(64, 4, score=make()))
    chapter = chapter_10()
    above = chapter["loss_of"](model) - chapter["floor"]
    if name == "rotary":
        assert abs(above - positions_table()["rotary"][-1][seed]) <= 0.003
        assert probe(model, "pronoun")["model"] == 1.0
    assert above < 0.06  # the bigram: 0.34
    assert probe(model, "sense")["model"] == 1.0
    assert_cached_equals_whole(model)
