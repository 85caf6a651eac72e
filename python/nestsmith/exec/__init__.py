"""Programs of the package that run as processes of their own."""

import importlib
import sys

__all__ = ["cluster_command"]


def cluster_command(name, module):
    """A function of `cluster.commands`, which need the extra `cluster`. Called by a program, it ends the process with its status.

    Parameters
    ----------
    name : str
    module : str
        ``__name__`` of the caller.
    """
    program = module == "__main__"
    try:
        main = getattr(importlib.import_module("nestsmith.cluster.commands"), name)
    except ModuleNotFoundError as e:
        if not program:
            raise
        sys.exit(f"error: {e}")
    return sys.exit(main()) if program else main
