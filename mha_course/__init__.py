"""mha_course: what the chapters do with ``mha_lab``: check answers, ask questions, draw live pictures, grade.

A chapter needs one line of it: ``from mha_course import check, explore, quiz``. ``mha_course.chapters`` has a
module for each subject of chapters 06 to 16. What is here uses ``mha_lab``, and nothing there uses this. Each
part is imported when it is first used.
"""

from importlib import import_module
from typing import Any

__all__ = ["check", "explore", "progress", "quiz", "solution"]


def __getattr__(name: str) -> Any:
    if name in ("check", "progress", "solution"):
        return getattr(import_module("mha_course.checker"), name)
    if name in ("explore", "quiz"):
        return import_module(f"mha_course.{name}")
    raise AttributeError(f"module 'mha_course' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
