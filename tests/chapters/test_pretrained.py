"""BERT's and GPT-2's attention against ours, on random weights; what is said where nothing can be loaded."""

import subprocess
import sys
import tomllib

import pytest
import torch

from mha_course.chapters import pretrained
from mha_course.chapters.pretrained import Unavailable, from_bert, from_gpt2
from mha_lab import MultiHeadAttention, causal_mask, padding_mask
from tests.no_network import refusing
from tests.notebooks.chapters import ROOT
from tests.references import assert_close

transformers = pytest.importorskip("transformers")
COMMON = {"vocab_size": 17, "attn_implementation": "eager", "initializer_range": 0.5}


def bert(d_model, heads):
    sizes = {"hidden_size": d_model, "num_attention_heads": heads, "intermediate_size": 13}
    config = transformers.BertConfig(num_hidden_layers=2, max_position_embeddings=31, **sizes, **COMMON)
    return with_biases(transformers.BertModel(config))


def gpt2(d_model, heads, **changes):
    sizes = {"n_embd": d_model, "n_head": heads, "n_layer": 2, "n_positions": 31}
    return with_biases(transformers.GPT2Model(transformers.GPT2Config(**sizes, **COMMON, **changes)))


@torch.no_grad()
def with_biases(model):
    """Random biases: both start at 0, where a lost one would not be noticed."""
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            p.normal_()
    return model.eval()


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("d_model", "heads", "n", "batch"), [(21, 3, 5, 2), (35, 7, 3, 5), (6, 2, 11, 3)])
@pytest.mark.parametrize("make", [bert, gpt2])
@torch.no_grad()
def test_outputs_and_weights_are_those_of_the_published_layers(
    make, d_model, heads, n, batch, padded, dtype, most, request
):
    model = make(d_model, heads).to(dtype)
    real = padding_mask([1 + (3 * b + 1) % n if padded else n for b in range(batch)], n)
    mask = real if make is bert else real & causal_mask(n)
    additive = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
    whole = model(
        torch.randint(17, (batch, n)), attention_mask=real[:, 0, 0].long(),
        output_attentions=True, output_hidden_states=True,
    )  # fmt: skip
    for i, block in enumerate(model.encoder.layer if make is bert else model.h):
        hidden = whole.hidden_states[i]
        if make is bert:
            output, weights = from_bert(block.attention)(hidden, mask=mask)
            theirs = block.attention.output.dense(block.attention.self(hidden, attention_mask=additive)[0])
        else:
            output, weights = from_gpt2(block.attn)(block.ln_1(hidden), mask=mask)
            theirs, _ = block.attn(block.ln_1(hidden), attention_mask=additive)
        largest = max(
            (weights - whole.attentions[i]).abs().max().item(), (output - theirs).abs().max().item()
        )
        request.node.user_properties.append((f"largest difference from {make.__name__}'s attention", largest))
        assert_close(weights, whole.attentions[i], most)
        assert_close(output, theirs, most)


def test_what_is_no_such_layer_is_refused():
    with pytest.raises(TypeError, match="BERT's attention"):
        from_bert(MultiHeadAttention(6, 3))
    with pytest.raises(TypeError, match="GPT-2's attention"):
        from_gpt2(bert(6, 3).encoder.layer[0].attention)
    for changes in ({"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True}):
        with pytest.raises(ValueError, match="1/sqrt"):
            from_gpt2(gpt2(6, 3, **changes).h[1].attn)
    with pytest.raises(ValueError, match="another sequence"):
        from_gpt2(gpt2(6, 3, add_cross_attention=True).h[0].crossattention)


def test_mode_and_dropout_come_along():
    one, other = bert(6, 3).encoder.layer[0].attention, gpt2(6, 3, attn_pdrop=0.3).h[0].attn
    assert from_bert(one.train()).training
    assert not from_bert(one.eval()).training
    assert from_bert(one).dropout == pytest.approx(0.1)
    assert from_gpt2(other).dropout == pytest.approx(0.3)


@pytest.mark.parametrize("make", [bert, gpt2])
def test_weights_are_loaded_as_published_ones_are(make, tmp_path):
    """The real loading code, on a folder in the form in which models are published."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = make(21, 3)
    model.save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "dog": 2, "saw": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path)
    expected = model(torch.tensor([[1, 2, 3, 1, 2]]), output_attentions=True).attentions
    for layer in range(2):
        reading = pretrained.read(str(tmp_path), "a dog saw a dog", layer)
        assert reading.tokens == ["a", "dog", "saw", "a", "dog"]
        torch.testing.assert_close(reading.weights, expected[layer][0])
    with pytest.raises(ValueError, match="layer"):
        pretrained.read(str(tmp_path), "a dog", layer=2)


def test_an_older_transformers_than_the_declared_one_is_refused(monkeypatch):
    """It would read other weights, and say nothing."""
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.6")
    with pytest.raises(Unavailable, match=r"newer is needed, and 4\.57\.6 is installed") as caught:
        pretrained.read("gpt2", "a dog")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["pretrained"][0].replace(">=", " ") in str(caught.value)


OFFLINE = """
import sys
from mha_course.chapters import pretrained
print("transformers" in sys.modules)
try:
    pretrained.read("gpt2", "a dog saw a cat")
except pretrained.Unavailable as reason:
    print(reason)
"""


def test_without_a_network_it_says_so_soon_and_quietly(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        env={"PYTHONPATH": refusing(tmp_path / "path"), "HF_HOME": str(tmp_path / "nothing"), "PATH": ""},
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    said = "gpt2 was never downloaded here, and the network does not answer"
    assert (done.stderr, done.stdout.splitlines()) == ("", ["False", said])


def test_without_transformers_it_says_how_to_get_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(Unavailable, match="pip install transformers"):
        pretrained.read("gpt2", "a dog")
