"""A backend of ``torch.compile``: what PyTorch's Dynamo cuts out of a program becomes networks.

PyTorch finds it by the entry point of the installed package (``torch_dynamo_backends``); ``import nestsmith.dynamo`` registers it
where the package is not installed.
"""

from __future__ import annotations

import inspect
import sys
import threading

from .. import check, forks
from ..relay.frontend.pytorch import owner, written
from .build import compile
from .source import exported

__all__ = ["backend"]

OPTIONS = sorted(set(inspect.signature(compile).parameters) - {"model", "example_inputs", "shape", "device"})
_KEPT = 4  # sets of weights for which networks are kept


def backend(graph, example_inputs, *, mode=None, options=None):
    """Compiles a graph that Dynamo has captured.

    Parameters
    ----------
    graph : torch.fx.GraphModule
    example_inputs : list of torch.Tensor
        Arguments of the first call, weights among them.
    mode : str, optional
        Accepted and not used: `options` say what `nestsmith.compile` takes.
    options : dict, optional
        ``torch.compile(model, backend="nestsmith", options={"trials": 1000})``: keywords of `nestsmith.compile`.

    Returns
    -------
    callable
        Takes the arguments of the graph and returns its tuple of tensors.

    Raises
    ------
    RuntimeError
        If gradients would be needed, or the graph writes to its arguments.
    ValueError
        If sizes are not fixed.
    TypeError
        If an option is unknown.
    OpNotImplemented
        With all operators that are not known.
    """
    torch = sys.modules["torch"]
    for name in options or {}:
        if name not in OPTIONS:
            raise TypeError(f"options has no {name!r}{check.did_you_mean(name, OPTIONS)}; there are {', '.join(OPTIONS)}")
    if not any(n.op.startswith("call_") for n in graph.graph.nodes):
        return graph.forward
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs):
        raise RuntimeError(
            "backend nestsmith compiles for inference, and this call records gradients: call the model within torch.no_grad() or "
            "torch.inference_mode(); train without it"
        )
    if not all(isinstance(x, torch.Tensor) for x in example_inputs):
        raise ValueError(
            "backend nestsmith compiles for fixed sizes, and PyTorch made some variable after other shapes were seen: "
            'torch.compile(model, backend="nestsmith", dynamic=False) compiles each shape on its own'
        )
    return _Compiled(torch, graph, example_inputs, dict(options or {}))


class _Compiled:
    """A captured graph. Weights are constants of its networks: where they are others, or were written to, there is another
    network."""

    def __init__(self, torch, graph, example_inputs, options):
        self.torch, self.graph, self.options, self.networks = torch, graph, {"verbose": 0, **options}, {}
        names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
        self.weights = [k for k, (n, x) in enumerate(zip(names, example_inputs)) if _is_weight(torch, n, x)]
        self.inputs = [k for k in range(len(names)) if k not in self.weights]
        forks.renew(self)._forked()
        self.network(example_inputs)

    def _forked(self):
        self._lock = threading.Lock()

    def __call__(self, *args):
        return self.network(args)(*(args[k] for k in self.inputs))

    def network(self, args):
        """The network for the weights among `args`."""
        weights = [args[k] for k in self.weights]
        key = tuple((id(w), w.data_ptr(), w._version) for w in weights)
        with self._lock:  # threads that come with the same new weights wait for one network
            found = self.networks.get(key)
            if found is None:
                while len(self.networks) >= _KEPT:
                    del self.networks[next(iter(self.networks))]
                kept = weights, [w.detach() for w in weights]  # so that no other tensor gets their ids or addresses
                found = self.networks[key] = self._compile(args), kept
            return found[0]

    def _compile(self, args):
        bound = _bound(self.torch, self.graph, {k: args[k] for k in self.weights}, len(args))
        given = tuple(args[k] for k in self.inputs)
        program = exported(self.torch, bound, given)
        _check_writes(program)
        device = next((x.device for x in args), self.torch.device("cpu"))
        more = {"target": "cuda" if device.type == "cuda" else "llvm", "device": device.index or 0, **self.options}
        return compile(program, **more)


def _is_weight(torch, name, value):
    """Dynamo passes parameters and buffers of modules as arguments of the graph. PyTorch does not count writes to those that were
    made in inference mode: they stay inputs."""
    if value.is_inference():
        return False
    marked = getattr(value, "_dynamo_static_input_type", None) is not None
    return isinstance(value, torch.nn.Parameter) or marked or "_buffers_" in name or "_parameters_" in name


def _bound(torch, graph, weights, count):
    """The graph as a module of its inputs alone."""

    class Bound(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.graph = graph
            for k, value in weights.items():
                self.register_buffer(f"w{k}", value.detach())

        def forward(self, *given):
            rest = iter(given)
            return self.graph(*(getattr(self, f"w{k}") if k in weights else next(rest) for k in range(count)))

    return Bound()


def _check_writes(program):
    """RuntimeError if the program writes to an argument or a weight: the caller would not see it."""
    for node in program.graph.nodes:
        for source in map(owner, written(node)):
            if source.op == "placeholder":
                raise RuntimeError(
                    f"backend nestsmith: {node.name} writes to {source.name}, an argument of the graph; use the form of the "
                    "operator that returns a new tensor"
                )
