"""Questions of chapter 09: who saw whom, distances that are added, and pairs that are turned."""

import math

import torch

from mha_course.exercises import find
from mha_course.quiz import Question, from_mistakes, vector
from mha_lab import positions, scaled_dot_product_attention, toy

WORDS = ("a", "dog", "saw", "a", "cat")
SECTIONS = {
    "row_after_swap": "1 Who saw whom?",
    "largest_with_bias": "3 A learned number for each distance",
    "turned_dot_product": "5 Rotary: turn queries and keys",
    "wrong_turn": "7 Break it: rotary in the wrong place",
}


def row_after_swap(rng):
    """The weights of one query after some tokens have changed places."""
    w_q, w_k, w_v = toy.single_head_weights()
    order = [0, 4, 2, 3, 1]
    while rng is not None:
        order = rng.shuffled(range(5))
        if order[1] != 1:  # the dog stands elsewhere
            break
    x = toy.embeddings()
    before, after = (
        scaled_dot_product_attention(x[o] @ w_q, x[o] @ w_k, x[o] @ w_v)[1][o.index(2)]
        for o in (list(range(5)), order)
    )
    words = [WORDS[i] for i in order]
    nouns = [words.index("dog"), words.index("cat")]
    alike = after.clone()
    alike[nouns] = after[nouns].mean()
    return Question(
        text=f'In "{" ".join(WORDS)}", the query of "saw" has the weights {vector(before)}. '
        f'Which weights does it have in "{" ".join(words)}"? No positions are used.',
        answer=_bars(after),
        wrong={
            "These are the old weights at the old places. But a weight belongs to a token, not to a place.": (
                _bars(before)
            ),
            "Here the two nouns share their weight. But their keys differ: each keeps its own.": _bars(alike),
        },
        because="A score is made from a query and a key only, so each weight moves along with its token.",
        section=SECTIONS["row_after_swap"],
        labels=[f"{i} {word}" for i, word in enumerate(words)],
    )


def largest_with_bias(rng):
    """The largest score after a relative bias was added."""
    order, numbers = [0, 4, 2, 3, 1], [1.0, 3.0, 0.0, -1.0, -2.0]
    question = _biased(order, numbers)
    while rng is not None:
        question = _biased(rng.shuffled(range(5)), rng.shuffled(numbers))
        if question and question.wrong:
            break
    return question


def _biased(order, numbers):
    """The question for these tokens and this table; ``None`` if two cells are largest."""
    words, verb = [WORDS[i] for i in order], order.index(2)
    content = torch.zeros(5, 5)
    content[verb, [words.index("dog"), words.index("cat")]] = 2.8
    table = torch.tensor([numbers])

    def largest(bias):
        return divmod((content + bias[0]).argmax().item(), 5)

    known = find("fix_relative_bias")
    bias = known.answer(table, 5)
    total = content + bias[0]
    if (total == total.max()).sum() > 1:
        return None
    answer, wrong = from_mistakes("fix_relative_bias", (table, 5), ["sign-lost"], largest)
    for idea, value in (
        ("Your distance is the query's position minus the key's: it must be j - i.", known.bug(table, 5)),
        ("This cell has a largest score before the bias is added.", 0 * bias),
    ):
        if largest(value) not in (answer, *wrong.values()):
            wrong[idea] = largest(value)
    names = [f"{i} {word}" for i, word in enumerate(words)]
    for i, j in (bias[0] == bias.max()).nonzero().tolist():
        if (i, j) not in (answer, *wrong.values()):
            wrong[f"Row {i}, column {j} has the largest bias, {bias.max():g}. But its score is 0."] = (i, j)
    if len(wrong) < 2:
        return None
    return Question(
        text=f'The scores of "{" ".join(words)}" are 2.8 where the query is "saw" and the key is a noun. '
        "The other scores are 0. A learned bias is added. For the distances j - i = -2, -1, 0, 1, 2 it is "
        f"{', '.join(f'{number:g}' for number in numbers)}; a distance above 2 counts as 2, and a "
        "distance below -2 counts as -2. Which cell has the largest sum? Rows are queries (i), columns "
        "are keys (j).",
        answer=answer,
        wrong=wrong,
        because=f"The sum there is {total[answer]:.1f}, at distance {answer[1] - answer[0]}.",
        section=SECTIONS["largest_with_bias"],
        labels=[names, names],
    )


def turned_dot_product(rng):
    """The dot product of a turned query and a turned key, at two later positions."""
    theta, gap, later = 0.4, 2, 100
    q, k = (2.0, 1.0), (1.5, -1.0)
    if rng is not None:
        gap, later = 1 + rng.below(3), 20 + rng.below(80)
        q, k = (2.0, float(1 + rng.below(3))), (1.5, -float(1 + rng.below(3)))

    def score(i, j):
        pairs = zip(_turned(q, i * theta), _turned(k, j * theta), strict=True)
        return round(sum(a * b for a, b in pairs), 3)

    still = round(q[0] * k[0] + q[1] * k[1], 3)
    known = [(1 + gap, 1), (1, 1 + gap), (2 + 2 * gap, 2)]
    listed = [f"{score(i, j)} for i = {i} and j = {j}" for i, j in known]
    return Question(
        text=f"A query at position i is turned by the angle {theta} i, and a key at position j by {theta} j. "
        f"For one query and one key, the dot product is {still} before turning. After turning it is "
        f"{', '.join(listed[:-1])}, and {listed[-1]}. What is it for i = {later + gap} and j = {later}?",
        answer=score(*known[0]),
        wrong={
            "This is the number for a key to the right of the query. Here the key is to the left.": score(
                *known[1]
            ),
            f"This is the number for a key that is {2 * gap} to the left. Here it is {gap} to the left.": (
                score(*known[2])
            ),
            "Turning changes the dot product unless both are turned by the same angle.": still,
        },
        because=f"Both arrows turn further, by the same angle, {theta} times {later - 1}, so the angle "
        "between them stays the same.",
        section=SECTIONS["turned_dot_product"],
    )


def wrong_turn(rng):
    """What a shift shows of a rotary embedding that is used in a wrong way."""
    x = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cases = [
        (
            "the halves layout is used for queries and keys",
            "The layer was trained with other pairs of numbers.",
            "Queries and keys are turned in the same way, so a shift cancels.",
            ("halves", "halves"),
            0,
        ),
        (
            "the pairs layout is used for queries, and the halves layout for keys",
            "The keys have another layout than in training.",
            "Queries and keys are turned in two ways, so a shift does not cancel.",
            ("pairs", "halves"),
            0,
        ),
        (
            "the pairs layout is used, but the values are turned as well",
            "The layer was trained with values that are not turned.",
            "A shift turns the values further, and nothing turns them back.",
            ("pairs", "pairs"),
            1,
        ),
        (
            "the pairs layout is used for queries and keys",
            "This is how the layer was trained.",
            "Queries and keys are turned in the same way, so a shift cancels.",
            ("pairs", "pairs"),
            0,
        ),
    ]
    says, about_output, about_shift, layouts, turn_values = cases[0 if rng is None else rng.below(len(cases))]

    def output(start, layouts=layouts, turn_values=turn_values):
        at = torch.arange(start, start + 5)
        query, key = (
            positions.apply_rotary(t, at, layout=layout) for t, layout in zip(x, layouts, strict=False)
        )
        value = positions.apply_rotary(x[2], at) if turn_values else x[2]
        return scaled_dot_product_attention(query, key, value)[0]

    right = torch.allclose(output(0), output(0, ("pairs", "pairs"), 0))
    same = torch.allclose(output(0), output(100))
    option = {
        (r, s): f"{first} output, {second} output after the shift"
        for r, first in ((True, "right"), (False, "wrong"))
        for s, second in ((True, "the same"), (False, "a different"))
    }
    return Question(
        text=f"A layer was trained with a rotary embedding in the pairs layout. Now {says}. "
        "Is its output right? And is it the same if the whole sentence starts 100 positions later?",
        answer=option[right, same],
        wrong={
            about_output: option[not right, same],
            about_shift: option[right, not same],
            f"{about_output} {about_shift}": option[not right, not same],
        },
        because=f"{about_output} {about_shift}",
        section=SECTIONS["wrong_turn"],
    )


def _bars(weights):
    return [round(weight, 4) for weight in weights.tolist()]


def _turned(pair, angle):
    (a, b), cos, sin = pair, math.cos(angle), math.sin(angle)
    return a * cos - b * sin, a * sin + b * cos
