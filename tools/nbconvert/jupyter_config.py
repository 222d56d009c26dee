"""Every Jupyter program of this Python reads this: HTML made of a notebook gets the template beside it."""

import os
from pathlib import Path

installed = Path(__file__).resolve().parents[2] / "share" / "jupyter" / "mha-lab"
# The current folder is what nbconvert itself searches first.
get_config().TemplateExporter.extra_template_basedirs = [os.getcwd(), str(installed)]  # noqa: PTH109
