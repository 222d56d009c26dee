"""Attentions that see the padding, and others that do not, for the exercise ``sees_padding`` of chapter 11.

Each has ``sees``, the right answer, and ``says``, what it does. For those without a leak, ``follows`` means
that outputs of padded tokens change with the padding, and ``spreads`` that a NaN in the padding reaches real
tokens: 0 * NaN is NaN. All of them but ``only_rounds`` give real tokens the same numbers, to the last bit,
wherever ``x`` lies in memory.
"""

import dis
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import layer_norm

from mha_course.exercises._finished import code_of
from mha_course.exercises._leaks import norm_removes

IN_ORDER: list[Callable] = []
LEAKS: list[Callable] = []


def _clean(says: str, *, follows: bool = False, spreads: bool = False) -> Callable:
    def keep(function: Callable) -> Callable:
        function.says, function.sees = says, False
        function.follows, function.spreads = follows, spreads
        IN_ORDER.append(function)
        return function

    return keep


def _leak(says: str) -> Callable:
    def keep(function: Callable) -> Callable:
        function.says, function.sees = says, True
        LEAKS.append(function)
        return function

    return keep


def _padded(real):
    """The places of the padding, as numbers."""
    return [place for place, token in enumerate(real.tolist()) if not token]


def _real(real):
    return [place for place, token in enumerate(real.tolist()) if token]


@_clean("it hides the scores of padded keys", follows=True, spreads=True)
def hides_keys(x, real):
    x = torch.clone(x)  # products may round differently if the memory begins elsewhere
    return torch.softmax((x @ x.mT).masked_fill(~real, -torch.inf), -1) @ x


@_clean("each token sees itself only", follows=True)
def own_token_only(x, real):
    return torch.tanh(x)


@_clean("each real token sees itself only, and padded tokens get 0")
def own_real_token_only(x, real):
    return torch.tanh(x).masked_fill(~real[:, None], 0.0)


@_clean("each token gets the sum of the real tokens, divided by the number of all tokens", spreads=True)
def divided_by_all(x, real):
    return ((x * real[:, None]).sum(0) / len(x)).repeat(len(x), 1)


@_clean("it adds the padding and takes it away again, so only rounding changes an output", spreads=True)
def only_rounds(x, real):
    padded = 2 * torch.sin(x[~real]).sum(0)  # of three tokens at most 6: in float32, the change is below 5e-7
    return ((torch.tanh(x) / 1000 + padded) - padded).masked_fill(~real[:, None], 0.0)


@_leak("each token sees all tokens")
def unmasked(x, real):
    return torch.softmax(x @ x.mT, -1) @ x


@_leak("the last real token sees the first padded one")
def first_place_only(x, real):
    return _given_to(x, real, x[_padded(real)[:1]].sum(0), (-1, 1))


@_leak("the first real token sees the last number of the second padded one")
def one_number_only(x, real):
    return _given_to(x, real, x[_padded(real)[1:2], -1:].sum(0), (0, 1))


@_leak("real tokens see the last padded one")
def last_place_only(x, real):
    return torch.tanh(x) + 4.0 * torch.sin(x[_padded(real)[-1:]]).sum(0)


@_leak("real tokens see a few thousandths of the last padded one")
def tiny(x, real):
    return torch.tanh(x) + 0.004 * torch.sin(x[_padded(real)[-1:]]).sum(0)


@_leak("real tokens see the padded ones after a LayerNorm")
def after_a_norm(x, real):
    normed = layer_norm(x[~real], x.shape[-1:], eps=1e-10) * torch.arange(1, x.shape[-1] + 1)
    return torch.tanh(x) + normed.sum(0)  # the factors differ, so that the numbers do not sum to 0


@_leak("the padding adds numbers to the first real token, and takes the same numbers from the last")
def added_and_taken(x, real):
    return _given_to(x, real, x[_padded(real)].sum(0), (0, 1), (-1, -1))


@_leak("the padding adds to one number of each real token what it takes from another number of that token")
def added_and_taken_within(x, real):
    share = torch.zeros(x.shape[-1])
    share[0], share[-1] = 1, -1
    return torch.tanh(x) + 4.0 * torch.sin(x[_padded(real)[-1:], :1]).sum() * share


@_leak("each real token gets the number of entries above 0 in the padding")
def counted(x, real):
    return torch.tanh(x) + (x[~real] > 0).sum()


@_leak("real tokens see the last padded one, and padded tokens get NaN")
def with_nan(x, real):
    seen = torch.tanh(x) + torch.sin(x[_padded(real)[-1:]]).sum(0)
    return seen.masked_fill(~real[:, None], torch.nan)


def _given_to(x, real, what, *shares):
    output = x.clone()
    for place, share in shares:
        output[_real(real)[place]] += share * what
    return output.masked_fill(~real[:, None], 0.0)


def half(one: tuple[int, int], other: tuple[int, int], turned: bool) -> Callable:
    """It sees the padding if one number of the real tokens is larger than another: for half of all inputs.

    ``one`` and ``other`` are ``(real token, column)``; with ``turned``, it sees it for the other half.
    """
    (i, a), (j, b) = one, other

    def for_half_of_all_inputs(x, real):
        tokens, numbers = _real(real), x.detach().tolist()
        if (numbers[tokens[i]][a] > numbers[tokens[j]][b]) == turned:
            return x
        for place in _padded(real):
            x = x + x[place]
        return x

    for_half_of_all_inputs.sees = True
    for_half_of_all_inputs.says = "real tokens see the padding, for about half of all inputs"
    return for_half_of_all_inputs


WHERE = (
    "real tokens see the padding only if the first number of the first real token is negative",
    "real tokens see the padding only if the first number of the first real token is positive",
)


def _signed(turned: bool) -> Callable:
    def for_one_sign(x, real):
        if (x.detach().tolist()[_real(real)[0]][0] > 0) != turned:
            return x
        for place in _padded(real):
            x = x + x[place]
        return x

    for_one_sign.sees = True
    for_one_sign.says = WHERE[turned]
    return for_one_sign


WHERE_NEGATIVE, WHERE_POSITIVE = _signed(False), _signed(True)


class Record:
    """A record of what an answer gives to an attention in each call."""

    FIELDS = ("calls", "inputs", "shared", "places", "columns", "rows", "gradient", "infinite", "shorter")
    FIELDS += "remasked", "one_round", "removed", "signs"

    def __init__(self, real):
        self.real, self.calls, self.unread, self.seen, self.groups = real.clone(), 0, 0, [], {}
        self.gradient = self.infinite = self.shorter = self.remasked = False

    def keep(self, x, real):
        """Record a call."""
        self.calls += 1
        self.gradient |= x.requires_grad
        if len(x) != len(self.real):
            self.shorter |= len(x) < len(self.real)
            return
        self.remasked |= not torch.equal(real, self.real)
        try:
            numbers = x.detach().numpy().copy()
        except RuntimeError:  # inside a transform of torch.func, where no numbers can be read
            self.unread += 1
            return
        self.infinite |= not np.isfinite(numbers).all()
        self.seen.append(numbers)
        self.groups.setdefault(numbers[self.real.numpy()].tobytes(), []).append(numbers)

    def inputs(self):
        """The number of different inputs; those with the same real tokens count as one."""
        return len(self.groups) + self.unread

    def numbers(self, answer):
        """In the order of ``FIELDS``.

        ``places`` and ``columns`` of the padding change while the real tokens stay, ``rows`` from the first
        call to the second.
        """
        groups = [group for group in self.groups.values() if len(group) > 1]
        changed = np.zeros((len(self.real), 1), bool)
        for group in groups:
            changed = changed | (np.stack(group) != group[0]).any(0)
        padded = changed[~self.real.numpy()]
        rows = (self.seen[0] != self.seen[1]).any(1) if len(self.seen) > 1 else np.zeros(1, bool)
        flags = self.gradient, self.infinite, self.shorter, self.remasked, _one_round(answer), self.removed()
        tokens = [rows[self.real.numpy()] for rows in self.seen]
        signs = (self.unread or any((sign * rows > 0).any() for rows in tokens) for sign in (-1, 1))
        bits = _bits(padded.any(1)), padded.any(0).sum(), _bits(rows)
        return self.calls, self.inputs(), bool(groups), *bits, *flags, _bits(signs)

    def removed(self):
        """Every change of the padding, with the same real tokens, is one that a LayerNorm removes."""
        pairs = [
            (group[0][place], rows[place])
            for group in self.groups.values()
            for rows in group[1:]
            for place in _padded(self.real)
            if (rows[place] != group[0][place]).any()
        ]
        return bool(pairs) and all(norm_removes(*pair, np.finfo(pair[0].dtype).eps) for pair in pairs)


def _bits(flags):
    return sum(2**place for place, flag in enumerate(flags) if flag)


def _one_round(answer):
    """The function has a ``for`` that never comes to a second round."""
    steps = list(dis.get_instructions(code)) if (code := code_of(answer)) else []
    back = {step.argval for step in steps if "JUMP_BACKWARD" in step.opname}
    return any(step.opname == "FOR_ITER" and step.offset not in back for step in steps)
