"""The finished functions, which an answer may not call: it is asked to build them."""

import contextlib
from collections.abc import Iterator
from types import CodeType
from typing import Any, NoReturn


def code_of(answer: Any) -> CodeType | None:
    """The compiled function, under whatever wraps it."""
    while hasattr(answer, "__wrapped__"):
        answer = answer.__wrapped__
    code = getattr(answer, "__code__", None)
    return code if isinstance(code, CodeType) else None


class Refused(Exception):
    """The answer called the finished function that it should build."""


def refuse(name: str) -> NoReturn:
    """What a refused function does."""
    raise Refused(name)


def _refusing(name: str) -> CodeType:
    """Code for the place of a refused function's, where it finds nothing but what it imports."""
    module = '__import__("mha_course.exercises._finished", fromlist=["refuse"])'
    return eval(f"lambda *_, **__: {module}.refuse({name!r})").__code__


@contextlib.contextmanager
def refusing(functions: list[Any]) -> Iterator[None]:
    """Under whatever name the answer has imported them, these functions raise ``Refused``."""
    found = []
    for function in functions:
        while function is not None:
            if hasattr(function, "__code__") and not function.__code__.co_freevars:
                found.append((function, function.__code__))
            function = getattr(function, "__wrapped__", None)
    for function, _ in found:
        function.__code__ = _refusing(function.__qualname__)
    try:
        yield
    finally:
        for function, code in found:
            function.__code__ = code
