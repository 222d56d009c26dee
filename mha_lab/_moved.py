"""For one release: ``mha_lab.check`` and the like are the modules of ``mha_course`` that they have become.

And the options that ``MultiHeadAttention`` had are the classes that they have become.
"""

import functools
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import Any

PLACES = {name: f"mha_course.{name}" for name in ("chapters", "exercises", "explore", "grading", "quiz")}
PLACES["check"] = "mha_course.checker"
LINES = {name: f"from mha_course import {name}" for name in ("check", "explore", "quiz")}
MODERN = "mha_course.chapters.modern"
PICTURES = {"asked_heatmaps", "cache_lines", "contribution_heatmaps", "head_scores", "loss_curves"}
PICTURES |= {"measured_lines", "named_bars", "own_key_heatmaps", "rotary_scores", "training_lines"}


def _place(old: str) -> str | None:
    """``mha_course.checker.report`` for ``mha_lab.check.report``."""
    package, _, rest = old.partition(".")
    first, dot, more = rest.partition(".")
    return f"{PLACES[first]}{dot}{more}" if package == "mha_lab" and first in PLACES else None


class Moved(MetaPathFinder, Loader):
    """Gives the module of the new place under the old name: one module with two names, not a copy."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        place = None if name.endswith(".__main__") else _place(name)  # that one is run, and never imported
        found = place and find_spec(place)
        return spec_from_loader(name, self, is_package=found.loader.is_package(place)) if found else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        __import__(_place(name))
        sys.modules[name] = sys.modules[_place(name)]
        first = name.removeprefix("mha_lab.")
        if first in PLACES:
            _tell(name, LINES.get(first, PLACES[first]))


def picture(name: str) -> Any:
    """A picture that ``mha_lab.plot`` had, and that one chapter draws."""
    if name not in PICTURES:
        raise AttributeError(f"module 'mha_lab.plot' has no attribute {name!r}")
    _tell(f"plot.{name}", f"from mha_course.chapters.pictures import {name}")
    return getattr(import_module("mha_course.chapters.pictures"), name)


def old_options(layer: type) -> type:
    """``MultiHeadAttention`` with the options that it had, and from the files of before."""
    new = layer.__init__

    @functools.wraps(new)
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        if "window" in options:
            window = options.pop("window")
            _tell("MultiHeadAttention(window=...)", f"mask=mha_lab.masks.SlidingWindow({window})")
            options["mask"] = _window(window)
        if type(self) is layer and (old := {"sinks", "gate"} & options.keys()):
            _tell(f"MultiHeadAttention({min(old)}=...)", f"from {MODERN} import ModernAttention")
            self.__class__ = import_module(MODERN).ModernAttention
            self.__init__(*args, **options)
        else:
            new(self, *args, **options)

    def __setstate__(self: Any, state: dict[str, Any]) -> None:
        super(layer, self).__setstate__(state)
        if "window" in vars(self):
            self.mask = _window(vars(self).pop("window"))
        if type(self) is layer and any(getattr(self, x, None) is not None for x in ("sinks", "gate_proj")):
            self.__class__ = import_module(MODERN).ModernAttention

    layer.__init__, layer.__setstate__ = __init__, __setstate__
    return layer


def _window(window: int | None) -> Any:
    return None if window is None else import_module("mha_lab.masks").SlidingWindow(window)


def _tell(old: str, line: str) -> None:
    told = f"`{old}` has moved, and its old name works for one release: write `{line}`."
    frame = sys._getframe()
    while frame.f_globals.get("__name__", "").startswith(("importlib", "mha_lab")):
        frame = frame.f_back
    warnings.warn_explicit(told, FutureWarning, frame.f_code.co_filename, frame.f_lineno)


sys.meta_path.insert(0, Moved())
