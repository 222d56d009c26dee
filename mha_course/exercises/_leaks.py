"""Attentions with known dependencies of outputs on inputs, and a record of how a test called them."""

import math
from collections import Counter
from operator import mul

import torch
from torch.nn.functional import layer_norm

LATER = "every output but the last depends on the later tokens"
LEAKS = (  # kind, what it does, a pair of tokens or None for all pairs, what else is special
    ("first", "output 0 depends on token 1, and nothing else leaks", (0, 1), ""),
    ("last", "the last output but one depends on the last token, and nothing else leaks", (-2, -1), ""),
    ("far", "output 0 depends on the last token, and nothing else leaks", (0, -1), ""),
    ("middle", "output 1 depends on token 3, and nothing else leaks", (1, 3), ""),
    ("all", LATER, None, ""),
    ("all", LATER, None, "wider"),
    ("all", LATER, None, "wider"),
    ("tiny", "every output but the last depends on the later tokens, by less than 0.001", None, "tiny"),
    (
        "negative",
        "every output but the last depends on the later tokens, and falls as they grow",
        None,
        "negative",
    ),
    ("norm", "every output but the last depends on the later tokens, through a LayerNorm", None, "norm"),
    ("one-number", "the last number of an output depends on that of later tokens", None, "last number"),
    (
        "cancel",
        "every output but the last depends on the later tokens, by amounts that add up to 0",
        None,
        "zero sum",
    ),
)


IN_HALF = "in which, for about half of all sentences, {does}"
UP_TO_ITS_OWN = "that does not leak: output i depends on the tokens up to i"
ROUNDING = "that does not leak: output i depends on the tokens up to i, and others move it by rounding alone"
BEFORE_ITS_OWN = "that does not leak: output i depends on the tokens before i"
OWN_ALONE = "that does not leak: the last output depends on its own token, the others on none"


def future(rng):
    """28 attentions with their ``n`` and ``d_model``, in random order; 24 of them leak.

    They leak for only half of all inputs: it depends on the first token, which is in no token's future. They
    come in pairs, of which one leaks if the other does not. So a test with one input passes them all with a
    probability of 2 to the power of -24, or never, if the input is always the same.
    """
    found = [(attention, 5, 3) for attention in _clean(5, 3)]
    for number, (kind, does, pair, special) in enumerate(LEAKS):
        n, d_model = 5 + rng.below(2), 2 + rng.below(2)
        if special == "norm":
            d_model = 4  # of two numbers, a LayerNorm leaves one sign
        pairs = torch.ones(n, n).triu(1) * (-1 if special == "negative" else 1)
        if pair is not None:
            pairs = torch.zeros(n, n)
            pairs[pair] = 1
        does = IN_HALF.format(does=does)
        for one in _pair(rng, pairs, d_model, special):
            one.pair = number
            found.append((_named(kind, does, one), n, d_model))
    return rng.shuffled(found)


def _pair(rng, pairs, d_model, special):
    """Two attentions: an output is its own input and, for its half of all ``x``, what ``pairs`` lets in."""
    without, direction = torch.eye(len(pairs)), 1000 * rng.normal(d_model)
    with_it, wider = without + pairs, rng.normal(d_model, d_model + 1).abs() + 0.5
    last, numbers = (torch.arange(d_model) == d_model - 1).float(), direction.tolist()
    zero_sum = 1 - d_model * last

    def attention(x, there, missing):
        _expect(x, len(pairs), d_model)
        chosen = _of_type(_chosen(x, direction, numbers, there, missing)[: len(x), : len(x)], x)
        if special == "norm":
            x = x if x.is_floating_point() else x.float()
            normed = layer_norm(x, x.shape[-1:], eps=1e-10) * _of_type(wider[0, :-1], x)
            return x + (chosen - torch.eye(len(x))).to(x.dtype) @ normed
        mixed = chosen @ x
        if special == "zero sum":
            return x + (mixed - x).sum(-1, keepdim=True) * _of_type(zero_sum, x)
        if special == "tiny":
            return x + 3e-4 * torch.sin(mixed - x)
        if special == "last number":
            return x + (mixed - x) * _of_type(last, x)
        return mixed @ _of_type(wider, x) if special == "wider" else mixed

    return (lambda x: attention(x, with_it, without)), (lambda x: attention(x, without, with_it))


def _chosen(x, direction, numbers, one, other):
    """``one`` for half of all first rows of ``x``, else ``other``; ``numbers`` is ``direction`` as a list."""
    bare = torch.func.debug_unwrap(x)
    if bare.ndim > 2:  # inside vmap, where no branch can be taken
        return torch.where(torch.sin(x.detach()[0] @ _of_type(direction, x)) > 0, one, other)
    return one if math.sin(sum(map(mul, bare.tolist()[0], numbers))) > 0 else other


def _of_type(tensor, x):
    return tensor if x.dtype == torch.float32 or not x.is_floating_point() else tensor.to(x.dtype)


def _clean(n, d_model):
    last = (torch.arange(n) == n - 1).float()[:, None]

    def causal(x):
        _expect(x, n, d_model)
        hidden, x = torch.ones(len(x), len(x), dtype=torch.bool).triu(1), x.clone()
        # A copy: products may round differently if the memory begins elsewhere.
        return torch.softmax((x @ x.mT).masked_fill(hidden, -torch.inf), -1) @ x

    def past(x):
        _expect(x, n, d_model)
        return torch.cat([torch.zeros_like(x[:1]), x.cumsum(0)[:-1]])

    def last_own(x):
        _expect(x, n, d_model)
        return x * last[: len(x)].to(x.dtype)

    def rounding(x):
        """Output ``i`` is multiplied and divided by a number that depends on the tokens after ``i``."""
        mixed = causal(x)
        numbers = x.detach().sum(-1, keepdim=True)
        times = 1.5 + 0.4 * torch.sin(numbers.flip(0).cumsum(0).flip(0) - numbers)
        return mixed * times / times

    return [
        _named("causal", UP_TO_ITS_OWN, causal, leaks=False),
        _named("rounding", ROUNDING, rounding, leaks=False),
        _named("past", BEFORE_ITS_OWN, past, leaks=False),
        _named("last-own", OWN_ALONE, last_own, leaks=False),
    ]


def _expect(x, n, d_model):
    """Fewer tokens are not a mistake: a test may compare with a shorter sentence."""
    if not isinstance(x, torch.Tensor) or x.ndim != 2 or len(x) > n or x.shape[1] != d_model:
        got = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
        raise ValueError(f"attention: expected x of shape (n, d_model) = ({n}, {d_model}), got {got}")


def _named(kind, does, attention, *, leaks=True):
    """Adds what the judge knows about it; the copy that an answer gets has none of this."""
    attention.__name__, attention.kind, attention.does, attention.leaks = kind, kind, does, leaks
    return attention


MANNERS = TWICE, UNCHANGED, STAY, NORMED = 1, 2, 3, 4  # what may be odd about a test's calls


class Watched:
    """An attention that remembers what a test called it with.

    ``inputs`` counts the inputs that are not a changed version of an earlier one; ``changed`` counts, for
    each row, the inputs in which it was changed.
    """

    def __init__(self, attention):
        self.attention, self.calls, self.inputs, self.changed = attention, [], 0, Counter()
        self.base, self.start, self.touched, self.readable, self.plain = None, 0, set(), True, True
        self.removed = []  # for each changed row, whether a LayerNorm removes the change

    def __call__(self, x):
        try:
            bare = torch.func.debug_unwrap(x)  # inside jacrev or vmap
            self.plain &= bare is x and not x.requires_grad
            self.eps = torch.finfo(bare.dtype).eps if bare.is_floating_point() else 0.0
            for rows in bare.reshape(-1, *x.shape[-2:]).tolist():
                self._remember(rows)
        except Exception:  # not a tensor, or one whose numbers cannot be read
            self.readable = False
        return self.attention(x)

    def _remember(self, rows):
        """A changed version has kept its first row, or all rows but one."""
        near = [_differ(rows, other) for other in (self.base, self.calls[-1])] if self.calls else []
        if any(0 not in places or len(places) < 2 for places in near):
            new = near[0] - self.touched - {0}
            self.removed += [norm_removes(self.base[row], rows[row], self.eps) for row in near[0]]
            self.touched |= new
            self.changed.update(new)
        else:
            self.inputs, self.base, self.start, self.touched = self.inputs + 1, rows, len(self.calls), set()
        self.calls.append(rows)

    def manner(self):
        """What is odd about the calls: each is made ``TWICE``, rows are ``UNCHANGED``, changes ``STAY``.

        Only for plain calls: a derivative may be taken twice at the same input.
        """
        if not self.plain or len(self.calls) < 2:
            return 0
        if self.calls[::2] == self.calls[1::2]:
            return TWICE
        if not self.changed and self.inputs < len(self.calls) and self.calls[0] == self.calls[1]:
            return UNCHANGED
        last = self.calls[self.start :]  # the calls with the last input
        again = any(one == other for i, one in enumerate(last) for other in last[:i])
        if len(last) > 2 and not again and len(_differ(last[-1], last[0])) > 1 == len(_differ(*last[-2:])):
            return STAY
        return 0

    def only_removed(self):
        """Every change was one that a LayerNorm removes."""
        return self.plain and bool(self.removed) and all(self.removed)


def _differ(one, other):
    return {i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b}


def norm_removes(before, after, eps):
    """The numbers of a token were only changed by one number added to all, or by one positive factor."""
    before, after = (torch.tensor(numbers, dtype=torch.float64) for numbers in (before, after))
    rounding, added = 8 * eps, after - before
    if added.max() - added.min() <= rounding * max(before.abs().max(), after.abs().max()):
        return True
    factor = (before @ after) / (before @ before) if before.any() else torch.zeros(())
    return bool(factor > 0 and (after - factor * before).abs().max() <= rounding * after.abs().max())
