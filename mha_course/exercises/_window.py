"""Which keys a window shows to a token, and the wrong forms of it: written once for all."""

from collections.abc import Mapping

from torch import Tensor

from mha_course.exercises import Choice, Form, known


def right(back: Tensor, window: int) -> Tensor:
    """The token's own key and those before it, by how many positions they lie ``back``."""
    return (back >= 0) & (back < window)


FORMS = {
    "no-window": Form(
        "",
        "In your mask a token sees all keys before it: the window is missing. A key that is `window` or more "
        "positions back should be hidden.",
        (lambda back, window: back >= 0,),
        "rolling",
    ),
    "one-key-too-many": Form(
        "",
        "In your mask a token sees `window + 1` keys. Its own key is one of the `window`.",
        (lambda back, window: (back >= 0) & (back <= window),),
    ),
    "one-key-too-few": Form(
        "",
        "In your mask a token sees `window - 1` keys. It should see `window`, its own included.",
        (lambda back, window: (back >= 0) & (back < window - 1),),
    ),
    "half-a-window": Form(
        "",
        "In your mask a token sees about half of `window` keys. It should see `window`, its own included.",
        (
            lambda back, window: (back >= 0) & (back <= window // 2),
            lambda back, window: (back >= 0) & (back < window // 2),
        ),
    ),
    "old-keys-only": Form(
        "",
        "In your mask the condition of the window is inverted: a token sees only keys that are `window` or "
        "more positions back.",
        (lambda back, window: back >= window,),
    ),
    "sees-the-future": Form(
        "",
        "In your mask a token also sees the tokens after it.",
        (lambda back, window: back < window,),
        "rolling",
    ),
    "own-key-hidden": Form(
        "",
        "In your mask a token does not see its own key.",
        (lambda back, window: (back > 0) & (back < window),),
    ),
    "ends-before-the-own-key": Form(
        "",
        "In your mask a token sees the `window` keys before its own key. Its own key is one of the "
        "`window`, and it is the last one.",
        (lambda back, window: (back > 0) & (back <= window),),
    ),
    "window-on-both-sides": Form(
        "",
        "In your mask the window reaches to both sides of a token. It should end at the token.",
        (lambda back, window: back.abs() < window, lambda back, window: back.abs() <= window),
    ),
    "half-a-window-on-both-sides": Form(
        "",
        "In your mask a token sees about half of `window` before it, and as much after it. It should see "
        "itself and the `window - 1` keys before it.",
        (lambda back, window: back.abs() <= window // 2, lambda back, window: back.abs() < window // 2),
    ),
}


def wrong(section: str | Mapping[str, str], symbols: Mapping[str, str] | None = None) -> dict[str, Choice]:
    """The wrong windows, as one knob of ``deviations``."""
    return known(FORMS, section, (), symbols)
