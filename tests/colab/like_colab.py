"""An environment like Colab's, as far as it can be made here, and a chapter run in it.

What this cannot show: Colab's GPUs; its page, which draws widgets with a front end of its own; `git+https`,
because the set-up cell finds a wheel that was built here; and what Colab installs tomorrow.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from packaging.utils import canonicalize_name

from tests.no_network import refusing
from tests.notebooks.chapters import FOLDER, ROOT
from tools.notebooks import execute

# Colab of 2026, with Python 3.13. PyTorch comes with its CUDA libraries (5 GB), and runs without a GPU.
COLAB = [
    "ipykernel==6.17.1", "ipython==7.34.0", "ipywidgets==7.7.1", "matplotlib==3.10.0", "numpy==2.1.3",
    "torch==2.11.0", "seaborn==0.13.2", "einops==0.8.2", "anywidget==0.11.0", "safetensors==0.8.0",
    "setuptools==81.0.0", "tqdm==4.70.1",
]  # fmt: skip
NOT_MOVED = ("torch", "ipykernel", "ipython", "ipywidgets", "matplotlib", "numpy", "seaborn", "einops")
ADDED = "jaxtyping", "wadler_lindig"  # by the set-up cell, at the versions of constraints.txt
# Stands in for Colab's own package, as far as a chapter reaches it: anywidget switches the widget manager on.
STAND_IN = '''
def enable_custom_widget_manager():
    """Colab's switch for widgets that others wrote."""
'''


def python_3_13() -> str | None:
    """Colab's Python, if this machine has it: on the path or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for python in (shutil.which("python3.13"), *map(str, sorted(pyenv.glob("3.13.*/bin/python")))):
        venv = [python, "-c", "import venv"]
        if python and subprocess.run(venv, capture_output=True, timeout=60).returncode == 0:
            return python
    return None


def environment(folder: Path) -> str:
    """A fresh virtual environment with Colab's packages; returns its Python."""
    subprocess.run([python_3_13(), "-m", "venv", folder], check=True, timeout=600)
    python = folder / "bin" / "python"
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "google" / "colab").mkdir(parents=True)
    (site / "google" / "colab" / "__init__.py").write_text("from google.colab import output\n")
    (site / "google" / "colab" / "output.py").write_text(STAND_IN)
    install = [python, "-m", "pip", "install", "-q", *COLAB]
    subprocess.run(install, check=True, capture_output=True, timeout=3600)
    return str(python)


def versions(python: str) -> dict[str, str]:
    listed = subprocess.check_output([python, "-m", "pip", "list", "--format=json"], timeout=300)
    return {canonicalize_name(row["name"]): row["version"] for row in json.loads(listed)}


def run(name: str, folder: Path, python: str, wheel: Path, *, network: bool = False) -> NotebookNode:
    """The chapter, run as on Colab: in a folder with the wheel alone, which its set-up cell installs."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    folder.mkdir(parents=True)
    shutil.copy(wheel, folder)
    nbformat.write(notebook, folder / f"{name}.ipynb")
    path = "" if network else refusing(folder.parent / f"no network for {name}")
    pins = folder.parent / f"versions for {name}.txt"
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins.write_text("\n".join(line for line in lines if line.partition("==")[0] in ADDED))
    variables = {"MHA_LAB_QUICK": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
    execute(notebook, folder, python, variables | {"PIP_CONSTRAINT": pins.as_uri()})
    return notebook
