"""Questions of chapter 02: equal keys, lengths, longer queries, and what keys and values decide."""

import math

import torch

from mha_course.exercises import Rng
from mha_course.quiz import Question, from_mistakes, vector
from mha_lab import scaled_dot_product_attention, toy

SECTIONS = {
    "equal_keys": "2 One query, two equal keys",
    "largest_score": "3 Between two keys",
    "twice_as_long": "5 Length and temperature",
    "what_changes": "6 What do keys decide, and what do values decide?",
}


def equal_keys(rng: Rng | None) -> Question:
    """What a query fetches that matches some keys equally well, and the others not at all."""
    query, keys, values = torch.tensor([0.0, 0.0, 10.0]), toy.keys(), toy.values()[:, :1]
    question = _equal_keys(query, keys, values)
    while rng is not None:
        numbers = torch.tensor(rng.shuffled(range(1, 10))[:4])[:, None]
        keys = 10 * torch.tensor(rng.shuffled([[0, 1.0], [0, 1.0], [1.0, 0], [rng.below(2), 1.0]]))
        question = _equal_keys(torch.tensor([0.0, 10.0]), keys, 10.0 * numbers)
        output = question.answer  # a whole number, and none of the values
        if len(question.wrong) == 4 and output.is_integer() and output not in 10 * numbers:
            break
    return question


def _equal_keys(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Question:
    products, root = keys @ query, math.sqrt(len(query))
    best = values[products == products.max()]
    found, wrong = from_mistakes(
        "soft_lookup",
        (query, keys, values, root),
        {
            "hard-lookup": f"This is the value of one of the {len(best)} best keys. They count equally.",
            "plain-mean": "This is the plain mean of the values. Here the scores are not used.",
        },
        _first,
    )
    for idea, number in (
        ("This is the largest value of the best keys. But a value plays no part in its weight.", best.max()),
        ("Here each of the best keys gets the weight 1. But all weights together sum to 1.", best.sum()),
    ):
        if _first(number) not in (found, *wrong.values()):
            wrong[idea] = _first(number)
    return Question(
        text=f"A query has the dot products {_list(products)} with four keys, and d_k is {len(query)}. The "
        f"values of these keys are {_list(values)}, with d_v = 1. Which number is the output of the query?",
        answer=found,
        wrong=wrong,
        because=f"The {len(best)} best keys share the weight equally, and almost nothing is left for "
        "another key.",
        section=SECTIONS["equal_keys"],
    )


def largest_score(rng: Rng | None) -> Question:
    """The largest dot product is not the smallest distance or angle, and not that of the longest vectors."""
    queries = torch.tensor([[2.0, 1.0], [0.0, -1.0]])
    keys = torch.tensor([[2.0, 2.0], [4.0, -1.0], [0.0, -5.0]])
    question = _largest_score(queries, keys)
    while rng is not None:
        queries, keys = (
            torch.tensor([[rng.below(11) - 5.0, rng.below(11) - 5.0] for _ in range(n)]) for n in (2, 3)
        )
        question = _largest_score(queries, keys)
        if question and len(question.wrong) >= 2:
            break
    return question


def _largest_score(queries: torch.Tensor, keys: torch.Tensor) -> Question | None:
    """The question about these vectors; ``None`` if two cells are equally good."""
    scores, lengths = queries @ keys.mT, queries.norm(dim=1)[:, None] * keys.norm(dim=1)
    if not lengths.all():
        return None
    tables = {
        "": scores,
        "These two are closest to each other. But a score is a dot product, not a distance.": -torch.cdist(
            queries, keys
        ),
        "This angle is the smallest. But a score depends on the lengths, too.": scores / lengths,
        "These are the longest query and the longest key. But the angle counts, too.": lengths,
    }
    for table in tables.values():
        first, second = table.flatten().topk(2).values
        if first - second < 1e-3:
            return None
    cells = {idea: divmod(int(table.argmax()), 3) for idea, table in tables.items()}
    answer, wrong = cells.pop(""), {}
    for idea, cell in cells.items():
        if cell not in (answer, *wrong.values()):
            wrong[idea] = cell
    rows, columns = ([f"{name} {i}" for i in range(n)] for name, n in (("query", 2), ("key", 3)))
    said = [
        ", ".join(f"{name} is ({_list(row, ' ,')})" for name, row in zip(names, table, strict=True))
        for names, table in ((rows, queries), (columns, keys))
    ]
    return Question(
        text=f"Two queries and three keys have width 2: {said[0]}; {said[1]}. Which pair of a query and a "
        "key has the largest score?",
        answer=answer,
        wrong=wrong,
        because=f"Its dot product is {scores[answer]:g}. All scores are divided by the same root.",
        section=SECTIONS["largest_score"],
        labels=[rows, columns],
    )


def twice_as_long(rng: Rng | None) -> Question:
    """What happens to the weights when the query becomes twice as long."""
    query = torch.tensor([[0.8, 0.6, 0.0]])
    weights = scaled_dot_product_attention(query, toy.keys() / 2, toy.values())[1][0]
    question = _twice_as_long(weights)
    while rng is not None:
        parts = torch.tensor([1.0, 1.0, 1.0 + rng.below(3), 2.0 + rng.below(3)])
        question = _twice_as_long(torch.tensor(rng.shuffled((parts / parts.sum()).tolist())))
        if len(question.wrong) >= 2:
            break
    return question


def _twice_as_long(weights: torch.Tensor) -> Question:
    def bars(found: torch.Tensor) -> list[float]:
        return [round(weight, 4) for weight in found.tolist()]

    answer, wrong = from_mistakes(
        "predict_longer_query",
        (weights,),
        {
            "unchanged-weights": "These are the old weights. But every score doubles, so they change.",
            "flatter": "These are closer together than the old weights. A query of half the length does "
            "that.",
            "hard": "Here one key gets all the weight. It gets more than before, but the others still get "
            "some.",
            "uniform": "Equal weights would need equal scores.",
        },
        bars,
    )
    wrong["The scores double. The weights do not: they still sum to 1."] = bars((2 * weights).clamp(max=1))
    far = {  # bars that are off by at most 0.1 count as right
        idea: guess
        for idea, guess in wrong.items()
        if max(abs(a - b) for a, b in zip(answer, guess, strict=True)) > 0.12
    }
    return Question(
        text=f"A query gives four keys the weights {vector(weights)} (rounded). Then the query is made twice "
        "as long, and nothing else changes. Which weights do the keys get now? A rough guess is enough.",
        answer=answer,
        wrong=far,
        because="Every score doubles, so the differences between the scores double, too: weight moves "
        "towards the largest scores.",
        section=SECTIONS["twice_as_long"],
        labels=[f"key {j}" for j in range(4)],
    )


def what_changes(rng: Rng | None) -> Question:
    """Whether a change of the keys or of the values changes the weights or the output."""
    number, case = (5, 0) if rng is None else (2 + rng.below(6), rng.below(4))
    keys, values = toy.keys(), toy.values()
    added, times = (
        f"the vector ({number}, {number}, {number}) is added to every",
        f"is multiplied by {number}",
    )
    change, new_keys, new_values = (
        (f"{added} key", keys + number, values),
        (f"every key {times}", keys * number, values),
        (f"{added} value", keys, values + number),
        (f"every value {times}", keys, values * number),
    )[case]
    query = torch.tensor([[0.3, 0.2, 0.1]])
    before = scaled_dot_product_attention(query, keys, values)
    after = scaled_dot_product_attention(query, new_keys, new_values)
    output, weights = (torch.allclose(a, b, rtol=1e-4) for a, b in zip(before, after, strict=True))
    about_weights = (
        "Values never enter the scores, so they cannot change the weights.",
        "All scores change by the same number, and a softmax sees only their differences.",
        "The keys enter the scores, and the differences between the scores grow.",
    )[0 if case > 1 else 1 if weights else 2]
    about_output = (
        "The output is an average of the values, so it changes with them.",
        "The output is made of the weights and the values, and neither changes.",
        "Other weights give another average of the same values.",
    )[0 if case > 1 else 1 if output else 2]
    because = (
        "The query's dot product with the added vector is added to all four dot products, so all scores "
        "change by the same number.",
        f"All scores become {number} times as large, and the weights become sharper.",
        "The weights sum to 1, so the added vector is added to the output, too.",
        f"The weights stay the same and every value is {number} times as large, so the average of the values "
        "is, too.",
    )[case]

    def option(weights: bool, output: bool) -> str:
        says = {True: "stay the same", False: "change"}
        return f"the weights {says[weights]}, the output {says[output].replace('stay', 'stays')}" + "s" * (
            not output
        )

    return Question(
        text=f"A query is compared with four keys; d_k = d_v = 3. Then {change}, and nothing else changes. "
        "What happens to the weights of the query, and to its output?",
        answer=option(weights, output),
        wrong={
            about_weights: option(not weights, output),
            about_output: option(weights, not output),
            f"{about_weights} {about_output}": option(not weights, not output),
        },
        because=because,
        section=SECTIONS["what_changes"],
    )


def _first(result: torch.Tensor) -> float:
    return round(result.flatten()[0].item(), 2)


def _list(numbers: torch.Tensor, last: str = " and") -> str:
    *most, end = [f"{number:g}" for number in numbers.flatten().tolist()]
    return f"{', '.join(most)}{last} {end}".replace(" ,", ",")
