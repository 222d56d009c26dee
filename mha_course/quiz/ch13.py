"""Questions of chapter 13: sinks, bounded scores, and positions in texts longer than in training."""

import math

import torch

from mha_course.exercises import find
from mha_course.quiz import Idea, Question, from_mistakes

SECTIONS = {
    "weights_with_a_sink": "2 A learned sink",
    "largest_normalised_score": "3 Scores that explode",
    "angles_beyond_training": "5 Rotary positions at other lengths",
    "positions_of_new_queries": "6 Break it: rotary with a cache",
}


def weights_with_a_sink(rng):
    """The weights of a row whose softmax has one more number in its denominator."""
    exps, sink = [2, 1, 3], 4
    if rng is not None:
        exps, sink = rng.shuffled([1, 2, 3]), 2 + rng.below(5)
    scores, sinks = torch.tensor([[exps]]).float().log(), torch.tensor([float(sink)]).log()
    known = find("softmax_with_sink")

    def bars(weights):
        return [round(weight, 4) for weight in weights.flatten().tolist()]

    answer = bars(known.answer(scores, sinks))
    with_log = torch.tensor(exps) / (sum(exps) + math.log(sink))
    return Question(
        text=f"The scores of a query are log {exps[0]}, log {exps[1]} and log {exps[2]}, so their "
        f"exponentials are {exps[0]}, {exps[1]} and {exps[2]}. The sink of the head is log {sink}. Which "
        "weights do the three keys get?",
        answer=answer,
        wrong={
            "These are the weights without a sink: they sum to 1.": bars(
                known.mistakes["rows-sum-to-1"].variants[0](scores, sinks)
            ),
            "Here the sink itself is in the sum. A sink is a score, so its exponential belongs there.": bars(
                with_log
            ),
            "Here exp(0) = 1 is added to the sum. Add the exponential of the sink instead.": bars(
                known.mistakes["score-of-0-for-all"].variants[0](scores, sinks)
            ),
        },
        because=f"The denominator is {' + '.join(map(str, exps))} + {sink} = {sum(exps) + sink}. The sink "
        f"takes {sink} of it, and no key gets this part.",
        section=SECTIONS["weights_with_a_sink"],
        labels=[f"key {key}" for key in range(3)],
    )


def largest_normalised_score(rng):
    """The bound of a score after queries and keys have a root mean square of 1."""
    d_k = 64 if rng is None else (16, 36, 100, 144, 256)[rng.below(5)]
    root = math.isqrt(d_k)

    def with_itself(normed):
        """The score of a vector with itself: no other score is larger."""
        return float(f"{(normed.double() ** 2).sum().item() / root:.4g}")  # without the epsilon

    answer, wrong = from_mistakes(
        "norm_query_key", (torch.ones(1, 1, d_k), torch.ones(d_k)), ["length-in-place-of-rms"], with_itself
    )
    (with_length,) = wrong.values()
    return Question(
        text=f"A head has d_k = {d_k}. Each query and each key is divided by its root mean square, and the "
        f"gains are 1. The dot product is divided by the square root of d_k, which is {root}. What is the "
        "largest possible score?",
        answer=answer,
        wrong={
            "This is the largest dot product. It is still divided by the square root of d_k.": float(d_k),
            Idea(
                "This would be so if the vectors had length 1. Their root mean square is 1.",
                "length-in-place-of-rms",
            ): with_length,
            "A vector of root mean square 1 is longer than 1: its squares sum to d_k.": 1.0,
        },
        because=f"The squares of such a vector sum to {d_k}, so its length is {root}. The dot product of "
        f"two of them is at most {root} * {root} = {d_k}, and {d_k} / {root} = {root}.",
        section=SECTIONS["largest_normalised_score"],
    )


def angles_beyond_training(rng):
    """Which pairs turn by an angle that no distance of the training gave."""
    trained, distance = 32, 40
    if rng is not None:
        trained, distance = ((24, 30), (32, 50), (40, 56), (48, 60), (28, 35))[rng.below(5)]
    thetas = (1.0, 0.1, 0.01)
    turn = 2 * math.pi
    new = [pair for pair, theta in enumerate(thetas) if (distance * theta) % turn > (trained - 1) * theta]

    def pairs(found):
        return "no pair" if not found else "pair" + "s" * (len(found) > 1) + " " + ", ".join(map(str, found))

    ideas = {
        "all-pairs": "Pair 0 made full turns in training, so no angle is new to it.",
        "one-radian": "The slowest pair is not the only one that made less than a full turn.",
    }
    _, found = from_mistakes(
        "slow_pairs", (6, 1000.0, trained), list(ideas), lambda count: pairs(list(range(3 - count, 3)))
    )
    every, slowest = found.values()

    return Question(
        text=f"A head has three rotary pairs, which turn by {thetas[0]:g}, {thetas[1]} and {thetas[2]} "
        f"radians from one token to the next. It was trained on texts of {trained} tokens, so the distances "
        f"were 0 to {trained - 1}. A full turn, 6.28 radians, brings a pair back to where it "
        f"was. Now a key is {distance} tokens away. Which pairs now have an angle outside the range of "
        "their angles in training?",
        answer=pairs(new),
        wrong={
            Idea(ideas["all-pairs"], "all-pairs"): every,
            "Pair 0 made full turns in training: no angle is new.": pairs([0]),
            Idea(ideas["one-radian"], "one-radian"): slowest,
            "The distance is new, so pairs with less than a full turn have new angles.": pairs([]),
        },
        because=f"At the distance {trained - 1}, the pairs have turned by {trained - 1}, "
        f"{(trained - 1) * 0.1:.1f} and {(trained - 1) * 0.01:.2f} radians. "
        "Only pair 0 has made a full turn.",
        section=SECTIONS["angles_beyond_training"],
    )


def positions_of_new_queries(rng):
    """Where new tokens stand if a cache keeps the keys of earlier ones."""
    kept, new = (5, 2) if rng is None else (4 + rng.below(6), 2 + rng.below(2))

    def at(start):
        return " and ".join([", ".join(map(str, range(start, start + new - 1))), str(start + new - 1)])

    return Question(
        text=f"A cache keeps the keys of {kept} tokens, at positions 0 to {kept - 1}. Now "
        f"{new} new tokens arrive. Which positions do their queries have?",
        answer=at(kept),
        wrong={
            "These positions belong to tokens that are kept.": at(0),
            f"Positions are counted from 0, so position {kept} is free.": at(kept + 1),
            "The new tokens have keys, too: their queries stand where these keys stand.": at(kept + new),
        },
        because=f"With the new tokens there are {kept + new} keys, and the queries belong to the last {new} "
        "of them.",
        section=SECTIONS["positions_of_new_queries"],
    )
