"""Reasons of chapter 15, each tried with the smallest experiment that could refute it."""

from importlib import import_module

import pytest
import torch

from mha_lab.positions import Rotary, rotary_frequencies
from mha_lab.scores import QueryKeyNorm


def test_the_order_of_norm_and_rotation_matters_only_if_the_gains_of_a_pair_differ():
    """The root mean square is the same before and after; a gain that both columns of a pair have hides it."""
    turn, query = Rotary(layout="halves"), torch.randn(2, 3, 7, 8)
    root = [x.square().mean(dim=-1) for x in (query, turn(query, query)[0])]
    torch.testing.assert_close(*root)
    gains = {
        torch.ones(8): True,
        torch.full((8,), 3.0): True,
        1 + torch.arange(4.0).repeat(2): True,  # column i and column i + 4 are a pair
        1 + torch.arange(4.0).repeat_interleave(2): False,
        1 + torch.arange(8.0): False,
    }
    for gain, same in gains.items():
        norm = QueryKeyNorm(8)
        norm.query_norm.weight.data = gain
        orders = turn(*norm(query, query))[0], norm(*turn(query, query))[0]
        assert torch.allclose(*orders, atol=1e-5) == same


def test_frequencies_of_4_columns_turn_4_columns():
    query = torch.randn(2, 3, 7, 8)
    for width in (4, 8):
        turned, _ = Rotary(frequencies=rotary_frequencies(width), layout="halves")(query, query)
        changed = (turned[..., 1:, :] != query[..., 1:, :]).any((0, 1, 2))
        assert changed.tolist() == [i < width for i in range(8)]


@pytest.mark.parametrize("attends", ["sdpa", "eager"])
def test_only_the_fused_function_may_get_no_mask_and_then_is_causal_hides_later_keys(attends):
    """The mask is gone and the class says that it is causal: without either, a token sees later ones."""
    pytest.importorskip("transformers")
    from transformers import LlamaConfig, LlamaModel

    sizes = {"hidden_size": 12, "intermediate_size": 7, "num_attention_heads": 3, "num_key_value_heads": 1}
    model = LlamaModel(LlamaConfig(**sizes, vocab_size=19, num_hidden_layers=2, attn_implementation=attends))
    layer, masks = model.layers[0].self_attn, []
    layer.register_forward_pre_hook(
        lambda _, __, given: masks.append(given["attention_mask"]), with_kwargs=True
    )
    tokens = torch.randint(19, (2, 7))
    changed = torch.cat([tokens[:, :6], (tokens[:, 6:] + 1) % 19], dim=1)

    def sees_later():
        with torch.no_grad():
            one, other = (model(text).last_hidden_state[:, :6] for text in (tokens, changed))
        return not torch.allclose(one, other, atol=1e-6)

    assert not sees_later()
    assert (masks[0] is None) == (attends == "sdpa")
    layer.is_causal = False
    assert sees_later() == (attends == "sdpa")


def test_olmoe_hands_on_a_window_that_its_models_mask_does_not_have():
    """On a whole text; Mistral's model, with the same sizes, makes a mask with the window."""
    pytest.importorskip("transformers")
    from transformers import MistralConfig, MistralModel, OlmoeConfig, OlmoeModel

    sizes = {"hidden_size": 24, "intermediate_size": 8, "num_attention_heads": 3, "num_key_value_heads": 1}
    ids = {"vocab_size": 19, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    for kind, config, seen in ((OlmoeModel, OlmoeConfig, 11), (MistralModel, MistralConfig, 3)):
        made = config(
            **sizes, **ids, sliding_window=3, num_hidden_layers=1, attn_implementation="eager",
            **({"num_experts": 2, "num_experts_per_tok": 1} if kind is OlmoeModel else {}),
        )  # fmt: skip
        model, masks = kind(made), []
        model.layers[0].self_attn.register_forward_pre_hook(
            lambda _, __, given, masks=masks: masks.append(given["attention_mask"]), with_kwargs=True
        )
        with torch.no_grad():
            model(torch.randint(1, 19, (2, 11)))
        assert (masks[0][0, 0, -1] == 0).sum() == seen


@pytest.mark.parametrize(("folder", "layout"), [("llama", "halves"), ("cohere", "pairs")])
def test_two_files_have_functions_of_one_name_that_turn_halves_and_pairs(folder, layout):
    pytest.importorskip("transformers")
    file = import_module(f"transformers.models.{folder}.modeling_{folder}")
    query, key, at = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8), torch.arange(7)[:, None]
    angles = at * rotary_frequencies(8, base=100)
    angles = angles.repeat_interleave(2, dim=-1) if layout == "pairs" else angles.repeat(1, 2)
    theirs = file.apply_rotary_pos_emb(query, key, angles.cos()[None], angles.sin()[None])
    torch.testing.assert_close(theirs, Rotary(base=100, layout=layout)(query, key))
