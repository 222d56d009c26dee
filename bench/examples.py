"""Explorables of each kind, as in the chapters, or with labels that look like markup."""

from functools import cache

import torch

import mha_lab
from mha_course import explore
from mha_course.chapters import recall, story_model
from mha_course.chapters.language_model import Decoder
from mha_lab import toy

NASTY = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "&amp;", "${x}", "\"'`"]


def query(labels=None):
    keys = torch.tensor([[4.0, 0.0], [0.0, 4.0], [-2.5, 2.5], [1.0, -3.5], [2.0, 2.0]])
    values = torch.tensor([[10.0, 5], [100, 5], [1000, 6], [1, 0], [0, 0]])
    return explore.query(keys, values, query=torch.tensor([1.0, 1.5]), key_labels=labels)


def heads(labels=None):
    w_q, w_k, _, _ = toy.multi_head_weights()
    q, k = (mha_lab.split_heads(toy.embeddings() @ w, 2) for w in (w_q, w_k))
    weights = mha_lab.masked_softmax(mha_lab.scaled_dot_product_scores(q, k))
    return explore.heads(weights, labels or toy.tokens())


def mask(labels=None):
    torch.manual_seed(0)
    return explore.mask(torch.randn(5, 5), mha_lab.causal_mask(5), labels or toy.tokens())


def split(labels=None):
    return explore.split(3, 2, 3)


def model(labels=None):
    if labels is None:
        return explore.model(story_model.load(), story_model, "Ada amused Ben because")
    torch.manual_seed(0)
    return explore.model(Decoder(len(labels), d_model=8, num_layers=1, max_length=6), labels, labels[-2])


def flow(labels=None):
    w_q, w_k, w_v, w_o = toy.multi_head_weights()
    query, key, value = (mha_lab.split_heads(toy.embeddings() @ w, 2) for w in (w_q, w_k, w_v))
    return explore.flow(labels or toy.tokens(), query, key, value, w_o, row=2)


def flow_one_head(labels=None):
    query, key, value = (toy.embeddings() @ w for w in toy.single_head_weights())
    return explore.flow(labels or toy.tokens(), query, key, value, row=2)


def online_softmax(labels=None):
    scores = torch.tensor([1.0, 4, 2, 8, 1, 4]).log()
    return explore.online_softmax(scores, 10 * torch.arange(1.0, 7)[:, None])


def positions(labels=None):
    query = torch.tensor([1.5, 1.0, 2.0, 0.5, 1.0, 1.5, 1.0, -0.5])
    key = torch.tensor([0.5, 2.0, 1.5, 1.0, -1.0, 1.5, 1.0, 1.0])
    return explore.positions(query, key, base=100)


def scaling(labels=None):
    return explore.scaling(d_k=8)


def state(labels=None):
    cat, dog, cow = [1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]
    values = torch.tensor([[5.0, 0], [0, 5], [5, 5], [10, 5], [0, 10], [10, 10]])
    return explore.state(
        torch.tensor([cat, dog, cow, dog, cow, cat]),
        values,
        key_labels=[*labels, labels[0]] if labels else ["cat", "dog", "cow", "dog", "cow", "cat"],
        value_labels=["milk", "bone", "hay", "ball", "grass", "fish"],
        scale=10.0,
    )


@cache
def recorded(seeds=(0, 1), steps=tuple(range(0, 101, 10))):
    """Five questions about one list of records, and the trainings of one head and of two."""
    names, contents = torch.tensor([2, 5, 0, 7, 3, 1]), torch.tensor([7, 2, 5, 0, 9, 4])
    asked = torch.tensor([[5, 0], [0, 5], [5, 7], [7, 2], [2, 5]])
    problems = recall.RecallBatch(names.expand(5, 6), contents.expand(5, 6), asked)
    held_out = recall.sample_problems(500, generator=torch.Generator().manual_seed(10**6))

    def one(seed, num_heads):
        torch.manual_seed(seed)
        model, source = recall.RecallModel(16, num_heads).double(), torch.Generator().manual_seed(seed)
        return recall.record(model, problems, held_out, steps, generator=source)

    return problems, {seed: [one(seed, num_heads) for num_heads in (1, 2)] for seed in seeds}


def training(labels=None):
    return explore.training(*recorded(), names=labels and labels[:2])


def predict_choice(labels=None):
    truth, by_width, unscaled = (labels or ["2.00", "0.67", "6.00"])[:3]
    wrong = {"This is what you get when you divide by d_k.": by_width, "The scale is missing.": unscaled}
    text = "A query and a key have the dot product 6, and d_k is 9. What is the score?"
    return explore.predict(text, truth, wrong, because="The scale is 1/√9, so the score is 6/3.")


def predict_number(labels=None):
    text = "The scores are 1, 2 and 3. What is the largest weight after the softmax?"
    wrong = {"This is what you get when you divide by the sum without exp.": 0.5}
    return explore.predict(text, 0.6652, wrong, because="exp(3) is 20.09, and the sum of all three is 30.19.")


def predict_cell(labels=None):
    wrong = {"This token comes later, so the causal mask hides it.": (0, 4)}
    text = "Which cell of the first row does a causal mask leave visible?"
    names = labels or toy.tokens()
    return explore.predict(text, (0, 0), wrong, labels=(names, names), because="It sees only itself.")


def predict_bars(labels=None):
    wrong = {"This is what you get without a mask.": [0.2] * 5}
    text = "All scores are equal, and the mask is causal. Draw the weights of the second token."
    names = labels or toy.tokens()
    return explore.predict(text, [0.5, 0.5, 0, 0, 0], wrong, labels=names, because="It sees two tokens.")


ALL = {
    "query": query,
    "heads": heads,
    "mask": mask,
    "split": split,
    "model": model,
    "flow": flow,
    "flow_one_head": flow_one_head,
    "online_softmax": online_softmax,
    "positions": positions,
    "scaling": scaling,
    "state": state,
    "training": training,
    "predict_choice": predict_choice,
    "predict_number": predict_number,
    "predict_cell": predict_cell,
    "predict_bars": predict_bars,
}
# Of explore: some have several examples.
MODULES = {name: name if name in explore.__all__ else name.partition("_")[0] for name in ALL}
