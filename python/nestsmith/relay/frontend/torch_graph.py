"""Parts of a graph of PyTorch's (``torch.fx``) become networks. What cannot be imported is told node by node, so that the caller can leave
it to PyTorch."""

import types

from ...error import OpNotImplemented
from .. import budget
from ..expr import var
from .aten import ATEN
from .pytorch import OF_CONVERTERS, Program, dtype_name, is_known_operator

__all__ = ["of_graph"]


class _Part(Program):
    """A graph while it is read. Nodes that a converter refuses are gathered in `refused`; variables stand for their results."""

    def __init__(self, torch, program):
        self.refused = {}
        super().__init__(torch, program, ATEN)

    def refuse_what_is_missing(self):
        """Nothing at once: nodes are refused one by one."""

    def _convert(self, node, args, kwargs):
        try:
            if not is_known_operator(node):
                raise OpNotImplemented(f"{node.target} is no operator that nestsmith has")
            return super()._convert(node, args, kwargs)
        except budget.Exceeded:
            raise
        except (OpNotImplemented, *OF_CONVERTERS) as e:
            return self._refuse(node, e)

    def _result(self, node, results, place):
        try:
            return super()._result(node, results, place)
        except OpNotImplemented as e:
            return self._refuse(node.args[0], e)[place]

    def _module(self, outputs):
        return (None, None) if self.refused else super()._module(outputs)

    def _refuse(self, node, why):
        self.refused[node] = why
        made = node.meta["val"]
        several = [None if v is None else var(node.name, shape=tuple(v.shape), dtype=dtype_name(v.dtype))
                   for v in (made if isinstance(made, (list, tuple)) else [made])]  # fmt: skip
        return several if isinstance(made, (list, tuple)) else several[0]


def of_graph(torch, graph, weights, constants):
    """A network of a graph of operators that write to nothing.

    Parameters
    ----------
    graph : torch.fx.Graph
        Its placeholders are tensors, and ``meta["val"]`` of each node is its result as a fake tensor of fixed shape.
    weights : dict of str to torch.Tensor
        Values of placeholders, by name, that are parameters of the network.
    constants : dict of str to torch.Tensor
        Values of other placeholders, which PyTorch computes with while the network is made.

    Returns
    -------
    mod, params : IRModule, dict of str to array
        None, None if there are refused nodes.
    refused : dict of torch.fx.Node to Exception
        Nodes that cannot be imported, and why.
    """
    about = torch.export.graph_signature
    names, kinds = {n: about.TensorArgument(name=n.name) for n in graph.nodes}, about.InputKind

    def described(n):
        if n.name in weights:
            return about.InputSpec(kinds.BUFFER, names[n], n.name, True)
        return about.InputSpec(*(kinds.CONSTANT_TENSOR, names[n], n.name) if n.name in constants else (kinds.USER_INPUT, names[n], None))

    inputs = [described(n) for n in graph.nodes if n.op == "placeholder"]
    returned = next(n for n in graph.nodes if n.op == "output").args[0]
    outputs = [about.OutputSpec(about.OutputKind.USER_OUTPUT, names[n], None) for n in returned]
    signature = about.ExportGraphSignature(inputs, outputs)
    program = _Part(torch, types.SimpleNamespace(graph=graph, graph_signature=signature, state_dict=weights, constants=constants))
    return *program.network(None, [], False), program.refused
