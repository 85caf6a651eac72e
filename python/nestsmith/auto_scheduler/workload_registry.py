"""Workloads: from a key, the text by which logs name a task, back to the tensors it stands for.

A key is JSON. For a user's function it is ``["name", argument, ...]`` and the function is called again with the
arguments; for a subgraph of a network it is ``["hash", shape, ...]`` and the tensors are registered under the whole
key.
"""

import collections
import json
import numbers

from .. import check, te

_functions: dict = {}
_tensors: dict = {}
WORKLOAD_FUNC_REGISTRY = collections.ChainMap(_functions, _tensors)  # functions by name, tensors by key


def get_func_name(func):
    """Name under which a function is registered: its ``func_name`` if it has one, else its qualified name."""
    return getattr(func, "func_name", None) or func.__qualname__


def register_workload(func_name=None, f=None, override=False):
    """Registers a function that returns the list of tensors of a computation; usable as a decorator.

    Parameters
    ----------
    func_name : callable or str
        The function, or the name to register ``f`` under. ``@register_workload`` and ``@register_workload("name")``
        work.
    f : callable, optional
    override : bool
        Allow replacing an earlier registration.

    Returns
    -------
    callable
        The function, or a decorator if only a name is given.

    Raises
    ------
    RuntimeError
        If the name is taken and ``override`` is not set.
    ValueError
        If the name is not a string.
    """
    if callable(func_name):
        f, func_name = func_name, get_func_name(func_name)
    if func_name is not None and not isinstance(func_name, str):
        raise ValueError(f"register_workload takes a function or a name (str), not {type(func_name).__name__}")

    def register(func):
        name = check.text("func_name", func_name if func_name is not None else get_func_name(func))
        if name in _functions and not override and _functions[name] is not func:
            raise RuntimeError(f"workload '{name}' has been registered already; pass override=True to replace it")
        _functions[name] = func
        return func

    return register(f) if f is not None else register


def register_workload_tensors(workload_key, tensors, override=True):
    """Registers the tensors of a subgraph under its whole key. Returns the key. Raises RuntimeError if the key is taken and `override` is not set."""
    if workload_key in _tensors and not override:
        raise RuntimeError(f"workload {workload_key} has been registered already; pass override=True to replace it")
    _tensors[workload_key] = list(tensors)
    return workload_key


def is_registered(workload_key):
    """True if :func:`workload_key_to_tensors` knows the key."""
    if workload_key in _tensors:
        return True
    try:
        return check.json_of("workload key", workload_key)[0] in _functions
    except (ValueError, LookupError, TypeError):
        return False


def serialize_args(args):
    """Arguments as JSON values: tuples and lists become tuples, a tensor ``("TENSOR", shape, dtype)``."""
    return tuple(_serialize(a) for a in args)


def _serialize(a):
    if isinstance(a, te.Tensor):
        return "TENSOR", tuple(int(s) for s in a.shape), a.dtype
    if isinstance(a, (list, tuple)):
        return serialize_args(a)
    if a is None or isinstance(a, (str, bool)):
        return a
    if isinstance(a, numbers.Integral) or hasattr(a, "__index__"):
        return int(a)
    if isinstance(a, numbers.Real):
        return float(a)
    raise ValueError(f"argument {a!r} of type {type(a).__name__} cannot be part of a workload key; use numbers, "
                     "strings, None, tuples of them, or tensors")


def deserialize_args(args):
    """The inverse of :func:`serialize_args`; tensors become new placeholders."""
    is_tensor = [isinstance(a, list) and len(a) == 3 and a[0] == "TENSOR" for a in args]
    return [te.placeholder(a[1], dtype=a[2]) if t else a for a, t in zip(args, is_tensor)]


def make_workload_key(func, args):
    """The key of a registered function called with ``args``.

    Parameters
    ----------
    func : callable or str
        A function that `register_workload` knows, or its name.
    args : sequence
        Numbers, strings, None, tuples of them, tensors.

    Returns
    -------
    str
        A JSON list: the name, then the arguments.

    Raises
    ------
    ValueError
        If the function is not registered or an argument cannot be part of a key.
    TypeError
        If ``args`` is no sequence.
    """
    name = func if isinstance(func, str) else get_func_name(func) if callable(func) else None
    if name is None:
        raise ValueError(f"make_workload_key takes a function or its name, not {type(func).__name__}")
    if name not in _functions:
        raise ValueError(f"workload '{name}' is not registered; decorate the function with "
                         "@auto_scheduler.register_workload")
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args is {args!r}; it must be a tuple, also for one argument: (8,)")
    return json.dumps([name, *serialize_args(args)])


def decode_workload_key_to_func_args(workload_key):
    """Name of the function and its arguments. Raises ValueError if the key is malformed or its function is not registered."""
    try:
        decoded = check.json_of("workload key", workload_key)
        name = decoded[0]
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"{check.shown(workload_key)} is no workload key: not a JSON list that begins with a name") from None
    if not isinstance(name, str) or name not in _functions:
        raise ValueError(f"workload {check.shown(workload_key, 400)} is not registered; register its function with "
                         "register_workload, or extract the tasks of the network it belongs to first")
    return name, deserialize_args(decoded[1:])


def workload_key_to_tensors(workload_key):
    """The tensors (inputs and outputs) a key stands for.

    Parameters
    ----------
    workload_key : str

    Returns
    -------
    list of te.Tensor

    Raises
    ------
    ValueError
        If the key is malformed or unknown.
    """
    if workload_key in _tensors:
        return list(_tensors[workload_key])
    name, args = decode_workload_key_to_func_args(workload_key)
    out = _functions[name](*args)
    return list(out) if isinstance(out, (list, tuple)) else [out]


def flatten_workload_key(workload_key):
    """A key as a flat tuple, so that keys with nested shapes and keys of older logs with flat shapes compare equal."""

    def flat(x):
        if isinstance(x, (list, tuple)):
            for v in x:
                yield from flat(v)
        else:
            yield x

    return tuple(flat(check.json_of("workload key", workload_key)))
