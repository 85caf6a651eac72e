"""A backend of ``torch.compile``: what PyTorch's Dynamo cuts out of a program becomes networks.

A compiled graph must be as eager mode for what reads and writes its results: they share memory with arguments and each other, and have
strides. AOTAutograd does most of that. It gives us a graph without writes, whose results are views of computed tensors or of arguments,
and writes arguments back itself. Graphs with symbolic sizes are compiled anew for each set of sizes (:class:`_Compiled`); what of a graph
becomes networks says `torch_parts`.

PyTorch finds it by the entry point of the installed package (``torch_dynamo_backends``); ``import nestsmith.dynamo`` registers it
where the package is not installed.
"""

import inspect
import logging
import threading
import warnings

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.export import exported_program

from .. import check, forks
from ..relay.frontend.aten.decompositions import decompositions
from ..relay.frontend.pytorch import has_converter, is_random, open_sizes
from .build import compile
from .torch_parts import SMALLEST, divided, placeholders, specialised

__all__ = ["backend"]

logger = logging.getLogger("nestsmith")

SIZES = 8
OWN = {"sizes": SIZES, "smallest_part": SMALLEST}  # options of the backend
OPTIONS = sorted({*inspect.signature(compile).parameters, *OWN} - {"model", "example_inputs", "shape", "device"})


def backend(graph, example_inputs, *, mode=None, options=None):
    """Compiles a graph that Dynamo has captured. What cannot be compiled, PyTorch runs.

    Parameters
    ----------
    graph : torch.fx.GraphModule
    example_inputs : list of torch.Tensor, int or torch.SymInt
        Arguments of the first call, weights among them.
    mode : str, optional
        Accepted and not used: `options` say what `nestsmith.compile` takes.
    options : dict, optional
        ``torch.compile(model, backend="nestsmith", options={"trials": 1000})``: keywords of `nestsmith.compile`, and two more:
        ``sizes``, for how many sets of sizes a graph with symbolic sizes gets networks (8; PyTorch runs others), and
        ``smallest_part``, how many operators a part of a graph must have to become a network (3), unless all of it does.

    Returns
    -------
    callable
        Takes the arguments of the graph and returns its tuple of tensors.

    Raises
    ------
    TypeError
        If an option is unknown.
    ValueError
        If an option has a wrong value.
    """
    for name in options or {}:
        if name not in OPTIONS:
            raise TypeError(f"options has no {name!r}{check.did_you_mean(name, OPTIONS)}; there are {', '.join(OPTIONS)}")
    own = {k: check.integer(k, (options or {}).get(k, default), 1) for k, default in OWN.items()}
    if not any(n.op.startswith("call_") for n in graph.graph.nodes):
        return graph.forward
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs):
        warnings.warn("backend nestsmith compiles for inference, and this call records gradients, so that PyTorch "
                      "runs it: call the model within torch.no_grad() or torch.inference_mode()", stacklevel=2)
        return graph.forward
    names = [n.name for n in placeholders(graph.graph)]
    weights = {k for k, (n, x) in enumerate(zip(names, example_inputs)) if _is_weight(n, x)}
    made = []

    def take(graph, _):
        same = len(placeholders(graph.graph)) == len(names)
        made.append(_Compiled(graph, weights if same else set(), {k: v for k, v in (options or {}).items() if k not in OWN}, **own))
        return made[0]

    whole, parts = exported_program._split_decomp_table_to_cia_and_python_decomp(_taken_apart())
    with exported_program._override_composite_implicit_decomp(whole):
        run = aot_autograd(fw_compiler=take, decompositions=parts)(graph, example_inputs)
    if all(isinstance(x, torch.Tensor) for x in example_inputs):
        made[0].prepare(example_inputs)
    return run


def _taken_apart():
    """{operator: function that computes it by others} of operators without a converter. Random ones stay as they are, so that they draw what
    they draw in eager mode, and those that would come down to PyTorch's primitives, which it runs no better."""
    return {op: f
            for op, f in decompositions(torch).items()
            if not has_converter(op) and not is_random(torch, op) and not f.__module__.startswith("torch._refs")}


class _Compiled:
    """A graph of AOTAutograd's: modules that are compiled, by the sizes of the arguments."""

    _boxed_call = True  # takes a list, which it may empty

    def __init__(self, graph, weights, options, sizes, smallest_part):
        self.graph, self.options, self.most, self.smallest = graph, options, sizes, smallest_part
        self.made, self.warned = {}, False
        self.count = len(placeholders(graph.graph))
        self.weights = weights - _written()
        self.symbolic = open_sizes(torch, graph) is not None or any(not isinstance(n.meta["val"], torch.Tensor) for n in placeholders(graph.graph))
        forks.renew(self)._forked()

    def _forked(self):
        self._lock = threading.Lock()

    def prepare(self, args):
        """Compiles for the weights of the first call, if the graph takes what Dynamo's took."""
        if len(args) == self.count and not self.symbolic:
            self._of_sizes(args)

    def __call__(self, args):
        made = self._of_sizes(args)(*args)
        args.clear()
        return made

    def _of_sizes(self, args):
        """What runs a call with arguments of these sizes."""
        key = tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in args) if self.symbolic else None
        with self._lock:
            if key not in self.made:
                if len(self.made) >= self.most:
                    self._warn()
                    return self.graph
                self.made[key] = self._compile(args)
            return self.made[key]

    def _warn(self):
        """Says once that PyTorch runs further sizes."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"backend nestsmith has compiled a graph for {self.most} sets of sizes; PyTorch runs it for others. "
                'options={"sizes": ...} allows more; inputs padded to some few sizes need fewer',
                stacklevel=5,
            )

    def _compile(self, args):
        """A module for these sizes; the graph itself if its sizes are known only while it runs."""
        graph = self.graph
        if self.symbolic:
            try:
                graph = specialised(graph, args)
            except Exception as e:  # of many kinds: operators whose results have sizes that depend on values
                logger.info("a graph is left to PyTorch: %s", e)
                return graph
        return divided(graph, args, self.weights, self.options, self.smallest)


def _written():
    """Places of the arguments that the graph that is being compiled writes to."""
    context = torch._guards.TracingContext.try_get()
    found = getattr(context, "fw_metadata", None)
    return {k for k, x in enumerate(found.input_info) if x.mutates_data} if found is not None else set()


def _is_weight(name, value):
    """Dynamo passes parameters and buffers of modules as arguments of the graph. PyTorch does not count writes to those that were
    made in inference mode: they stay inputs."""
    if not isinstance(value, torch.Tensor) or value.is_inference():
        return False
    marked = getattr(value, "_dynamo_static_input_type", None) is not None
    return isinstance(value, torch.nn.Parameter) or marked or "_buffers_" in name or "_parameters_" in name
