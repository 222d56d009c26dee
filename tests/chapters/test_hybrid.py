"""Layers of both kinds: the task by a plain loop, each layer by its formula, what models keep and learn."""

import pytest
import torch
from torch import Generator

from mha_course.chapters import delta, hybrid, kept
from mha_lab import causal_mask, scaled_dot_product_attention
from tests.references import assert_close


def source(seed=0):
    return Generator().manual_seed(seed)


def test_the_answers_are_those_of_a_plain_loop():
    tokens, answers = hybrid.sample(11, 7, generator=source())
    assert tokens.shape == (11, 21)
    for text, found in zip(tokens.tolist(), answers.tolist(), strict=True):
        shelf = dict(zip(text[:14:2], text[1:14:2], strict=True))
        assert len(shelf) == len(set(shelf.values())) == 7
        assert sorted(text[14:]) == sorted(shelf)
        assert found == [shelf[name] - hybrid.NUM_NAMES for name in text[14:]]
        assert text[14:] != list(shelf)


@pytest.mark.parametrize("kind", ["F", "D"])
def test_a_layer_is_its_formula(kind):
    torch.manual_seed(0)
    layer, x = hybrid.Layer(kind, 5, 3).double(), torch.randn(2, 41, 5).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    mixed, _ = delta.short_convolution(x @ layer.project.weight.mT, layer.mix)
    q, k, v = mixed[..., :3], mixed[..., 3:6], mixed[..., 6:]
    if kind == "F":
        read, _ = scaled_dot_product_attention(q, k, v, causal_mask(41))
    else:
        gates = torch.sigmoid(x @ layer.gates.weight.mT + layer.gates.bias)
        read, _ = delta.delta_rule(delta.unit(q), delta.unit(k), v, gates[..., :1], gates[..., 1:])
    assert_close(layer(x)[0], read @ layer.output.weight.mT, 1e-10)


@pytest.mark.parametrize("layers", ["FFFF", "DDDD", "DDDF", "F", "FD"])
def test_in_pieces_a_model_says_the_same_and_keeps_what_is_counted(layers):
    torch.manual_seed(0)
    model, (tokens, _) = hybrid.Model(layers, 5).double(), hybrid.sample(1, 12, generator=source())
    whole, _ = model(tokens)
    for pieces in ([1] * 36, [7, 1, 1, 27]):
        said, memories, read = [], None, 0
        for piece in tokens.split(pieces, dim=1):
            logits, memories = model(piece, memories)
            said.append(logits)
            read += piece.shape[1]
            held = sum(part.numel() for memory in memories for part in memory)
            assert held == kept.numbers_kept(hybrid.parts(layers, 5), read)
        assert_close(torch.cat(said, dim=1), whole, 1e-10)


def test_no_model_sees_a_later_token():
    model, (tokens, _) = hybrid.Model("DF"), hybrid.sample(3, 5, generator=source())
    changed = tokens.clone()
    changed[:, 9:] = 0
    assert_close(model(tokens)[0][:, :9], model(changed)[0][:, :9], 1e-5)
    assert (model(tokens)[0][:, 9:] - model(changed)[0][:, 9:]).abs().max() > 0.01


def test_the_three_models_have_as_many_parameters_to_within_two_percent():
    sizes = [sum(p.numel() for p in hybrid.Model(*each[:2]).parameters()) for each in hybrid.COMPARED]
    assert max(sizes) <= 1.02 * min(sizes)


def test_training_begins_with_its_seed_and_leaves_the_others_alone():
    before = torch.get_rng_state()
    one, same, other = (hybrid.train("DF", 5, 2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, one.parameters(), same.parameters()))
    assert not torch.equal(one.embedding.weight, other.embedding.weight)


def test_right_is_the_share_of_a_plain_loop():
    model = hybrid.Model("D", 3)
    tokens, answers = hybrid.sample(100, 5, generator=source(10**6))
    logits = model(tokens)[0]
    hits = [logits[b, 10 + i].argmax() == answers[b, i] for b in range(100) for i in range(5)]
    assert hybrid.right(model, 5) == pytest.approx(sum(hits).item() / 500)


def test_the_table_has_each_training_once_and_is_read_as_it_was_written(tmp_path, monkeypatch):
    stored = hybrid.results()
    assert list(stored) == list(hybrid.COMPARED + hybrid.CHANGED)
    for shares in stored.values():
        assert list(shares) == list(hybrid.TRIED)
        assert all(len(each) == 5 and 0 <= min(each) <= max(each) <= 1 for each in shares.values())
    monkeypatch.setattr(hybrid, "FILE", tmp_path / "table.csv")
    hybrid.write(
        (*model, seed, pairs, stored[model][pairs][seed])
        for model in stored
        for seed in hybrid.SEEDS
        for pairs in hybrid.TRIED
    )
    assert hybrid.results() == stored


def assert_as_stored(model, seed):
    """A training says what the table says, within what other rounding changes."""
    trained, stored = hybrid.train(*model, seed=seed), hybrid.results()[model]
    for pairs in hybrid.TRIED:
        assert abs(hybrid.right(trained, pairs) - stored[pairs][seed]) <= 0.1, (model, seed, pairs)


@pytest.mark.slow
@pytest.mark.unchecked
def test_one_layer_with_a_cache_learns_what_is_stored():
    assert_as_stored(("F", 16, hybrid.STEPS), 0)


@pytest.mark.training
@pytest.mark.unchecked
@pytest.mark.parametrize("model", hybrid.COMPARED)
def test_each_model_learns_what_is_stored(model):
    assert_as_stored(model, 1)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hybrid.Model("DDDX"), "layers: expected letters F and D, such as 'DDDF'"),
        (lambda: hybrid.Model(""), "layers: expected letters F and D"),
        (lambda: hybrid.parts("full"), "layers: expected letters F and D"),
        (lambda: hybrid.Model("D", 0), "d_k: expected at least 1"),
        (lambda: hybrid.train("D", steps=0), "steps: expected at least 1"),
        (lambda: hybrid.train("D", seed=-1), "seed: expected at least 0"),
        (lambda: hybrid.sample(0, 3, generator=source()), "count: expected at least 1"),
        (lambda: hybrid.sample(2, 129, generator=source()), "n: expected at most num_names = 128"),
    ],
)
def test_a_wrong_argument_is_refused(call, says):
    with pytest.raises(ValueError, match=f"^{says}"):
        call()
