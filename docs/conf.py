"""Sphinx configuration."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
project = "nestsmith"
author = "the nestsmith maintainers"
extensions = ["sphinx.ext.autodoc", "numpydoc", "myst_nb"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
for name in ("search", "genindex", "modindex", "py-modindex"):
    for suffix in source_suffix:
        if (HERE / (name + suffix)).exists():
            raise ValueError(f"{name}{suffix}: Sphinx writes a page of its own of this name over it; rename it")
myst_heading_anchors = 3  # links to headings
nb_execution_mode = "off"  # notebooks are stored with their outputs; `make notebooks` executes them
exclude_patterns = ["_build", "jupyter_execute"]
html_theme = "alabaster"
numpydoc_show_class_members = False
suppress_warnings = ["myst.header"]
numpydoc_class_members_toctree = False
autosummary_generate = False  # numpydoc loads the extension; we list members by hand
