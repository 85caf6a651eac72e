"""The names of TVMScript's ``tir``: what is made with them says, when it is used, what there is instead."""

from .._absent import hint

__all__ = ["prim_func"]


class _Script:
    """A function or a part of one in TVMScript. It can be named and annotated with; any use of a function raises NotImplementedError."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, *args, **kwargs):
        return self

    def __getitem__(self, index):
        return self


class _Function(_Script):
    def _refuse(self, *args):
        raise NotImplementedError(f"{self.__name__} is written in TVMScript. {hint('nestsmith.script')}")

    __call__ = __getitem__ = __getattr__ = _refuse


def prim_func(func=None, **options):
    """Takes a function and refuses its uses."""
    return _Function(func.__name__) if callable(func) else prim_func


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _Script(name)
