"""An environment like Colab's, as far as it can be made here, and a chapter run in it.

What this cannot show: Colab's Python (3.13), its PyTorch (2.11) and its GPUs; its page, on which widgets are
drawn by a front end of its own; `git+https`, in whose place the set-up cell gets a wheel that was built here;
and what Colab installs tomorrow.
"""

import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from packaging.utils import canonicalize_name

from tests.no_network import refusing
from tests.notebooks.chapters import FOLDER, ROOT, code_cells
from tools.notebooks import execute
from tools.sync import address

# What Colab had in August 2026, as far as it installs with Python 3.11 (its release notes name them).
COLAB = [
    "ipykernel==6.17.1", "ipython==7.34.0", "ipywidgets==7.7.1", "matplotlib==3.10.*", "numpy==2.1.*",
    "seaborn==0.13.2", "einops==0.8.*", "anywidget", "safetensors", "setuptools>=77", "torch", "tqdm",
]  # fmt: skip
NOT_MOVED = ("torch", "ipykernel", "ipython", "ipywidgets", "matplotlib", "numpy", "seaborn", "einops")
# Stands in for Colab's own package, as far as a chapter reaches it: anywidget switches the widget manager on.
STAND_IN = '''
def enable_custom_widget_manager():
    """Colab's switch for widgets that others wrote."""
'''


def build(folder: Path) -> list[Path]:
    """The source distribution, and from it the wheel, in ``folder``."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, capture_output=True)
    return sorted(folder.iterdir())


def environment(folder: Path) -> str:
    """A fresh virtual environment with Colab's packages; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    (site,) = (folder / "lib").glob("python*/site-packages")
    # This environment's PyTorch, linked: a second copy would cost a gigabyte and a minute.
    tops = {file.parts[0] for file in distribution("torch").files} - {"..", "__pycache__"}
    for top in tops:
        (site / top).symlink_to(distribution("torch").locate_file(top))
    colab = site / "google" / "colab"
    colab.mkdir(parents=True)
    (colab / "__init__.py").write_text("from google.colab import output\n")
    (colab / "output.py").write_text(STAND_IN)
    subprocess.run([python, "-m", "pip", "install", "-q", *COLAB], check=True, capture_output=True)
    return str(python)


def versions(python: str) -> dict[str, str]:
    listed = subprocess.check_output([python, "-m", "pip", "list", "--format=json"])
    return {canonicalize_name(row["name"]): row["version"] for row in json.loads(listed)}


def run(name: str, folder: Path, python: str, wheel: Path, *, network: bool = False) -> NotebookNode:
    """The chapter, run as on Colab: alone in its folder, its set-up cell installing ``wheel``."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    first = code_cells(notebook)[0]
    assert f"git+{address()}" in first.source
    first.source = first.source.replace(f"git+{address()}", f'"{wheel}"')
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{name}.ipynb")
    path = "" if network else refusing(folder.parent / f"no network for {name}")
    execute(notebook, folder, python, {"MHA_LAB_QUICK": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": path})
    return notebook
