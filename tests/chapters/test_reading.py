"""The short forms against the classes of ``transformers``, and the code that is shown."""

import sys

import pytest
import torch

from mha_course.chapters import published, reading
from mha_course.chapters.reading import GPTNeoXAttention, code, compared, given, original_code

SIZES = {"num_attention_heads": 6, "num_key_value_heads": 2}
GEMMA = {"query_pre_attn_scalar": 5, "attn_logit_softcapping": 2.0}
LAYERS = {
    "LlamaAttention": SIZES | {"hidden_size": 24},
    "Qwen3Attention": SIZES | {"hidden_size": 20, "head_dim": 8, "rope_theta": 100.0},
    "GPTNeoXAttention": {"hidden_size": 48, "num_attention_heads": 6, "rotary_pct": 0.5},
    "Gemma2Attention": SIZES | GEMMA | {"hidden_size": 24, "head_dim": 8, "sliding_window": 3},
}
WITHOUT = [{"name": name, "change": change} for name, change in (
    ("LlamaAttention", {"rope_theta": 500.0}),
    ("Qwen3Attention", {"rope_theta": 500.0}),
    ("GPTNeoXAttention", {"rotary_pct": 1.0}),
    ("Gemma2Attention", {"query_pre_attn_scalar": 8}),
    ("Gemma2Attention", {"attn_logit_softcapping": 50.0}),
    ("Gemma2Attention", {"sliding_window": 4}),
)]  # fmt: skip


def made(name, **change):
    """A layer whose parameters, norms and biases too, are random."""
    layer = reading.CLASSES[name](**LAYERS[name] | change)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return layer


@pytest.mark.parametrize("name", LAYERS)
def test_each_short_form_is_the_original(name):
    pytest.importorskip("transformers")
    layer = made(name)
    x = torch.randn(3, 7, LAYERS[name]["hidden_size"])
    assert compared(layer, x) < 1e-5
    with torch.no_grad():
        output, weights = layer(x, **given(layer, 7))
    assert output.abs().max() > 0.1
    assert weights.shape == (3, 6, 7, 7)


def test_angles_and_mask_are_those_that_the_model_makes():
    """``compared`` hands the same to both classes, so it sees no fault of them."""
    theirs = pytest.importorskip("transformers.models.gemma2.modeling_gemma2")
    from transformers import Gemma2Config
    from transformers.masking_utils import create_sliding_window_causal_mask

    layer, x = made("Gemma2Attention"), torch.randn(1, 7, 24)
    rope = {"rope_type": "default", "rope_theta": layer.rope_theta}
    sizes = {"hidden_size": 24, "num_attention_heads": 6, "head_dim": 8, "sliding_window": 3}
    config = Gemma2Config(**sizes, rope_parameters=rope, attn_implementation="eager")
    inputs = given(layer, 7)
    torch.testing.assert_close(
        inputs["position_embeddings"], theirs.Gemma2RotaryEmbedding(config)(x, torch.arange(7)[None])
    )
    mask = create_sliding_window_causal_mask(config, x, None, None)
    assert torch.equal(inputs["attention_mask"] == 0, mask == 0)


@pytest.mark.parametrize("case", WITHOUT, ids=str)
def test_each_setting_is_felt(case):
    """The comparison above would see a wrong setting."""
    layer = made(case["name"])
    other = reading.CLASSES[case["name"]](**LAYERS[case["name"]] | case["change"])
    other.load_state_dict(layer.state_dict())
    x = torch.randn(3, 7, LAYERS[case["name"]]["hidden_size"])
    with torch.no_grad():
        both = [one(x, **given(one, 7))[0] for one in (layer, other)]
    assert (both[0] - both[1]).abs().max() > 1e-3


def test_the_originals_code_is_shown_where_it_is_installed():
    pytest.importorskip("transformers")
    for name in LAYERS:
        text = original_code(name)
        assert f"class {name}(nn.Module):" in text
        assert "past_key_values" in text or "layer_past" in text  # the short form has no cache
    assert "def forward" in original_code("MistralAttention")  # of any class of the census
    shown = {original_code("Attention", folder) for folder in ("fsmt", "openai")}
    assert len(shown) == 2  # two files have a class of this name


def test_without_transformers_the_short_form_is_shown_and_said_to_be_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for module in [name for name in sys.modules if name.startswith("transformers.")]:
        monkeypatch.delitem(sys.modules, module)
    first, _, rest = original_code("GPTNeoXAttention").partition("\n")
    assert first == "# transformers is not installed; this is our short form."
    assert rest == code(GPTNeoXAttention)
    assert original_code("MistralAttention").count("\n") == 0
    assert compared(made("LlamaAttention"), torch.randn(1, 5, 24)) is None


def test_code_has_no_annotations_and_no_descriptions():
    for thing in (*reading.CLASSES.values(), reading.attend, reading.repeat_kv):
        text = code(thing)
        assert '"""' not in text
        assert "Tensor" not in text.replace("torch.Tensor", "")
    assert "def forward(self, hidden_states, position_embeddings, attention_mask):" in code(GPTNeoXAttention)


def test_an_edited_class_has_the_new_line_and_leaves_the_old_class_alone():
    x, layer, edited = torch.randn(3, 7, 24), made("LlamaAttention"), reading.edited
    repeated, tiled = "repeat_kv(key, module.num_key_value_groups)", "key.repeat(1, 3, 1, 1)"
    kinds = {
        "the same": edited(reading.LlamaAttention, {"scaling = self": "scaling = 1 * self"}),
        "scaled": edited(reading.LlamaAttention, {"scaling = self": "scaling = 2 * self"}),
        "tiled": edited(reading.LlamaAttention, {}, attend=edited(reading.attend, {repeated: tiled})),
    }
    for name, kind in kinds.items():
        other = kind(**LAYERS["LlamaAttention"])
        other.load_state_dict(layer.state_dict())
        with torch.no_grad():
            outputs = [one(x, **given(one, 7))[0] for one in (layer, other)]
        assert torch.equal(*outputs) == (name == "the same")


@pytest.mark.unchecked
def test_wrong_arguments_get_one_sentence():
    wrong = (
        (lambda: code(5), TypeError, "expected a class or a function"),
        (lambda: reading.edited(reading.attend, {"keys": "key"}), ValueError, "texts of the code of attend"),
        (lambda: original_code("Attention of Llama"), ValueError, "a class of published.census"),
        (
            lambda: original_code("LlamaAttention", "qwen3"),
            ValueError,
            "in which the census has LlamaAttention",
        ),
        (lambda: given(torch.nn.Linear(2, 3), 5), TypeError, "one of LlamaAttention, Qwen3Attention"),
        (lambda: compared(torch.nn.Linear(2, 3), torch.ones(1, 2, 2)), TypeError, "one of LlamaAttention"),
    )
    for call, kind, says in wrong:
        with pytest.raises(kind, match=says):
            call()


def test_the_four_are_in_the_census_and_equal():
    table = published.census().set_index("class")
    assert (table.loc[list(LAYERS), "result"] == "equal").all()
