"""One explorable of each kind, as in the chapters, or with labels that look like markup."""

import torch

import mha_lab
from mha_lab import explore, toy

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


ALL = {"query": query, "heads": heads, "mask": mask, "split": split}
