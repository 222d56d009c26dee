"""Chapter 06: a test that finds attention to padding."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def sees_padding(attention, real, d_model):
    """``True`` if the output of some real token depends on what stands in the padding."""
    for _ in range(30):
        x = torch.randn(len(real), d_model, dtype=torch.float64)
        before = attention(x, real)
        for j in torch.nonzero(~real).flatten():
            changed = x.clone()
            changed[j] += torch.randn(d_model, dtype=torch.float64)
            if not torch.equal(attention(changed, real)[real], before[real]):
                return True
    return False


def _scores(x, real):
    return (x @ x.mT).masked_fill(~real, -torch.inf)


def hides_keys(x, real):
    """In order; what the padding's own queries fetch is nobody's business."""
    return torch.softmax(_scores(x, real), -1) @ x


def own_token_only(x, real):
    """No token sees another; padded outputs follow the padding."""
    del real
    return torch.tanh(x)


def mean_of_real(x, real):
    """In order."""
    return x + x[real].mean(0)


def unmasked(x, real):
    """Sees everything."""
    del real
    return torch.softmax(x @ x.mT, -1) @ x


def masked_after(x, real):
    """The padding still stands in the denominator."""
    return (torch.softmax(x @ x.mT, -1) * real) @ x


def upside_down(x, real):
    """Sees the padding only."""
    return torch.softmax(_scores(x, ~real), -1) @ x


def hides_queries(x, real):
    """The mask on the rows: real queries see all keys."""
    return torch.softmax(x @ x.mT, -1) @ x * real[:, None]


def one_too_many(x, real):
    """Takes the first padded token for a real one."""
    longer = real.clone()
    longer[int(torch.nonzero(~real)[0])] = True
    return torch.softmax(_scores(x, longer), -1) @ x


def rarely(x, real):
    """Leaks for half of all inputs."""
    return x + (x[~real][-1, 0] > 0) * x[~real][-1]


CLEAN = hides_keys, own_token_only, mean_of_real
SEEING = unmasked, masked_after, upside_down, hides_queries, one_too_many, rarely


def _problems(draw):
    small = torch.tensor([True, True, False])
    yield hides_keys, small, 2
    yield unmasked, small, 2
    for n, d_model in ((5, 3), (7, 2)):
        for attention in draw.shuffled(CLEAN + SEEING):
            length = 2 + draw.below(n - 2)
            yield attention, torch.arange(n) < length, d_model


def _accepts(result, attention, real, d_model):
    del real, d_model
    sees = attention in SEEING
    if getattr(result, "array", None) is not None and result.dtype == "bool" and result.array.size == 1:
        result = bool(result.array.reshape(()))
    if not isinstance(result, bool):
        return "wrong-dtype"
    if result == sees:
        return None
    return "misses-padding" if sees else "false-alarm"


STEP = "8 Break it: a clinic"
EXERCISE = Exercise(
    answer=sees_padding,
    chapter="06_five_ways",
    section=STEP,
    points=3,
    problems=_problems,
    accepts=_accepts,
    mistakes={
        "misses-padding": Mistake(
            "Your test calls an attention clean that sees padding. Does it try every padded place, often?",
            STEP,
            (),
        ),
        "false-alarm": Mistake(
            "Your test accuses an attention in order. Outputs of padded tokens may follow the padding.",
            STEP,
            (),
        ),
        "wrong-dtype": Mistake("Your function does not return True or False.", STEP, ()),
    },
)
