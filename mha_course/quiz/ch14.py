"""Questions of chapter 14: a repetition, a lookup of what came after, and heads that replace each other."""

import math

import torch

from mha_course.quiz import Question, from_mistakes

SECTIONS = {
    "loss_of_bigram": "1 A text that nobody has seen before",
    "cell_of_second_lookup": "2 Two lookups by hand",
    "extra_cost": "6 Break it: silence heads",
}


def loss_of_bigram(rng):
    """What a table of pairs knows of a repetition that is new in each text."""
    vocab, n = (64, 48) if rng is None else ((32, 24), (50, 40), (100, 80), (128, 96))[rng.below(4)]
    return Question(
        text=f"A text has {n} tokens. Each is one of {vocab}, with equal probability. Only the end is "
        "not random: it repeats the part before it. A bigram model counts how "
        "often token b follows token a in 20,000 such texts. Then it reads a new text. What is its "
        f"mean loss in the repetition, in nats? log {vocab} = {math.log(vocab):.2f}, log {n} = "
        f"{math.log(n):.2f}.",
        answer=round(math.log(vocab), 2),
        wrong={
            "For this, the model would have to look back in the new text. But it has only its counts.": 0.0,
            f"{n} is the length of the text. The next token is one of {vocab}.": round(math.log(n), 2),
            "The repetition does not help a model that has only its counts.": round(math.log(vocab) / 2, 2),
        },
        because="In 20,000 texts, every token follows every other one about equally often. So the model "
        f"gives all {vocab} tokens about the same probability.",
        section=SECTIONS["loss_of_bigram"],
    )


def cell_of_second_lookup(rng):
    """Where the second head looks from the last token of a text."""
    words = ["start", "a", "b", "c", "a", "b"]
    if rng is not None:
        one, two, three = rng.shuffled("abcdefgh")[:3]
        words = [["start", one, two, three, one], ["start", one, two, three, one, two, three]][rng.below(2)]
    last = len(words) - 1
    earlier = words.index(words[last])
    heads = torch.zeros(1, last + 1, last + 1, last + 1)  # head h: all weight of the last query on key h
    heads[0, range(last + 1), last, range(last + 1)] = 1.0
    ideas = {
        "earlier-place-itself": "This is the same token. The answer comes after it.",
        "token-before": f'This token came before "{words[last]}", not after it.',
    }
    text = torch.tensor([[words.index(word) for word in words]])
    answer, found = from_mistakes(
        "induction_score", (heads, text), ideas, lambda score: (0, int(score.argmax()))
    )
    return Question(
        text=f'A model reads "{" ".join(words)}". Each token knows which token stood before it. The last '
        f'token, "{words[last]}", asks: which token came after "{words[last]}" last time? At which key '
        "does it find the answer? The columns are numbered.",
        answer=answer,
        wrong=found | {"This is the token that asks. What comes after it is not yet known.": (0, last)},
        because=f'The token "{words[earlier + 1]}" is at place {earlier + 1}, and the token before it is '
        f'"{words[last]}". So the key of this place fits the query.',
        section=SECTIONS["cell_of_second_lookup"],
        labels=[[words[last]], [f"{i} {word}" for i, word in enumerate(words)]],
    )


def extra_cost(rng):
    """What two heads cost together beyond what they cost one at a time."""
    intact, one, two, both = 0.1, 0.3, 0.2, 5.0
    if rng is not None:
        intact = (1 + rng.below(5)) / 10
        one, two = intact + (1 + rng.below(3)) / 10, intact + (4 + rng.below(3)) / 10
        both = round(one + two + 1 + rng.below(20) / 10, 1)
    return Question(
        text=f"A model has the loss {intact:.1f}. Without head A the loss is {one:.1f}, without head B it is "
        f"{two:.1f}, and without both it is {both:.1f}. What heads cost is how much the loss rises without "
        "them. By how much is the cost of both larger than the sum of the two single costs?",
        answer=round((both - intact) - (one - intact) - (two - intact), 2),
        wrong={
            "This is the whole cost of both. Subtract what each costs alone.": round(both - intact, 2),
            f"Here {one:.1f} and {two:.1f} are subtracted. What a head costs is how much the loss rises "
            "without it.": round(both - one - two, 2),
            "This is what B costs when A is already gone.": round(both - one, 2),
        },
        because=f"Both cost {both:.1f} - {intact:.1f} = {both - intact:.1f}. One at a time they cost "
        f"{one - intact:.1f} and {two - intact:.1f}.",
        section=SECTIONS["extra_cost"],
    )
