"""The Python side: state as tensors in both directions, a fixed repr, errors before anything is drawn."""

import base64
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mha_lab
from mha_lab import explore
from mha_lab.explore._widget import module
from tools import examples

FOLDER = Path(mha_lab.__file__).parent / "explore"


@pytest.mark.parametrize("name", examples.ALL)
def test_a_module_is_small_has_one_import_and_asks_for_nothing(name):
    for source in (FOLDER / f"{name}.js", FOLDER / "shared.js"):
        text = source.read_text(encoding="utf-8")
        assert len(text.encode()) < 20_000
        assert not re.search(
            r"https?://(?!www\.w3\.org/2000/svg)|fetch\(|innerHTML|insertAdjacentHTML|eval\(", text
        )
    whole = module(name)
    assert len(whole.encode()) < 20_000
    assert "import " not in whole
    assert whole.count("export default") == 1


COLAB = """
import sys, types, torch
calls = []
output = types.ModuleType("google.colab.output")
output.enable_custom_widget_manager = lambda: calls.append("enabled")
output._widgets = types.SimpleNamespace(_installed_url="where-colab-has-its-manager")
sys.modules["google.colab.output"] = output
from mha_lab import explore
_, metadata = explore.split(3, 2, 3)._repr_mimebundle_()
explore.mask(torch.zeros(3, 3))
manager = metadata["application/vnd.jupyter.widget-view+json"]["colab"]["custom_widget_manager"]["url"]
print(calls, manager, sorted(metadata))
"""


def test_on_colab_the_widget_manager_is_switched_on_once():
    """By anywidget, so a chapter needs no line for it; Colab's own module is a stand-in here."""
    done = subprocess.run([sys.executable, "-c", COLAB], capture_output=True, text=True, check=True)
    kinds = ["application/vnd.jupyter.widget-view+json", "image/png"]
    assert done.stdout.strip() == f"['enabled'] where-colab-has-its-manager {kinds}"


@pytest.mark.parametrize("name", examples.ALL)
def test_the_repr_is_the_same_on_every_run_and_the_picture_is_described(name):
    data, metadata = examples.ALL[name]()._repr_mimebundle_()
    again, _ = examples.ALL[name]()._repr_mimebundle_()
    assert data["text/plain"] == again["text/plain"]
    assert data["image/png"] == again["image/png"]
    assert data["text/plain"].startswith(f"<explore.{name}: ")
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
    assert (picture.row, picture.picked, picture.averaged) == (2, [0, 1], True)


def test_a_mask_is_read_and_changed():
    picture = examples.mask()
    assert torch.equal(picture.mask, mha_lab.causal_mask(5))
    picture.mask = torch.zeros(5, dtype=torch.bool)
    assert torch.equal(picture.weights, torch.zeros(5, 5))
    picture._mask = [[True] * 5] * 5
    torch.testing.assert_close(picture.weights, torch.tensor(picture._scores).softmax(-1))
    assert "sees nothing" in explore.mask(torch.zeros(1, 2), torch.zeros(1, 2).bool()).describe()


@pytest.mark.parametrize("step", ["memory", "view", "transpose", "merge"])
def test_a_split_is_stepped_through(step):
    picture = explore.split(2, 3, 2)
    picture.step = step
    x = torch.arange(12).view(2, 6)
    expected = {
        "memory": x,
        "view": x.view(2, 3, 2),
        "transpose": torch.stack([x[:, 2 * h : 2 * h + 2] for h in range(3)]),
        "merge": x,
    }[step]
    assert torch.equal(picture.result, expected)


ones, eye = torch.ones(2, 2), torch.eye(2)
WRONG = {
    "query: keys of width 3": (lambda: explore.query(torch.ones(2, 3), ones), "keys: expected a last axis"),
    "query: no keys": (lambda: explore.query(torch.ones(0, 2), ones), "keys: expected 1 to 8 keys, got 0"),
    "query: values of another number": (
        lambda: explore.query(ones, torch.ones(3, 2)),
        "values: expected one row",
    ),
    "query: a key of 0": (lambda: explore.query(torch.zeros(2, 2), ones), "keys: expected keys that point"),
    "query: NaN": (
        lambda: explore.query(ones * float("nan"), ones),
        "keys: expected finite numbers, got NaN",
    ),
    "query: whole numbers": (
        lambda: explore.query(ones.long(), ones),
        "keys: expected floating-point numbers",
    ),
    "query: a list": (lambda: explore.query([[1.0, 2.0]], ones), "keys: expected a torch.Tensor"),
    "query: two dtypes": (lambda: explore.query(ones, ones.double()), "values: expected the dtype of keys"),
    "query: a matrix": (lambda: explore.query(ones, ones, query=ones), "query: expected a tensor of shape"),
    "query: moved to NaN": (
        lambda: setattr(examples.query(), "query", torch.tensor([1.0, float("inf")])),
        "query: expected finite",
    ),
    "query: a scale of None": (lambda: setattr(examples.query(), "scale", "1"), "scale: expected a number"),
    "query: labels": (
        lambda: explore.query(ones, ones, key_labels=["a"]),
        "key_labels: expected 2 labels, got 1",
    ),
    "query: one text": (
        lambda: explore.query(ones, ones, key_labels="ab"),
        "key_labels: expected a list of texts",
    ),
    "heads: scores": (lambda: explore.heads(ones[None], ["a", "b"]), "weights: expected rows that sum to 1"),
    "heads: negative": (
        lambda: explore.heads(torch.tensor([[[2.0, -1.0]]]), ["a"], ["b", "c"]),
        "weights: expected rows that sum",
    ),
    "heads: NaN": (
        lambda: explore.heads(eye[None] * float("nan"), ["a", "b"]),
        "weights: expected finite numbers",
    ),
    "heads: one head without its axis": (
        lambda: explore.heads(eye, ["a", "b"]),
        "weights: expected a tensor of shape",
    ),
    "heads: too many": (
        lambda: explore.heads(eye.expand(17, 2, 2), ["a", "b"]),
        "weights: expected 1 to 16 heads",
    ),
    "heads: labels": (lambda: explore.heads(eye[None], ["a"]), "query_labels: expected 2 labels, got 1"),
    "heads: no texts": (lambda: explore.heads(eye[None], [1, 2]), "query_labels: expected a list of texts"),
    "heads: a row that is not there": (
        lambda: setattr(examples.heads(), "row", 5),
        "row: expected a token from 0 to 4",
    ),
    "heads: none picked": (
        lambda: setattr(examples.heads(), "picked", []),
        "picked: expected some of the heads",
    ),
    "mask: no matrix": (lambda: explore.mask(torch.ones(2)), "scores: expected a tensor of shape"),
    "mask: too large": (lambda: explore.mask(torch.ones(17, 2)), "scores: expected 1 to 16 queries, got 17"),
    "mask: NaN": (lambda: explore.mask(ones * float("nan")), "scores: expected finite numbers"),
    "mask: of numbers": (lambda: explore.mask(ones, ones), "mask: expected a boolean tensor"),
    "mask: of another shape": (
        lambda: explore.mask(ones, torch.ones(3, 2).bool()),
        "mask: expected a shape that broad",
    ),
    "mask: labels": (lambda: explore.mask(ones, None, ["a"]), "labels: expected 2 labels, got 1"),
    "mask: labels for cross-attention": (
        lambda: explore.mask(torch.ones(1, 2), None, ["a", "b"]),
        "labels: expected as many queries as keys",
    ),
    "split: too many": (lambda: explore.split(7), "n: expected at most 6, got 7"),
    "split: none": (lambda: explore.split(3, 0), "num_heads: expected at least 1, got 0"),
    "split: half a head": (lambda: explore.split(3, 1.5), "num_heads: expected an int"),
    "split: another step": (
        lambda: setattr(explore.split(), "step", "cut"),
        "step: expected one of memory, view",
    ),
}


@pytest.mark.unchecked
@pytest.mark.parametrize(("call", "words"), list(WRONG.values()), ids=list(WRONG))
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert str(caught.value).startswith(words)


def test_importing_the_package_loads_no_widget():
    program = "import sys, mha_lab; print({'anywidget', 'ipywidgets', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
