"""What models keep and read: against chapter 12, the configurations, and the caches that the modules fill."""

import pytest
import torch

from mha_course.chapters.kept import (
    PAST_SOFTMAX,
    Part,
    delta_state,
    kept_and_read_table,
    numbers_kept,
    numbers_read,
    parts_of,
)
from mha_course.chapters.published import MODELS, cache_numbers


@pytest.mark.parametrize("name", MODELS)
def test_the_models_of_chapter_12_keep_what_it_says_and_read_all_of_it(name):
    parts = parts_of(MODELS[name])
    for n in (1, 100, 5000, 131_072):
        assert numbers_kept(parts, n) == numbers_read(parts, n) == cache_numbers(MODELS[name], n)


def test_by_hand():
    parts = Part(2, entry=3, every=4, index=5, chosen=6), Part(7, entry=11, window=13), Part(17, state=19)
    # 41 tokens are 10 full groups of 4; 13 of 41 are in the window
    assert numbers_kept(parts, 41) == 2 * 10 * (3 + 5) + 7 * 13 * 11 + 17 * 19
    assert numbers_read(parts, 41) == 2 * (6 * 3 + 10 * 5) + 7 * 13 * 11 + 17 * 19
    assert numbers_kept(parts, 3) == 7 * 3 * 11 + 17 * 19
    # 9 tokens are 2 entries, fewer than are chosen, and fewer than the window
    assert numbers_read(parts, 9) == numbers_kept(parts, 9) == 2 * 2 * (3 + 5) + 7 * 9 * 11 + 17 * 19


def configured(name):
    """The parts, from the defaults of the configuration class."""
    transformers = pytest.importorskip("transformers")
    c = {
        "Qwen3-Next": "Qwen3NextConfig", "Kimi Linear": "KimiLinearConfig",
        "DeepSeek-V3.2": "DeepseekV32Config", "DeepSeek-V4": "DeepseekV4Config",
    }[name]  # fmt: skip
    c = getattr(transformers, c)()
    kinds = c.layer_types.count
    if name == "Qwen3-Next":
        state = delta_state(
            c.linear_num_value_heads, c.linear_key_head_dim, c.linear_value_head_dim,
            num_kv_heads=c.linear_num_key_heads, width=c.linear_conv_kernel_dim,
        )  # fmt: skip
        full = Part(kinds("full_attention"), entry=2 * c.num_key_value_heads * c.head_dim)
        return full, Part(kinds("linear_attention"), state=state)
    if name == "Kimi Linear":
        sizes = c.linear_num_heads, c.linear_head_dim, c.linear_head_dim
        state = delta_state(*sizes, width=c.linear_conv_kernel_dim)
        full = Part(kinds("full_attention"), entry=c.kv_lora_rank + c.qk_rope_head_dim)
        return full, Part(kinds("linear_attention"), state=state)
    if name == "DeepSeek-V3.2":
        entry = c.kv_lora_rank + c.qk_rope_head_dim
        layers = kinds("indexed_attention")
        return (Part(layers, entry=entry, index=c.index_head_dim, chosen=c.index_topk),)
    few, many = "compressed_sparse_attention", "heavily_compressed_attention"
    assert c.num_key_value_heads == 1
    return (
        Part(c.num_hidden_layers, entry=c.head_dim, window=c.sliding_window),
        Part(
            kinds(few), entry=c.head_dim, every=c.compress_rates[few], index=c.index_head_dim,
            chosen=c.index_topk,
        ),
        Part(kinds(many), entry=c.head_dim, every=c.compress_rates[many]),
    )  # fmt: skip


@pytest.mark.parametrize("name", PAST_SOFTMAX)
def test_the_newer_models_have_the_numbers_of_their_configuration_classes(name):
    assert PAST_SOFTMAX[name] == configured(name)


def test_a_state_has_the_numbers_of_the_cache_of_kimi_linear_but_for_one_token():
    """One layer with random weights; what its cache holds after 5 tokens and after 12.

    Its convolution keeps as many tokens as the kernel is wide, one more than the next token needs.
    """
    theirs = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    from transformers import DynamicCache, KimiLinearConfig

    config = KimiLinearConfig(
        hidden_size=22, num_hidden_layers=1, linear_num_heads=3, linear_head_dim=7, linear_conv_kernel_dim=5,
        layer_types=["linear_attention"],
    )  # fmt: skip
    layer, cache = theirs.KimiLinearDeltaAttention(config, 0), DynamicCache(config=config)
    for length in (5, 7):
        with torch.no_grad():
            layer(torch.randn(1, length, 22), cache_params=cache)
        kept = [cache.get_conv_state(0, state_idx=0), cache.get_recurrent_state(0, state_idx=0)]
        assert kept[1].numel() == 3 * 7 * 7
        assert sum(x.numel() for x in kept) == delta_state(3, 7, 7, width=5) + 3 * (7 + 7 + 7)


def test_the_table_is_that_of_the_issue():
    lines = kept_and_read_table(PAST_SOFTMAX, [131_072])
    assert [line.split()[-4:-1] for line in lines[1:]] == [
        ["24.0", "37.7", "3.04"], ["6.8", "22.5", "0.87"], ["83.9", "–", "10.48"], ["6.4", "5.4", "0.81"],
    ]  # fmt: skip
