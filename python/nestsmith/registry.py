"""Global functions: callables known by name, by which an application changes what the package does.

Names the package looks up: ``auto_scheduler.compute_dag.hash_func`` (text of a DAG -> first element of its key).
"""

_functions: dict = {}


def register_func(func_name, f=None, override=False):
    """Registers ``f`` under a name; also a decorator, ``@register_func`` or ``@register_func("name")``.

    Raises ``ValueError`` if the name is taken and ``override`` is not set.
    """
    if callable(func_name):
        f, func_name = func_name, func_name.__name__
    if not isinstance(func_name, str):
        raise ValueError(f"register_func takes a name (str), not {type(func_name).__name__}")

    def register(func):
        if func_name in _functions and not override:
            raise ValueError(f"global function '{func_name}' is registered already; pass override=True to replace it")
        _functions[func_name] = func
        return func

    return register(f) if f is not None else register


def get_global_func(name, allow_missing=False):
    """The function of that name; if there is none, None with ``allow_missing``, else ``ValueError``."""
    if name not in _functions and not allow_missing:
        raise ValueError(f"cannot find global function '{name}'; register it with register_func")
    return _functions.get(name)


def list_global_func_names():
    """Names of all registered functions."""
    return sorted(_functions)


def remove_global_func(name):
    """Forgets a function; unknown names are ignored."""
    _functions.pop(name, None)
