"""What chapter 12 says of grouped heads in trained models, of windows, and of Llama 2's weights."""

import copy

import pytest
import torch

from mha_course.chapters import story_model
from mha_course.chapters.language_model import Block
from mha_course.chapters.modern import align_kv_heads, group_kv_heads
from tests.references import layer_with

TASKS = ("sense", "pronoun")


def grouped(model, num_kv_heads):
    copied = copy.deepcopy(model)
    for block in copied.blocks:
        block.attention = group_kv_heads(block.attention, num_kv_heads)
    return copied


@torch.no_grad()
def aligned(model, num_kv_heads):
    """As in the chapter: with what each layer gets in 200 stories."""
    copied, (stories, _) = copy.deepcopy(model), story_model.sample(200, seed=7)
    x = model.token_embedding(stories) + model.position_embedding.weight
    for new, old in zip(copied.blocks, model.blocks, strict=True):
        new.attention = align_kv_heads(old.attention, num_kv_heads, old.norm_1(x))
        x, _ = old(x)
    return copied


def shares(model):
    return [story_model.probe(model, task)["model"] for task in TASKS]


def test_grouping_the_shipped_model_makes_it_guess():
    model = story_model.load()
    assert [[round(share, 2) for share in shares(grouped(model, count))] for count in (4, 2, 1)] == [
        [1.0, 1.0],
        pytest.approx([0.84, 0.60], abs=0.02),
        pytest.approx([0.50, 0.55], abs=0.02),
    ]


@pytest.mark.parametrize(("count", "said"), [(2, [0.97, 0.95]), (1, [0.78, 0.72])])
def test_most_of_the_harm_of_a_mean_is_in_the_coordinates(count, said):
    """Turning changes nothing in the model; what it gives back of the lost answers, without training."""
    model, tokens = story_model.load(), story_model.sample(20, seed=3)[0]
    turned = aligned(model, count)
    assert (turned(tokens)[0] - model(tokens)[0]).abs().max() < 1e-4
    plain, better = shares(grouped(model, count)), shares(grouped(turned, count))
    assert better == pytest.approx(said, abs=0.02)
    for low, high in zip(plain, better, strict=True):
        assert (high - low) / (1 - low) > (0.8 if count == 2 else 0.35)


@pytest.mark.parametrize(("name", "said"), [("k_proj", [0.98, 0.93]), ("v_proj", [0.90, 0.95])])
def test_means_of_the_keys_alone_or_of_the_values_alone_do_less_harm(name, said):
    model = story_model.load()
    for block in model.blocks:
        for parameter in getattr(block.attention, name).parameters():
            heads = parameter.data.unflatten(0, (2, 2, 16))
            heads.copy_(heads.mean(dim=1, keepdim=True).expand_as(heads))
    assert shares(model) == pytest.approx(said, abs=0.02)


def test_one_head_looks_at_the_wrong_person_after_grouping():
    model, tokens = story_model.load(), story_model.encode("Ada amused Ben because")

    def row(some):
        weights = some(tokens[None], need_weights=True)[1]
        return [round(x, 2) for x in weights[1, 0, 0, -1, [1, 3]].tolist()]

    assert [row(grouped(model, count)) for count in (4, 2, 1)] == [[0.99, 0.01], [0.19, 0.77], [0.42, 0.49]]
    for count in (2, 1):
        assert row(grouped(aligned(model, count), count))[0] > 0.9


@pytest.mark.parametrize("windows", [(4,), (4, 4), (4, 4, 4), (3, 5), (4, None, 4), (1, 1)])
def test_each_layer_with_a_window_adds_one_less_than_its_window(windows):
    x = torch.randn(1, 12, 8, dtype=torch.float64)
    blocks = [Block(layer_with(8, 2, window=window)).double() for window in windows]

    def last(x):
        for block in blocks:
            x, _ = block(x)
        return x[0, -1]

    moved = []
    for token in range(12):
        changed = x.clone()
        changed[0, token] += torch.randn(8).double()
        moved.append((last(changed) - last(x)).abs().max().item() > 1e-12)
    reach = 11 if None in windows else sum(window - 1 for window in windows)
    assert moved == [token >= 11 - reach for token in range(12)]
