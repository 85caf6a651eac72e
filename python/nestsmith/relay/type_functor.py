"""Walks over types as classes, as :mod:`.expr_functor` has them over expressions."""

from . import ty
from .expr_functor import missing

__all__ = ["TypeFunctor", "TypeVisitor", "TypeMutator"]

_METHODS = {  # what is a kind of another one stands before it
    ty.GlobalTypeVar: "visit_global_type_var",
    ty.TypeVar: "visit_type_var", ty.IncompleteType: "visit_incomplete_type", ty.TensorType: "visit_tensor_type",
    ty.FuncType: "visit_func_type", ty.TupleType: "visit_tuple_type", ty.TypeRelation: "visit_type_relation",
    ty.RefType: "visit_ref_type", ty.TypeCall: "visit_type_call", ty.TypeData: "visit_type_data",
}  # fmt: skip


class TypeFunctor:
    """Base of walks that compute a value for every type."""

    def visit(self, typ):
        """The value of a type."""
        name = next((m for c, m in _METHODS.items() if isinstance(typ, c)), None)
        if name is None:
            raise TypeError(f"visit takes a relay type, not {type(typ).__name__}")
        return getattr(self, name)(typ)


class TypeVisitor(TypeFunctor):
    """Walks over all parts of a type."""


class TypeMutator(TypeFunctor):
    """Rebuilds a type."""


def _walk(self, t):
    """Visits the parts of a type."""
    ty.map_parts(self.visit, t)


def _rebuild(self, t):
    """A type with its parts as they were visited."""
    new = ty.map_parts(self.visit, t)
    if isinstance(t, ty.TypeRelation):
        return ty.TypeRelation(t.func, new["args"], t.num_inputs, t.attrs)
    if isinstance(t, ty.TypeData):
        return ty.TypeData(**new, constructors=t.constructors)
    return type(t)(**new) if new else t


for _name in _METHODS.values():
    setattr(TypeFunctor, _name, missing(_name))
    setattr(TypeVisitor, _name, _walk)
    setattr(TypeMutator, _name, _rebuild)
