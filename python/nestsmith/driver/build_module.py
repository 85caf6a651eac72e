"""One operator from its schedule: ``nestsmith.build(schedule, args, target)`` and ``nestsmith.lower(schedule, args)``."""

from nestsmith import _core

from ..compiling import compile_source
from ..runtime import Module, OperatorModule, num_threads
from ..states import contexts, loops_of
from ..target import HAND_VTHREADS, Target, device_limits, hand_vector_bytes
from ..tir.stmt import PrimFunc, function_of
from .externs import ExternModule, function_module, has_extern
from .varying import VaryingModule, varies

__all__ = ["LoweredFunction", "build", "engine_of", "lower", "schedule_to_module"]


def _hardware(target):
    """The eight hardware parameters as far as they limit a schedule that is already made."""
    if target.kind.device_type == 1:
        return num_threads(), 64, 64, 0, 0, 0, 0, 0
    shared, threads, _ = device_limits(target) if target.kind.name == "opencl" else (0, 0, 0)
    shared = shared or target.max_shared_memory_per_block or 49152
    threads = threads or target.max_num_threads
    return (-1, hand_vector_bytes(target), 64, int(shared), 2**31 - 1, int(threads), HAND_VTHREADS, int(target.thread_warp_size))


def engine_of(target, overlap=0):
    """A target as the engine takes it, for schedules that are already made."""
    return target.engine(_hardware(target), overlap=overlap)


def build(inputs, args=None, target=None, target_host=None, runtime=None, name="default_function", binds=None, cache_dir=None):
    """Lowers and compiles one operator.

    Parameters
    ----------
    inputs : schedule
        From ``te.create_schedule``, ``task.apply_best``, or a state of the auto-scheduler.
    args : list of te.Tensor
        Inputs and outputs, in the order in which the function takes its arrays. Sizes may be variables (``te.var``): each set of sizes is
        compiled at the first call that has it. A variable among the arguments is a number at the call.
    target : Target or str, optional
        Default: the scope's target, else this CPU.
    target_host : Target or str, optional
        As in ``Target(target, host=...)``.
    runtime : optional
        Accepted for compatibility.
    name : str
        Name of the function, an identifier.
    binds : None
        Not supported.
    cache_dir : str, optional
        Where compiled programs are kept; the user's cache by default.

    Returns
    -------
    Module
        ``module(a, b, c)`` and ``module[name]`` run it; ``module.time_evaluator(module.entry_name, dev)`` times it.

    Raises
    ------
    ValueError
        If the schedule is illegal for the target, `name` is no identifier, or `binds` is given.
    TypeError
        If `inputs` is no schedule.
    RuntimeError
        With the compiler's output if it fails.
    """
    if isinstance(inputs, Module):
        return inputs
    functions = getattr(inputs, "functions", None)  # of what lower returns, or of an IRModule
    if functions is not None:
        if len(functions) != 1 or not isinstance(next(iter(functions.values())), PrimFunc):
            raise ValueError(f"build: the module has the functions {', '.join(map(str, functions)) or 'none'}; one tir.PrimFunc is built, "
                             "networks are compiled with relay.build")
        inputs = next(iter(functions.values()))
    if isinstance(inputs, PrimFunc):
        target = Target.canon_target_and_host(args if target is None and args else target or Target.current() or Target("llvm"), target_host)[0]
        return function_module(inputs, name, target, engine_of(target), cache_dir)
    if binds:
        raise ValueError("binds is not supported: buffers are laid out row by row")
    if not name.isidentifier():
        raise ValueError(f"name {name!r} is not an identifier")
    target = Target.canon_target_and_host(target or Target.current() or Target("llvm"), target_host)[0]
    if _passes() and args is not None and not varies(inputs, args):
        return build(lower(inputs, args), target=target, name=name, cache_dir=cache_dir)
    if varies(inputs, args):
        return VaryingModule(inputs, list(args), name, lambda sch, tensors: build(sch, tensors, target, name=name, cache_dir=cache_dir))
    if has_extern(inputs):
        return ExternModule(inputs, list(args), name, target, cache_dir, build)
    engine = engine_of(target)
    source, manifest = _core.program(loops_of(inputs), None if args is None else list(args), engine, name)
    of_steps = getattr(inputs, "of_steps", True)  # a State is one; a schedule of te knows
    binary, _ = compile_source(target, source, name, of_steps, cache_dir, engine)
    return OperatorModule(source, manifest, binary, target)


class LoweredFunction:
    """What ``lower`` returns; printing it shows the function.

    Attributes
    ----------
    name : str
        Name of the function.
    script : str
        The text, in the ``primfn`` dialect.
    """

    def __init__(self, name, script, make=None):
        self.name, self.script, self._make = name, script, make

    def __getitem__(self, name):
        """The function of that name as a tir.PrimFunc, whose statements can be visited."""
        if str(name) != self.name or self._make is None:
            raise KeyError(f"there is no function {name!r}; it is called {self.name!r}")
        if callable(self._make):
            self._make = self._make()
        return self._make

    def __setitem__(self, name, func):
        self.script, self._make = str(func), func

    def shallow_copy(self):
        """Another one with the same function."""
        return LoweredFunction(self.name, self.script, self._make)

    functions = property(lambda self: {self.name: self[self.name]}, doc="A dict of the function.")
    body = property(lambda self: self[self.name].body, doc="Its statement.")

    def __str__(self):
        return self.script

    __repr__ = __str__

    def astext(self):
        """The text."""
        return self.script


def lower(sch, args, name="main", binds=None, simple_mode=False, tensors=False):
    """The program a schedule stands for, after flattening and simplification.

    Parameters
    ----------
    sch : te.Schedule or state of the auto-scheduler
        It is not changed.
    args : list of te.Tensor
        Inputs and outputs in the order of the function's parameters. A computed tensor that is listed is written to its
        argument; one that is not listed becomes a temporary. Shapes may be symbolic.
    name : str
        Name of the function, shown as ``global_symbol``.
    binds : None
        Not supported.
    simple_mode : bool
        Accepted for compatibility; the text is that of the simple mode.
    tensors : bool
        Whether buffers of the ``tir.PrimFunc`` have the dimensions of the tensors; else those of the memory, one.

    Returns
    -------
    LoweredFunction

    Raises
    ------
    ValueError
        If the schedule is illegal, e.g. an attach point does not enclose all readers, or a tensor that is read is
        neither computed nor an argument.
    """
    if binds:
        raise ValueError("binds is not supported: buffers are laid out row by row")
    text = _core.lower_text(loops_of(sch), "primfn", args=list(args))
    core = loops_of(sch)
    target = Target.current() or Target("llvm")
    separators = getattr(sch, "separators", {})
    begins = () if tensors else (tuple(tuple(separators.get(a.op, ())) for a in args),)
    make = (lambda: function_of(core, list(args), engine_of(target), *begins)) if isinstance(core, _core.Schedule) else None
    low = LoweredFunction(name, text.replace('"global_symbol": "main"', f'"global_symbol": "{name}"', 1), make)
    for _, run in _passes():
        low = run(low)
    return low


def _passes():
    """Passes that the user's context adds to lowering."""
    return sorted((p for c in contexts()[-1:] for p in c.config.get("tir.add_lower_pass", ())), key=lambda p: p[0])


def schedule_to_module(sch, args=None, name="main", binds=None):
    """As :func:`lower`; buffers of the tir.PrimFunc ``schedule_to_module(...)["main"]`` have the dimensions of the tensors."""
    return lower(sch, args, name, binds, tensors=True)
