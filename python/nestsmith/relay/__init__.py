"""Networks: expressions, operators, passes, test networks and the build."""

import importlib as _importlib
import typing as _typing

from .. import _absent
from ..runtime.params import load_param_dict, save_param_dict
from . import expr, frontend, op, testing, transform, ty
from .expr import *  # noqa: F401,F403
from .module import IRModule
from .op import *  # noqa: F401,F403
from .op import annotation, image, nn, random, vision
from .passes import PassContext as build_config  # noqa: F401  its name before 0.6
from .span import SequentialSpan, SourceName, Span
from .ty import (Any, FuncType, GlobalTypeVar, IncompleteType, RefType, ShapeVar, TensorType, TupleType, Type, TypeCall,
                 TypeConstraint, TypeData, TypeKind, TypeRelation, TypeVar, is_dynamic, scalar_type)  # fmt: skip

# Imported when they are asked for: the build and executors need the target and the runtime, graphs alone do not.
_LATE = {
    "adt": (),
    "base": (),
    "build_module": ("build", "optimize"),
    "backend": ("create_executor",),
    "analysis": ("free_type_vars", "bound_vars", "all_vars", "all_type_vars", "bound_type_vars", "all_dtypes"),
    "expr_functor": ("ExprFunctor", "ExprVisitor", "ExprMutator"),
    "type_functor": ("TypeFunctor", "TypeVisitor", "TypeMutator"),
    "dataflow_pattern": (),
    "loops": ("while_loop",),
    "parser": ("parse", "parse_expr", "fromtext"),
    "scope_builder": ("ScopeBuilder",),
    "vm": (),
}
_WHERE = {name: module for module, names in _LATE.items() for name in (module, *names)}


if _typing.TYPE_CHECKING:
    from . import (analysis, backend, base, build_module, dataflow_pattern, expr_functor, loops, parser, scope_builder,
                   type_functor)  # fmt: skip
    from .analysis import all_dtypes, all_type_vars, all_vars, bound_type_vars, bound_vars, free_type_vars
    from .backend import create_executor
    from .build_module import build, optimize
    from .expr_functor import ExprFunctor, ExprMutator, ExprVisitor
    from .loops import while_loop
    from .parser import fromtext, parse, parse_expr
    from .scope_builder import ScopeBuilder
    from .type_functor import TypeFunctor, TypeMutator, TypeVisitor
else:

    def __getattr__(name):
        if name in _WHERE:
            module = _importlib.import_module(f".{_WHERE[name]}", __name__)
            return module if name in _LATE else getattr(module, name)
        raise _absent.attribute_error(__name__, name)


def __dir__():
    return sorted({*globals(), *_WHERE})
