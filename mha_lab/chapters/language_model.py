"""A small language model on ``MultiHeadAttention``: a decoder that predicts the next token.

Pre-norm blocks, learned positions, one matrix for embedding and readout. The other functions
generate text with a cache of keys and values, score heads by how much they look at the previous token,
and remove single heads.

Raises: every function here checks its arguments before it computes anything. It raises ``TypeError`` for a
wrong type or dtype, and ``ValueError`` for a shape, size, number or device that does not fit. A function
says more only if it can raise for another reason.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3 (a
decoder with the normalisation before each part).
"""

import copy

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab.heads import merge_heads
from mha_lab.masks import causal_mask
from mha_lab.multihead import MultiHeadAttention
from mha_lab.positions import sinusoidal_positions

Cache = tuple[Tensor, Tensor]  # the keys and values of one layer, (batch, num_heads, n, d_k) and d_v


def attend_with_cache(
    layer: MultiHeadAttention, x: Float[Tensor, "batch n_new d_model"], cache: Cache | None = None
) -> tuple[Float[Tensor, "batch n_new d_model"], Cache]:
    """Causal self-attention of new tokens to all tokens so far, whose keys and values are kept.

    ``K = [K_cache; split(x W_k)]`` and ``V = [V_cache; split(x W_v)]``; only the new tokens have queries. A
    token's key and value depend on that token alone, and under the causal mask no later token changes
    an earlier output, so the result equals the last ``n_new`` rows of attention to the whole text.

    Args:
        layer: self-attention, with any ``score`` or ``transform``. The last query is at the last key's
            position.
        x: ``(batch, n_new, d_model)``, the new tokens.
        cache: the cache that an earlier call returned; ``None`` means that there are no earlier tokens.

    Returns:
        ``(output, cache)``: ``(batch, n_new, d_model)``, and keys and values of all tokens so far,
        ``(batch, num_heads, n, d_k)`` and ``(batch, num_heads, n, d_v)``, keys before any ``transform``. The
        cache that was passed in does not change.

    Raises:
        TypeError: ``x`` is not a floating-point tensor.
        ValueError: ``x`` has a wrong rank or width, or the cache is of another batch or layer.

    Source: Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", section 2.4
    (attention one token at a time, with keys and values kept).

    >>> layer = MultiHeadAttention(d_model=6, num_heads=3)
    >>> output, cache = attend_with_cache(layer, torch.ones(2, 5, 6))
    >>> output, cache = attend_with_cache(layer, torch.ones(2, 1, 6), cache)
    >>> output.shape, cache[0].shape
    (torch.Size([2, 1, 6]), torch.Size([2, 3, 6, 2]))
    """
    expect.tensor("x", x, "(batch, n_new, d_model)", min_rank=3, max_rank=3)
    expect.floating("x", x)
    expect.sequence("x", x)
    expect.width("x", x, "d_model", layer.d_model)
    query, key, value = layer.project(x, x, x)
    if cache is not None:
        n = cache[0].shape[-2]
        wanted = [(len(x), layer.num_heads, n, width) for width in (layer.d_k, layer.d_v)]
        if [tuple(kept.shape) for kept in cache] != wanted:
            hint = "Does the cache belong to this layer and this batch?"
            got = f"{expect.shape(cache[0].shape)} and {expect.shape(cache[1].shape)}"
            expect.fail(ValueError, "cache", f"keys and values of shapes {wanted}", got, hint)
        key, value = torch.cat([cache[0], key], dim=-2), torch.cat([cache[1], value], dim=-2)
    mask = causal_mask(query.shape[-2], key.shape[-2]).to(x.device)
    heads, _ = layer.attend(query, key, value, mask)
    return layer.out_proj(merge_heads(heads)), (key, value)


class Block(nn.Module):
    """One layer of the decoder: attention, then a network for each token alone; both are added to ``x``.

    ``x = x + attention(norm_1(x))``, then ``x = x + network(norm_2(x))``. The normalisations are
    inside the branches ("pre-norm"), so ``x`` itself stays a plain sum.

    Args:
        d_model: the width of a token.
        num_heads: how many heads; it must divide ``d_model``.

    Source: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", section 3.

    >>> x, weights = Block(d_model=6, num_heads=3)(torch.ones(2, 5, 6))
    >>> x.shape, weights.shape
    (torch.Size([2, 5, 6]), torch.Size([2, 3, 5, 5]))
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, num_heads)
        self.network = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(
        self, x: Float[Tensor, "batch n d_model"], *, causal: bool = True, need_weights: bool = True
    ) -> tuple[Float[Tensor, "batch n d_model"], Float[Tensor, "batch heads n n"] | None]:
        """``(batch, n, d_model)`` to the same, and the weights of all heads or ``None``."""
        mask = causal_mask(x.shape[-2]).to(x.device) if causal else None
        attended, weights = self.attention(self.norm_1(x), mask=mask, need_weights=need_weights)
        return self._add(x, attended), weights

    def extend(
        self, x: Float[Tensor, "batch n_new d_model"], cache: Cache | None = None
    ) -> tuple[Float[Tensor, "batch n_new d_model"], Cache]:
        """The same for new tokens only, with the keys and values of earlier ones in ``cache``."""
        attended, cache = attend_with_cache(self.attention, self.norm_1(x), cache)
        return self._add(x, attended), cache

    def _add(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + attended
        return x + self.network(self.norm_2(x))


class Decoder(nn.Module):
    """A language model: from tokens to a score ("logit") for each possible next token.

    ``x = E[tokens] + P[positions]``, then the blocks, then ``logits = norm(x) E.T``: the embedding
    ``E``, ``(vocab_size, d_model)``, is also the readout ("weight tying"). ``P``, ``(max_length,
    d_model)``, is learned; it starts as sines and cosines, in which nearby positions are similar.

    Args:
        vocab_size: how many different tokens there are.
        d_model: the width of a token.
        num_heads: how many heads each layer has; it divides ``d_model``.
        num_layers: how many blocks.
        max_length: the longest text, in tokens; there is no position after it.

    Source: Radford et al. 2019, section 2.3; Press and Wolf 2017, "Using the Output Embedding to
    Improve Language Models", section 3 (tying).

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
    ) -> None:
        super().__init__()
        self.vocab_size = expect.whole_number("vocab_size", vocab_size)
        self.max_length = expect.whole_number("max_length", max_length)
        expect.whole_number("num_layers", num_layers)
        expect.whole_number("d_model", d_model)
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.position_embedding = nn.Embedding(max_length, d_model)
        self.blocks = nn.ModuleList(Block(d_model, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(d_model)
        nn.init.normal_(self.token_embedding.weight, std=0.1)  # the readout, too: logits start small
        with torch.no_grad():
            self.position_embedding.weight.copy_(0.4 * sinusoidal_positions(max_length, d_model, base=100.0))

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
            caches: those that an earlier call returned, one for each layer; ``None`` starts a new text.

        Returns:
            ``(logits, caches)``: ``(batch, n_new, vocab_size)`` and one cache for each layer.

        >>> logits, caches = Decoder(11).extend(torch.zeros(2, 3, dtype=torch.long))
        >>> len(caches), caches[0][0].shape
        (2, torch.Size([2, 4, 3, 16]))
        """
        caches = [None] * len(self.blocks) if caches is None else caches
        if len(caches) != len(self.blocks):
            expect.fail(ValueError, "caches", f"one for each of {len(self.blocks)} layers", len(caches))
        x, extended = self._embed(tokens, 0 if caches[0] is None else caches[0][0].shape[-2]), []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block.extend(x, cache)
            extended.append(cache)
        return self._read_out(x), extended

    def _embed(self, tokens: Tensor, start: int) -> Tensor:
        _expect_tokens(tokens)
        n = tokens.shape[-1]
        if start + n > self.max_length:
            expected = f"at most max_length = {self.max_length} tokens"
            expect.fail(ValueError, "tokens", expected, start + n, "Learned positions end there.")
        if not tokens.numel() or tokens.min() < 0 or tokens.max() >= self.vocab_size:
            expected = f"at least one token, from 0 to vocab_size - 1 = {self.vocab_size - 1}"
            got = f"{tokens.min()} to {tokens.max()}" if tokens.numel() else expect.shape(tokens.shape)
            expect.fail(ValueError, "tokens", expected, got)
        return self.token_embedding(tokens) + self.position_embedding.weight[start : start + n]

    def _read_out(self, x: Tensor) -> Tensor:
        return self.norm(x) @ self.token_embedding.weight.mT


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
        count: how many tokens to add; ``n + count`` must not be above ``max_length + 1``.
        temperature, generator: as in ``sample``.
        use_cache: keep keys and values, and send only the newest token through the model. ``False``
            sends the whole text each time; the result is the same, up to rounding of the logits.

    Returns:
        ``(batch, n + count)``, ``tokens`` first.

    >>> generate(Decoder(11), torch.zeros(2, 1, dtype=torch.long), 5).shape
    torch.Size([2, 6])
    """
    expect.whole_number("count", count)
    caches, new = None, tokens
    for _ in range(count):
        if use_cache:
            logits, caches = model.extend(new, caches)
        else:
            logits, _ = model(tokens)
        new = sample(logits[:, -1], temperature, generator)[:, None]
        tokens = torch.cat([tokens, new], dim=1)
    return tokens


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


def ablate_head(model: Decoder, layer: int, head: int) -> Decoder:
    """A copy of the model in which one head writes nothing ("ablation").

    The head's slice of ``out_proj``, the columns ``head * d_v`` to ``(head + 1) * d_v`` of its
    ``weight``, is 0. Nothing else changes.

    Args:
        model: it does not change.
        layer, head: which head, both counted from 0.

    Returns:
        The copy.

    Raises:
        TypeError: ``layer`` or ``head`` is not an int.
        ValueError: there is no such layer or head.

    Source: Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 2.3.

    >>> ablate_head(Decoder(11), layer=1, head=3).blocks[1].attention.out_proj.weight[:, 48:].any()
    tensor(False)
    """
    for name, value, limit in (("layer", layer, len(model.blocks)), ("head", head, None)):
        expect.whole_number(name, value, at_least=0)
        limit = model.blocks[layer].attention.num_heads if limit is None else limit
        if value >= limit:
            expect.fail(
                ValueError, name, f"at most {limit - 1}", value, "Layers and heads are counted from 0."
            )
    changed = copy.deepcopy(model)
    attention = changed.blocks[layer].attention
    with torch.no_grad():
        attention.out_proj.weight[:, head * attention.d_v : (head + 1) * attention.d_v] = 0
    return changed


def _expect_tokens(tokens: Tensor) -> None:
    """``tokens`` are whole numbers, ``(batch, n)``."""
    expect.tensor("tokens", tokens, "(batch, n)", min_rank=2, max_rank=2)
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        expect.fail(TypeError, "tokens", "whole numbers", tokens.dtype, "Did you mean tokens.long()?")
