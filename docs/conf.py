"""Sphinx configuration."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))
project = "nestsmith"
author = "the nestsmith maintainers"
extensions = ["sphinx.ext.autodoc", "numpydoc", "myst_nb"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
nb_execution_mode = "off"  # notebooks are stored with their outputs; `make notebooks` executes them
exclude_patterns = ["_build", "jupyter_execute"]
html_theme = "alabaster"
numpydoc_show_class_members = False
suppress_warnings = ["myst.header"]
numpydoc_class_members_toctree = False
autosummary_generate = False  # numpydoc loads the extension; we list members by hand
