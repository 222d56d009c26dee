"""Chapter 14: of all heads of a large model, the two that replace each other."""

import torch

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises._results import as_array

STEP = "6 Break it: silence heads"


def backup_pair(intact, losses):
    """A number and ``(num_heads, num_heads)`` to the two heads with the largest extra cost, ``(2,)``."""
    cost = losses - intact
    extra = cost - cost.diagonal()[:, None] - cost.diagonal()
    first, second = torch.triu_indices(len(losses), len(losses), offset=1)
    at = extra[first, second].argmax()
    return torch.stack([first[at], second[at]])


def _extra(intact, losses):
    """What a pair costs beyond what its heads cost one at a time; the diagonal means nothing."""
    cost = losses - intact
    return cost - cost.diagonal()[:, None] - cost.diagonal()


# What some heads cost alone, and some pairs of them beyond that. Each pair is the largest in another way.
ALONE = (0.04, 0.07, 2.05, 1.95, 0.5, 1.05, 1.05, 1.5, 0.4, 0.0005, 0.0004)
PAIRS = {(0, 1): 0.6, (3, 4): 0.05, (5, 6): 0.0, (7, 8): 0.35, (9, 10): 0.1}
COSTLY = range(2, 9)


def _model(rng, num_heads):
    """Losses as of a trained model.

    Heads 0 and 1 are the right pair: each costs little alone, and both together cost a lot. Head 2 costs most
    alone; heads 3 and 4 cost most together; of the larger of their two costs, heads 5 and 6 add most; of the
    mean, heads 7 and 8; heads 9 and 10 have the largest ratio. Other costly heads are needed for the same
    thing, so two of them cost hardly more than one. Heads 2 and 7 cancel. Two neighbours have an extra cost
    of 0.2. The heads are in a random order.
    """
    special = len(ALONE)
    alone = 0.005 + 0.015 * rng.normal(num_heads).abs()
    alone[:special] = torch.tensor(ALONE)
    noise = 0.004 * rng.normal(num_heads, num_heads)
    extra = noise + noise.T
    for a in COSTLY:
        for b in COSTLY:
            extra[a, b] = 0.02 - min(alone[a], alone[b])
    extra[2, 7] = extra[7, 2] = 0.4 - alone[2] - alone[7]
    for (a, b), cost in PAIRS.items():
        extra[a, b] = extra[b, a] = cost
    order = rng.shuffled(range(num_heads))
    while abs(order.index(0) - order.index(1)) < 2 or {order[0], order[1], order[-1]} & set(range(special)):
        order = rng.shuffled(range(num_heads))
    at = next(i for i in range(num_heads) if not {order[i], order[i + 1]} & set(range(special)))
    a, b = order[at], order[at + 1]
    extra[a, b] = extra[b, a] = 0.2
    cost = alone[:, None] + alone + extra
    cost[range(num_heads), range(num_heads)] = alone
    intact = 2.5 + rng.below(100) / 100
    return intact, (intact + cost[order][:, order]).float()


def _problems(rng):
    yield 1.0, torch.tensor([[1.5, 2.75, 2.5], [2.75, 2.0, 2.25], [2.5, 2.25, 1.25]])
    four = [[2.5, 2.625, 4.25, 2.75], [2.625, 0.75, 2.5, 2.0], [4.25, 2.5, 2.25, 2.5], [2.75, 2.0, 2.5, 0.75]]
    yield 0.5, torch.tensor(four)
    # Every extra cost is below 0.
    yield 1.0, torch.tensor([[1.5, 1.6, 1.56], [1.6, 1.4, 1.52], [1.56, 1.52, 1.3]])
    # They are so far below 0 that a 0 is larger even if `intact` is subtracted once too little.
    yield 0.1, torch.tensor([[5.0, 6.0, 6.75], [6.0, 5.25, 6.25], [6.75, 6.25, 5.5]])
    # Without head 0, the loss is lower: on the diagonal is the largest number of the table of extra costs.
    yield 1.0, torch.tensor([[0.5, 0.62, 1.0], [0.62, 1.1, 1.25], [1.0, 1.25, 1.2]])
    yield _model(rng, 33)
    yield _model(rng, 144)
    yield _model(rng, 64)


def _place(table, low=False):
    """The largest number of different heads, smaller index first."""
    table = table.clone().fill_diagonal_(torch.inf if low else -torch.inf)
    at = (table.argmin() if low else table.argmax()).item()
    return torch.tensor(sorted(divmod(at, len(table))))


def _cell(table):
    """The same, on the diagonal too."""
    return torch.tensor(sorted(divmod(table.argmax().item(), len(table))))


def _alone(losses):
    return losses.diagonal()


def _neighbours(intact, losses):
    at = _extra(intact, losses).diagonal(offset=1).argmax()
    return torch.stack([at, at + 1])


def _explains(problems, results):
    """What the returned pair costs, if each result is a pair of heads."""
    wrong = []
    for (intact, losses), result in zip(problems, results, strict=True):
        array, right = as_array(result), backup_pair(intact, losses).tolist()
        if array is None or array.shape != (2,) or array.dtype.kind not in "iuf":
            return None
        if array[0] not in range(len(losses)) or array[1] not in range(len(losses)) or array[0] == array[1]:
            return None
        if sorted(array.tolist()) != right:
            wrong.append((intact, losses, [int(number) for number in array], right))
    if not wrong:
        return None
    intact, losses, (i, j), (first, second) = min(wrong, key=lambda case: case[1].numel())
    extra = _extra(intact, losses)
    one, other = extra[i, j].item(), extra[first, second].item()
    if other - one < 0.005:
        return None
    return (
        "another-pair",
        f"In the example below, the extra cost of heads {i} and {j} is {one + 0.0:.2f}. For heads {first} "
        f"and {second}, it is {other + 0.0:.2f}.",
    )


EXERCISE = Exercise(
    answer=backup_pair,
    chapter="14_heads_that_work_together",
    section=STEP,
    points=2,
    problems=_problems,
    explains=_explains,
    mistakes={
        "costs-most-together": Mistake(
            "Your function finds the two heads whose loss is the largest. Two heads that cost a lot alone "
            "can have a large loss together without replacing each other. Subtract what each costs alone.",
            STEP,
            (lambda intact, losses: _place(losses),),
        ),
        "costs-most-alone": Mistake(
            "Your function finds the two heads that cost most alone. It does not use the loss without both.",
            STEP,
            (lambda intact, losses: _alone(losses).topk(2).indices.sort().values,),
        ),
        "minus-the-costlier-one": Mistake(
            "From the loss without both, your function subtracts only the larger of the two losses without "
            "one. Subtract both.",
            STEP,
            (lambda intact, losses: _place(losses - torch.maximum(_alone(losses)[:, None], _alone(losses))),),
        ),
        "minus-the-cheaper-one": Mistake(
            "From the loss without both, your function subtracts only the smaller of the two losses without "
            "one. Subtract both.",
            STEP,
            (lambda intact, losses: _place(losses - torch.minimum(_alone(losses)[:, None], _alone(losses))),),
        ),
        "minus-the-mean": Mistake(
            "From the loss without both, your function subtracts the mean of the two losses without one. "
            "Subtract both.",
            STEP,
            (lambda intact, losses: _place(losses - (_alone(losses)[:, None] + _alone(losses)) / 2),),
        ),
        "ratio": Mistake(
            "Your function divides what a pair costs by what its heads cost alone. Two heads that "
            "cost nearly nothing alone have a large ratio, even if they cost little together. Take "
            "the difference.",
            STEP,
            (
                lambda intact, losses: _place(
                    (losses - intact) / (_alone(losses)[:, None] + _alone(losses) - 2 * intact)
                ),
            ),
        ),
        "smallest-extra": Mistake(
            "Your function finds the pair with the smallest extra cost. The largest one is asked for.",
            STEP,
            (lambda intact, losses: _place(_extra(intact, losses), low=True),),
        ),
        "zero-counts": Mistake(
            "Your function compares the extra costs with a 0 that is not the extra cost of a pair. If all "
            "extra costs are below 0, it does not find a pair. Fill the other cells with minus infinity.",
            STEP,
            tuple(
                # Subtracting `intact` once more or less changes all pairs alike.
                lambda intact, losses, zero=zero, times=times: _cell(
                    zero(_extra(intact, losses) + times * intact)
                )
                for zero in (lambda table: table.triu(1), lambda table: table.fill_diagonal_(0))
                for times in (-1, 0, 1)
            ),
        ),
        "diagonal-counts": Mistake(
            "Your function can return the same head twice: on the diagonal, the number is large if the loss "
            "is lower without this head. Leave out the diagonal.",
            STEP,
            (lambda intact, losses: _cell(_extra(intact, losses)),),
        ),
        "without-sign": Mistake(
            "Your function leaves out the sign of the extra cost. If two heads cost less together than one "
            "at a time, they do not replace each other.",
            STEP,
            (lambda intact, losses: _place(_extra(intact, losses).abs()),),
        ),
        "neighbours-only": Mistake(
            "Your function compares each head with the next one only. Compare every pair.",
            STEP,
            (_neighbours,),
        ),
        "larger-index-first": Mistake(
            "Your function finds the right pair, but it returns the larger index first.",
            STEP,
            (lambda intact, losses: backup_pair(intact, losses).flip(0),),
        ),
        "extra-cost-returned": Mistake(
            "Your function returns how much the pair costs, and not which heads they are.",
            STEP,
            (
                lambda intact, losses: _extra(intact, losses).fill_diagonal_(-torch.inf).max(),
                lambda intact, losses: _extra(intact, losses),
            ),
        ),
        "place-in-the-table": Mistake(
            "Your function returns one number: a place in the table, with its rows one after another. Make "
            "two indices from it.",
            STEP,
            (lambda intact, losses: _extra(intact, losses).fill_diagonal_(-torch.inf).argmax(),),
        ),
        "counted-from-1": Mistake(
            "Each number of your result is larger by 1 than the index of the head. Python counts from 0.",
            STEP,
            (lambda intact, losses: backup_pair(intact, losses) + 1,),
        ),
    },
)
