"""The table against configurations of ``transformers``, and the bytes against caches that its models fill."""

from dataclasses import replace

import pytest
import torch

from mha_course.chapters import published
from mha_course.chapters.published import MODELS, Published, cache_bytes, cache_numbers

transformers = pytest.importorskip("transformers")


def rotary(base, part=1.0):
    return {"rope_theta": base, "partial_rotary_factor": part, "rope_type": "default"}


def configurations():
    """Without arguments, the defaults are those of the model; the others repeat a second public source."""
    hf = transformers
    return {
        "GPT-2": hf.GPT2Config(),
        "Llama 2 7B": hf.LlamaConfig(),
        "Falcon 7B": hf.FalconConfig(),
        "Mistral 7B v0.1": hf.MistralConfig(),
        "DeepSeek-V3": hf.DeepseekV3Config(),
        # num_local_experts and num_hidden_layers: the model card of OpenAI, sections 2 and 2.2
        "GPT-OSS 20B": hf.GptOssConfig(num_hidden_layers=24, num_local_experts=32),
        # the conversion scripts of transformers, for Phi, Gemma 2 and Gemma 3
        "Phi-2": hf.PhiConfig(
            hidden_size=2560, intermediate_size=10240, num_hidden_layers=32, rope_parameters=rotary(1e4, 0.4)
        ),
        "Gemma 2 9B": hf.Gemma2Config(
            num_hidden_layers=42, num_attention_heads=16, num_key_value_heads=8, hidden_size=3584,
            intermediate_size=14336, attn_logit_softcapping=50.0, head_dim=256, sliding_window=4096,
        ),
        "Gemma 3 12B": hf.Gemma3TextConfig(
            num_hidden_layers=48, num_attention_heads=16, num_key_value_heads=8, hidden_size=3840,
            intermediate_size=3840 * 8 // 2, sliding_window=1024,
        ),
        # models/sku_list.py of meta-llama/llama-models
        "Llama 3 8B": hf.LlamaConfig(
            hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
            intermediate_size=14336, vocab_size=128256, rope_parameters=rotary(5e5),
        ),
        # config.json of Qwen/Qwen3-8B
        "Qwen3 8B": hf.Qwen3Config(
            hidden_size=4096, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
            head_dim=128, intermediate_size=12288, rope_parameters=rotary(1e6),
        ),
        # LitGPT
        "OLMo 2 7B": hf.Olmo2Config(
            hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32,
            vocab_size=100352, rope_parameters=rotary(5e5),
        ),
    }  # fmt: skip


def whole(config):
    """The whole model, with all its layers and widths; the device ``meta`` has shapes and no numbers."""
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def filled(model, n):
    """What the model keeps of ``n`` tokens: one entry for each layer, with ``keys`` and ``values``."""
    with torch.device("meta"), torch.no_grad():
        return model.base_model(torch.zeros(1, n, dtype=torch.long)).past_key_values.layers


def as_kept(row, layers):
    """Older versions of transformers keep the keys and values that they compute from a latent vector."""
    expanded = row.kv_rank is not None and layers[0].keys.shape[1] == row.num_heads
    return replace(row, kv_rank=None) if expanded else row


def as_read(name, model):
    """A row of the table, read off a configuration and the modules of the model that is made of it."""
    config, parameters = model.config, dict(model.named_parameters())
    heads = config.num_attention_heads
    shared = 1 if getattr(config, "multi_query", False) else getattr(config, "num_key_value_heads", heads)
    d_k = getattr(config, "head_dim", None) or config.hidden_size // heads
    rope = getattr(config, "rope_parameters", None) or {}
    full, windows = rope.get("full_attention", rope), rope.get("sliding_attention", {})
    part = full.get("partial_rotary_factor") or 1.0
    latent = getattr(config, "kv_lora_rank", None)
    norms = [p.numel() for parameter, p in parameters.items() if parameter.endswith("q_norm.weight")]
    learned = any(".wpe." in parameter for parameter in parameters)
    window = getattr(config, "sliding_window", None)
    return Published(
        name, config.num_hidden_layers, config.hidden_size, heads, shared,
        config.qk_head_dim if latent else d_k,
        source=MODELS[name].source,
        d_v=config.v_head_dim if latent else None,
        positions="learned" if learned else "rotary",
        base=None if learned else int(full["rope_theta"]),
        window_base=int(windows["rope_theta"]) if windows else None,
        d_rope=config.qk_rope_head_dim if latent else (round(part * d_k) if part < 1 else None),
        max_length=config.n_positions if learned else None,
        window=window,
        full_every=first_full(config) if window else None,
        kv_rank=latent,
        qk_norm={(): None, (d_k,): "head", (heads * d_k,): "layer"}[tuple(set(norms))],
        soft_cap=getattr(config, "attn_logit_softcapping", None),
        sinks=any(parameter.endswith(".sinks") for parameter in parameters),
    )  # fmt: skip


def sliding(config):
    return [layer.is_sliding for layer in transformers.DynamicCache(config=config).layers]


def first_full(config):
    """The first layer without a window, counted from 1, if there is one."""
    return sliding(config).index(False) + 1 if False in sliding(config) else None


@pytest.fixture(scope="module", params=list(MODELS))
def pair(request):
    """A row of the table, and the model."""
    return MODELS[request.param], whole(configurations()[request.param])


def test_each_number_of_a_row_is_that_of_the_configuration(pair):
    row, model = pair
    assert as_read(row.name, model) == row
    every = row.full_every or row.num_layers + 1
    pattern = [row.window is not None and layer % every != 0 for layer in range(1, row.num_layers + 1)]
    assert sliding(model.config) == pattern
    assert sum(pattern) == row.num_windowed


@pytest.mark.slow
def test_the_numbers_are_those_that_a_whole_model_has_at_the_last_token(pair):
    """What is kept of ``n - 1`` tokens and is still in the window, and the last token itself."""
    row, model = pair
    for n in (127, 1025, 5003):
        if row.max_length is not None:
            n = min(n, row.max_length)
        layers, numbers = filled(model, n - 1), 0
        for layer in layers:
            seen, _ = layer.get_mask_sizes(1)
            numbers += seen * sum(kept.numel() // kept.shape[-2] for kept in (layer.keys, layer.values))
        assert numbers == cache_numbers(as_kept(row, layers), n)


@pytest.mark.parametrize(
    ("name", "billions"), [("DeepSeek-V3", 671), ("GPT-OSS 20B", 20.9), ("Qwen3 8B", 8.2)]
)
def test_a_model_of_this_configuration_has_as_many_parameters_as_published(name, billions):
    """Numbers that are not the defaults of a class are seen to be those of the model that is named."""
    parameters = sum(p.numel() for p in whole(configurations()[name]).parameters())
    assert parameters / 1e9 == pytest.approx(billions, rel=0.003)


SMALL = {"vocab_size": 17, "hidden_size": 24, "intermediate_size": 13, "num_attention_heads": 6}


def small_gemma():
    config = transformers.Gemma3TextConfig(
        **SMALL, num_hidden_layers=7, num_key_value_heads=2, head_dim=10, sliding_window=5
    )
    return config, Published("", 7, 24, 6, 2, 10, source="", window=5, full_every=6)


def small_deepseek():
    config = transformers.DeepseekV3Config(
        **SMALL, num_hidden_layers=3, num_key_value_heads=6, first_k_dense_replace=3, kv_lora_rank=11,
        q_lora_rank=7, qk_rope_head_dim=4, qk_nope_head_dim=5, v_head_dim=3,
    )  # fmt: skip
    return config, Published("", 3, 24, 6, 6, 9, source="", d_v=3, d_rope=4, kv_rank=11)


@pytest.mark.parametrize("make", [small_gemma, small_deepseek])
@torch.no_grad()
def test_the_bytes_are_those_in_memory_while_a_small_model_reads(make):
    config, row = make()
    model, cache = transformers.AutoModelForCausalLM.from_config(config).base_model, None
    for n in range(1, 9):
        cache = model(torch.tensor([[n]]), past_key_values=cache).past_key_values
        kept = [x.untyped_storage().nbytes() for layer in cache.layers for x in (layer.keys, layer.values)]
        assert sum(kept) == cache_bytes(as_kept(row, cache.layers), n, bytes_per_number=4)


def test_numbers_by_hand():
    row = Published("", 5, 24, 6, 2, 7, source="", d_v=3, window=4, full_every=2)
    # layers 2 and 4 keep all 9 tokens, and layers 1, 3 and 5 the last 4; each 2 keys of 7 and 2 values of 3
    assert cache_numbers(row, 9) == (2 * 9 + 3 * 4) * 2 * (7 + 3)
    assert cache_numbers(replace(row, full_every=None), 9) == 5 * 4 * 20
    assert cache_bytes(row, 9) == 2 * cache_numbers(row, 9)
    # DeepSeek-V2, section 2.1: as much as 2.25 key-value heads of the width 128
    assert cache_numbers(MODELS["DeepSeek-V3"], 1) == 61 * 2.25 * 2 * 128


def test_tables_and_curves_hold_the_computed_numbers():
    lines = published.cache_table(MODELS.values())
    assert len({len(line) for line in lines}) == 1
    found = {name: line.removeprefix(name).split() for name, line in zip(MODELS, lines[1:], strict=True)}
    assert found["GPT-2"] == ["36.0", "–", "–", "–", "–"]
    assert found["Mistral 7B v0.1"] == ["128.0", "0.50", "64.0", "0.50", "4.0"]
    assert found["Gemma 3 12B"] == ["384.0", "0.81", "104.0", "8.31", "66.5"]
    layers = published.layer_table(MODELS.values())
    assert len({len(line) for line in layers}) == 1
    gemma = layers[1 + list(MODELS).index("Gemma 3 12B")]
    assert "1024 in 40  " in gemma
    assert gemma.endswith("1,000,000 / 10,000       head    –      –")
    assert published.layer_table([MODELS["DeepSeek-V3"]], ["d_k", "KV heads"]) == [
        "model        d_k    KV heads",
        "DeepSeek-V3  192  latent 512",
    ]
    told = published.source_table(MODELS.values())
    assert max(map(len, told)) <= 88
    for model in MODELS.values():
        words = model.source.replace(" 5.23.0", "").split()
        assert " ".join([*model.name.split(), *words]) in " ".join(" ".join(told).split())
    curves = published.cache_curves(MODELS.values(), [1024, 2048])
    assert list(curves) == list(MODELS)
    assert {name: len(curve) for name, curve in curves.items() if len(curve) < 2} == {"GPT-2": 1}
    assert set(MODELS) - set(published.cache_curves(MODELS.values(), [2048])) == {"GPT-2"}
    assert curves["Falcon 7B"] == [1024 * 32 * 2 * 64 * 2, 2048 * 32 * 2 * 64 * 2]
    assert len({model.kind for model in MODELS.values()}) == 4


@pytest.mark.unchecked
def test_what_cannot_be_is_refused_by_name():
    model = MODELS["Llama 2 7B"]
    with pytest.raises(TypeError, match=r"^model: expected .+ got str\. Did you mean MODELS\['GPT-2'\]\?"):
        cache_numbers("GPT-2", 5)
    for make in (published.layer_table, published.cache_table, lambda a: published.cache_curves(a, [5])):
        with pytest.raises(TypeError, match=r"^model: expected a Published"):
            make(["GPT-2"])
    with pytest.raises(ValueError, match=r"^columns: expected headings of .+, got 'width'"):
        published.layer_table([model], ["width"])
    with pytest.raises(ValueError, match=r"^n: expected at least 1, got 0"):
        cache_numbers(model, 0)
    with pytest.raises(TypeError, match=r"^bytes_per_number: expected an int"):
        cache_bytes(model, 5, 0.5)
    with pytest.raises(ValueError, match=r"^num_kv_heads: expected a number that divides"):
        replace(model, num_kv_heads=5)
    with pytest.raises(ValueError, match=r"^d_rope: expected the width of the rotated part"):
        replace(model, kv_rank=512)
    with pytest.raises(ValueError, match=r"^window: expected at least 1"):
        replace(model, window=0)
