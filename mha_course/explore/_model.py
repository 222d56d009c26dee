"""A small language model that runs where the picture is: in the browser."""

import base64
import copy
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
import traitlets
from jaxtyping import Float
from matplotlib.figure import Figure, SubFigure
from torch import Tensor
from torch.nn.functional import cross_entropy

from mha_course.chapters.language_model import Decoder
from mha_course.explore._widget import COLOURS, Explorable, module
from mha_lab import _expect as expect
from mha_lab import plot
from mha_lab._colours import SHAPES
from mha_lab._texts import short, texts
from mha_lab.attention import masked_softmax, scaled_dot_product_scores
from mha_lab.heads import merge_heads
from mha_lab.masks import causal_mask
from mha_lab.multihead import MultiHeadAttention

MAX_SIZES = {"layers": 4, "heads": 8, "words": 512, "tokens": 64}
MAX_BYTES = 250_000  # of what is sent of the weights
ACTS = ("", "silent", "uniform", "previous")  # what is done to a head; "" leaves it as it was learned
SHOWN_WORDS = 6  # bars of the next word
REACH = 3  # of the numbers in keys and values that have the full colour, as in the browser
NAMED = 10  # tokens whose names fit beside a map
Head = tuple[int, int]  # layer and head, both counted from 0


class LiveModel(Explorable):
    """The result of ``explore.model``: the picture, its text and what is done to its heads, both ways."""

    _public = "model"
    _esm = module("model")
    _matrices = traitlets.Unicode().tag(sync=True)  # int8 in base64
    _numbers = traitlets.Unicode().tag(sync=True)  # float32 in base64: the scale of each row, and vectors
    _shape = traitlets.List().tag(sync=True)  # layers, heads, d_model, tokens at most, networks or not
    _words = traitlets.List().tag(sync=True)
    _tokens = traitlets.List().tag(sync=True)
    _acts = traitlets.List().tag(sync=True)  # one of ACTS for each head, layer after layer
    _shown = traitlets.Int().tag(sync=True)  # the enlarged head
    _row = traitlets.Int(-1).tag(sync=True)  # the query token; -1 is the last one
    _temperature = traitlets.Float(1.0).tag(sync=True)

    def __init__(self, model: Decoder, **state: Any) -> None:
        self._model = model
        super().__init__(**state)

    @property
    def text(self) -> str:
        """The text that the model reads. Assigning another replaces it."""
        return " ".join(self._words[token] for token in self._tokens[1:]).replace(" .", ".")

    @text.setter
    def text(self, value: str) -> None:
        self._tokens = read(value, self._words, self._shape[3])

    @property
    def silenced(self) -> list[Head]:
        """The heads that write nothing, as (layer, head). Assigning silences these, and no others."""
        return self._done("silent")

    @silenced.setter
    def silenced(self, value: Sequence[Head]) -> None:
        places = {self._place("silenced", head) for head in value}
        kept = ["" if act == "silent" else act for act in self._acts]
        self._acts = ["silent" if i in places else act for i, act in enumerate(kept)]

    @property
    def patched(self) -> dict[Head, str]:
        """The heads with other weights, "uniform" or "previous", by (layer, head). Assigning replaces all."""
        return {head: act for act in ACTS[2:] for head in self._done(act)}

    @patched.setter
    def patched(self, value: Mapping[Head, str]) -> None:
        acts = {self._place("patched", head): act for head, act in value.items()}
        for act in acts.values():
            if act not in ACTS[2:]:
                expect.fail(ValueError, "patched", "'uniform' or 'previous'", repr(act))
        kept = [act if act == "silent" else "" for act in self._acts]
        self._acts = [acts.get(i, act) for i, act in enumerate(kept)]

    @property
    def weights(self) -> Float[Tensor, "layers heads n n"]:
        """The weights of all heads on the text, with what was done to them."""
        return self._run()["weights"]

    def _run(self) -> dict[str, Tensor]:
        return forward(self._model, self._tokens, self._acts)

    def _done(self, act: str) -> list[Head]:
        return [divmod(i, self._shape[1]) for i, done in enumerate(self._acts) if done == act]

    def _place(self, name: str, head: Head) -> int:
        """The number of a head among all heads."""
        layers, heads, *_ = self._shape
        whole = isinstance(head, tuple) and [type(x) for x in head] == [int, int]
        if not whole or not (0 <= head[0] < layers and 0 <= head[1] < heads):
            wanted = f"(layer, head) with a layer below {layers} and a head below {heads}"
            expect.fail(ValueError, name, wanted, repr(head))
        return head[0] * heads + head[1]

    def _title(self, i: int) -> str:
        return "layer {}, head {}".format(*divmod(i, self._shape[1]))

    def _next(self) -> list[tuple[str, float]]:
        """The likeliest next words and their probabilities, at temperature 1."""
        p = self._run()["logits"][-1].softmax(-1)
        best = p.argsort(descending=True, stable=True)[:SHOWN_WORDS].tolist()
        return [(self._name(i), p[i].item()) for i in best]

    def _lost(self) -> str:
        """The loss on the text, in nats per token."""
        if len(self._tokens) < 2:
            return "no loss yet"
        return f"loss {cross_entropy(self._run()['logits'][:-1], torch.tensor(self._tokens[1:])):.2f}"

    def _name(self, token: int) -> str:
        return self._words[token] if self._words[token].strip() else "start"

    def describe(self) -> str:
        """The text, the likeliest next words, where the enlarged head looks, and what was done to heads."""
        layers, heads, *_ = self._shape
        row = self.weights.flatten(0, 1)[self._shown, self._row]
        best = int(row.argmax())
        told = ", ".join(f"{word} {p:.2f}" for word, p in self._next()[:3])
        acts = [f" {self._title(i).capitalize()} is {act}." for i, act in enumerate(self._acts) if act]
        return (
            f"A language model of {layers} layers with {heads} heads reads “{self.text}”. Next word: {told}. "
            f"In {self._title(self._shown)}, {self._name(self._tokens[self._row])} gives most weight to "
            f"{self._name(self._tokens[best])} ({row[best]:.2f}); {self._lost()}.{''.join(acts)}"
        )

    def still(self) -> Figure:
        """The weights of all heads, the likeliest next words, and the cache."""
        (layers, heads, *_), found, n = self._shape, self._run(), len(self._tokens)
        tall = max(2.6, 1.9 * layers) + 0.6
        figure = plt.figure(figsize=(2.9 + 1.7 * heads, tall + 1.7), layout="constrained")
        names = [short(self._name(token)) for token in self._tokens]
        above, below = figure.subfigures(2, 1, height_ratios=[tall, 1.7])
        maps, side = above.subfigures(1, 2, width_ratios=[1.7 * heads, 2.9])
        axes = maps.subplots(layers, heads, squeeze=False)
        for i, ax in enumerate(axes.flat):
            image = ax.imshow(found["weights"].flatten(0, 1)[i].numpy(), cmap=plot.PALETTE, vmin=0, vmax=1)
            ax.add_patch(_hidden(n))
            if i == self._shown:
                row = self._row % n
                look = {"fill": False, "edgecolor": COLOURS["query"], "linewidth": 2.5}
                ax.add_patch(plt.Rectangle((-0.5, row - 0.5), n, 1, **look, clip_on=False))
            act = f"\n{self._acts[i]}" if self._acts[i] else ""
            ax.set_title(self._title(i) + act, fontsize=8, weight="bold" if i == self._shown else "normal")
            ax.set(xticks=[], yticks=[])
            if i % heads == 0 and len(self._tokens) <= NAMED:
                ax.set_yticks(range(len(self._tokens)), names, fontsize=8, parse_math=False)
        words, p = zip(*reversed(self._next()), strict=True)
        ax = side.subplots()
        ax.bar_label(
            ax.barh(range(len(p)), p, color=COLOURS["accent"]), [f"{x:.2f}" for x in p], padding=3, fontsize=8
        )
        ax.set_yticks(range(len(p)), [*map(short, words)], parse_math=False)
        ax.set(xlim=(0, 1.3), xticks=[0, 0.5, 1], xlabel="probability of the next word", title=self._lost())
        maps.suptitle(self.text, fontsize=10, parse_math=False, wrap=True)
        bar = maps.colorbar(image, ax=list(axes.flat), location="bottom", aspect=40, shrink=0.5)
        bar.set_label("weight; rows are queries, columns keys; hatched: hidden", fontsize=8)
        bar.ax.tick_params(labelsize=8)
        self._draw_cache(below, found)
        return figure

    def _draw_cache(self, figure: SubFigure, found: dict[str, Tensor]) -> None:
        """The keys and values of each layer: a column for each token."""
        layers, _, width, *_ = self._shape
        axes = figure.subplots(1, 2 * layers, squeeze=False)[0]
        for ax, (layer, name) in zip(axes, itertools.product(range(layers), ("key", "value")), strict=True):
            columns = merge_heads(found[name][layer]).mT.numpy()
            image = ax.imshow(columns, cmap=plot.SIGNED, vmin=-REACH, vmax=REACH, aspect="auto")
            ax.set_title(f"{SHAPES[name]} {name}s, layer {layer}", fontsize=8, color=COLOURS[name])
            ax.set(xticks=[], yticks=[])
        bar = figure.colorbar(image, ax=list(axes), aspect=10)
        bar.ax.tick_params(labelsize=8)
        n = len(self._tokens)
        told = f"{n} tokens × {width} numbers × {2 * layers} = {2 * layers * width * n:,} numbers"
        figure.supxlabel(f"the cache: a column for each token; {told}", fontsize=8)


def model(
    model: Decoder, tokenizer: Any, text: str = "", *, layer: int | None = None, head: int = 0
) -> LiveModel:
    """A small language model, live: type a text, see all heads and the next word, silence or patch heads.

    The browser gets the model's weights, each row of a matrix rounded to 255 steps (int8), and computes
    everything itself. ``.text``, ``.silenced``, ``.patched`` and ``.weights`` have the state, and all but the
    weights can be assigned.

    Args:
        model: a ``language_model.Decoder`` with positions that are added and plain attention.
        tokenizer: a text for each token, or something that has them as ``WORDS``, such as ``story_model``.
            Token 0 starts each text.
        text: what the model reads first.
        layer, head: the head that is enlarged first; ``None`` is the last layer.

    Raises:
        TypeError: no decoder, or no texts.
        ValueError: another attention or no positions, a model that is too large, words that are twice there
            or unknown, or no such head.

    >>> from mha_course import explore
    >>> from mha_course.chapters import story_model
    >>> picture = explore.model(story_model.load(), story_model, "Ada amused Ben because")
    >>> picture.silenced = [(0, 2)]
    >>> picture.weights.shape, picture.silenced
    (torch.Size([2, 4, 5, 5]), [(0, 2)])
    """
    _plain(model)
    attention = model.blocks[0].attention
    networks = int(model.blocks[0].network is not None)
    shape = [len(model.blocks), attention.num_heads, attention.d_model, model.max_length, networks]
    sizes = dict(zip(MAX_SIZES, (shape[0], shape[1], model.vocab_size, shape[3]), strict=True))
    for name, most in MAX_SIZES.items():
        if sizes[name] > most:
            expect.fail(ValueError, "model", f"at most {most} {name}", sizes[name])
    if tokenizer is None:
        expect.fail(TypeError, "tokenizer", "a text for each token", "None")
    words = texts("tokenizer", getattr(tokenizer, "WORDS", tokenizer), model.vocab_size, titles=True)
    if len(set(words)) < len(words):
        expect.fail(ValueError, "tokenizer", "a different text for each token", "a text that is twice there")
    small = rounded(model)
    matrices, numbers = packed(small)
    if len(matrices) + len(numbers) > MAX_BYTES:
        expect.fail(
            ValueError, "model", f"at most {MAX_BYTES} bytes of weights", len(matrices) + len(numbers)
        )
    made = LiveModel(
        small,
        _matrices=matrices,
        _numbers=numbers,
        _shape=shape,
        _words=words,
        _tokens=read(text, words, shape[3]),
        _acts=[""] * (shape[0] * shape[1]),
    )
    made._shown = made._place("head", (shape[0] - 1 if layer is None else layer, head))
    return made


def _hidden(n: int) -> plt.Polygon:
    """The cells above the diagonal: each token sees itself and those before it."""
    steps = [(i + x, i + y) for i in reversed(range(n - 1)) for x, y in ((0.5, 0.5), (0.5, -0.5))]
    corners = [(n - 0.5, -0.5), (n - 0.5, n - 1.5), *steps]
    look = {"facecolor": plot.HIDDEN_COLOUR, "edgecolor": "0.6", "hatch": "////", "linewidth": 0.5}
    return plt.Polygon(corners, closed=True, **look)


def _plain(model: Decoder) -> None:
    """Refuse all that the browser does not compute."""
    wanted = "a language_model.Decoder with added positions and plain attention"
    if not isinstance(model, Decoder):
        expect.fail(TypeError, "model", wanted, type(model).__name__)
    if model.position_embedding is None:
        expect.fail(ValueError, "model", wanted, "no positions that are added")
    first = model.blocks[0].attention
    for block in model.blocks:
        layer = block.attention
        if type(layer) is not MultiHeadAttention:
            expect.fail(ValueError, "model", wanted, type(layer).__name__)
        options = ("transform", "score", "mask")
        other = [name for name in options if getattr(layer, name) is not None]
        other += ["num_kv_heads"] * (layer.num_kv_heads != layer.num_heads)
        other += ["d_k or d_v"] * ({layer.d_k, layer.d_v} != {layer.d_model // layer.num_heads})
        other += ["layers of several sizes"] * (layer.num_heads != first.num_heads)
        other += ["no bias"] * (layer.q_proj.bias is None)
        if other:
            expect.fail(ValueError, "model", wanted, " and ".join(other))
    for name, tensor in model.state_dict().items():
        if not tensor.isfinite().all():
            expect.fail(ValueError, "model", "finite weights", f"NaN or infinity in {name}")


@torch.no_grad()
def rounded(model: Decoder) -> Decoder:
    """A copy in float32 whose matrices have, in each row, only 255 multiples of one number."""
    small = copy.deepcopy(model).float().cpu().eval()
    for matrix in small.parameters():
        if matrix.ndim == 2:
            steps, scales = _steps(matrix)
            matrix.copy_(steps * scales)
    return small


def _steps(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from -127 to 127, and the size of a step in each row: ``matrix ≈ steps * scales``."""
    scales = matrix.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / 127
    return (matrix / scales).round(), scales


@torch.no_grad()
def packed(model: Decoder) -> tuple[str, str]:
    """The weights in base64: int8 steps; float32 scales and vectors. Their order is that of ``model.js``."""
    tensors = [model.token_embedding.weight, model.position_embedding.weight]
    for block in model.blocks:
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        parts = [*(getattr(block.attention, name) for name in names), block.norm_1]
        parts += [] if block.network is None else [block.network[0], block.network[2], block.norm_2]
        tensors += [tensor for part in parts for tensor in (part.weight, part.bias)]
    whole, numbers = [], []
    for tensor in [*tensors, model.norm.weight, model.norm.bias]:
        if tensor.ndim == 2:
            steps, tensor = _steps(tensor)
            whole.append(steps.flatten().to(torch.int8))
        numbers.append(tensor.flatten())
    return tuple(base64.b64encode(torch.cat(all).numpy().tobytes()).decode() for all in (whole, numbers))


@torch.no_grad()
def forward(model: Decoder, tokens: Sequence[int], acts: Sequence[str]) -> dict[str, Tensor]:
    """Every tensor on the way from tokens to logits; ``acts`` has one of ``ACTS`` for each head.

    The keys are "embeddings", "logits", and for all layers "query", "key", "value", "scores", "weights" and
    "outputs", ``(layers, heads, n, ...)``: the outputs are those of the heads, before ``out_proj``.
    """
    x = model.token_embedding.weight[list(tokens)] + model.position_embedding.weight[: len(tokens)]
    found: dict[str, Any] = {"embeddings": x}
    mask = causal_mask(len(tokens))
    uniform = masked_softmax(torch.zeros(mask.shape), mask)
    previous = torch.eye(len(tokens))[[max(i - 1, 0) for i in range(len(tokens))]]
    patches = {"uniform": uniform, "previous": previous}
    for layer, block in enumerate(model.blocks):
        attention, y = block.attention, block.norm_1(x)
        query, key, value = attention.project(y, y, y)
        scores = scaled_dot_product_scores(query, key)
        weights = masked_softmax(scores, mask)
        own = acts[layer * attention.num_heads :]
        weights = torch.stack([patches.get(act, w) for w, act in zip(weights, own, strict=False)])
        outputs = weights @ value
        outputs = torch.stack([o * (act != "silent") for o, act in zip(outputs, own, strict=False)])
        x = x + attention.out_proj(merge_heads(outputs))
        if block.network is not None:
            x = x + block.network(block.norm_2(x))
        names = ("query", "key", "value", "scores", "weights", "outputs")
        for name, tensor in zip(names, (query, key, value, scores, weights, outputs), strict=True):
            found.setdefault(name, []).append(tensor)
    found = {name: torch.stack(value) if isinstance(value, list) else value for name, value in found.items()}
    return found | {"logits": model.norm(x) @ model.token_embedding.weight.mT}


def read(text: str, words: Sequence[str], most: int) -> list[int]:
    """The tokens of a text, token 0 first. The longest word that fits is read first, as in ``model.js``."""
    if not isinstance(text, str):
        expect.fail(TypeError, "text", "a text", type(text).__name__)
    known = sorted((word for word in words if word.strip()), key=len, reverse=True)
    exact = [re.escape(word) + (r"(?!\w)" if re.match(r"\w", word[-1]) else "") for word in known]
    tokens = [0]
    for word in re.findall("|".join([*exact, r"\w+", r"\S"]), text):
        if word not in known:
            expect.fail(ValueError, "text", "words that the model knows", repr(word))
        tokens.append(words.index(word))
    if len(tokens) > most:
        expect.fail(ValueError, "text", f"at most {most - 1} words", len(tokens) - 1)
    return tokens
