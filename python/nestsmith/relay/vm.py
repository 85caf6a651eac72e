"""``relay.vm.compile``: a module for ``runtime.vm.VirtualMachine``."""

from ..driver import engine_of
from ..runtime.vm import Executable, VirtualMachine  # noqa: F401  (TVM's place)
from ..target import Target
from ..te.schedule import create_schedule
from ..tir.stmt import function_of
from . import extract
from .backend.evaluate import is_compilable
from .backend.executor import create_executor
from .build_module import build
from .lowering import lower_function
from .pipeline import as_module, fuse_module, optimize as _optimize
from .transform import InferType

__all__ = ["Executable", "VMCompiler", "VirtualMachine", "compile"]


def compile(mod, target=None, target_host=None, params=None):  # noqa: A001 (name of the established interface)
    """Compiles a module; what waits for values (branches, loops, sizes known at run time) is evaluated when it runs.

    Parameters
    ----------
    mod : IRModule or relay.Function
    target, target_host, params
        As of ``relay.build``.

    Returns
    -------
    Executable
    """
    compiler = VMCompiler()
    compiler.set_params(params or {})
    compiler.lower(mod, target, target_host)
    return compiler.get_exec()


class VMCompiler:
    """The same step by step: `set_params`, `lower`, `codegen`, `get_exec`."""

    def __init__(self):
        self._params, self._exe = {}, None

    def set_params(self, params):
        """Values of parameters of ``main`` by their names; they become constants."""
        self._params.update(params)

    def get_params(self):
        """The values that were set."""
        return dict(self._params)

    def lower(self, mod, target=None, target_host=None):
        """Compiles a module. Raises ValueError without a target."""
        target = Target.canon_target_and_host(next(iter(target.values())) if isinstance(target, dict) else target or Target.current(), target_host)[0]
        mod = InferType()(as_module(mod))
        if is_compilable(mod["main"], mod):
            self._exe = Executable(build(mod, target=target, params=self._params))
        else:
            self._exe = Executable(None, lambda device: create_executor("vm", mod, device, target, self._params).evaluate())

    def codegen(self):
        """Nothing is left to do after `lower`."""

    def get_exec(self):
        """The `Executable`. Raises ValueError before `lower`."""
        if self._exe is None:
            raise ValueError("get_exec: nothing was compiled; call lower(mod, target) first")
        return self._exe

    def optimize(self, mod, target=None, target_host=None, params=None):
        """(module, params that are still used): graph passes up to fusion, and beside ``main`` each of its kernels as a ``tir.PrimFunc`` in
        plain loops."""
        target = Target.canon_target_and_host(target or Target.current(), target_host)[0]
        out = fuse_module(_optimize(as_module(mod), target, {**self._params, **(params or {})}), target=target)
        for k in extract.collect_kernels(out, "tvmgen_default_")[0]:
            made = lower_function(k.func, target)
            out[k.name] = function_of(create_schedule([t.op for t in made.outputs])._core, made.io, engine_of(target))
        return out, {}
