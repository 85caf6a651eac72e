"""Networks behind the interface of TVM's virtual machine: compiled where all types are fixed, else evaluated node by node."""

from __future__ import annotations

from .. import check

__all__ = ["Executable", "VirtualMachine"]


class Executable:
    """What ``relay.vm.compile`` gives and `VirtualMachine` runs.

    Attributes
    ----------
    lib : GraphExecutorFactoryModule or None
        What ``relay.build`` made of ``main``; None where that waits for values.
    """

    def __init__(self, lib, evaluate=None):
        self.lib, self.evaluate, self.mod = lib, evaluate, self

    def save(self):
        """(code, library): the library's ``export_library`` writes all of it, `load_exec` takes both. Raises ValueError where there is none."""
        if self.lib is None:
            raise ValueError("the module waits for values (branches, loops, sizes known at run time) and cannot be saved")
        return self.lib.get_graph_json().encode(), self.lib

    @staticmethod
    def load_exec(bytecode, lib):
        """The executable of a library that was loaded (``runtime.load_module``); ``bytecode`` is in it already."""
        del bytecode
        return Executable(lib)


class VirtualMachine:
    """Runs an `Executable` on a device (or the first of a list of them).

    ``vm.invoke("main", *args, **params)``, or ``vm.set_input("main", *args, **params)`` and ``vm.run()``, give an NDArray or a list of them.
    """

    def __init__(self, exe, device, memory_cfg=None):
        self._exe, self._given = exe if isinstance(exe, Executable) else Executable(exe), ((), {})
        self._device = device[0] if isinstance(device, (list, tuple)) else device
        self._module = None if self._exe.lib is None else self._exe.lib["default"](self._device)

    def set_input(self, func_name, *args, **kwargs):
        """Arguments of ``main``, by place or name. Raises ValueError for another function."""
        check.one_of_names("func_name", func_name, ("main",))
        self._given = (args, kwargs)
        for key, value in (*enumerate(args), *kwargs.items()) if self._module is not None else ():
            self._module.set_input(key, value)

    def invoke(self, func_name, *args, **kwargs):
        """The result of ``main`` for arguments: an NDArray, or a list of them for a tuple."""
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        if self._module is None:
            self._result = self._exe.evaluate(self._device)(*self._given[0], **self._given[1])
            return self._result
        self._module.run()
        outputs = [self._module.get_output(i) for i in range(self._module.get_num_outputs())]
        self._result = outputs if len(outputs) > 1 else outputs[0]
        return self._result

    def run(self, *args, **kwargs):
        """``invoke("main", ...)``; without arguments, of those that were set."""
        return self.invoke("main", *args, **kwargs)

    invoke_stateful = invoke

    def get_outputs(self):
        """The results of the last call, as a list."""
        return self._result if isinstance(self._result, list) else [self._result]

    def benchmark(self, device, *args, func_name="main", repeat=5, number=5, min_repeat_ms=0, **kwargs):
        """Times of ``main`` for arguments, a ``BenchmarkResult``. Raises ValueError where it is evaluated node by node."""
        if self._module is None:
            raise ValueError("the module waits for values and is evaluated node by node, which is not timed")
        self.set_input(func_name, *args, **kwargs)
        return self._module.time_evaluator("run", device, repeat=repeat, number=number, min_repeat_ms=min_repeat_ms)()
