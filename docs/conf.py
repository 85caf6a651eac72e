"""Sphinx configuration."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))
project = "nestsmith"
author = "the nestsmith maintainers"
extensions = ["sphinx.ext.autodoc", "numpydoc", "myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "alabaster"
numpydoc_show_class_members = False
suppress_warnings = ["myst.header"]
numpydoc_class_members_toctree = False
autosummary_generate = False  # numpydoc loads the extension; we list members by hand
