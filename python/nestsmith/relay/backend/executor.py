"""``relay.create_executor``: expressions that are evaluated at once or become Python functions."""

from ... import check
from ...error import TVMValueError
from ..expr import Call, Expr, Function, GlobalVar, bind, const
from ..module import IRModule
from ..transform import InferType
from ..transform.basic import bind_params_by_name
from ..ty import TensorType
from .evaluate import Evaluator, arguments, is_compilable, result_of, run_compiled

__all__ = ["AotExecutor", "Executor", "GraphExecutor", "Interpreter", "Runtime", "VMExecutor", "create_executor"]


class _Choice:
    """A name with options, whose kinds and defaults are known."""

    def __init__(self, name, options=None):
        known = self.list_registered_options(name)
        for k, v in (options or {}).items():
            if k not in known:
                raise TVMValueError(f'Attribute "{k}" is not available on this {self._what}; there are: {", ".join(known) or "none"}')
            if isinstance(v, str) != (known[k] == "runtime.String"):
                found = "runtime.String" if isinstance(v, str) else "IntImm"
                raise TVMValueError(f'Attribute "{k}" should have type "{known[k]}" but instead found "{found}"')
        self.name, self.options = name, {**self._defaults, **(options or {})}

    def __getitem__(self, name):
        return self.options[name]

    def __contains__(self, name):
        return name in self.options

    @classmethod
    def list_registered(cls):
        """Names that there are."""
        return list(cls._registered)

    @classmethod
    def list_registered_options(cls, name):
        """The options of a name, and their types. Raises TVMError for an unknown one."""
        if name not in cls._registered:
            raise TVMValueError(f'{cls._what} "{name}" is not defined; there are: {", ".join(cls._registered)}')
        return cls._registered[name]


_AOT = {"link-params": "IntImm", "unpacked-api": "IntImm", "interface-api": "runtime.String", "workspace-byte-alignment": "IntImm",
        "constant-byte-alignment": "IntImm"}  # fmt: skip


class Executor(_Choice):
    """Evaluates expressions of a module on a device; what :func:`create_executor` returns.

    As ``Executor(name, options=None)``, the argument `executor` of ``relay.build``: ``"graph"`` is what there is.
    """

    compiles = False  # whether what is fixed is built before it runs
    _what, _registered, _defaults = "Executor", {"graph": {"link-params": "IntImm"}, "aot": _AOT}, {"link-params": False}

    def __init__(self, name="graph", options=None):
        super().__init__(name, options)
        self.mod, self.device, self.target = IRModule(), None, "llvm"

    def _set(self, mod, device, target):
        self.mod, self.device, self.target = mod, device, target
        return self

    def evaluate(self, expr=None, binds=None):
        """The value of an expression (None: ``main`` of the module), or a Python function if it is one.

        Parameters
        ----------
        expr : relay.Expr, optional
        binds : dict of Var to expressions or arrays, optional
            Values of free variables.

        Returns
        -------
        NDArray, list of results (for a tuple), or a function of arrays (by place or by the names of the parameters) to them
        """
        if expr is None:
            expr = self.mod["main"]
        if hasattr(expr, "astuple"):
            expr = expr.astuple()
        if not isinstance(expr, Expr):
            raise TypeError(f"evaluate takes a relay expression, not {type(expr).__name__}")
        if binds:
            expr = bind(expr, {k: v if isinstance(v, Expr) else const(v) for k, v in binds.items()})
        if isinstance(expr, GlobalVar):
            expr = self.mod[expr]
        if isinstance(expr, Function):
            func = self._typed(expr)
            return lambda *args, **kwargs: self._run(func, args, kwargs)
        if isinstance(expr, Call) and isinstance(expr.op, GlobalVar):
            return result_of(self._call(self._typed(self.mod[expr.op]), [Evaluator(self.mod, self.target, self.device).value(a) for a in expr.args]))
        return self._run(self._typed(Function([], expr)), (), {})

    def _typed(self, func):
        mod = self.mod.shallow_copy()
        mod["main"] = func
        return InferType()(mod)["main"]

    def _run(self, func, args, kwargs):
        return result_of(self._call(func, arguments(func, args, kwargs)))

    def _call(self, func, values):
        for p, v in zip(func.params, values):
            t = p._type
            if isinstance(t, TensorType) and t.is_static and hasattr(v, "data") and v.data.shape != t.shape:
                raise ValueError(f"the parameter {p.name_hint!r} is a {t}; it is given a {v._type}")
        if self.compiles and is_compilable(func, self.mod):
            return run_compiled(func, values, self.target, self.device, self.mod)
        return Evaluator(self.mod, self.target, self.device).apply(func, values)


class Interpreter(Executor):
    """Evaluates node by node (kind ``"debug"``): with NumPy where an operator has such an evaluation, else compiled alone."""


class GraphExecutor(Executor):
    """Builds what it evaluates (kind ``"graph"``). What has branches, closures or sizes known at run time is evaluated node by node."""

    compiles = True


class AotExecutor(GraphExecutor):
    """As GraphExecutor: networks are compiled ahead of time here (kind ``"aot"``)."""


class VMExecutor(GraphExecutor):
    """As GraphExecutor (kind ``"vm"``)."""


class Runtime(_Choice):
    """The argument `runtime` of ``relay.build``: ``Runtime("cpp")`` is what there is."""

    _what, _registered, _defaults = "Runtime", {"cpp": {"system-lib": "IntImm"}}, {"system-lib": False}

    def __init__(self, name="cpp", options=None):
        super().__init__(name, options)


_KINDS = {"debug": Interpreter, "graph": GraphExecutor, "aot": AotExecutor, "vm": VMExecutor}


def create_executor(kind="debug", mod=None, device=None, target="llvm", params=None):
    """An executor of expressions.

    Parameters
    ----------
    kind : str
        ``"debug"``: node by node, the reference; ``"graph"``, ``"vm"`` and ``"aot"``: compiled where all types are fixed.
    mod : IRModule, optional
        The functions that expressions may call.
    device : Device, optional
        Default: the first one of the target.
    target : Target or str
    params : dict of str to array, optional
        Values of parameters of ``main``; they become constants.

    Returns
    -------
    Executor
        ``executor.evaluate(expr)``
    """
    check.one_of_names("kind", kind, tuple(_KINDS))
    mod = IRModule() if mod is None else mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    mod = mod.shallow_copy()
    if params:
        mod["main"] = bind_params_by_name(mod["main"], params)
    return _KINDS[kind]()._set(mod, device[0] if isinstance(device, (list, tuple)) else device, target)

