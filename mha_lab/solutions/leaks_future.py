"""Chapter 04: does an attention see the future?"""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def leaks_future(attention, n, d_model):
    """``True`` if some output ``i`` of ``attention(x)`` depends on ``x[j]`` with ``j > i``."""
    for _ in range(30):
        x = torch.randn(n, d_model, dtype=torch.float64)
        before = attention(x)
        for j in range(1, n):
            changed = x.clone()
            changed[j] += torch.randn(d_model, dtype=torch.float64)
            if not torch.equal(attention(changed)[:j], before[:j]):
                return True
    return False


def causal(x):
    """Sees no future."""
    scores = (x @ x.mT).masked_fill(~torch.ones(len(x), len(x), dtype=torch.bool).tril(), -torch.inf)
    return torch.softmax(scores, -1) @ x


def own_token_only(x):
    """No token sees another."""
    return torch.tanh(x)


def past_sum(x):
    """Sees all of the past, and no more."""
    return x.cumsum(0)


def unmasked(x):
    """Sees everything."""
    return torch.softmax(x @ x.mT, -1) @ x


def masked_after(x):
    """Leaks through the denominator of the softmax."""
    return torch.softmax(x @ x.mT, -1).tril() @ x


def one_too_many(x):
    """Each query sees one later key."""
    scores = (x @ x.mT).masked_fill(~torch.ones(len(x), len(x), dtype=torch.bool).tril(1), -torch.inf)
    return torch.softmax(scores, -1) @ x


def last_token_only(x):
    """Only the first output sees only the last token."""
    return torch.cat([x[:1] + x[-1:], x[1:]])


def rarely(x):
    """Leaks for half of all inputs."""
    return torch.cat([x[:-1] + (x[-1, 0] > 0) * x[-1], x[-1:]])


CLEAN = causal, own_token_only, past_sum
LEAKING = unmasked, masked_after, one_too_many, last_token_only, rarely


def _problems(draw):
    yield causal, 3, 2
    yield unmasked, 3, 2
    for n, d_model in ((5, 3), (7, 2)):
        for attention in draw.shuffled(CLEAN + LEAKING):
            yield attention, n, d_model


def _accepts(result, attention, n, d_model):
    del n, d_model
    leaks = attention in LEAKING
    if getattr(result, "array", None) is not None and result.dtype == "bool" and result.array.size == 1:
        result = bool(result.array.reshape(()))
    if not isinstance(result, bool):
        return "wrong-dtype"
    if result == leaks:
        return None
    return "misses-a-leak" if leaks else "false-alarm"


STEP = "6 Does it leak? Two tests"
EXERCISE = Exercise(
    answer=leaks_future,
    chapter="04_masking",
    section=STEP,
    points=3,
    problems=_problems,
    accepts=_accepts,
    mistakes={
        "misses-a-leak": Mistake(
            "Your function calls an attention clean that leaks. Does it try all pairs, and several inputs?",
            STEP,
            (),
        ),
        "false-alarm": Mistake(
            "Your function says that an attention leaks which sees no future: x[i] itself is not the future.",
            STEP,
            (),
        ),
        "wrong-dtype": Mistake("Your function does not return True or False.", STEP, ()),
    },
)
