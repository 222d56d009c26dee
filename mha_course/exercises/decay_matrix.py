"""Chapter 16: what is left of each write when each token reads."""

import torch

from mha_course.exercises import Exercise, deviations

STEP = "2 Let the matrix fade"


def decay_matrix(decay):
    """``(n,)``, above 0 and at most 1, to ``(n, n)``: the share of write ``j`` that token ``i`` reads."""
    log = decay.log().cumsum(dim=0)
    return (log[:, None] - log).exp().tril()


def _problems(rng):
    yield (torch.tensor([0.5, 0.25, 0.5]),)
    yield (torch.tensor([0.25, 0.5, 0.5, 0.75]),)
    for n in (5, 7, 11):
        yield (0.3 + 0.69 * torch.sigmoid(rng.normal(n)),)


def _product(decay, first, last, seen=lambda i, j: j <= i):
    """The product of the decays ``first(i, j)`` to ``last(i, j)``, for the pairs that are ``seen``."""
    n = len(decay)
    rows = [
        [decay[first(i, j) : last(i, j) + 1].prod() if seen(i, j) else torch.zeros(()) for j in range(n)]
        for i in range(n)
    ]
    return torch.stack([torch.stack(row) for row in rows])


def _build(
    first=lambda i, j: j + 1,
    last=lambda i, j: i,
    seen=lambda i, j: j <= i,
    turned=lambda matrix: matrix,
):
    def answer(decay):
        return turned(_product(decay, first, last, seen))

    return answer


def _cumulative(decay):
    return decay.cumprod(dim=0)


KNOBS = {
    "first": {
        "own-decay-counts": (
            "In your result, a write already fades by the decay of its own token. What a token writes "
            "fades from the next token on.",
            STEP,
            (lambda i, j: j,),
        ),
        "fades-from-the-start": (
            "Your function multiplies all decays from the first token on, whenever a token wrote. Start "
            "after the token that wrote.",
            STEP,
            (lambda i, j: 0,),
        ),
    },
    "last": {
        "last-decay-left-out": (
            "Your function leaves out the decay of the token that reads. The matrix fades first, and is read "
            "afterwards.",
            STEP,
            (lambda i, j: i - 1,),
        ),
    },
    "seen": {
        "own-write-hidden": (
            "The diagonal of your result is 0. A token also reads what it has just written.",
            STEP,
            (lambda i, j: j < i,),
        ),
        "future-not-hidden": (
            "Above the diagonal of your result are ones. A token reads nothing that is written later.",
            STEP,
            (lambda i, j: True,),
        ),
    },
    "turned": {
        "rows-and-columns-exchanged": (
            "Rows and columns are exchanged in your result. Row i belongs to the token that reads.",
            STEP,
            (lambda matrix: matrix.mT,),
        ),
    },
}
OTHERS = {
    "decays-one-token-early": (
        "Your function multiplies the decays from the token that writes up to the one before the reading. "
        "The write comes after the fading, so they begin and end one token later.",
        STEP,
        lambda decay: _product(decay, lambda i, j: j, lambda i, j: i - 1),
    ),
    "only-its-own-write": (
        "In your result, each token reads only what it has written itself. It also reads the earlier writes.",
        STEP,
        lambda decay: torch.eye(len(decay)),
    ),
    "future-grows": (
        "Above the diagonal of your result are numbers above 1: what a later write would have to grow by. "
        "A token reads nothing that is written later.",
        STEP,
        lambda decay: _cumulative(decay)[:, None] / _cumulative(decay),
    ),
    "ratio-upside-down": (
        "Your function divides the product up to the write by the product up to the reading. So the shares "
        "grow with the distance.",
        STEP,
        lambda decay: (_cumulative(decay) / _cumulative(decay)[:, None]).tril(),
    ),
    "decay-of-the-first-token": (
        "Your function uses the decay of the first token for all tokens. Each token has a decay of its own.",
        STEP,
        lambda decay: _product(decay[:1].expand(len(decay)), lambda i, j: j + 1, lambda i, j: i),
    ),
    "power-of-the-readers-decay": (
        "Your function takes a power of the decay of the token that reads. Each token in between has a "
        "decay of its own.",
        STEP,
        lambda decay: torch.stack(
            [decay[i] ** (i - torch.arange(len(decay))) for i in range(len(decay))]
        ).tril(),
    ),
    "power-of-the-writers-decay": (
        "Your function takes a power of the decay of the token that wrote. Each token in between has a "
        "decay of its own.",
        STEP,
        lambda decay: (
            decay ** (torch.arange(len(decay))[:, None] - torch.arange(len(decay))).clamp(0)
        ).tril(),
    ),
    "only-the-readers-decay": (
        "Your function uses the decay of the token that reads, and not those of the tokens in between.",
        STEP,
        lambda decay: decay[:, None].expand(-1, len(decay)).tril(-1) + torch.eye(len(decay)),
    ),
    "sum-of-the-decays": (
        "Your function adds the decays. A part of a part is a product.",
        STEP,
        lambda decay: (decay.cumsum(0)[:, None] - decay.cumsum(0)).tril(),
    ),
}
EXERCISE = Exercise(
    answer=decay_matrix,
    chapter="16_a_state_in_place_of_a_cache",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS, pairs=False),
        **deviations(
            lambda answer=decay_matrix: answer,
            {"answer": {name: (says, step, (wrong,)) for name, (says, step, wrong) in OTHERS.items()}},
        ),
    },
)
