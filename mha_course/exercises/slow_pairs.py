"""Chapter 13: how many rotary pairs of a model get new angles in longer texts."""

import math

from mha_course.exercises import Exercise, deviations

ANGLES = "5 Rotary positions at other lengths"


def slow_pairs(d_k, base, length):
    """The number of pairs that make less than one full turn in texts of ``length`` tokens."""
    thetas = [base ** (-2 * r / d_k) for r in range(d_k // 2)]
    return sum((length - 1) * theta < 2 * math.pi for theta in thetas)


def _problems(rng):
    yield 6, 1000.0, 32  # the pairs of step 5: 1, 0.1 and 0.01
    yield 8, 10000.0, 7  # pair 0 makes 6 radians: a little less than a full turn
    yield 8, 10000.0, 8  # and here 7
    yield 10, 10000.0, 2  # one step
    yield 4, 4.0, 300  # all pairs are fast
    yield 64, 150000.0, 4096  # GPT-OSS, before YaRN
    yield 128, 10000.0, 4096
    yield 128, 500000.0, 8192
    for _ in range(3):
        yield 16 * (2 + rng.below(7)), 10.0 ** (3 + rng.below(4)), 64 * (1 + rng.below(100))


def _build(
    exponent=lambda r, d_k: -2 * r / d_k,
    pairs=lambda d_k: d_k // 2,
    base=lambda given: given,
    distance=lambda length: length - 1,
    turn=2 * math.pi,
    found=sum,
):
    def answer(d_k, given, length):
        thetas = [base(given) ** exponent(r, d_k) for r in range(pairs(d_k))]
        return found([distance(length) * theta < turn for theta in thetas])

    return answer


KNOBS = {
    "exponent": {
        "exponent-halved": (
            "Your exponent is -r / d_k, so the angles of your pairs shrink too slowly. It should be "
            "-2r / d_k.",
            ANGLES,
            (lambda r, d_k: -r / d_k,),
        ),
        "exponent-doubled": (
            "Your exponent is -4r / d_k, or -2r divided by the number of pairs. It should be -2r / d_k.",
            ANGLES,
            (lambda r, d_k: -4 * r / d_k,),
        ),
        "sign-of-the-exponent": (
            "Your exponent is positive, so your later pairs turn faster. They should turn more slowly.",
            ANGLES,
            (lambda r, d_k: 2 * r / d_k,),
        ),
        "pairs-from-1": (
            "You count the pairs from 1. The first pair has the number 0, and turns by 1 radian a token.",
            ANGLES,
            (lambda r, d_k: -2 * (r + 1) / d_k,),
        ),
    },
    "pairs": {
        "as-many-pairs-as-columns": (
            "You use as many pairs as there are columns. Two columns make a pair, so there are d_k / 2.",
            ANGLES,
            (lambda d_k: d_k,),
        ),
    },
    "base": {
        "base-of-10000": (
            "Your function always uses the base 10000. It should use the argument `base`.",
            ANGLES,
            (lambda given: 10000.0,),
        ),
    },
    "distance": {
        "length-for-distance": (
            "You multiply by `length`. In a text of `length` tokens, the largest distance is `length - 1`.",
            ANGLES,
            (lambda length: length,),
        ),
        "all-pairs": (
            "You count all pairs. From one token to the next, no pair makes a full turn. But from the first "
            "token to the last, some pairs do.",
            ANGLES,
            (lambda length: 1,),
        ),
    },
    "turn": {
        "one-radian": (
            "You compare with 1 radian. A full turn is 2π radians, about 6.28.",
            ANGLES,
            (1.0,),
        ),
        "half-a-turn": ("You compare with π, which is half a turn. A full turn is 2π.", ANGLES, (math.pi,)),
        "degrees": (
            "You compare with 360. These angles are in radians, and a full turn is 2π of them.",
            ANGLES,
            (360.0,),
        ),
    },
    "found": {
        "fast-pairs": (
            "You return how many pairs make at least one full turn. This is also the number of the first "
            "slow pair. Count the slow pairs.",
            ANGLES,
            (
                lambda slow: len(slow) - sum(slow),
                lambda slow: slow.index(True) if True in slow else 0,
            ),
        ),
        "columns": (
            "You count columns. Two columns make a pair, so your number is twice the right one.",
            ANGLES,
            (lambda slow: 2 * sum(slow),),
        ),
        "which-pairs": (
            "You return the numbers of the slow pairs. Return how many there are.",
            ANGLES,
            (lambda slow: [r for r, one in enumerate(slow) if one],),
        ),
        "yes-or-no": (
            "You return True or False for each pair. Return how many are True.",
            ANGLES,
            (lambda slow: slow,),
        ),
        "share": (
            "You return a share, the count divided by the number of pairs. Return the count.",
            ANGLES,
            (lambda slow: sum(slow) / len(slow),),
        ),
        "one-too-many": ("You return one pair too many.", ANGLES, (lambda slow: sum(slow) + 1,)),
        "one-too-few": ("You return one pair too few.", ANGLES, (lambda slow: sum(slow) - 1,)),
    },
}


EXERCISE = Exercise(
    answer=slow_pairs,
    chapter="13_longer_texts",
    section=ANGLES,
    points=1,
    problems=_problems,
    mistakes=deviations(_build, KNOBS),
)
