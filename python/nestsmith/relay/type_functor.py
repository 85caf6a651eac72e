"""Walks over types as classes, as :mod:`.expr_functor` has them over expressions."""

from __future__ import annotations

from .ty import FuncType, GlobalTypeVar, IncompleteType, RefType, TensorType, TupleType, TypeCall, TypeRelation, TypeVar

__all__ = ["TypeFunctor", "TypeVisitor", "TypeMutator"]

_METHODS = {
    TypeVar: "visit_type_var", IncompleteType: "visit_incomplete_type", TensorType: "visit_tensor_type", FuncType: "visit_func_type",
    TupleType: "visit_tuple_type", TypeRelation: "visit_type_relation", RefType: "visit_ref_type",
    GlobalTypeVar: "visit_global_type_var", TypeCall: "visit_type_call",
}  # fmt: skip


class TypeFunctor:
    """Base of walks that compute a value for every type."""

    def visit(self, typ):
        """The value of a type."""
        name = next((m for c, m in _METHODS.items() if isinstance(typ, c)), None)
        if name is None:
            raise TypeError(f"visit takes a relay type, not {type(typ).__name__}")
        return getattr(self, name)(typ)


def _missing(name):
    def method(self, _):
        raise NotImplementedError(f"{type(self).__name__} has no method {name}")

    method.__name__ = name
    return method


for _name in _METHODS.values():
    setattr(TypeFunctor, _name, _missing(_name))


class TypeVisitor(TypeFunctor):
    """Walks over all parts of a type."""

    def visit_type_var(self, tv):
        """A type variable; nothing is below."""

    visit_incomplete_type = visit_tensor_type = visit_global_type_var = visit_type_var

    def visit_func_type(self, ft):
        for t in (*ft.arg_types, ft.ret_type, *ft.type_params, *ft.type_constraints):
            self.visit(t)

    def visit_tuple_type(self, tt):
        for t in tt.fields:
            self.visit(t)

    def visit_type_relation(self, tr):
        for t in tr.args:
            self.visit(t)

    def visit_ref_type(self, rt):
        self.visit(rt.value)

    def visit_type_call(self, tc):
        for t in (tc.func, *tc.args):
            self.visit(t)


class TypeMutator(TypeFunctor):
    """Rebuilds a type."""

    def visit_type_var(self, tv):
        return tv

    visit_incomplete_type = visit_tensor_type = visit_global_type_var = visit_type_var

    def visit_func_type(self, ft):
        new = ([self.visit(t) for t in part] for part in (ft.arg_types, (ft.ret_type,), ft.type_params, ft.type_constraints))
        args, ret, params, constraints = new
        return FuncType(args, ret[0], params, constraints)

    def visit_tuple_type(self, tt):
        return TupleType([self.visit(t) for t in tt.fields])

    def visit_type_relation(self, tr):
        return TypeRelation(tr.func, [self.visit(t) for t in tr.args], tr.num_inputs, tr.attrs)

    def visit_ref_type(self, rt):
        return RefType(self.visit(rt.value))

    def visit_type_call(self, tc):
        return TypeCall(self.visit(tc.func), [self.visit(t) for t in tc.args])
