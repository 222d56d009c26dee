"""A small language model on ``MultiHeadAttention``: a decoder that predicts the next token.

Pre-norm blocks, any attention layer and positions, one matrix for embedding and readout. The other functions
generate text with a cache of keys and values, score heads by how much they look at the previous token,
and remove single heads.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3 (a
decoder with the normalisation before each part).
"""

import copy
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mha_course._expect import instance
from mha_lab import _expect as expect
from mha_lab.cache import Cache, _expect_made_by
from mha_lab.multihead import MultiHeadAttention
from mha_lab.positions import sinusoidal_positions


def attend_with_cache(
    layer: MultiHeadAttention, x: Float[Tensor, "batch n_new qdim"], cache: Cache | None = None
) -> tuple[Float[Tensor, "batch n_new d_model"], Cache]:
    """``layer.extend(x, cache)``, under the name that chapters 12 and 13 use."""
    instance("layer", layer, MultiHeadAttention)
    return layer.extend(x, cache)


class Block(nn.Module):
    """One layer of the decoder: attention, then a network for each token alone; both are added to ``x``.

    ``x = x + attention(norm_1(x))``, then ``x = x + network(norm_2(x))``. The normalisations are
    inside the branches ("pre-norm"), so ``x`` itself stays a plain sum.

    Args:
        attention: the layer of attention.
        network: ``False`` leaves out the second part, ``network`` and ``norm_2``.

    Source: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", section 3.3 and
    table 1.

    >>> x, weights = Block(MultiHeadAttention(d_model=6, num_heads=3))(torch.ones(2, 5, 6))
    >>> x.shape, weights.shape
    (torch.Size([2, 5, 6]), torch.Size([2, 3, 5, 5]))
    """

    def __init__(self, attention: MultiHeadAttention, network: bool = True) -> None:
        super().__init__()
        instance("attention", attention, MultiHeadAttention)
        expect.flag("network", network)
        self.attention, d_model = attention, attention.d_model
        self.network = self.norm_2 = None
        if network:
            self.network = nn.Sequential(
                nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
            )
            self.norm_2 = nn.LayerNorm(d_model)
        self.norm_1 = nn.LayerNorm(d_model)

    def forward(
        self, x: Float[Tensor, "batch n d_model"], *, causal: bool = True, need_weights: bool = True
    ) -> tuple[Float[Tensor, "batch n d_model"], Float[Tensor, "batch heads n n"] | None]:
        """``(batch, n, d_model)`` to the same, and the weights of all heads or ``None``."""
        expect.flag("causal", causal)
        attended, weights = self.attention(self.norm_1(x), is_causal=causal, need_weights=need_weights)
        return self._add(x, attended), weights

    def extend(
        self, x: Float[Tensor, "batch n_new d_model"], cache: Cache | None = None
    ) -> tuple[Float[Tensor, "batch n_new d_model"], Cache]:
        """The same for new tokens only, with the keys and values of earlier ones in ``cache``."""
        attended, cache = self.attention.extend(self.norm_1(x), cache)
        return self._add(x, attended), cache

    def _add(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + attended
        return x if self.network is None else x + self.network(self.norm_2(x))


class Decoder(nn.Module):
    """A language model: from tokens to a score ("logit") for each possible next token.

    ``x = E[tokens] + P[positions]``, then the blocks, then ``logits = norm(x) E.T``: the embedding
    ``E``, ``(vocab_size, d_model)``, is also the readout ("weight tying"). ``P``, ``(max_length,
    d_model)``, starts as sines and cosines, in which nearby positions are similar:
    ``0.4 * sinusoidal_positions(max_length, d_model, base=100)``.

    Args:
        vocab_size: how many different tokens there are.
        d_model: the width of a token.
        num_heads: how many heads each layer has; it divides ``d_model``.
        num_layers: how many blocks.
        max_length: the longest text, in tokens, if ``P`` is added.
        positions: ``"learned"`` trains ``P``, ``"sinusoidal"`` leaves it as it starts, and ``"none"`` adds
            nothing: then attention itself may have positions, and a text may have any length.
        attention: a function from the number of a layer, counted from 0, to its ``MultiHeadAttention``;
            ``None`` means the plain layer, ``MultiHeadAttention(d_model, num_heads)``.
        network: ``False`` makes blocks of attention alone ("attention-only"): then each block adds to ``x``
            what its heads write, and nothing else.

    Source: Radford et al. 2019, section 2.3; Press and Wolf 2017, "Using the Output Embedding to
    Improve Language Models" (tying); Elhage et al. 2021, "A Mathematical Framework for Transformer
    Circuits", "Transformer Overview" (attention-only).

    >>> model = Decoder(11, d_model=6, num_heads=3, num_layers=2, max_length=7)
    >>> logits, weights = model(torch.zeros(5, 7, dtype=torch.long), need_weights=True)
    >>> logits.shape, weights.shape
    (torch.Size([5, 7, 11]), torch.Size([2, 5, 3, 7, 7]))
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        d_model: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        max_length: int = 64,
        positions: Literal["learned", "sinusoidal", "none"] = "learned",
        attention: Callable[[int], MultiHeadAttention] | None = None,
        network: bool = True,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size = expect.whole_number("vocab_size", vocab_size)
        self.max_length = max_length = expect.whole_number("max_length", max_length)
        num_layers = expect.whole_number("num_layers", num_layers)
        d_model = expect.whole_number("d_model", d_model)
        expect.flag("network", network)
        expect.function("attention", attention, "layer -> MultiHeadAttention")
        if positions not in ("learned", "sinusoidal", "none"):
            expect.fail(ValueError, "positions", "'learned', 'sinusoidal' or 'none'", repr(positions))
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.position_embedding = None if positions == "none" else nn.Embedding(max_length, d_model)
        make = attention or (lambda layer: MultiHeadAttention(d_model, num_heads))
        self.blocks = nn.ModuleList(
            Block(_of_width(d_model, make(layer)), network) for layer in range(num_layers)
        )
        self.norm = nn.LayerNorm(d_model)
        if self.position_embedding is not None:
            self.position_embedding.requires_grad_(positions == "learned")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The embeddings as they start; the other modules have a ``reset_parameters`` of their own."""
        nn.init.normal_(self.token_embedding.weight, std=0.1)  # the readout, too: logits start small
        if self.position_embedding is not None:
            weight = self.position_embedding.weight
            weight.data.copy_(0.4 * sinusoidal_positions(*weight.shape, base=100.0))

    def forward(
        self, tokens: Int[Tensor, "batch n"], *, causal: bool = True, need_weights: bool = False
    ) -> tuple[Float[Tensor, "batch n vocab"], Float[Tensor, "layers batch heads n n"] | None]:
        """Logits for the token after each token.

        Args:
            tokens: ``(batch, n)``, whole numbers from 0 to ``vocab_size - 1``.
            causal: ``False`` lets every token see later tokens, which a language model must not do.
            need_weights: whether to return the weights.

        Returns:
            ``(logits, weights)``: ``(batch, n, vocab_size)``, and ``(layers, batch, heads, n, n)`` or
            ``None``.
        """
        x, kept = self._embed(tokens, 0), []
        for block in self.blocks:
            x, weights = block(x, causal=causal, need_weights=need_weights)
            kept.append(weights)
        return self._read_out(x), torch.stack(kept) if need_weights else None

    def extend(
        self, tokens: Int[Tensor, "batch n_new"], caches: list[Cache] | None = None
    ) -> tuple[Float[Tensor, "batch n_new vocab"], list[Cache]]:
        """Logits after each new token; of the earlier tokens only keys and values are used.

        Args:
            tokens: ``(batch, n_new)``, the tokens that come after those in ``caches``.
            caches: those that an earlier call of this model returned, one for each layer; ``None`` starts a
                new text.

        Returns:
            ``(logits, caches)``: ``(batch, n_new, vocab_size)`` and one cache for each layer.

        >>> logits, caches = Decoder(11).extend(torch.zeros(2, 3, dtype=torch.long))
        >>> len(caches), caches[0][0].shape
        (2, torch.Size([2, 4, 3, 16]))
        """
        if caches is None:
            start, caches = 0, [None] * len(self.blocks)
        else:
            start = self._length(caches)
        x, extended = self._embed(tokens, start), []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block.extend(x, cache)
            extended.append(cache)
        return self._read_out(x), extended

    def _length(self, caches: list[Cache]) -> int:
        """How many tokens all caches have read, if each belongs to its layer."""
        if isinstance(caches, Cache) or not isinstance(caches, list | tuple):
            expect.fail(TypeError, "caches", "a list of caches, one for each layer", type(caches).__name__)
        if len(caches) != len(self.blocks):
            expect.fail(ValueError, "caches", f"one for each of {len(self.blocks)} layers", len(caches))
        layers = [block.attention for block in self.blocks]
        for i, (layer, cache) in enumerate(zip(layers, caches, strict=True)):
            _expect_made_by(layer, f"caches[{i}]", cache, layers)
            if cache.length != caches[0].length:
                wanted = f"as many tokens as caches[0], {caches[0].length}"
                expect.fail(ValueError, f"caches[{i}]", wanted, cache.length, "Did one call return all?")
        return caches[0].length

    def _embed(self, tokens: Tensor, start: int) -> Tensor:
        _expect_tokens(tokens)
        n = tokens.shape[-1]
        if self.position_embedding is not None and start + n > self.max_length:
            expected = f"at most max_length = {self.max_length} tokens"
            expect.fail(ValueError, "tokens", expected, start + n, "The positions that are added end there.")
        readable = expect.readable(tokens)
        if not tokens.numel() or (readable and (tokens.min() < 0 or tokens.max() >= self.vocab_size)):
            expected = f"at least one token, from 0 to vocab_size - 1 = {self.vocab_size - 1}"
            got = f"{tokens.min()} to {tokens.max()}" if tokens.numel() else expect.shape(tokens.shape)
            expect.fail(ValueError, "tokens", expected, got)
        x = self.token_embedding(tokens)
        return x if self.position_embedding is None else x + self.position_embedding.weight[start : start + n]

    def _read_out(self, x: Tensor) -> Tensor:
        return self.norm(x) @ self.token_embedding.weight.mT


def _of_width(d_model: int, layer: MultiHeadAttention) -> MultiHeadAttention:
    """``layer``, if it is one whose inputs and outputs are ``d_model`` wide."""
    instance("attention", layer, MultiHeadAttention)
    for name in ("d_model", "qdim", "kdim", "vdim"):
        if getattr(layer, name) != d_model:
            got = f"one with {name} = {getattr(layer, name)}"
            expect.fail(ValueError, "attention", f"layers of width d_model = {d_model}", got)
    return layer


def sample(
    logits: Float[Tensor, "batch vocab"],
    temperature: int | float = 1.0,
    generator: torch.Generator | None = None,
) -> Int[Tensor, " batch"]:
    """Draw a token from ``softmax(logits / temperature)``, for each row.

    Args:
        logits: ``(batch, vocab)``.
        temperature: below 1 makes the distribution sharper, above 1 flatter; 0 takes the largest logit.
        generator: the source of random numbers; ``None`` means PyTorch's default generator.

    Returns:
        ``(batch,)``, whole numbers.

    Source: Ackley, Hinton and Sejnowski 1985, "A Learning Algorithm for Boltzmann Machines",
    section 2.2 (temperature).

    >>> sample(torch.tensor([[0.0, 5.0, 1.0]]), temperature=0)
    tensor([1])
    """
    expect.tensor("logits", logits, "(batch, vocab)", min_rank=2, max_rank=2)
    expect.floating("logits", logits)
    if expect.real_number("temperature", temperature) < 0:
        expect.fail(ValueError, "temperature", "at least 0", temperature)
    if temperature == 0:
        return logits.argmax(dim=-1)
    shifted = logits - logits.amax(dim=-1, keepdim=True)  # the largest is 0: nothing overflows
    probabilities = torch.softmax(shifted / max(temperature, torch.finfo(logits.dtype).tiny), dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


@torch.no_grad()
def generate(
    model: Decoder,
    tokens: Int[Tensor, "batch n"],
    count: int,
    *,
    temperature: int | float = 1.0,
    use_cache: bool = True,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch length"]:
    """Continue each text by ``count`` tokens, one at a time.

    Args:
        model: the language model.
        tokens: ``(batch, n)``, the beginning of each text.
        count: how many tokens to add; ``n + count`` must not be above ``max_length + 1``,
            unless the model adds no positions.
        temperature, generator: as in ``sample``.
        use_cache: keep keys and values, and send only the newest token through the model. ``False``
            sends the whole text each time; the result is the same, up to rounding of the logits.

    Returns:
        ``(batch, n + count)``, ``tokens`` first.

    >>> generate(Decoder(11), torch.zeros(2, 1, dtype=torch.long), 5).shape
    torch.Size([2, 6])
    """
    instance("model", model, Decoder)
    count = expect.whole_number("count", count)
    expect.flag("use_cache", use_cache)
    caches, new = None, tokens
    for _ in range(count):
        if use_cache:
            logits, caches = model.extend(new, caches)
        else:
            logits, _ = model(tokens)
        new = sample(logits[:, -1], temperature, generator)[:, None]
        tokens = torch.cat([tokens, new], dim=1)
    return tokens


def next_token_loss(
    logits: Float[Tensor, "batch n vocab"], tokens: Int[Tensor, "batch n"]
) -> Float[Tensor, ""]:
    """The mean of ``-log p(next token)``, in nats, over all predictions that can be judged.

    ``logits[:, i]`` is about ``tokens[:, i + 1]``. Nothing comes after the last token, so ``n`` tokens have
    ``n - 1`` predictions.

    Args:
        logits: ``(batch, n, vocab)``, what a model says after each token.
        tokens: ``(batch, n)``, with ``n`` at least 2, what it has read.

    Returns:
        One number.

    >>> next_token_loss(torch.zeros(2, 5, 8), torch.zeros(2, 5, dtype=torch.long))
    tensor(2.0794)
    """
    _expect_tokens(tokens)
    expect.tensor("logits", logits, "(batch, n, vocab)", min_rank=3, max_rank=3)
    expect.floating("logits", logits)
    if logits.shape[:2] != tokens.shape or tokens.shape[1] < 2:
        wanted = "(batch, n, vocab) for tokens (batch, n) with n >= 2"
        got = f"{expect.shape(logits.shape)} for {expect.shape(tokens.shape)}"
        expect.fail(ValueError, "logits", wanted, got)
    return cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def previous_token_score(weights: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    """How much a head looks at the previous token: the mean of ``weights[i, i - 1]`` over ``i >= 1``.

    1 means that it never looks anywhere else. A head with equal weights for all tokens that a causal mask
    lets it see has the mean of ``1 / (i + 1)``.

    Args:
        weights: ``(..., n, n)`` of self-attention, ``n`` at least 2.

    Returns:
        One number for each ``(...)``: for weights ``(batch, heads, n, n)``, ``(batch, heads)``.

    Source: Clark et al. 2019, "What Does BERT Look At? An Analysis of BERT's Attention", section 3.1.

    >>> previous_token_score(torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))
    tensor(0.7500)
    """
    expect.tensor("weights", weights, "(..., n, n)", min_rank=2)
    expect.floating("weights", weights)
    if weights.shape[-1] != weights.shape[-2] or weights.shape[-1] < 2:
        expect.fail(ValueError, "weights", "(..., n, n) with n >= 2", expect.shape(weights.shape))
    return weights.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=-1)


@torch.no_grad()
def ablate_head(
    model: Decoder, layer: int, head: int, tokens: Int[Tensor, "batch n"] | None = None
) -> Decoder:
    """A copy of the model in which one head writes the same for each token ("ablation").

    Zero ablation: it writes nothing. The head's slice of ``out_proj``, the columns ``head * d_v`` to
    ``(head + 1) * d_v`` of its ``weight``, becomes 0. Mean ablation: it also writes the mean of what it wrote
    on some texts, over all their tokens. That is a constant, so it is added to ``out_proj.bias``.

    Args:
        model: it does not change.
        layer, head: which head, both counted from 0.
        tokens: ``(batch, n)``, the texts for mean ablation; ``None`` means zero ablation.

    Returns:
        The copy.

    Raises:
        TypeError: ``layer`` or ``head`` is not an int, ``tokens`` are not whole numbers, or the layer's
            ``out_proj`` is no plain ``torch.nn.Linear``: an adapter, or a computed weight.
        ValueError: there is no such layer or head.

    Source: Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 2.3 (zero); Wang et al.
    2022, "Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2 Small",
    the paragraph on knockouts (mean).

    >>> ablate_head(Decoder(11), layer=1, head=3).blocks[1].attention.out_proj.weight[:, 48:].any()
    tensor(False)
    """
    instance("model", model, Decoder)
    for name, value, limit in (("layer", layer, len(model.blocks)), ("head", head, None)):
        expect.whole_number(name, value, at_least=0)
        limit = model.blocks[layer].attention.num_heads if limit is None else limit
        if value >= limit:
            expect.fail(
                ValueError, name, f"at most {limit - 1}", value, "Layers and heads are counted from 0."
            )
    expect.own_weight("out_proj", model.blocks[layer].attention.out_proj)
    changed = copy.deepcopy(model)
    attention = changed.blocks[layer].attention
    own, projection = slice(head * attention.d_v, (head + 1) * attention.d_v), attention.out_proj
    if tokens is not None:
        heads: list[Tensor] = []
        hook = projection.register_forward_pre_hook(lambda _, inputs: heads.append(inputs[0][..., own]))
        changed(tokens)
        hook.remove()
        written = heads[0].mean(dim=(0, 1)) @ projection.weight[:, own].mT
        bias = written if projection.bias is None else projection.bias + written
        projection.bias = nn.Parameter(bias)
    projection.weight[:, own] = 0
    return changed


def _expect_tokens(tokens: Tensor) -> None:
    """``tokens`` are whole numbers, ``(batch, n)``."""
    expect.tensor("tokens", tokens, "(batch, n)", min_rank=2, max_rank=2)
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        expect.fail(TypeError, "tokens", "whole numbers", tokens.dtype, "Did you mean tokens.long()?")
