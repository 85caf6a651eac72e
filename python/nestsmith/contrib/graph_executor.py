"""Running a compiled network.

>>> module = graph_executor.GraphModule(lib["default"](dev))
>>> module.set_input("data", array)
>>> module.run()
>>> out = module.get_output(0)
"""

from ..runtime.graph import GraphRuntime

__all__ = ["create", "GraphModule"]


def create(graph_json_str, libmod, device):
    """A GraphModule of a graph file, the library part of a build and a device (or a list of one)."""
    device = device[0] if isinstance(device, (list, tuple)) else device
    lib = libmod.get_lib() if hasattr(libmod, "get_lib") else libmod
    text = graph_json_str if isinstance(graph_json_str, str) else str(graph_json_str)
    return GraphModule(GraphRuntime(text, lib, {}, device))


class GraphModule:
    """A network on a device.

    Parameters
    ----------
    module : what ``lib["default"](device)`` returned

    Raises
    ------
    TypeError
        If it is something else.
    """

    def __init__(self, module):
        if not hasattr(module, "set_input"):
            raise TypeError(f'module is {module!r}; give what lib["default"](device) returns')
        self.module = module

    def set_input(self, key=None, value=None, **params):
        """Copies values into inputs: one by name or index, or several by keyword. Keywords that are no input
        (weights that
        became constants) are skipped; a `key` that is none raises RuntimeError, a wrong shape ValueError."""
        if key is not None:
            self.module.set_input(key, value)
        for name in sorted(params):
            if self.module.get_input_index(name) >= 0:
                self.module.set_input(name, params[name])
            elif name not in self.module._original:
                self.module._where(name)  # raises with the nearest name

    def set_input_zero_copy(self, key, value):
        """Uses the memory of `value` as an input: same device, shape and dtype, aligned to 64 bytes."""
        self.module.set_input_zero_copy(key, value)

    def set_output_zero_copy(self, key, value):
        """Writes an output (index or ``"name:index"``) into the memory of `value`."""
        self.module.set_output_zero_copy(key, value)

    def run(self, **input_dict):
        """Runs the network, after setting the given inputs. Asynchronous on GPUs. Raises ValueError naming the inputs
        that were never set."""
        if input_dict:
            self.set_input(**input_dict)
        self.module.run()

    def get_num_outputs(self):
        """Number of outputs."""
        return self.module.get_num_outputs()

    def get_num_inputs(self):
        """Number of inputs, parameters included."""
        return self.module.get_num_inputs()

    def get_input(self, index, out=None):
        """The value of an input by index or name, as an NDArray (or in `out`)."""
        return self.module.get_input(index, out)

    def get_input_index(self, name):
        """Index of an input; -1 if there is none of this name."""
        return self.module.get_input_index(name)

    def get_input_info(self):
        """(shapes, dtypes): dictionaries of the inputs that are no parameters."""
        return self.module.get_input_info()

    def get_output(self, index, out=None):
        """Output number `index` as an NDArray (or in `out`)."""
        return self.module.get_output(index, out)

    def debug_get_output(self, node, out):
        """Not here. Raises NotImplementedError."""
        raise NotImplementedError("Please use debugger.debug_executor as graph_executor instead.")

    def load_params(self, params_bytes):
        """Sets parameters from the bytes of ``relay.save_param_dict``. One warning tells the names that are no input."""
        self.module.load_params(params_bytes)

    def share_params(self, other, params_bytes):
        """Takes over the parameters of another executor for every name in the parameter file."""
        self.module.share_params(other.module, params_bytes)

    def benchmark(self, device, func_name="run", repeat=5, number=5, min_repeat_ms=None, limit_zero_time_iterations=100,
                  end_to_end=False, cooldown_interval_ms=0, repeats_to_cooldown=1, **kwargs):
        """Times the network; keyword arguments are set as inputs first.

        Returns a BenchmarkResult in seconds. ``end_to_end=True`` includes copying inputs in and outputs out.
        """
        if kwargs:
            self.set_input(**kwargs)
        name, inputs = func_name, ()
        if end_to_end:
            name = "run_from_inputs"
            inputs = [self.module.get_input(n).numpy() for n in self.module.get_input_info()[0]]
        return self.module.time_evaluator(name, device, repeat=repeat, number=number, min_repeat_ms=min_repeat_ms or 0,
                                          limit_zero_time_iterations=limit_zero_time_iterations,
                                          cooldown_interval_ms=cooldown_interval_ms,
                                          repeats_to_cooldown=repeats_to_cooldown)(*inputs)

    def __getitem__(self, key):
        return self.module[key]

    def __reduce__(self):
        raise TypeError("a network on a device cannot be pickled; pickle or export what relay.build returned")
