"""Reasons of chapter 10, each tried with the smallest experiment that could refute it."""

import copy
import itertools
import math

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from torch.overrides import TorchFunctionMode, resolve_name

from mha_course.chapters import language_model, story_model
from mha_course.chapters.story_model import BREAKS, FIRST, HE, KINDS, LIVES, SECOND, SHE, WORDS
from mha_lab import causal_mask, mask_to_blocked
from mha_lab.positions import sinusoidal_positions

MODEL = story_model.load()


def numbers(words):
    return torch.tensor([WORDS.index(word) for word in words])


STORIES, _ = story_model.sample(200, seed=7)
INPUTS, TARGETS = STORIES[:, :-1], STORIES[:, 1:]

ASKED = story_model.questions("pronoun", 400)  # two texts of a pair stand side by side
TEXTS = [story_model.encode(text) for text, _, _ in ASKED]
TOKENS = pad_sequence(TEXTS, batch_first=True)  # causal: what fills the end changes nothing
ROWS, LAST = torch.arange(400), torch.tensor([len(text) - 1 for text in TEXTS])
VERB = torch.isin(TOKENS, numbers(FIRST + SECOND)).int().argmax(dim=-1)
SAYS_SHE = torch.tensor([right == ("she",) for _, right, _ in ASKED])


def new_model(seed=0):
    """As in the chapter's set-up."""
    torch.manual_seed(seed)
    model = language_model.Decoder(len(WORDS), max_length=30)
    with torch.no_grad():
        model.token_embedding.weight.mul_(3)
    return model


@torch.no_grad()
@pytest.mark.parametrize("seed", range(5))
def test_the_first_loss_is_large_for_two_reasons(seed):
    """Each one alone raises it above that of equal logits, and without both it is that of equal logits."""
    logits, own = new_model(seed)(INPUTS)[0], INPUTS[..., None]
    equal = torch.zeros_like(logits)
    found = {
        "both": logits,
        "never the word just read": logits.scatter(-1, own, -math.inf),
        "only the word just read": equal.scatter(-1, own, logits.gather(-1, own)),
        "neither": equal,
    }
    loss = {name: cross_entropy(each.mT, TARGETS).item() for name, each in found.items()}
    assert loss["neither"] == pytest.approx(math.log(52))
    assert loss["both"] > loss["never the word just read"] + 1.5
    assert min(loss["never the word just read"], loss["only the word just read"]) > loss["neither"] + 1.5


@torch.no_grad()
@pytest.mark.parametrize("seed", range(5))
def test_an_untrained_model_repeats_a_word_because_the_readout_is_the_embedding(seed):
    """With other random numbers of the same size as readout, it does so no more often than by chance."""
    model, states = new_model(seed), []
    with model.norm.register_forward_hook(lambda _, __, output: states.append(output)):
        model(INPUTS)
    embedding = model.token_embedding.weight
    other = torch.randn_like(embedding) * embedding.std()
    tied, untied = ((states[0] @ each.mT).argmax(-1).eq(INPUTS).float().mean() for each in (embedding, other))
    assert tied > 0.75
    assert untied < 0.06


def test_half_of_the_columns_change_little_with_the_usual_base():
    """The columns go over a range of 2 if they turn far enough."""
    ranges = {}
    for base in (10_000, 100):
        table = sinusoidal_positions(30, 64, base=base)
        ranges[base] = table.amax(dim=0) - table.amin(dim=0)
    assert (ranges[10_000] < 0.3).sum() >= 32
    assert (ranges[100] < 0.3).sum() <= 8


def test_at_a_low_temperature_sentences_begin_with_the_likeliest_word():
    """At 1, half of them do, as in the grammar."""
    start, dice = torch.zeros(100, 1, dtype=torch.long), torch.Generator().manual_seed(0)
    for temperature, low, high in ((0.2, 0.99, 1), (1.0, 0.4, 0.6)):
        tokens = language_model.generate(MODEL, start, 15, temperature=temperature, generator=dice)
        first = [sentence.split()[0] for row in tokens for sentence in story_model.decode(row).split(". ")]
        assert low <= first.count("in") / len(first) <= high


@torch.no_grad()
def test_many_wrong_words_share_a_large_probability_at_a_high_temperature():
    """Wrong are words to which the model gives less than 0.004: the grammar gives no word less than 0.015."""
    logits = MODEL(INPUTS)[0]
    wrong = logits.softmax(-1) < 0.004
    for temperature, low, high in ((1, 0, 0.01), (3, 0.2, 0.5)):
        p = (logits / temperature).softmax(-1) * wrong
        assert low < p.sum(-1).mean() < high
        assert p.amax(-1).mean() < 0.02


@torch.no_grad()
def test_other_heads_do_part_of_the_work_of_the_pointing_head():
    """And head 3 does all of it that is done: alone in its layer, it keeps what is left without head 0."""

    def share_without(*heads):
        model = MODEL
        for head in heads:
            model = language_model.ablate_head(model, 1, head)
        p = model(TOKENS)[0][ROWS, LAST]
        she, he = (p[:, WORDS.index(word)] for word in ("she", "he"))
        return ((she > he) == SAYS_SHE).float().mean().item()

    assert share_without() == share_without(3) == 1
    assert share_without(0) == pytest.approx(0.85, abs=0.01)
    assert share_without(0, 1, 2) == pytest.approx(0.85, abs=0.01)
    assert share_without(0, 3) < 0.5


@torch.no_grad()
def test_which_heads_of_layer_0_look_at_the_verb_from_the_second_name():
    weights = MODEL(TOKENS, need_weights=True)[1][0][ROWS, :, LAST - 1, VERB]  # (400, 4)
    assert weights.mean(dim=0)[[2, 0]].tolist() == pytest.approx([0.70, 0.54], abs=0.01)


@torch.no_grad()
def test_the_pointing_head_knows_the_verb_mostly_by_the_key_of_the_second_name():
    """Each text gets a key or the query from the other text of its pair, which differs in the verb only."""
    block, twin = MODEL.blocks[1], ROWS ^ 1
    x = block.norm_1(MODEL.blocks[0](MODEL._embed(TOKENS, 0))[0])
    query = block.attention.q_proj(x)[ROWS, LAST, :16]  # (400, 16), of head 0
    key = block.attention.k_proj(x)[..., :16]  # (400, n, 16)
    hidden = torch.arange(TOKENS.shape[1]) > LAST[:, None]

    def turned(query, places):
        keys = key.clone()
        for at in places:
            keys[ROWS, at] = key[twin, at]
        scores = (keys @ query[..., None])[..., 0].masked_fill(hidden, -torch.inf)
        looked_at = TOKENS[ROWS, scores.argmax(dim=-1)]
        she, he = (torch.isin(looked_at, numbers(names)) for names in (SHE, HE))
        return torch.where(SAYS_SHE, he, she)

    assert not turned(query, []).any()
    assert not turned(query, [VERB]).any()
    assert not turned(query, [LAST]).any()
    assert turned(query, [LAST - 1]).float().mean() == pytest.approx(0.83, abs=0.005)
    assert turned(query[twin], []).float().mean() == pytest.approx(0.17, abs=0.005)
    assert turned(query[twin], [LAST - 1]).all()


@torch.no_grad()
def test_without_the_pointing_head_she_gets_almost_nothing():
    changed = language_model.ablate_head(MODEL, 1, 0)
    p = changed(story_model.encode("Ada amused Ben because")[None])[0][0, -1].softmax(-1)
    assert p[WORDS.index("she")] == pytest.approx(0.06, abs=0.005)


@torch.no_grad()
def test_the_pointing_head_looks_at_the_person_who_is_meant_wherever_the_name_stands():
    """Each pair of a *she* and a *he*, in both orders, with each verb: the verb alone decides."""
    for one, other in [pair for s, h in itertools.product(SHE, HE) for pair in ((s, h), (h, s))]:
        for verbs, place in ((FIRST, 1), (SECOND, 3)):
            texts = [story_model.encode(f"{one} {verb} {other} because") for verb in verbs]
            _, weights = MODEL(torch.stack(texts), need_weights=True)
            assert (weights[1, :, 0, -1].argmax(dim=-1) == place).all()


@torch.no_grad()
def test_mean_ablation_removes_what_depends_on_the_place_too():
    """At *start*, each head writes the same in all texts; the mean of all places is something else."""
    attention, inputs, own = MODEL.blocks[1].attention, [], slice(0, 16)
    with attention.out_proj.register_forward_hook(lambda _, given, __: inputs.append(given[0][..., own])):
        MODEL(INPUTS)
    written = inputs[0] @ attention.out_proj.weight[:, own].mT
    assert written[:, 0].std(dim=0).max() < 1e-5
    assert (written[0, 0] - written.mean(dim=(0, 1))).norm() > 1


def test_only_the_table_of_positions_ends_at_30_tokens():
    model, longer = story_model.load(), torch.zeros(1, 45, dtype=torch.long)
    with pytest.raises(ValueError, match="The positions that are added end there"):
        model(longer)
    model.position_embedding = None
    assert model(longer)[0].shape == (1, 45, len(WORDS))


class Operations(TorchFunctionMode):
    """The names of PyTorch's operations, in their order."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(resolve_name(function))
        return function(*args, **(kwargs or {}))


@torch.no_grad()
def test_a_call_starts_about_as_many_operations_for_one_token_as_for_many():
    """Whatever the weights are."""

    def started(model, call):
        with Operations() as operations:
            call(model)
        return operations.names

    model, zeros = language_model.Decoder(52, max_length=65), language_model.Decoder(52, max_length=65)
    for parameter in zeros.parameters():
        parameter.zero_()
    one, many = torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 64, dtype=torch.long)
    caches = model.extend(many)[1]
    counts = [len(started(model, call)) for call in (lambda m: m(many), lambda m: m.extend(one, caches))]
    assert counts[1] > 0.8 * counts[0]
    assert started(model, lambda m: m(many)) == started(zeros, lambda m: m(many))


# Trained


def fit(model, steps, mask):
    """As in the chapter, but with any mask: its losses, and the model's logits by a function."""
    stories, _ = story_model.sample(10_000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.005, total_steps=steps + 1, pct_start=0.1
    )

    def logits(tokens):
        x = model._embed(tokens, 0)
        for block in model.blocks:
            x = block._add(x, block.attention(block.norm_1(x), mask=mask, need_weights=False)[0])
        return model._read_out(x)

    for _ in range(steps):
        batch = stories[torch.randint(len(stories), (32,))]
        loss = language_model.next_token_loss(logits(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item(), logits


@pytest.mark.training
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_without_a_mask_is_low_because_the_next_token_is_read(seed):
    """It falls as low if that token is all that is shown, and the answer follows a word that is replaced."""
    at = torch.arange(30)
    next_only = (at == at[:, None]) | (at == at[:, None] + 1)
    assert fit(new_model(seed), 300, next_only)[0] < 0.05
    _, logits = fit(new_model(seed), 300, None)
    followed = []
    for group in (KINDS, LIVES, BREAKS):
        words = numbers(group)
        text, place = torch.isin(TARGETS, words).nonzero().unbind(1)
        changed, rows = STORIES[text], torch.arange(len(text))
        old = changed[rows, place + 1]
        new = words[((old[:, None] == words).int().argmax(-1) + 1) % len(words)]
        changed[rows, place + 1] = new
        with torch.no_grad():
            followed.append((logits(changed)[rows, place].argmax(-1) == new).float().mean())
    assert min(followed) > 0.95


@pytest.mark.training
@pytest.mark.parametrize("seed", range(5))
def test_training_makes_small_differences_larger(seed):
    """Two models that differ by less than float32 rounds in a sum, before and after 150 steps."""
    models = [new_model(seed) for _ in range(2)]
    with torch.no_grad():
        models[1].token_embedding.weight.mul_(1 + 1e-6)

    def apart():
        one, two = (torch.cat([p.flatten() for p in model.parameters()]) for model in models)
        return ((one - two).norm() / one.norm()).item()

    before = apart()
    for model in models:
        torch.manual_seed(seed)
        fit(model, 150, torch.ones(30, 30).tril().bool())
    assert apart() > 100 * before


@torch.no_grad()
def test_one_new_token_needs_no_mask_and_no_other_query_and_two_need_one():
    """With kept keys and values; the outputs are those of the whole text."""
    layer, x = copy.deepcopy(MODEL.blocks[0].attention).double(), torch.randn(1, 9, 64).double()
    whole = layer(x, mask=causal_mask(9))[0]
    for new, unmasked in ((1, True), (2, False)):
        assert torch.allclose(layer(x[:, -new:], x)[0], whole[:, -new:]) == unmasked
        masked = layer(x[:, -new:], x, mask=causal_mask(new, 9))[0]
        torch.testing.assert_close(masked, whole[:, -new:])


@pytest.mark.slow
@pytest.mark.parametrize("means", [None, STORIES])
def test_which_heads_are_needed_whether_they_write_nothing_or_their_mean(means):
    """Pronouns need heads of both layers, the sense those of layer 0; without head 3, heads 1 and 2."""

    def share(task, *places):
        model = MODEL
        for layer, head in places:
            model = language_model.ablate_head(model, layer, head, means)
        return story_model.probe(model, task, 400)["model"]

    first, second = ([(layer, head) for head in range(4)] for layer in (0, 1))
    assert share("sense", *second) == 1
    assert max(share("pronoun", *first), share("pronoun", *second), share("sense", *first)) < 0.55
    if means is None:
        assert min(share("sense", place) for place in first) > 0.9
        assert max(share("sense", (0, 3), (0, head)) for head in (1, 2)) < 0.6
    without = [share("pronoun", place) for place in ((1, 0), (0, 2))]
    assert (without[0] > without[1]) == (means is None)  # which of the two costs more


def test_the_readout_is_stored_once_because_it_is_the_embedding():
    state = MODEL.state_dict()
    assert [name for name in state if state[name].shape == (len(WORDS), 64)] == ["token_embedding.weight"]
    twice = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(52, 64), "readout": torch.nn.Linear(64, 52)})
    assert sum(part.shape == (52, 64) for part in twice.state_dict().values()) == 2


@pytest.mark.parametrize(("turn", "same"), [(mask_to_blocked, True), (torch.clone, False)])
@torch.no_grad()
def test_pytorchs_block_is_ours_only_with_the_mask_inverted(turn, same):
    block, x, mask = copy.deepcopy(MODEL.blocks[1]).double(), torch.randn(3, 7, 64).double(), causal_mask(7)
    attention = block.attention.to_torch()
    output = attention(x, x, x, attn_mask=turn(mask), need_weights=False)[0]
    assert torch.allclose(output, block.attention(x, mask=mask)[0]) == same
