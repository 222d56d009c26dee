"""Chapter 01: a module whose three projections can learn, judged by its parameters and by what it returns."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _project, _returned, _scale, _softmax, deviations
from mha_course.exercises import _results as compare

MODULE, SCORES = "11 Appendix: a module that can learn", "2 Scores: how well does each query match each key?"
ROOT, WEIGHTS = (
    "5 Why divide by the square root of d_k?",
    "3 Weights: from scores to numbers that sum to 1",
)
PARTS = ("q_proj", "k_proj", "v_proj")


def learnable_head(d_model, d_k, d_v):
    """The widths to a module that maps ``x``, ``(..., n, d_model)``, to ``(output, weights)``."""

    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj = torch.nn.Linear(d_model, d_k, bias=False)
            self.k_proj = torch.nn.Linear(d_model, d_k, bias=False)
            self.v_proj = torch.nn.Linear(d_model, d_v, bias=False)

        def forward(self, x):
            query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
            weights = torch.softmax(query @ key.mT / math.sqrt(d_k), dim=-1)
            return weights @ value, weights

    return Head()


def _problems(rng):
    for lead in ((), (2,), (3, 2)):
        n, d_model, d_k, d_v = rng.primes(4)
        yield (
            *(d_model, d_k, d_v),
            rng.normal(*lead, n, d_model),
            rng.normal(d_model, d_k),
            rng.normal(d_model, d_k),
            rng.normal(d_model, d_v),
        )


def _call(answer, d_model, d_k, d_v, x, w_q, w_k, w_v):
    """What the module returns with these matrices in it, as the only item of a tuple.

    A second item is the number of matrices that get no gradient from the output, if the numbers are right and
    there are any. A module with other parameters gives what is wrong with them: the shapes of the three, with
    zeros for what is missing, the number of biases, and the number of others. What is no module comes back as
    it is; a known mistake needs none.
    """
    head = answer(d_model, d_k, d_v)
    if isinstance(head, _Pieces):
        return (head.attend(x, w_q, w_k, w_v),)
    if not isinstance(head, torch.nn.Module):
        return head
    own, matrices = dict(head.named_parameters()), dict(zip(PARTS, (w_q, w_k, w_v), strict=True))
    found = {name: own.pop(f"{name}.weight", torch.empty(0, 0)) for name in PARTS}
    biases = sum(own.pop(f"{name}.bias", None) is not None for name in PARTS)
    if own or biases or any(found[name].shape != matrices[name].mT.shape for name in PARTS):
        shapes = [[*part.shape] if part.ndim == 2 else [0, 0] for part in found.values()]
        return torch.tensor(shapes), biases, len(own)
    if getattr(head.forward, "__func__", None) is torch.nn.Module.forward:  # it raises
        return (None,)
    with torch.no_grad():
        for name, matrix in matrices.items():
            found[name].copy_(matrix.mT)
    result = head(x)
    if not compare.same(compare.plain(_Pieces().attend(x, w_q, w_k, w_v)), compare.plain(result)):
        return (result,)
    stuck = sum(gradient is None for gradient in _gradients(result, list(found.values())))
    return (result, stuck) if stuck else (result,)


def _gradients(result, parameters):
    """Those of the output, if the module returns it first; ``None`` for what it does not depend on."""
    output = result[0] if isinstance(result, tuple) and result else result
    if not (isinstance(output, torch.Tensor) and output.requires_grad):
        return [None for _ in parameters]
    try:
        return torch.autograd.grad(output.sum(), parameters, allow_unused=True)
    except RuntimeError:  # a number that the gradient needs was changed in place
        return [None for _ in parameters]


class _Pieces(NamedTuple):
    """The solution, put together from pieces."""

    project: Callable = _project.right
    divisor: _scale.Divisor = _scale.right
    weigh: _softmax.Weigh = _softmax.right
    after: _scale.Divisor = lambda sizes: 1.0
    results: Callable = _returned.right

    def attend(self, x, w_q, w_k, w_v):
        """The output and the weights, or what the pieces make of them."""
        query, key, value = self.project(x, w_q, w_k, w_v)
        sizes = _scale.Sizes.of(query, key, x.shape[-1], d_v=value.shape[-1])
        scores = query @ key.mT / self.divisor(sizes)
        weights = self.weigh(scores) / self.after(sizes)
        return self.results(weights @ value, weights, scores)


def _build(**pieces):
    known = _Pieces(**pieces)
    return lambda *widths: known


SIZES = "d_model", "d_v", "tokens", "front"
MATRICES = {f"w_{one}": f"`{one}_proj`" for one in "qkv"}
KNOBS = {
    "project": _project.wrong(SCORES, symbols=MATRICES),
    "divisor": _scale.wrong(ROOT, *SIZES),
    "weigh": _softmax.wrong(WEIGHTS, "front", "self"),
    "results": _returned.wrong(MODULE, {"Your function": "Your module"}),
}


def _forms(shapes, biases, others, widths):
    """The name of what is wrong with the parameters."""
    d_model, d_k, d_v = widths
    wanted = [[d_k, d_model], [d_k, d_model], [d_v, d_model]]
    if not any(map(any, shapes)):
        return "other-names" if others or biases else "nothing-learned"
    if [0, 0] in shapes:
        return "one-is-missing"
    if shapes == [each[::-1] for each in wanted]:
        return "widths-swapped"
    if shapes[:2] == wanted[:2] and shapes[2] == [d_k, d_model]:
        return "value-as-wide-as-a-key"
    if shapes != wanted:
        return "other-widths"
    return "bias-added" if biases else "more-parameters"


WEIGHT, NO_WEIGHT = "{part}.weight {shape}", "{part}.weight missing"
PARAMETERS = (
    "Made with d_model = {d_model}, d_k = {d_k} and d_v = {d_v}, your module has the parameters {weights}; "
    "{biases} biases; {others} others."
)


def _accepts(result, d_model, d_k, d_v, x, w_q, w_k, w_v):
    widths = d_model, d_k, d_v
    if isinstance(result, tuple) and len(result) == 3 and getattr(result[0], "array", None) is not None:
        shapes, biases, others = result[0].array.tolist(), *result[1:]
        told = [
            (WEIGHT if any(each) else NO_WEIGHT).format(part=part, shape=tuple(each))
            for part, each in zip(PARTS, shapes, strict=True)
        ]
        sizes = {"d_model": d_model, "d_k": d_k, "d_v": d_v}
        seen = PARAMETERS.format(weights=", ".join(told), biases=biases, others=others, **sizes)
        return _forms(shapes, biases, others, widths), seen
    form = tuple(map(type, result[1:])) if isinstance(result, tuple) and result else None
    if form not in ((), (int,)):
        seen = f"Your function returns {compare.kind(result)}; a module is expected."
        kinds = {"a type": "class-returned", "a function": "function-returned"}
        return kinds.get(getattr(result, "dtype", ""), "no-module"), seen
    got, *stuck = result
    if got is None:
        return "no-forward", "Your module has the three projections, and returns nothing for x."
    if compare.same(compare.plain(_Pieces().attend(x, w_q, w_k, w_v)), got):
        seen = f"The output gives no gradient to {stuck[0]} of the three matrices." if stuck else ""
        return ("no-gradient", seen) if stuck else None
    seen = (
        f"With three matrices of `check` in it, and x of shape {tuple(x.shape)}, your module returns "
        f"{compare.kind(got)}. This is not the output and the weights of single-head attention."
    )
    return "wrong-numbers", seen


def _unprepared():
    class Head(torch.nn.Module):
        def __init__(self):
            self.q_proj = torch.nn.Linear(1, 1, bias=False)

    return Head()


EXERCISE = Exercise(
    answer=learnable_head,
    chapter="01_single_head_attention",
    section=MODULE,
    points=2,
    problems=_problems,
    call=_call,
    accepts=_accepts,
    same_as=(mha_lab.SingleHeadAttention.forward,),
    mistakes={
        "no-super-init": Mistake(
            "`super().__init__()` is missing: it must come before the first `nn.Linear`, because it makes "
            "the places where a module keeps its parts.",
            MODULE,
            (lambda *widths: _unprepared(),),
        ),
        "class-returned": Mistake(
            "Your function returns a class. Call it to make a module: `return Head()`, for example.",
            MODULE,
            (),
        ),
        "function-returned": Mistake(
            "A function computes the same, but it has no `parameters()` that you could give to an optimiser. "
            "Put the projections into a class that is a `torch.nn.Module`.",
            MODULE,
            (),
        ),
        "no-module": Mistake("Return an object of a class that is a `torch.nn.Module`.", MODULE, ()),
        "nothing-learned": Mistake(
            "Your module has no parameters, so nothing in it can learn. A plain tensor is not a parameter; "
            "an `nn.Linear` holds one.",
            MODULE,
            (),
        ),
        "other-names": Mistake(
            "The projections of your module have other names than `q_proj`, `k_proj` and `v_proj`, or they "
            "are no `nn.Linear`.",
            MODULE,
            (),
        ),
        "one-is-missing": Mistake(
            "Not all of the three projections are there: queries, keys and values have one each.", MODULE, ()
        ),
        "widths-swapped": Mistake(
            "An `nn.Linear` takes the input width first, then the output width. Its weight has them the "
            "other way round.",
            MODULE,
            (),
        ),
        "value-as-wide-as-a-key": Mistake("Values are d_v wide, not d_k.", SCORES, ()),
        "other-widths": Mistake(
            "The widths are not right: queries and keys are d_k wide, values are d_v wide, and all are made "
            "from x, which is d_model wide.",
            SCORES,
            (),
        ),
        "bias-added": Mistake(
            "Your projections add a bias. The matrices of this chapter add nothing to the product.",
            MODULE,
            (),
        ),
        "more-parameters": Mistake("Your module learns more than the three matrices.", MODULE, ()),
        "no-forward": Mistake(
            "A module computes in its method `forward`. Yours has no such method, or it returns nothing.",
            MODULE,
            (),
        ),
        "no-gradient": Mistake(
            "Your module returns the right numbers, but not every matrix gets a gradient and can learn. "
            "Look for `no_grad()`, `detach()`, `.data`, or a change in place.",
            MODULE,
            (),
        ),
        **deviations(_build, KNOBS, pairs=False),
        "scaled-after-the-softmax": Mistake(
            _scale.AFTER,
            ROOT,
            tuple(_build(divisor=lambda s: 1.0, after=after) for after in _scale.afterwards(*SIZES)),
        ),
    },
)
