"""All settings are in pyproject.toml. This lets an editable installation have data files, too."""

import setuptools


class Distribution(setuptools.Distribution):
    """Answers what setuptools asks before it installs them; it has no such method itself."""

    has_data = setuptools.Distribution.has_data_files


setuptools.setup(distclass=Distribution)
