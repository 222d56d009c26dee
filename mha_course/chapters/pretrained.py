"""Pretrained attention layers as ``MultiHeadAttention``: BERT's and GPT-2's.

This module needs the optional ``transformers`` (the extra ``pretrained``), and imports it only when it is
needed.
"""

import contextlib
import io
import logging
import os
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab.masks import causal_mask
from mha_lab.multihead import MultiHeadAttention

OLDEST = (5, 6)  # transformers: older versions call a layer with another mask, and its weights differ
PATIENCE = 3  # seconds to wait for an answer from the server of the weights


class Unavailable(RuntimeError):
    """Published weights could not be loaded; the message tells the learner why."""


def from_bert(attention: nn.Module) -> MultiHeadAttention:
    """BERT's self-attention as a ``MultiHeadAttention``, with its weights, dtype, device and training mode.

    It is exactly the layer of Vaswani et al. 2017: four matrices with biases, scores divided by
    ``sqrt(d_k)``. BERT's steps around it (dropout of the output, sum, layer norm) are left out.

    Args:
        attention: a ``BertAttention``: ``model.encoder.layer[i].attention``.

    Raises:
        TypeError: ``attention`` has no ``self.query`` and ``output.dense``.

    Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers for Language
    Understanding", section 3.

    >>> from transformers import BertConfig, BertModel
    >>> config = BertConfig(hidden_size=6, num_attention_heads=3, num_hidden_layers=1, vocab_size=7)
    >>> from_bert(BertModel(config).encoder.layer[0].attention).num_heads
    3
    """
    try:
        core, dense = attention.self, attention.output.dense
        linears, num_heads = (core.query, core.key, core.value, dense), core.num_attention_heads
    except AttributeError as error:
        hint = "It is model.encoder.layer[i].attention."
        expect.fail(TypeError, "attention", "BERT's attention", f"{type(attention).__name__} ({error})", hint)
    layer = MultiHeadAttention(dense.out_features, num_heads, dropout=float(core.dropout.p))
    return _fill(layer, [(linear.weight, linear.bias) for linear in linears], attention)


def from_gpt2(attention: nn.Module) -> MultiHeadAttention:
    """GPT-2's self-attention as a ``MultiHeadAttention``; call it with ``causal_mask(n)``.

    GPT-2 keeps one matrix for queries, keys and values, ``(d_model, 3 * d_model)``, multiplied from
    the right; ``torch.nn.Linear`` stores the transpose. The causal mask is not part of the weights:
    pass it.

    Args:
        attention: a ``GPT2Attention``: ``model.h[i].attn``.

    Raises:
        TypeError: ``attention`` has no ``c_attn`` and ``c_proj``.
        ValueError: it scales its scores by something other than ``1/sqrt(d_k)``, or attends to another
            sequence.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.

    >>> from transformers import GPT2Config, GPT2Model
    >>> config = GPT2Config(n_embd=6, n_head=3, n_layer=1, vocab_size=7)
    >>> from_gpt2(GPT2Model(config).h[0].attn).num_heads
    3
    """
    try:
        packed, projection = attention.c_attn, attention.c_proj
        num_heads, cross = attention.num_heads, attention.is_cross_attention
    except AttributeError as error:
        hint = "It is model.h[i].attn."
        expect.fail(
            TypeError, "attention", "GPT-2's attention", f"{type(attention).__name__} ({error})", hint
        )
    d_model = projection.weight.shape[0]
    if cross:
        expect.fail(ValueError, "attention", "self-attention", "one that attends to another sequence")
    scale = (d_model // num_heads) ** -0.5
    if abs(attention.scaling - scale) > 1e-9:
        expect.fail(ValueError, "attention", f"scores scaled by 1/sqrt(d_k) = {scale:.4g}", attention.scaling)
    weights = [*packed.weight.mT.chunk(3), projection.weight.mT]
    biases = [*packed.bias.chunk(3), projection.bias]
    layer = MultiHeadAttention(d_model, num_heads, dropout=float(attention.attn_dropout.p))
    return _fill(layer, list(zip(weights, biases, strict=True)), attention)


@dataclass(frozen=True)
class Reading:
    """A sentence as a published model reads it: its tokens, and one layer's weights."""

    tokens: list[str]
    weights: Float[Tensor, "num_heads n n"]


def read(name: str, text: str, layer: int = 0) -> Reading:
    """Load a published model, and read ``text`` with one of its layers and with our copy of it.

    The layer's attention is converted and gets the same input. Our weights must be within ``1e-4`` of
    the model's own before they are returned.

    Args:
        name: ``"bert-base-uncased"``, ``"gpt2"`` or another model of these two kinds.
        text: the sentence to read.
        layer: which layer, counted from 0.

    Raises:
        Unavailable: no ``transformers``, no network and no earlier download, or another kind of model.
        ValueError: there is no such layer.
    """
    model, tokenizer = _load(name)
    return read_with(model, tokenizer, text, layer)


@torch.no_grad()
def read_with(model: nn.Module, tokenizer: Any, text: str, layer: int = 0) -> Reading:
    """``read`` for a model that is loaded already, with eager attention."""
    kind = model.config.model_type
    blocks = model.encoder.layer if kind == "bert" else model.h
    if not 0 <= layer < len(blocks):
        expect.fail(ValueError, "layer", f"0 to {len(blocks) - 1}", layer)
    inputs = tokenizer(text, return_tensors="pt")
    theirs = model.eval()(**inputs, output_attentions=True, output_hidden_states=True)
    hidden, block = theirs.hidden_states[layer], blocks[layer]
    if kind == "bert":
        _, weights = from_bert(block.attention)(hidden)
    else:
        _, weights = from_gpt2(block.attn)(block.ln_1(hidden), mask=causal_mask(hidden.shape[1]))
    torch.testing.assert_close(weights, theirs.attentions[layer], atol=1e-4, rtol=0)
    return Reading(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()), weights[0])


def _load(name: str) -> tuple[nn.Module, Any]:
    """From an earlier download, else from the network, if it answers."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        import transformers
        from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE
    except ImportError as error:
        raise Unavailable("transformers is not installed: pip install transformers") from error
    if tuple(map(int, transformers.__version__.split(".")[:2])) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise Unavailable(
            f"transformers {needed} or newer is needed, and {transformers.__version__} is installed"
        )
    for local in (True, False):
        if not local and (HF_HUB_OFFLINE or not _answers(ENDPOINT)):
            raise Unavailable(f"{name} was never downloaded here, and the network does not answer")
        with _quiet():
            try:
                config = transformers.AutoConfig.from_pretrained(name, local_files_only=local)
                if config.model_type not in ("bert", "gpt2"):
                    raise Unavailable(f"{name} is a model of type {config.model_type}, not bert or gpt2")
                tokenizer = transformers.AutoTokenizer.from_pretrained(name, local_files_only=local)
                model = transformers.AutoModel.from_pretrained(
                    name, attn_implementation="eager", local_files_only=local
                )
            except (OSError, ValueError) as error:
                reason = error
            else:
                return model, tokenizer
    raise Unavailable(f"{name} could not be loaded: {str(reason).splitlines()[0]}") from reason


def _answers(address: str) -> bool:
    """Whether the server answers: known after seconds, not after minutes."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname, parts.port or 443), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _quiet():
    """Hide what a library prints and logs: it does not belong in a chapter."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


@torch.no_grad()
def _fill(
    layer: MultiHeadAttention, pairs: list[tuple[Tensor, Tensor]], like: nn.Module
) -> MultiHeadAttention:
    layer = layer.to(pairs[0][0])
    projections = (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj)
    for projection, (weight, bias) in zip(projections, pairs, strict=True):
        projection.weight.copy_(weight)
        projection.bias.copy_(bias)
    return layer.train(like.training)
