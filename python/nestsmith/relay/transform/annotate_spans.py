"""AnnotateSpans: every call knows where it stands in the text of the module."""

from .. import passes
from ..parser import parse

__all__ = ["AnnotateSpans"]


@passes.makes_module_pass(opt_level=0)
def AnnotateSpans(mod, ctx):
    """Prints and reads the module, whose calls get spans (:class:`relay.Span`) of source "GeneratedSource"."""
    return parse(mod.astext(), "GeneratedSource", spans=True)
