"""Tags name the class of an operation; a scope sets the tag of every compute made inside it."""

from __future__ import annotations

import contextvars
import functools

from ..tir.expr import const

_current: contextvars.ContextVar = contextvars.ContextVar("nestsmith_tag", default=None)


class tag_scope:
    """``with tag_scope("conv"):`` or ``@tag_scope("conv")``: the tag of all computes made inside.

    Entering a scope inside another one is a ``ValueError``.
    """

    def __init__(self, tag):
        self.tag, self._token = tag, None

    def __enter__(self):
        if _current.get() is not None:
            raise ValueError(f"tag scope '{self.tag}' inside tag scope '{_current.get()}': scopes do not nest")
        self._token = _current.set(self.tag)
        return self

    def __exit__(self, *exc):
        _current.reset(self._token)

    def __call__(self, f):
        @functools.wraps(f)
        def tagged(*args, **kwargs):
            with tag_scope(self.tag):
                return f(*args, **kwargs)

        return tagged


class SpecializedCondition:
    """``with SpecializedCondition([n % 8 == 0]):`` conditions that what is made inside may rely on; `current` tells them.

    Raises ValueError for what is no condition.
    """

    _inside: contextvars.ContextVar = contextvars.ContextVar("nestsmith_conditions", default=())

    def __init__(self, conditions):
        self.clauses = [const(c) for c in (conditions if isinstance(conditions, (list, tuple)) else [conditions])]
        for c in self.clauses:
            if c.dtype != "bool":
                raise ValueError(f"SpecializedCondition: {c} is no condition")

    def __enter__(self):
        self._inside.set((*self._inside.get(), self))
        return self

    def __exit__(self, *exc):
        self._inside.set(self._inside.get()[:-1])

    @classmethod
    def current(cls):
        """The innermost one, or None."""
        return (cls._inside.get() or (None,))[-1]


def current_tag():
    """The tag of the enclosing scope, or None."""
    return _current.get()
