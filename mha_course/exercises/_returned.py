"""What attention returns, the output and the weights, and the wrong forms of it: written once for all."""

from collections.abc import Mapping

from torch import Tensor

from mha_course.exercises import Choice, Form, known


def right(output: Tensor, weights: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Both, the output first."""
    return output, weights


FORMS = {
    "output-only": Form(
        "",
        "Your function returns the output without the weights; it should return (output, weights).",
        (lambda output, weights, scores: output, lambda output, weights, scores: (output, None)),
    ),
    "weights-only": Form(
        "",
        "Your function returns the weights without the output; it should return (output, weights).",
        (lambda output, weights, scores: weights,),
    ),
    "weights-first": Form(
        "",
        "Your function returns (weights, output); it should return (output, weights).",
        (lambda output, weights, scores: (weights, output),),
    ),
    "scores-returned": Form(
        "",
        "Your second result is the scores; it should be the weights, after the softmax.",
        (lambda output, weights, scores: (output, scores),),
    ),
}


def wrong(section: str, symbols: Mapping[str, str] | None = None) -> dict[str, Choice]:
    """The wrong results, as one knob of ``deviations``."""
    return known(FORMS, section, (), symbols)
