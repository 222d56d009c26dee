"""What ``dir`` and TAB show of a public module: its own public names, and nothing that it imports."""

import importlib
import inspect
import pkgutil

import pytest
from IPython.core.completer import IPCompleter, provisionalcompleter

import mha_lab
from mha_lab import _frequencies, positions

MODULES = ["mha_lab", "mha_course"]
MODULES += [f"mha_lab.{each.name}" for each in pkgutil.iter_modules(mha_lab.__path__) if each.name[0] != "_"]


def tab(module, jedi):
    completer = IPCompleter(namespace={"module": module}, use_jedi=jedi)
    with provisionalcompleter():
        found = completer.completions("module.", len("module."))
        return {each.text.lstrip(".") for each in found}


@pytest.mark.parametrize("name", MODULES)
def test_tab_shows_what_a_module_has_of_its_own(name):
    module = importlib.import_module(name)
    shown = set(dir(module))
    assert shown
    assert shown >= set(module.__all__)
    package = name.partition(".")[0]
    for each in shown:
        item = getattr(module, each)
        home = item.__name__ if inspect.ismodule(item) else getattr(item, "__module__", package)
        assert not each.startswith("_")
        assert each.isupper() or home.startswith(package), each
    assert tab(module, jedi=False) == shown
    assert tab(module, jedi=True) == shown


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("mha_lab.")])
def test_no_public_name_is_left_out(name):
    """A function or class that a module defines without an underscore is there for readers."""
    module = importlib.import_module(name)
    own = {n for n, item in vars(module).items() if getattr(item, "__module__", "") == name and n[0] != "_"}
    assert own <= set(dir(module))


def test_positions_shows_what_its_private_file_has_for_readers():
    home = _frequencies.__name__
    own = {n for n, item in vars(_frequencies).items() if getattr(item, "__module__", "") == home}
    assert {n for n in own if n[0] != "_"} <= set(dir(positions))
