"""BERT's and GPT-2's attention against ours, on random weights; what is said where nothing can be loaded."""

import subprocess
import sys
import time
import tomllib

import pytest
import torch

from mha_lab import MultiHeadAttention, causal_mask, padding_mask
from mha_lab.chapters import pretrained
from mha_lab.chapters.pretrained import Unavailable, from_bert, from_gpt2
from tests.no_network import refusing
from tests.notebooks.chapters import ROOT

transformers = pytest.importorskip("transformers")

# d_model, heads, tokens, batch: heads of 7, 5 and 3 columns
SIZES = [(21, 3, 5, 2), (35, 7, 3, 5), (6, 2, 11, 3)]


def bert(d_model, heads, seed, layers=2):
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        hidden_size=d_model, num_attention_heads=heads, num_hidden_layers=layers, intermediate_size=13,
        vocab_size=17, max_position_embeddings=31, attn_implementation="eager", initializer_range=0.5,
    )  # fmt: skip
    return _with_biases(transformers.BertModel(config)).eval()


def gpt2(d_model, heads, seed, layers=2, **changes):
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        n_embd=d_model, n_head=heads, n_layer=layers, vocab_size=17, n_positions=31,
        attn_implementation="eager", initializer_range=0.5, **changes,
    )  # fmt: skip
    return _with_biases(transformers.GPT2Model(config)).eval()


@torch.no_grad()
def _with_biases(model):
    """Random biases: both start at 0, where a lost one would not be noticed."""
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            p.normal_()
    return model


def check(request, name, pairs, most):
    largest = max((ours - theirs).abs().max().item() for ours, theirs in pairs)
    request.node.user_properties.append((f"largest difference from {name}", largest))
    assert largest < most


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", SIZES)
@torch.no_grad()
def test_bert(sizes, seed, lengths, dtype, most, request):
    d_model, heads, n, batch = sizes
    model = bert(d_model, heads, seed).to(dtype)
    ids = torch.randint(17, (batch, n))
    real = torch.tensor([1 + (3 * b + 1) % n for b in range(batch)]) if lengths else torch.full((batch,), n)
    mask = padding_mask(real, n)
    whole = model(ids, attention_mask=mask[:, 0, 0].long(), output_attentions=True, output_hidden_states=True)
    for i, block in enumerate(model.encoder.layer):
        hidden = whole.hidden_states[i]
        output, weights = from_bert(block.attention)(hidden, mask=mask)
        fetched, _ = block.attention.self(hidden, attention_mask=_additive(mask, dtype))
        pairs = [(weights, whole.attentions[i]), (output, block.attention.output.dense(fetched))]
        check(request, "BERT's attention", pairs, most)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", SIZES)
@torch.no_grad()
def test_gpt2(sizes, seed, lengths, dtype, most, request):
    d_model, heads, n, batch = sizes
    model = gpt2(d_model, heads, seed).to(dtype)
    ids = torch.randint(17, (batch, n))
    real = torch.tensor([1 + (3 * b + 1) % n for b in range(batch)]) if lengths else torch.full((batch,), n)
    mask = padding_mask(real, n) & causal_mask(n)
    padding = padding_mask(real, n)[:, 0, 0].long()
    whole = model(ids, attention_mask=padding, output_attentions=True, output_hidden_states=True)
    for i, block in enumerate(model.h):
        hidden = block.ln_1(whole.hidden_states[i])
        output, weights = from_gpt2(block.attn)(hidden, mask=mask)
        theirs, _ = block.attn(hidden, attention_mask=_additive(mask, dtype))
        check(request, "GPT-2's attention", [(weights, whole.attentions[i]), (output, theirs)], most)


def _additive(mask, dtype):
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def test_what_is_no_such_layer_is_refused():
    with pytest.raises(TypeError, match="BERT's attention"):
        from_bert(MultiHeadAttention(6, 3))
    with pytest.raises(TypeError, match="GPT-2's attention"):
        from_gpt2(bert(6, 3, 0).encoder.layer[0].attention)
    for changes in ({"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True}):
        with pytest.raises(ValueError, match="1/sqrt"):
            from_gpt2(gpt2(6, 3, 0, **changes).h[1].attn)
    with pytest.raises(ValueError, match="another sequence"):
        from_gpt2(gpt2(6, 3, 0, add_cross_attention=True).h[0].crossattention)


def test_mode_and_dropout_come_along():
    model = bert(6, 3, 0).train()
    layer = from_bert(model.encoder.layer[0].attention)
    assert layer.training
    assert layer.dropout == pytest.approx(0.1)
    assert not from_bert(model.eval().encoder.layer[0].attention).training


class Words:
    """A tokenizer of three words, in place of one that would have to be downloaded."""

    names = ("a", "dog", "saw")

    def __call__(self, text, return_tensors):
        assert return_tensors == "pt"
        return {"input_ids": torch.tensor([[self.names.index(word) for word in text.split()]])}

    def convert_ids_to_tokens(self, ids):
        return [self.names[i] for i in ids]


@pytest.mark.parametrize("make", [bert, gpt2])
def test_a_loaded_model_is_read_with_our_layer(make):
    model = make(21, 3, 0)
    reading = pretrained.read_with(model, Words(), "a dog saw a dog", layer=1)
    assert reading.tokens == ["a", "dog", "saw", "a", "dog"]
    assert reading.weights.shape == (3, 5, 5)
    torch.testing.assert_close(reading.weights.sum(-1), torch.ones(3, 5))
    assert bool(reading.weights.triu(1).any()) == (make is bert)
    with pytest.raises(ValueError, match="layer"):
        pretrained.read_with(model, Words(), "a dog", layer=2)


@pytest.mark.parametrize("make", [bert, gpt2])
def test_weights_are_loaded_as_published_ones_are(make, tmp_path):
    """The real loading code, on a folder in the form in which models are published."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = make(21, 3, 0)
    model.save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "dog": 2, "saw": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path)
    reading = pretrained.read(str(tmp_path), "a dog saw a dog")
    assert reading.tokens == ["a", "dog", "saw", "a", "dog"]
    expected = model(torch.tensor([[1, 2, 3, 1, 2]]), output_attentions=True).attentions[0][0]
    torch.testing.assert_close(reading.weights, expected)


OFFLINE = """
import sys
from mha_lab.chapters import pretrained
for name in ("bert-base-uncased", "gpt2"):
    try:
        pretrained.read(name, "a dog saw a cat")
    except pretrained.Unavailable as reason:
        print(reason)
"""


def test_an_older_transformers_is_refused(monkeypatch):
    """It would read other weights, and say nothing."""
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.6")
    with pytest.raises(Unavailable, match=r"transformers 5.6 or newer is needed, and 4.57.6 is installed"):
        pretrained.read("gpt2", "a dog", layer=0)


def test_the_oldest_transformers_is_the_declared_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bound = ".".join(map(str, pretrained.OLDEST))
    assert project["optional-dependencies"]["pretrained"] == [f"transformers>={bound}"]


def test_without_a_network_it_says_so_soon_and_quietly(tmp_path):
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        env={"PYTHONPATH": refusing(tmp_path / "path"), "HF_HOME": str(tmp_path / "nothing"), "PATH": ""},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert time.perf_counter() - start < 60
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"{name} was never downloaded here, and the network does not answer"
        for name in ("bert-base-uncased", "gpt2")
    ]


def test_without_transformers_it_says_how_to_get_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(Unavailable, match="pip install transformers"):
        pretrained.read("gpt2", "a dog")


def test_importing_the_module_loads_no_transformers():
    program = "import sys, mha_lab.chapters.pretrained; print('transformers' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"
