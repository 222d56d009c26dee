"""What chapter 13 says of trained models: the first token, sinks, gates, and rotary positions."""

import re
from functools import cache

import pytest
import torch
from torch.nn.functional import cross_entropy

from bench import rope
from mha_lab import MultiHeadAttention, causal_mask
from mha_lab.chapters import story_model
from mha_lab.masks import sliding_window_mask
from tests.chapters.test_five_trainings import SEEDS
from tests.notebooks.chapters import markdown, read

STORIES, N = story_model.sample(1000, seed=7)[0], 29
TEXT = markdown(read("13_longer_texts"))


def masks():
    """The last 8; the last 7 with token 0, or with token 1."""
    found = [sliding_window_mask(N, window=8)]
    for token in (0, 1):
        mask = sliding_window_mask(N, window=7)
        mask[token:, token] = True
        found.append(mask)
    return found


@torch.no_grad()
def loss(model, mask):
    x = model.token_embedding.weight[STORIES[:, :-1]] + model.position_embedding.weight[:N]
    for block in model.blocks:
        x = x + block.attention(block.norm_1(x), mask=mask)[0]
        x = x + block.network(block.norm_2(x))
    logits = model.norm(x) @ model.token_embedding.weight.mT
    return cross_entropy(logits.mT, STORIES[:, 1:], reduction="none")[:, 8:].mean().item()


def extra(model):
    """How much higher the loss is than with all keys, under each of the masks."""
    everything = loss(model, causal_mask(N))
    return [loss(model, mask) - everything for mask in masks()]


@cache
def trained(seed, **options):
    def attention(layer):
        return MultiHeadAttention(64, 4, **options)

    return story_model.train(seed, steps=800, attention=attention)


def test_five_words_are_enough_to_know_how_a_story_goes_on():
    tokens, entropies = story_model.sample(3000, seed=5)
    known = {}
    for words, nats in zip(tokens.tolist(), entropies.tolist(), strict=True):
        for i in range(4, len(words) - 1):
            last = tuple(words[i - 4 : i + 1])
            assert known.setdefault(last, nats[i + 1]) == pytest.approx(nats[i + 1], abs=1e-6), last


def test_the_shipped_model_misses_its_first_token_and_no_other():
    last_8, with_0, with_1 = extra(story_model.load())
    assert last_8 == pytest.approx(0.03, abs=0.005)
    assert with_0 < 0.005
    assert with_1 > last_8


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
def test_the_row_of_the_table_of_step_1(seed):
    (row,) = re.findall(rf"^\| {seed} \| (.+) \|$", TEXT, re.MULTILINE)
    said = [float(number) for number in row.split(" | ")]
    found = extra(trained(seed))
    for one, other in zip(found, said, strict=True):
        assert abs(one - other) <= 0.003 + 0.2 * other
    assert found[1] <= 0.005


@pytest.mark.training
@pytest.mark.unchecked
def test_sinks_do_not_replace_the_first_token_and_gates_need_it_less():
    """The ranges in the last paragraphs of steps 2 and 4."""
    plain = [extra(trained(seed))[0] for seed in range(5)]
    sinks = [extra(trained(seed, sinks=True)) for seed in range(5)]
    gates = [extra(trained(seed, gate=True))[0] for seed in range(5)]
    assert min(found[0] for found in sinks) > 0.008
    assert max(found[0] for found in sinks) > 0.3
    assert max(found[1] for found in sinks) <= 0.007
    learned = [block.attention.sinks for s in range(5) for block in trained(s, sinks=True).blocks]
    assert torch.cat(learned).abs().max() < 0.12
    assert max(gates) < 0.12
    assert sum(gate < none for gate, none in zip(gates, plain, strict=True)) == 4


def numbers(text):
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


@pytest.mark.training
@pytest.mark.unchecked
def test_the_table_of_step_5():
    """Each mean and each range for stories, and each mean for letters, within what other rounding changes."""
    rows = re.findall(r"^\| (plain|interpolated|NTK-aware|YaRN) \| (.+) \|$", TEXT, re.MULTILINE)
    cells = {name: [numbers(cell) for cell in row.split(" | ")] for name, row in rows}
    assert list(cells) == ["plain", "interpolated", "NTK-aware", "YaRN"]
    said = {name: [mean for mean, _, _ in row] for name, row in cells.items()}
    (unscaled,) = re.findall(r"If YaRN does not multiply the scores, .+? its losses are ([^:]+)\.\s", TEXT)
    said["YaRN, unscaled"] = numbers(unscaled)
    assert {len(row) for row in said.values()} == {len(rope.LENGTHS)}
    found = {}
    for make in (rope.stories, rope.english):
        texts = make()
        models = [rope.train(texts[rope.HELD_OUT :], seed) for seed in rope.SEEDS]
        for name in said:
            rule = rope.RULES[name]
            found[make, name] = [
                [rope.under(model, rule, texts[: rope.HELD_OUT, :n]) for model in models]
                for n in rope.LENGTHS
            ]
    for name, means in said.items():
        for seeds, mean in zip(found[rope.stories, name], means, strict=True):
            assert sum(seeds) / 5 == pytest.approx(mean, abs=0.03), name
    for name, row in cells.items():
        for seeds, (_, lowest, highest) in zip(found[rope.stories, name], row, strict=True):
            assert [min(seeds), max(seeds)] == pytest.approx([lowest, highest], abs=0.06), name
    scaled, unscaled = (found[rope.stories, name] for name in ("YaRN", "YaRN, unscaled"))
    for some, other in zip(scaled, unscaled, strict=True):  # "a little better"
        assert 0 < sum(some) / 5 - sum(other) / 5 < 0.05
    plain, yarn = (found[rope.stories, name][2] for name in ("plain", "YaRN"))
    assert sum(yarn) < sum(plain)
    assert max(yarn) > min(plain)  # the ranges overlap
    assert sum(new < old - 0.05 for new, old in zip(yarn, plain, strict=True)) == 4  # seed by seed
    plain, yarn = (found[rope.stories, name][0] for name in ("plain", "YaRN"))
    assert all(new > old for new, old in zip(yarn, plain, strict=True))
    for i in (1, 2):
        plain, aware = (found[rope.stories, name][i] for name in ("plain", "NTK-aware"))
        assert all(new < old for new, old in zip(aware, plain, strict=True))
    plain, yarn = (found[rope.english, name][2] for name in ("plain", "YaRN"))
    assert max(yarn) < min(plain)
    second = {name: [sum(seeds) / 5 for seeds in found[rope.english, name]] for name in said}
    (text,) = re.findall(r"On a second text .+", TEXT)
    for length, best in ((64, "NTK-aware"), (128, "YaRN")):
        at = rope.LENGTHS.index(length)
        means = {name: row[at] for name, row in second.items() if name != "YaRN, unscaled"}
        assert min(means, key=means.get) == best
    (at_64,) = re.findall(
        r"NTK-aware is best at 64 tokens: its loss is ([\d.]+), and that of YaRN is ([\d.]+)\.", text
    )
    (at_128,) = re.findall(
        r"At 128 tokens, YaRN is best: its loss is ([\d.]+), that of NTK-aware is ([\d.]+), "
        r"and that of plain is ([\d.]+)\.",
        text,
    )
    for name, i, loss in zip(
        ("NTK-aware", "YaRN", "YaRN", "NTK-aware", "plain"), (1, 1, 2, 2, 2), at_64 + at_128, strict=True
    ):
        assert second[name][i] == pytest.approx(float(loss), abs=0.08), name
