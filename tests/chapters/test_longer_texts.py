"""What chapter 13 says of trained models (the first token, sinks, gates, rotary positions) and of float16."""

import re
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import cache

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, pad, scaled_dot_product_attention

from bench import rope
from mha_course.chapters import story_model
from mha_course.chapters.language_model import Decoder
from mha_course.chapters.modern import ModernAttention
from mha_lab import (
    MultiHeadAttention,
    causal_mask,
    masked_softmax,
    merge_heads,
    scaled_dot_product_scores,
)
from mha_lab.masks import sliding_window_mask
from tests.chapters.test_five_trainings import SEEDS
from tests.notebooks.chapters import markdown, read
from tests.references import layer_with

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
def logits_under(model, mask, tokens):
    x = model.token_embedding.weight[tokens] + model.position_embedding.weight[: tokens.shape[1]]
    for block in model.blocks:
        x = x + block.attention(block.norm_1(x), mask=mask)[0]
        x = x + block.network(block.norm_2(x))
    return model.norm(x) @ model.token_embedding.weight.mT


def loss(model, mask):
    logits = logits_under(model, mask, STORIES[:, :-1])
    return cross_entropy(logits.mT, STORIES[:, 1:], reduction="none")[:, 8:].mean().item()


@contextmanager
def without_values_of_token_0(model, heads):
    """Its values are zero in these heads, ``(layer, head)``; its keys stay."""
    zeroed, hooks = Counter(), ExitStack()

    def forget(layer, head):
        def hook(v_proj, x, values):
            changed = values.clone()
            changed[..., 0, 16 * head : 16 * (head + 1)] = 0
            zeroed[layer, head] += 1
            return changed

        return model.blocks[layer].attention.v_proj.register_forward_hook(hook)

    with hooks:
        for place in heads:
            hooks.callback(forget(*place).remove)
        yield
    assert set(zeroed) == set(heads)


HEADS = [(layer, head) for layer in range(2) for head in range(4)]


def extra(model):
    """How much higher the loss is than with all keys: under each mask, and without the values of token 0."""
    everything = loss(model, causal_mask(N))
    found = [loss(model, mask) - everything for mask in masks()]
    with without_values_of_token_0(model, HEADS):
        return [*found, loss(model, masks()[1]) - everything]


@cache
def trained(seed, **options):
    def attention(layer):
        return layer_with(64, 4, **options)

    return story_model.train(seed, steps=800, attention=attention)


def test_five_words_are_enough_to_know_how_a_story_goes_on():
    tokens, entropies = story_model.sample(3000, seed=5)
    known = {}
    for words, nats in zip(tokens.tolist(), entropies.tolist(), strict=True):
        for i in range(4, len(words) - 1):
            last = tuple(words[i - 4 : i + 1])
            assert known.setdefault(last, nats[i + 1]) == pytest.approx(nats[i + 1], abs=1e-6), last


def test_the_shipped_model_misses_its_first_token_and_no_other():
    last_8, with_0, with_1, no_values = extra(story_model.load())
    assert last_8 == pytest.approx(0.03, abs=0.005)
    assert with_0 < 0.005
    assert with_1 > last_8
    assert no_values > last_8


def test_a_head_of_the_shipped_model_needs_the_value_of_token_0_and_not_only_a_place_for_its_weight():
    """Each weight of its layer stays; the same in any other head changes nothing; the length of the value."""
    model, tokens = (
        story_model.load(),
        story_model.encode("Ada amused Ben because she ate. in the lake the drum"),
    )
    verbs, n = [story_model.NUMBER[verb] for verb in story_model.BREAKS], len(tokens)

    def right(mask=None):
        logits = logits_under(model, causal_mask(n) if mask is None else mask, tokens[None])
        return logits[0, -1].softmax(dim=-1)[verbs].sum().item()

    block = model.blocks[0]
    start = block.norm_1(model.token_embedding.weight[tokens] + model.position_embedding.weight[:n])
    weights = block.attention(start, mask=causal_mask(n))[1]
    with without_values_of_token_0(model, [(0, 2)]):
        assert torch.equal(block.attention(start, mask=causal_mask(n))[1], weights)
        assert right() == pytest.approx(right(sliding_window_mask(n, window=8)), abs=0.01)
        assert right() < 0.05
    assert right() > 0.99
    with without_values_of_token_0(model, [place for place in HEADS if place != (0, 2)]):
        assert right() > 0.99
    lengths = block.attention.project(start, start, start)[2][2].norm(dim=-1)
    said = [
        float(x) for x in re.findall(r"has the length ([\d.]+), and the other values have ([\d.]+)", TEXT)[0]
    ]
    assert [lengths[0].item(), lengths[1:].mean().item()] == pytest.approx(said, abs=0.1)


@torch.no_grad()
@pytest.mark.parametrize(
    ("moved", "value_kept", "right"), [(True, True, True), (False, False, False), (True, False, False)]
)
def test_the_weight_that_moves_to_other_words_does_no_harm_if_the_value_of_token_0_stays(
    moved, value_kept, right
):
    """The softmax hides token 0 or not, in all heads, and its old share of its value comes or not."""
    model = story_model.load()
    tokens = story_model.encode("Ada amused Ben because she ate. in the lake the drum")
    verbs, n = [story_model.NUMBER[verb] for verb in story_model.BREAKS], len(tokens)
    x = model.token_embedding.weight[tokens] + model.position_embedding.weight[:n]
    window = sliding_window_mask(n, window=8)
    for block in model.blocks:
        inputs = block.norm_1(x)
        query, key, value = block.attention.project(inputs, inputs, inputs)
        scores = scaled_dot_product_scores(query, key)
        full = masked_softmax(scores, causal_mask(n))
        weights = masked_softmax(scores, window) if moved else full * window
        heads = weights @ value + value_kept * (full * ~window)[..., :1] * value[..., :1, :]
        x = x + block.attention.out_proj(merge_heads(heads))
        x = x + block.network(block.norm_2(x))
    p = (model.norm(x)[-1] @ model.token_embedding.weight.mT).softmax(dim=-1)[verbs].sum()
    assert p > 0.99 if right else p < 0.05


def test_token_0_is_a_constant_in_each_layer():
    """It sees only itself, so a window that keeps it keeps a learned key and value."""
    model, x = story_model.load(), STORIES[:50, :-1]
    x = model.token_embedding.weight[x] + model.position_embedding.weight[:N]
    for block in model.blocks:
        _, key, value = block.attention.project(*[block.norm_1(x)] * 3)
        for part, other in ((key, False), (value, False), (key, True)):
            token = part[..., 3 if other else 0, :]
            assert torch.allclose(token, token[:1].expand_as(token), atol=1e-5) != other
        x = block(x)[0]


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
def test_the_row_of_the_table_of_step_1(seed):
    (row,) = re.findall(rf"^\| {seed} \| (.+) \|$", TEXT, re.MULTILINE)
    said = [float(number) for number in row.split(" | ")]
    found = extra(trained(seed))
    for one, other in zip(found, said, strict=True):
        assert abs(one - other) <= 0.003 + 0.2 * other
    assert found[1] <= 0.005
    assert found[3] > found[1]


class WithConstant(MultiHeadAttention):
    """Every query sees one more learned key, with a learned value."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        both = 0.1 * torch.randn(2, self.num_heads, 1, self.d_k)
        self.more_key, self.more_value = map(torch.nn.Parameter, both)

    def attend(self, query, key, value, mask, *rest):
        def longer(more, some):
            return torch.cat([more.expand(*some.shape[:-2], 1, -1), some], dim=-2)

        more = None if mask is None else pad(mask, (1, 0), value=True)
        return super().attend(query, longer(self.more_key, key), longer(self.more_value, value), more, *rest)


def train_sinks_faster(seed, times=30):
    """As ``story_model.train``, with a larger learning rate for the sinks."""
    stories, _ = story_model.sample(10000)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = {"attention": lambda layer: ModernAttention(64, 4, sinks=True)}
        model = Decoder(len(story_model.WORDS), max_length=story_model.LENGTH, **layers)
        with torch.no_grad():
            model.token_embedding.weight.mul_(3)
        sinks = [block.attention.sinks for block in model.blocks]
        rest = [p for p in model.parameters() if all(p is not sink for sink in sinks)]
        optimizer = torch.optim.AdamW([{"params": rest}, {"params": sinks}], lr=0.005)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=[0.005, 0.005 * times], total_steps=801, pct_start=0.1
        )
        for _ in range(800):
            batch = stories[torch.randint(len(stories), (32,))]
            logits, _ = model(batch[:, :-1])
            cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return model


@pytest.mark.training
@pytest.mark.unchecked
def test_neither_faster_sinks_nor_a_learned_value_replace_the_first_token():
    """The second paragraph of the fold of step 2: its ranges, and what a window from the first step costs."""
    window = masks()[0]

    def costs(models):
        found = [loss(model, window) - loss(model, causal_mask(N)) for model in models]
        return [min(found), max(found)]

    (text,) = re.findall(r"Is their learning rate too small\?.+", TEXT)
    low, high, *ranges = (float(number) for number in re.findall(r"-?\d\.\d+", text))
    faster = [train_sinks_faster(seed) for seed in range(5)]
    learned = torch.cat([block.attention.sinks for model in faster for block in model.blocks])
    assert [learned.min().item(), learned.max().item()] == pytest.approx([low, high], abs=0.5)
    constants = [
        story_model.train(seed, 800, attention=lambda layer: WithConstant(64, 4)) for seed in range(5)
    ]
    for found, (least, most) in ((costs(faster), ranges[:2]), (costs(constants), ranges[2:4])):
        assert found[0] == pytest.approx(least, abs=0.003 + 0.5 * least)
        assert found[1] == pytest.approx(most, abs=0.2)
    lower = [loss(trained(seed), causal_mask(N)) - loss(trained(seed, window=8), window) for seed in range(5)]
    assert [min(lower), max(lower)] == pytest.approx(ranges[4:], abs=0.01)


@pytest.mark.parametrize("kernel", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_fused_scores_are_not_rounded_to_float16(kernel):
    """Scores of 113137 and 112854: a cap at 65504 would make them equal."""
    query, key = torch.tensor([[400.0, 0.0]]).half(), torch.tensor([[400.0, 0.0], [399.0, 0.0]]).half()
    query, key, value = (x[None, None] for x in (query, key, torch.eye(2).half()))
    assert scaled_dot_product_scores(query, key).isinf().all()
    with sdpa_kernel(kernel):
        weights = scaled_dot_product_attention(query, key, value)
        assert weights.flatten().tolist() == [1, 0]
        assert (scaled_dot_product_attention(query, key[..., [0, 0], :], value) == 0.5).all()


def test_the_fused_formula_overflows_if_its_scores_must_be_float16():
    """So float32 is the reason, and nothing else: PyTorch's own switch takes it away."""
    query = torch.tensor([[400.0, 0.0]]).half()[None, None]
    keep = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            assert scaled_dot_product_attention(query, query, query).isnan().all()
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(keep)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_loss_of_nan_spoils_the_parameters_unless_a_scaler_skips_the_step(scaled):
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    scaler.scale((parameter * torch.nan).sum()).backward()
    scaler.step(optimizer)
    assert parameter.isnan().any() != scaled


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
