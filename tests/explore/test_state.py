"""The Python side: state as tensors in both directions, a fixed repr, errors before anything is drawn."""

import base64
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import mha_course
import mha_lab
from bench import examples
from mha_course import explore
from mha_course.chapters.language_model import Decoder
from mha_course.explore._widget import HERE, module
from mha_lab import MultiHeadAttention, _colours, toy
from mha_lab.masks import SlidingWindow

LEAVES_THE_PAGE = r"https?://(?!www\.w3\.org/2000/svg)|fetch\(|innerHTML|insertAdjacentHTML|eval\("


@pytest.mark.parametrize("name", explore.__all__)
def test_a_module_is_small_asks_for_nothing_and_writes_labels_as_text(name):
    """SECURITY.md promises it. Sizes are those of the sources: a module also gets a copy of shared.js."""
    folder = Path(mha_course.__file__).parent / "explore"
    own = "alone.js", "colours.js", "labextension/main.js"
    for source in (folder / f"{name}.js", folder / "shared.js", *(folder / other for other in own)):
        assert not re.search(LEAVES_THE_PAGE, source.read_text(encoding="utf-8"))
        assert len(source.read_bytes()) < (40_000 if source.stem == "model" else 20_000)
    assert "import " not in module(name)
    own = (folder / f"{name}.js").read_text(encoding="utf-8")
    assert ".mha " not in own  # such a rule would hold in every explorable of a page


def test_the_installed_extension_is_that_of_the_sources():
    """JupyterLab reads a copy: after a change, `make setup` or `pip install -e .` makes it anew."""
    installed = Path(sys.prefix, "share", "jupyter", "labextensions", "mha-lab")
    for folder, sources in {"": "labextension/*", "explore": "*.[cj]s*"}.items():
        own = {path.name: path.read_bytes() for path in HERE.glob(sources)}
        assert own
        copies = [path for path in (installed / folder).iterdir() if path.is_file()]
        assert {path.name: path.read_bytes() for path in copies} == own


def test_a_custom_property_of_the_style_has_one_meaning():
    """The parts of an explorable inherit it, and so do explorables from the website's style."""
    defined = re.compile(r"(?<![\w(-])--([a-z][\w-]*)\s*:|setProperty\(\"--([\w-]+)")
    folder = Path(mha_course.__file__).parent

    def names(source):
        return {one or other for one, other in defined.findall(source.read_text(encoding="utf-8"))}

    own = {source.stem: names(source) for source in (folder / "explore").glob("*.js")}
    shared = own.pop("shared") | set(_colours.LIGHT)
    assert {"ground", "turn", "weight"} <= shared
    assert not any(shared & each for each in own.values())
    site = names(folder.parent / "docs/site/_static/style.css")
    assert "over" in site
    assert site & shared.union(*own.values()) == {"accent"}  # the same grey in both


COLAB = """
import sys, types, torch
calls = []
output = types.ModuleType("google.colab.output")
output.enable_custom_widget_manager = lambda: calls.append("enabled")
output._widgets = types.SimpleNamespace(_installed_url="where-colab-has-its-manager")
sys.modules["google.colab.output"] = output
from mha_course import explore
_, metadata = explore.split(3, 2, 3)._repr_mimebundle_()
explore.mask(torch.zeros(3, 3))
manager = metadata["application/vnd.jupyter.widget-view+json"]["colab"]["custom_widget_manager"]["url"]
print(calls, manager, sorted(metadata))
"""


def test_on_colab_the_widget_manager_is_switched_on_once():
    """By anywidget, so a chapter needs no line for it; Colab's own module is a stand-in here."""
    done = subprocess.run(
        [sys.executable, "-c", COLAB], capture_output=True, text=True, check=True, timeout=300
    )
    kinds = ["application/vnd.jupyter.widget-view+json", "image/png"]
    assert done.stdout.strip() == f"['enabled'] where-colab-has-its-manager {kinds}"


@pytest.mark.parametrize("name", examples.ALL)
def test_the_repr_is_the_same_on_every_run_and_the_picture_is_described(name):
    data, metadata = examples.ALL[name]()._repr_mimebundle_()
    again, _ = examples.ALL[name]()._repr_mimebundle_()
    for kind in ("text/plain", "image/png"):
        assert data[kind] == again[kind]
    assert data["text/plain"].startswith(f"<explore.{examples.MODULES[name]}: ")
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert len(metadata["image/png"]["alt"]) >= 40
    assert "application/vnd.jupyter.widget-view+json" in data


def test_a_query_is_read_and_moved():
    picture = examples.query()
    torch.testing.assert_close(picture.query, torch.tensor([1.0, 1.5]))
    picture.query = torch.tensor([0.0, 2.0])
    keys = torch.tensor(picture._keys)
    torch.testing.assert_close(picture.weights, torch.softmax(keys @ picture.query / 2**0.5, 0))
    torch.testing.assert_close(picture.output, picture.weights @ torch.tensor(picture._values))
    picture.scale = 1.0
    torch.testing.assert_close(picture.weights, torch.softmax(keys @ picture.query, 0))
    picture._query = [1.0, -1.0]  # what a drag in the browser sends
    torch.testing.assert_close(picture.query, torch.tensor([1.0, -1.0]))
    assert explore.query(keys.double(), keys.double()).weights.dtype == torch.float64


def test_heads_are_chosen_and_averaged():
    picture = examples.heads()
    weights = picture._all
    picture.row, picture.picked = 2, [1]
    torch.testing.assert_close(picture.weights, weights[1:, 2])
    picture.picked, picture.averaged = [0, 1], True
    torch.testing.assert_close(picture.weights, weights.mean(0)[2][None])
    assert (picture.row, picture.picked, picture.averaged, picture.output) == (2, [0, 1], True, None)
    sizes = toy.embeddings()[:, 3:]
    opened = explore.heads(weights, toy.tokens(), values=sizes, row=2)
    torch.testing.assert_close(opened.output, weights[:, 2] @ sizes)
    assert "in head 0, to dog (0.85), so it fetches 0.84; in head 1," in opened.describe()


def test_a_mask_is_read_and_changed():
    picture = examples.mask()
    assert torch.equal(picture.mask, mha_lab.causal_mask(5))
    picture.mask = torch.zeros(5, dtype=torch.bool)
    assert torch.equal(picture.weights, torch.zeros(5, 5))
    picture._mask = [[True] * 5] * 5
    torch.testing.assert_close(picture.weights, torch.tensor(picture._scores).softmax(-1))
    assert "sees nothing" in explore.mask(torch.zeros(1, 2), torch.zeros(1, 2).bool()).describe()
    twice = explore.mask(torch.zeros(3, 3), torch.eye(3).bool(), ["a", "dog", "a"])
    told = "a (index 0) sees a (index 0) 1.00. dog sees dog 1.00. a (index 2) sees a (index 2) 1.00."
    assert twice.describe() == told


@pytest.mark.parametrize("step", ["memory", "view", "transpose", "merge"])
def test_a_split_is_stepped_through(step):
    picture = explore.split(2, 3, 4)
    picture.step = step
    x = torch.arange(24).view(2, 12)
    heads = torch.stack([x[:, 4 * h : 4 * h + 4] for h in range(3)])
    expected = {"memory": x, "view": x.view(2, 3, 4), "transpose": heads, "merge": x}
    assert torch.equal(picture.result, expected[step])


# Names: `query`, `heads`, `mask`, `split` and `examples` make one; `ones` and `eye` are 2 by 2.
WRONG = {
    "query(torch.ones(2, 3), ones)": "keys: expected a last axis",
    "query(torch.ones(0, 2), ones)": "keys: expected 1 to 8 keys, got 0",
    "query(ones, torch.ones(3, 2))": "values: expected one row",
    "query(torch.zeros(2, 2), ones)": "keys: expected keys that point",
    "query(ones * torch.nan, ones)": "keys: expected finite numbers, got NaN",
    "query(ones.long(), ones)": "keys: expected floating-point numbers",
    "query([[1.0, 2.0]], ones)": "keys: expected a torch.Tensor",
    "query(ones, ones.double())": "values: expected the dtype of keys",
    "query(ones, ones, query=ones)": "query: expected a tensor of shape",
    "query(ones, ones, key_labels=['a'])": "key_labels: expected 2 labels, got 1",
    "query(ones, ones, key_labels='ab')": "key_labels: expected a list of labels",
    "setattr(examples.query(), 'query', torch.tensor([1.0, torch.inf]))": "query: expected finite",
    "setattr(examples.query(), 'scale', '1')": "scale: expected a number",
    "heads(ones[None], ['a', 'b'])": "weights: expected rows that sum to 1",
    "heads(torch.tensor([[[2.0, -1.0]]]), ['a'], ['b', 'c'])": "weights: expected rows that sum",
    "heads(eye[None] * torch.nan, ['a', 'b'])": "weights: expected finite numbers",
    "heads(eye, ['a', 'b'])": "weights: expected a tensor of shape",
    "heads(eye.expand(17, 2, 2), ['a', 'b'])": "weights: expected 1 to 16 heads",
    "heads(eye[None], ['a'])": "query_labels: expected 2 labels, got 1",
    "heads(eye[None], {'a', 'b'})": "query_labels: expected a list of labels, got one set",
    "heads(eye[None], ['a', 'b'], row=2)": "row: expected a token from 0 to 1, got 2",
    "heads(eye[None], ['a', 'b'], values=torch.ones(3, 1))": "values: expected one row for each",
    "heads(eye[None], ['a', 'b'], values=torch.ones(2))": "values: expected a tensor of shape",
    "setattr(examples.heads(), 'row', 5)": "row: expected a token from 0 to 4",
    "setattr(examples.heads(), 'picked', [])": "picked: expected some of the heads",
    "mask(torch.ones(2))": "scores: expected a tensor of shape",
    "mask(torch.ones(17, 2))": "scores: expected 1 to 16 queries, got 17",
    "mask(ones * torch.nan)": "scores: expected finite numbers",
    "mask(ones, ones)": "mask: expected a boolean tensor",
    "mask(ones, torch.ones(3, 2).bool())": "mask: expected a shape that broad",
    "mask(ones, None, ['a'])": "labels: expected 2 labels, got 1",
    "mask(torch.ones(1, 2), None, ['a', 'b'])": "labels: expected as many queries as keys",
    "model(torch.nn.Linear(2, 2), ['a'])": "model: expected a language_model.Decoder",
    "model(decoder(positions='none'), words)": "model: expected a language_model.Decoder with added",
    "model(decoder(attention=partial(attention, mask=near)), words)": "model: expected a language_model",
    "model(decoder(attention=partial(attention, num_kv_heads=2)), words)": "model: expected a language_model",
    "model(decoder(d_model=256), words)": "model: expected at most 250000 bytes of weights, got",
    "model(decoder(num_layers=5), words)": "model: expected at most 4 layers, got 5",
    "model(decoder(), ['a'])": "tokenizer: expected 3 labels, got 1",
    "model(decoder(), None)": "tokenizer: expected a text for each token",
    "model(decoder(), ['a', 'b', 'b'])": "tokenizer: expected a different text for each token",
    "model(decoder(), words, 'b d')": "text: expected words that the model knows, got 'd'",
    "model(decoder(), words, 'b b b b b b b')": "text: expected at most 6 words, got 7",
    "model(decoder(), words, layer=2)": "head: expected (layer, head) with a layer below 2",
    "setattr(examples.model(), 'silenced', [(0, 4)])": "silenced: expected (layer, head)",
    "setattr(examples.model(), 'patched', {(0, 1): 'none'})": "patched: expected 'uniform' or 'previous'",
    "split(7)": "n: expected at most 6, got 7",
    "split(3, 0)": "num_heads: expected at least 1, got 0",
    "split(3, 1.5)": "num_heads: expected an int",
    "setattr(split(), 'step', 'cut')": "step: expected one of memory, view",
    "predict('', 1)": "text: expected a sentence, got ''",
    "predict('?', None)": "answer: expected a text, a number,",
    "predict('?', True)": "answer: expected a text, a number,",
    "predict('?', torch.nan)": "answer: expected a finite number",
    "predict('?', 'a')": "wrong: expected 1 to 7 wrong answers to offer, got 0",
    "predict('?', 'a', {'An idea.': 'a'})": "wrong: expected values that do not count as right",
    "predict('?', 'a', {'An idea.': ' '})": "wrong: expected a text",
    "predict('?', 'a', {'An idea.': 1})": "wrong: expected values of the same kind as answer",
    "predict('?', 'a', {'': 'b'})": "wrong: expected a sentence",
    "predict('?', 'a', {'An idea.': 'b', 'Another.': 'b'})": "wrong: expected a different value",
    "predict('?', 2.0, {'An idea.': 2.01})": "wrong: expected values that do not count as right, got 2.01",
    "predict('?', 1, because=2)": "because: expected a sentence, got 2",
    "predict('?', 1, labels=['a'])": "labels: expected None",
    "predict('?', (0, 2), labels=('ab', 'ab'))": "labels: expected a list of labels",
    "predict('?', (0, 2), labels=(['a'], ['a', 'b']))": "answer: expected a cell (row, column) of 1 by 2",
    "predict('?', (0, 1, 0), labels=(['a'], ['a', 'b']))": "answer: expected a cell (row, column) of 1 by 2",
    "predict('?', (0, 0.5), labels=(['a'], ['a', 'b']))": "answer: expected an int",
    "predict('?', (0, 1))": "labels: expected (row labels, column labels)",
    "predict('?', (0, 1), labels=(['a'] * 9, ['a', 'b']))": "labels: expected 1 to 8 rows and columns, got 9",
    "predict('?', [0.5], labels=['a', 'b'])": "labels: expected 1 labels, got 2",
    "predict('?', [0.5, 1.5])": "answer: expected numbers from 0 to 1",
    "predict('?', [0.1] * 9)": "answer: expected 1 to 8 bars, got 9",
    "predict('?', [])": "answer: expected 1 to 8 bars, got 0",
    "predict('?', ones)": "answer: expected a tensor of shape (n,)",
    "predict('?', ['a'])": "answer: expected a number, got str",
    "predict('?', [0.5, torch.nan])": "answer: expected a finite number",
    "predict('?', [0.5, 0.5], {'An idea.': [0.5]})": "wrong: expected 2 bars, got 1",
    "predict('?', [0.5, 0.5], {'An idea.': [0.45, 0.55]})": "wrong: expected values that do not count",
}


def attention(layer, **options):
    return MultiHeadAttention(8, 4, **options)


@pytest.mark.unchecked
@pytest.mark.parametrize(("call", "words"), WRONG.items(), ids=list(WRONG))
def test_what_makes_no_sense_is_refused(call, words):
    names = {"torch": torch, "examples": examples, "ones": torch.ones(2, 2), "eye": torch.eye(2)}
    decoder = partial(Decoder, 3, **{"d_model": 8, "max_length": 7})
    names |= {"decoder": decoder, "attention": attention, "partial": partial, "words": ["\n", "b", "c"]}
    names["near"] = SlidingWindow(2)
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(call, vars(explore) | names)
    assert str(caught.value).startswith(words)
