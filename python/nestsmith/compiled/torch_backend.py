"""A backend of ``torch.compile``: what PyTorch's Dynamo cuts out of a program becomes networks.

A compiled graph must be as eager mode for what reads and writes its results: they share memory with arguments and each other, and have
strides. AOTAutograd does most of that. It gives us a graph without writes, whose results are views of computed tensors or of arguments,
and writes arguments back itself. The computed tensors are the outputs of a network; the views are taken of them by PyTorch.

PyTorch finds it by the entry point of the installed package (``torch_dynamo_backends``); ``import nestsmith.dynamo`` registers it
where the package is not installed.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import sys
import threading

from .. import check, forks
from ..relay.frontend.pytorch import is_view
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
        If gradients would be needed.
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
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    weights = [k for k, (n, x) in enumerate(zip(names, example_inputs)) if _is_weight(torch, n, x)]
    made = []

    def take(graph, _):
        made.append(_Compiled(torch, graph, weights if len(_inputs(graph)) == len(names) else [], dict(options or {})))
        return made[0]

    with _whole_operators():
        run = sys.modules["torch._dynamo.backends.common"].aot_autograd(fw_compiler=take, decompositions={})(graph, example_inputs)
    made[0].prepare(example_inputs)
    return run


@contextlib.contextmanager
def _whole_operators():
    """AOTAutograd leaves operators whole that are made of others (`linear`, attention, ...), as `torch.export` does. Without this
    function of PyTorch's, which is not public, they come in parts."""
    program = sys.modules["torch"].export.exported_program
    try:
        whole = program._override_composite_implicit_decomp(program._split_decomp_table_to_cia_and_python_decomp({})[0])
    except AttributeError:
        whole = contextlib.nullcontext()
    with whole:
        yield


def _inputs(graph):
    return [n for n in graph.graph.nodes if n.op == "placeholder"]


class _Results:
    """What a graph without writes returns: which of its nodes are computed, and which views are taken of them and of arguments."""

    def __init__(self, torch, graph):
        self.torch, self.views, self.computed = torch, [], []
        self.returned = next(n for n in graph.graph.nodes if n.op == "output").args[0]
        for node in self.returned:
            if isinstance(node, torch.fx.Node):
                self._look(node)
        self.layouts = [_layout(n.meta["val"]) for n in self.computed]
        natural = (n.meta["val"].new_empty(n.meta["val"].shape).stride() for n in self.computed)
        # Most graphs return what the network makes, as it is.
        self.plain = list(self.returned) == self.computed and all(n == s for n, (_, s) in zip(natural, self.layouts))

    def _look(self, node):
        if node.op == "placeholder" or node in self.views or node in self.computed:
            return
        if len(node.all_input_nodes) == 1 and (is_view(node) or (node.target is operator.getitem and is_view(node.args[0]))):
            self._look(node.all_input_nodes[0])
            self.views.append(node)
        else:
            self.computed.append(node)

    def graph(self, graph):
        """The graph of what is computed, with the axes in the order in which they lie in memory."""
        only, new = self.torch.fx.Graph(graph), {}
        for node in graph.graph.nodes:
            if node.op != "output":
                new[node] = only.node_copy(node, new.__getitem__)
        outs = []
        for node, (order, _) in zip(self.computed, self.layouts):
            moved = order is not None and order != sorted(order)
            outs.append(only.call_function(self.torch.ops.aten.permute.default, (new[node], order)) if moved else new[node])
        only.output(tuple(outs))
        only.eliminate_dead_code()
        return self.torch.fx.GraphModule(graph, only)

    def of(self, env, computed):
        """The results of a run, from the arguments by their nodes and the network's outputs."""
        for node, (order, stride), x in zip(self.computed, self.layouts, computed):
            if order is None:  # with gaps, or overlapping
                x = self.torch.empty_strided(node.meta["val"].shape, stride, dtype=x.dtype, device=x.device).copy_(x)
            elif stride != x.stride():
                x = x.as_strided(node.meta["val"].shape, stride)
            env[node] = x
        for node in self.views:
            env[node] = node.target(*self.torch.fx.map_arg(node.args, env.__getitem__), **node.kwargs)
        return [env[n] if isinstance(n, self.torch.fx.Node) else n for n in self.returned]


def _layout(value):
    """(axes from the outermost in memory on, strides) of a tensor; no axes if it has gaps or overlaps."""
    shape, stride = value.shape, value.stride()
    order = sorted(range(len(shape)), key=lambda a: -stride[a] if shape[a] > 1 else -max(stride, default=0))
    step = 1
    for a in reversed(order):
        if shape[a] > 1:
            if stride[a] != step:
                return None, stride
            step *= shape[a]
    return order, stride


class _Compiled:
    """A graph of AOTAutograd's. Weights are constants of its networks: where they are others, or were written to, there is another
    network. Those that the graph writes to are inputs."""

    _boxed_call = True  # takes a list, which it may empty

    def __init__(self, torch, graph, weights, options):
        self.torch, self.options, self.networks = torch, {"verbose": 0, **options}, {}
        self.placeholders = _inputs(graph)
        self.results = _Results(torch, graph)
        self.graph = self.results.graph(graph)
        used = [k for k, n in enumerate(_inputs(self.graph)) if n.users]
        written = _written(torch)
        self.weights = [k for k in weights if k in used and k not in written]
        self.inputs = [k for k in used if k not in self.weights]
        forks.renew(self)._forked()

    def _forked(self):
        self._lock = threading.Lock()

    def prepare(self, args):
        """Compiles for the weights of the first call, if the graph takes what Dynamo's took."""
        if len(args) == len(self.placeholders) and self.results.computed:
            self.network(args)

    def __call__(self, args):
        computed = self.network(args)(*[args[k] for k in self.inputs]) if self.results.computed else ()
        if not self.results.plain:
            computed = self.results.of(dict(zip(self.placeholders, args)), computed)
        args.clear()
        return computed

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
        bound = _bound(self.torch, self.graph, {k: args[k] for k in self.weights}, self.inputs, len(args))
        program = exported(self.torch, bound, tuple(args[k].detach() for k in self.inputs))
        device = next((x.device for x in args), self.torch.device("cpu"))
        more = {"target": "cuda" if device.type == "cuda" else "llvm", "device": device.index or 0, **self.options}
        return compile(program, **more)


def _written(torch):
    """Places of the arguments that the graph that is being compiled writes to."""
    context = torch._guards.TracingContext.try_get()
    found = getattr(context, "fw_metadata", None)
    return {k for k, x in enumerate(found.input_info) if x.mutates_data} if found is not None else set()


def _is_weight(torch, name, value):
    """Dynamo passes parameters and buffers of modules as arguments of the graph. PyTorch does not count writes to those that were
    made in inference mode: they stay inputs."""
    if value.is_inference():
        return False
    marked = getattr(value, "_dynamo_static_input_type", None) is not None
    return isinstance(value, torch.nn.Parameter) or marked or "_buffers_" in name or "_parameters_" in name


def _bound(torch, graph, weights, inputs, count):
    """The graph as a module of its inputs alone."""

    class Bound(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.graph = graph
            for k, value in weights.items():
                self.register_buffer(f"w{k}", value.detach())

        def forward(self, *given):
            args = [getattr(self, f"w{k}") if k in weights else None for k in range(count)]
            for k, x in zip(inputs, given):
                args[k] = x
            return self.graph(*args)

    return Bound()
