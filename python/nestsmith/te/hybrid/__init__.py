"""te.hybrid: tensors that a function in a part of Python computes.

>>> @te.hybrid.script
... def outer(a, b):
...     c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
...     for i in range(a.shape[0]):
...         for j in range(b.shape[0]):
...             c[i, j] = a[i] * b[j]
...     return c

Called with tensors, it gives tensors; called with arrays, it runs.
"""

import ast
import functools
import inspect
import textwrap

from .module import HybridModule, build, given_symbols
from .operation import HybridOp, source_to_op
from .runtime import HYBRID_GLOBALS, emulated  # noqa: F401

__all__ = ["HybridModule", "HybridOp", "build", "decorate", "script", "source_to_op"]


def decorate(func, fwrapped):
    """`fwrapped` as a function of the same name, called with `func` and the arguments."""

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        return fwrapped(func, *args, **kwargs)

    return wrapped


def script(pyfunc):
    """Makes of a function in a part of Python one that takes tensors.

    Such a function has loops (``for i in range(n)``, also ``parallel``, ``vectorize``, ``unroll``, ``const_range``, ``bind``), conditions,
    assignments to names and elements, ``output_tensor(shape, dtype)``, ``allocate(shape, dtype, scope)``, mathematical functions, and calls
    of others of its kind. It returns what ``output_tensor`` made.

    Raises
    ------
    ValueError
        When it is called with tensors, with the line, for what such functions may not have.
    """

    def read():
        tree = ast.parse(textwrap.dedent(inspect.getsource(pyfunc))).body[0]
        closure = inspect.getclosurevars(pyfunc)
        return tree, {**pyfunc.__globals__, **closure.globals, **closure.nonlocals}

    def run(func, *args):
        if not any(map(given_symbols, args)):
            return emulated(func, args)
        return source_to_op(*read(), args)

    wrapped = decorate(pyfunc, run)
    wrapped.__hybrid__ = read
    return wrapped
