"""Questions of chapter 10: the best loss, what a bigram cannot know, a temperature, a head's look."""

import math

import torch

from mha_course.chapters.story_model import FIRST, HE, SECOND, SHE
from mha_course.quiz import Question, from_mistakes


def loss_of_a_choice(rng):
    """The loss of a model that knows the grammar, where the grammar still has a choice."""
    lives, breaks = (4, 4) if rng is None else (rng.shuffled((2, 4, 8))[0], rng.shuffled((2, 4, 8))[0])
    logits = torch.zeros(1, 2, lives + breaks, dtype=torch.float64)  # of a model that knows the grammar
    logits[..., lives:] = -math.inf  # the verbs for things
    answer, wrong = from_mistakes(
        "next_token_loss",
        (logits, torch.zeros(1, 2, dtype=torch.long)),
        {"bits": "This is the answer in bits, with a logarithm of base 2."},
        float,
    )
    return Question(
        text='A story begins "in the cave the bat". Now the grammar chooses one of '
        f"{lives} verbs for animals, each with the same probability. Here, it never chooses one of the "
        f"{breaks} verbs for things. A model knows these probabilities exactly. What is the mean of its "
        "loss, -log p(next word), at this word? Use the natural logarithm: log 2 = 0.693.",
        answer=answer,
        wrong=wrong
        | {
            "The place decides which kind of verb comes, but not which verb.": 0.0,
            "This is the loss of a model that does not read the place.": math.log(lives + breaks),
            "This is -p log p of one verb. The mean is the sum over all of them.": math.log(lives) / lives,
            "The logarithm of a probability is negative, so the loss, -log p, is positive.": -math.log(lives),
            "This is the probability p of the verb. The loss is -log p.": 1 / lives,
        },
        because=f"Each verb has p = 1/{lives}, so each costs -log(1/{lives}) = log {lives} = "
        f"{math.log(lives):.2f} nats.",
        section="1 Texts with a known best loss",
    )


def right_of_a_bigram(rng):
    """How many questions a model gets right that reads one word."""
    count = 400 if rng is None else 40 * (1 + rng.below(30))
    return Question(
        text="The probabilities of a bigram model depend on the current word only. The model is asked "
        f'{count} questions in pairs, such as "in the cave the old bat" and "in the shop the old bat". '
        "In the first text, a verb for animals must come next; in the second, a verb for things. An answer "
        "is right if the 4 verbs of the right kind together get more probability than the 4 verbs of the "
        f"other kind; the two are never equal. How many of the {count} answers are right?",
        answer=count // 2,
        wrong={
            "The model would have to know the answers to be wrong each time.": 0,
            "The word that decides is further back. This model reads only the last word.": count,
            "The model need not find one verb out of 8. It only has to prefer the right kind.": count // 8,
        },
        because="Both texts of a pair end in the same word, so the model gives both the same answer. It is "
        "right in one of them.",
        section="5 Does it know, or does it guess?",
    )


def colder(rng):
    """Three probabilities at a temperature of one half."""
    p = [0.6, 0.3, 0.1]
    if rng is not None:
        p = rng.shuffled([[0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.5, 0.4, 0.1]][rng.below(4)])
    words = ("cave", "lake", "zoo")

    def bars(power):
        raised = [x**power for x in p]
        return [round(x / sum(raised), 4) for x in raised]

    told = ", ".join(f"{word} {x}" for word, x in zip(words, p, strict=True))
    return Question(
        text=f"After some text, a model gives these probabilities to the next word: {told}. Each is "
        "proportional to exp(logit). Now all logits are divided by the temperature 0.5, before the softmax. "
        "What are the new probabilities?",
        answer=bars(2),
        wrong={
            "This is temperature 2, where the differences between the logits become smaller.": bars(0.5),
            "The softmax depends on the differences between the logits, and these are now twice as large.": p,
            "This is temperature 0: it always takes the likeliest word.": [float(x == max(p)) for x in p],
            "These are the squares. Divide them by their sum.": [round(x**2, 4) for x in p],
        },
        because="Each probability is squared, and then all are divided by their sum.",
        section="6 Write, with a temperature",
        labels=words,
    )


def look_after_swap(rng):
    """Where a head looks that looks at the person who is meant."""
    first, second, verb, other = "Ada", "Ben", "amused", "admired"
    if rng is not None:
        first, second = rng.shuffled((rng.shuffled(SHE)[0], rng.shuffled(HE)[0]))
        verb, other = rng.shuffled((rng.shuffled(FIRST)[0], rng.shuffled(SECOND)[0]))
    meant, after = (first, second) if verb in FIRST else (second, first)
    words = ("start", second, other, first, "because")
    place = "second" if other in SECOND else "first"
    return Question(
        text=f'In "{first} {verb} {second} because", a head gives most of the weight of "because" to '
        f"{meant}: the reason is what {meant} does. "
        f'After "{other}", the reason is what the {place} person does. '
        f'Now the text is "{second} {other} {first} because", and the head again looks at the person who is '
        'meant. Which cell in the row "because" has the largest weight?',
        answer=(0, words.index(meant)),
        wrong={
            f'After "{other}", the {place} person is meant, and this is the other one.': (
                0,
                words.index(after),
            ),
            "The verb decides who is meant, but it is not the person.": (0, 2),
            'Here "because" looks at itself. There it finds no person.': (0, 4),
        },
        because=f'After "{other}" the reason is what the {place} person '
        f"does. The names have changed places, so this is {meant} again.",
        section="8 Back to the head of chapter 00",
        labels=[["because"], words],
    )
