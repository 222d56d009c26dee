"""Questions of chapter 07: what one row of weights carries, how certain a gap is, heads without a choice."""

import math

import torch

from mha_course.quiz import Question, from_mistakes

SECTIONS = {
    "read_one_row": "2 What a linear readout cannot get from one row of weights",
    "reach_of_interval": "4 Train, and measure the gap",
    "queries_set_to_zero": "7 Silence a head",
    "first_choices": "15 Appendix: heads of width 1",
}
RULES = {
    "larger": (
        "The column with the larger number is the first answer, the other column the second.",
        "This rule is right if the record asked for first has the larger weight.",
    ),
    "smaller": (
        "The column with the smaller number is the first answer, the other column the second.",
        "This rule is right if the record asked for first has the smaller weight.",
    ),
    "same": (
        "No rule: both orders of the question give the same output.",
        "The two orders give the same output only if both weights are 1/2.",
    ),
    "lost": (
        "No rule: the output holds only one of the two contents.",
        "A content is missing from the output only if its weight is 0.",
    ),
}


def read_one_row(rng):
    """What can be read off an output that mixes two contents."""
    w = 0.75 if rng is None else (0.2, 0.25, 0.4, 0.5, 0.6, 0.8, 0.9, 1.0)[rng.below(8)]
    if w == 0.5:
        right, because = "same", "Both contents have the number 1/2, whichever was asked for first."
    elif w == 1.0:
        right, because = "lost", "The content that was asked for second has the weight 0."
    else:
        right = "larger" if w > 0.5 else "smaller"
        because = f"The content asked for first has the number {w:g} in the output, the other {1 - w:g}."
    return Question(
        text=f"One row of weights gives {w:g} to the record asked for first and {1 - w:g} to the record "
        "asked for second. Content c is a vector with a 1 in column c, and zeros elsewhere. The output is "
        "the weighted sum of the two contents. You see only its two largest numbers and their columns. "
        "Which rule finds the first and the second answer?",
        answer=RULES[right][0],
        wrong={idea: option for name, (option, idea) in RULES.items() if name != right},
        because=because,
        section=SECTIONS["read_one_row"],
    )


def reach_of_interval(rng):
    """How far an interval reaches from the mean of a few gaps."""
    gaps, problems, t = [0.02, 0.06, 0.04, 0.10, 0.08], 2000, 2.776
    if rng is not None:
        factor, problems = 1 + rng.below(4), (500, 1000, 4000)[rng.below(3)]
        gaps = rng.shuffled([round(gap * factor, 2) for gap in gaps])
    each = torch.tensor(gaps, dtype=torch.float64)
    two = each[:, None].expand(-1, problems)
    answer, wrong = from_mistakes(
        "fix_interval",
        (torch.zeros_like(two), two, t),
        {
            "counts-problems": "Here n is the number of problems. But it is the number of gaps: one for each "
            "seed.",
            "not-divided": "This is not divided by sqrt(5): it is for a single gap, not for their mean.",
            "divided-by-n": "Here the standard deviation is divided by 5, not by sqrt(5).",
        },
        read=lambda ends: round((ends[1] - ends[0]).item() / 2, 5),
    )
    spread = each.std().item()
    mean_off = spread / math.sqrt(len(gaps))
    normal = 1.96 * mean_off
    return Question(
        text=f"For another task, five seeds gave the gaps {', '.join(f'{gap:.2f}' for gap in gaps)}. Their "
        f"mean is {each.mean():.2f} and their standard deviation is {spread:.4f}. Each model answered "
        f"{problems} problems. The factor t is {t} for five numbers. How far does the 95% interval "
        "extend on each side of the mean?",
        answer=answer,
        wrong={
            **wrong,
            "The factor 1.96 is for many numbers. With only five, their standard deviation is uncertain, and "
            "the factor is larger.": round(normal, 5),
            "This is the standard deviation divided by sqrt(5). The factor t is missing.": round(mean_off, 5),
            "This is how far the five gaps spread. Their mean spreads less.": round(spread, 5),
        },
        because="Five gaps were measured independently, one for each seed, so it is "
        f"{t} · {spread:.4f} / sqrt(5).",
        section=SECTIONS["reach_of_interval"],
    )


def queries_set_to_zero(rng):
    """What a head writes after its queries have become zeros."""
    columns, contents, favourite = 6, [3, 0, 4, 1], 2
    if rng is not None:
        contents = rng.shuffled(range(columns))[: 3 + rng.below(3)]
        favourite = rng.below(len(contents))
    values = torch.eye(columns)[contents]
    answer, wrong = from_mistakes(
        "predict_zero_query",
        (values,),
        {
            "zero-weights": "These are zeros. But a score of 0 is not a weight of 0: what is exp(0)?",
            "not-normalised": "This adds up all values: every weight is 1. But the weights of a query sum to "
            "1.",
        },
        read=lambda output: [round(number, 4) for number in output.tolist()],
    )
    return Question(
        text=f"A head sees {len(contents)} records with the contents {', '.join(map(str, contents))}. The "
        "value of content c is a vector with a 1 in column c. The head used to give all its weight to the "
        f"record with content {contents[favourite]}. Now all its queries are set to 0. What does it fetch?",
        answer=answer,
        wrong={
            **wrong,
            "Setting the queries to 0 changes the weights, too.": values[favourite].tolist(),
            "Each record gets the same weight. But a content that stands in no record gets none.": (
                torch.full((columns,), 1 / columns).tolist()
            ),
        },
        because=f"All scores are 0, so each of the {len(contents)} records gets the weight "
        f"1/{len(contents)}.",
        section=SECTIONS["queries_set_to_zero"],
        labels=[f"column {c}" for c in range(columns)],
    )


def first_choices(rng):
    """Which keys of width 1 can have the highest score."""
    keys = [0.5, -1.0, 2.0, 1.5]
    while rng is not None:
        keys = [number / 2 for number in rng.shuffled(range(-5, 7))[:4]]
        sizes = sorted(keys, key=abs)
        if (
            min(keys) < 0 < max(keys)
            and set(sizes[2:]) != {min(keys), max(keys)}
            and abs(sizes[1]) != (abs(sizes[2]))
        ):
            break
    tried = [q for q in range(-50, 51) if q]
    chosen = {max(keys, key=lambda key: q * key) for q in tried}
    positive = {max(keys, key=lambda key: q * key) for q in tried if q > 0}

    def listed(some):
        return " and ".join(f"{key:g}" for key in sorted(some)) if len(some) < len(keys) else "all four"

    return Question(
        text="In a head with d_k = 1, a query and a key are one number each. The keys are "
        f"{', '.join(f'{key:g}' for key in keys)}. The query may be any number but 0. Which keys can have "
        "the highest score?",
        answer=listed(chosen),
        wrong={
            "A query may be negative. Then the score is highest for the smallest key.": listed(positive),
            "A key between two others never has the highest score: on one side of it, the product with the "
            "query is larger.": listed(keys),
            "Try the query -1: which key has the highest score?": listed(sorted(keys, key=abs)[2:]),
        },
        because="A positive query prefers the largest key, and a negative query prefers the smallest one.",
        section=SECTIONS["first_choices"],
    )
