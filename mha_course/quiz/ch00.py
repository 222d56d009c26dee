"""Questions of chapter 00: what a model knows that sees one word, and how to read a heatmap."""

import torch

from mha_course.chapters import story_model
from mha_course.exercises import Rng
from mha_course.quiz import Question
from mha_lab import scaled_dot_product_attention, toy

SMALL, LARGE = ("bee", "frog", "mouse"), ("horse", "lion", "whale")


def word_before(rng: Rng | None) -> Question:
    """What a table of pairs of words can know."""
    names, verb = ["Ada", "Ben"], "amused"
    if rng is None:
        stories, _ = story_model.sample(1000)
        after = stories[:, 1:][stories[:, :-1] == story_model.NUMBER["because"]]
        counts = [int((after == story_model.NUMBER[word]).sum()) for word in ("she", "he")]
        where = "1000 stories, each of which can have several sentences"
    else:
        both = [rng.shuffled(group)[0] for group in (story_model.SHE, story_model.HE)]
        names, verb = rng.shuffled(both), rng.shuffled(story_model.FIRST + story_model.SECOND)[0]
        where = "a text"
    who = names[verb in story_model.SECOND]
    meant = [float(who in story_model.SHE), float(who in story_model.HE)]
    if rng is not None:  # the more frequent word is not the one that is meant
        often = 65 + 5 * rng.below(4)
        counts = [100 - often if right else often for right in meant]
    most = [float(count == max(counts)) for count in counts]
    total = sum(counts)
    answer = [round(count / total, 2) for count in counts]
    wrong = {
        "Here the verb decides. A bigram model does not see the verb.": meant,
        "Here the more frequent word gets everything. A probability is a share of all counts.": most,
        "Here each word gets the same. A bigram model counts how often each of them comes.": [0.5, 0.5],
    }
    return Question(
        text=f'In {where}, the word "because" is followed by "she" {counts[0]} times and by "he" {counts[1]} '
        "times, and by no other word. A bigram model counts such pairs, and it knows nothing else. What "
        f'probabilities does it give to "she" and to "he" after "{names[0]} {verb} {names[1]} because"?',
        answer=answer,
        wrong={  # bars that are off by at most 0.1 count as right
            idea: bars for idea, bars in wrong.items() if abs(bars[0] - answer[0]) > 0.15
        },
        because=f'It sees only "because", and in {counts[0]} of {total} cases, "she" comes next. The names '
        "and the verb change nothing.",
        section="1 A head that has learned where to look",
        labels=["she", "he"],
    )


def cell_of_the_verb(rng: Rng | None) -> Question:
    """Rows ask, columns are asked."""
    tokens, large, small, x = toy.tokens(), "dog", "cat", toy.embeddings()
    if rng is not None:
        large, small = rng.shuffled(LARGE)[0], rng.shuffled(SMALL)[0]
        one, other = rng.shuffled((large, small))
        tokens = ["a", one, rng.shuffled(("heard", "met", "saw"))[0], "a", other]
        x = x[[0, 1, 2, 3, 4] if one == large else [0, 4, 2, 3, 1]]
    w_q, w_k, w_v = toy.single_head_weights()
    _, weights = scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v)
    verb = 2
    best, second = torch.argsort(weights[verb], descending=True)[:2].tolist()
    labels = [f"{token} ({i})" for i, token in enumerate(tokens)]
    return Question(
        text=f'The sentence is "{" ".join(tokens)}". A head is built so that verbs ask for nouns, and for '
        f"big ones more than for small ones. A {large} is big, and a {small} is small. In the heatmap, a "
        "row is a token that asks, and a column is a token that is asked. In which cell is the largest "
        "weight of "
        f'"{tokens[verb]}"?',
        answer=(verb, best),
        wrong={
            f"This cell is in the row of {large}. It says how much {large} looks at {tokens[verb]}.": (
                best,
                verb,
            ),
            "This cell is in the right row, but the verb asks for big nouns more than for small ones.": (
                verb,
                second,
            ),
            "Here the verb looks at itself. It may do so, but this verb asks for nouns.": (verb, verb),
        },
        because=f"The verb asks, so it has the row. The {large} is a noun and is big, so it has the column.",
        section="4 The first heatmap",
        labels=[labels, labels],
    )
