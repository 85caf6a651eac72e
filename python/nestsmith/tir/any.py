"""A dimension that is known only at run time."""

__all__ = ["Any"]


def _unknown(self, *_):
    return Any()


class Any:
    """A dimension known only at run time. It is equal to no other dimension, itself included; what is computed of it is another one."""

    dtype = "int32"

    def __repr__(self):
        return "?"

    def __eq__(self, other):
        return False

    __hash__ = object.__hash__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __neg__ = _unknown
