"""The model that a user brings, whatever it is made with, as a network and the way in and out of it."""

import inspect
import os
import sys
import warnings

import numpy as np

from .. import files
from ..relay import Expr, IRModule, frontend
from ..relay.budget import importing
from ..relay.frontend import onnx, pytorch, torch_caches
from ..relay.pipeline import as_module
from .values import dtype_of, holds, is_tensor, shape_of

__all__ = ["Source", "read"]


class Source:
    """A network to compile.

    Attributes
    ----------
    mod, params : IRModule, dict of str to array
    name : str
        What messages and files call it.
    calling : Calling or None
        How arguments of a call become inputs, and outputs what the model returns; None: inputs by place or name, one output
        as it is, several as a tuple.
    """

    def __init__(self, mod, params, name, calling=None):
        self.mod, self.params, self.name, self.calling = mod, params or {}, name, calling


def read(model, example_inputs=None, shape=None, limits=None):
    """The `Source` of a model. See `nestsmith.compile` for what it may be and what is raised."""
    with importing(limits):
        return _read(model, example_inputs, shape)


def _read(model, example_inputs, shape):
    torch = sys.modules.get("torch")
    if isinstance(model, (str, os.PathLike)) and os.path.isfile(model):
        kind = files.kind_of(model)
        if kind == files.PROGRAM:
            return _of_file(model, example_inputs, shape)
        if kind != files.MODEL:
            raise files.refuse(model, kind, "model")
    if torch is not None and isinstance(model, torch.jit.ScriptModule):
        return _of_script(model, example_inputs, shape)
    if torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram)):
        return _of_torch(torch, model, example_inputs, shape)
    if isinstance(model, (str, os.PathLike, bytes, bytearray)) or type(model).__name__ == "ModelProto":
        return _of_onnx(model, example_inputs, shape)
    mod, params = model if isinstance(model, tuple) and len(model) == 2 else (model, {})
    if not isinstance(mod, (IRModule, Expr)):
        raise TypeError(f"model is {type(model).__name__}; nestsmith.compile takes a torch.nn.Module, a "
                        "torch.export.ExportedProgram, an ONNX model (path, bytes or ModelProto), a relay module or "
                        "(module, params)")
    if shape:
        raise ValueError("shape is for ONNX models; the inputs of a relay module have their shapes")
    source = Source(as_module(mod), params, "network")
    _check_examples(source, example_inputs)
    return source


# ---- relay and ONNX: inputs by place or name ----


def input_vars(mod, params):
    """The parameters of ``main`` that are no weights, in the order of a call."""
    return [p for p in mod["main"].params if p.name_hint not in params]


def _by_name(example_inputs, names):
    """Example inputs by name; ValueError if there are more than the network takes, or others."""
    if not isinstance(example_inputs, dict):
        given = example_inputs if isinstance(example_inputs, (list, tuple)) else [example_inputs]
        if len(given) > len(names):
            raise ValueError(f"example_inputs holds {len(given)} arrays; the network takes {len(names)}: {', '.join(names)}")
        return dict(zip(names, given))
    for name in example_inputs:
        if name not in names:
            raise ValueError(f"example_inputs names {name!r}, which is no input; the network takes {', '.join(names)}")
    return example_inputs


def _check_examples(source, example_inputs):
    """Raises if the example inputs are not inputs of the network."""
    if example_inputs is None:
        return
    wanted = {p.name_hint: p.checked_type if p._type else p.type_annotation for p in input_vars(source.mod, source.params)}
    for name, value in _by_name(example_inputs, list(wanted)).items():
        want, got = tuple(wanted[name].concrete_shape), shape_of(value)
        if got != want:
            raise ValueError(f"example input {name!r} has shape {got}; the network has {want}")
        if not holds(value, wanted[name].dtype):
            raise ValueError(f"example input {name!r} holds {dtype_of(value)}; the network takes {wanted[name].dtype}: convert it first")


def _of_file(path, example_inputs, shape):
    """A program that torch.export.save wrote."""
    try:
        import torch
    except ImportError as e:
        raise ImportError(f"{os.fspath(path)} holds {files.PROGRAM}, which PyTorch reads: pip install torch") from e
    try:
        with open(path, "rb") as f:  # a path has to end in .pt2
            program = torch.export.load(f)
    except Exception as e:  # of any kind: PyTorch's own reader
        raise ValueError(f"{os.fspath(path)}: PyTorch {torch.__version__} cannot read this program: {e}") from e
    source = _of_torch(torch, program, example_inputs, shape)
    source.name = os.path.splitext(os.path.basename(os.fspath(path)))[0]
    return source


def _of_onnx(model, example_inputs, shape):
    shapes, dtypes = onnx.fixed_shapes(shape), {}
    is_path = isinstance(model, (str, os.PathLike))
    name = os.path.splitext(os.path.basename(os.fspath(model)))[0] if is_path else "model"
    if example_inputs is not None:
        model = onnx.load(model)
        for k, value in _by_name(example_inputs, onnx.input_names(model)).items():
            shapes.setdefault(k, shape_of(value))
            dtypes[k] = dtype_of(value)
    mod, params = frontend.from_onnx(model, shape=shapes, dtype=dtypes or "float32", freeze_params=False)
    source = Source(mod, params, name)
    _check_examples(source, example_inputs)
    return source


# ---- PyTorch: arguments are trees of tensors ----


class TorchCalling:
    """Arguments and results of an exported program: trees of which the tensors are inputs and outputs.

    Parameters
    ----------
    torch : module
    program : torch.export.ExportedProgram
    signature : inspect.Signature, optional
        Of the model's ``forward``: with it arguments may be given by place or by name, whatever the example did.
    read : pytorch.Program, optional
        The program as it was imported: which buffers and arguments it writes to.

    Attributes
    ----------
    state : dict of str to array
        What the buffers that the model writes to hold now.
    example : torch.Tensor
        What results are like where the model has no input.
    """

    other_shape = (
        'compile the model again with inputs of this shape; torch.compile(model, backend="nestsmith") makes a network for each shape by '
        "itself, and a static cache of transformers keeps its shape from step to step"
    )

    def __init__(self, torch, program, signature=None, read=None):
        self.signature = signature
        self.state = {name: value for name, (_, value) in read.states.items()} if read else {}
        names = [v.name_hint for v in read.inputs] if read else []
        self.written = [names.index(s.target) for s in read.writes] if read else []  # places among the inputs
        self.tree = torch.utils._pytree
        self.tensor, self.example = torch.Tensor, torch.empty(0)
        self.into, self.out = program.call_spec.in_spec, program.call_spec.out_spec
        kinds, specs = torch.export.graph_signature, program.graph_signature
        given = [s.arg for s in specs.input_specs if s.kind == kinds.InputKind.USER_INPUT]
        returned = kinds.OutputKind.USER_OUTPUT, kinds.OutputKind.LOSS_OUTPUT
        made = [s.arg for s in specs.output_specs if s.kind in returned]
        # What is no tensor became part of the program: its value, in a tuple.
        self.constant, self.results = ([(a.value,) if hasattr(a, "value") else None for a in args] for args in (given, made))
        # Most models take tensors and nothing else: such a call is read at a glance.
        row = self.tree.tree_flatten(((self.tensor(),) * len(self.constant), {}))[1]
        self.row = self.into == row and not any(self.constant)
        self.single = self.results == [None] and self.tree.tree_unflatten([self], self.out) is self

    def inputs(self, args, kwargs):
        """The tensors of a call, in order; TypeError if it differs from the example's in more than their values."""
        if self.row and not kwargs and len(args) == len(self.constant) and all(isinstance(a, self.tensor) for a in args):
            return args
        leaves, spec = self.tree.tree_flatten((args, kwargs))
        if spec != self.into:
            args, kwargs = self._ordered(args, kwargs)
            leaves, spec = self.tree.tree_flatten((args, kwargs))
        if spec != self.into:
            raise TypeError(f"the call does not look like the example inputs: {_brief(spec)} instead of "
                            f"{_brief(self.into)}; compile again with example_inputs of this kind")
        for k, (value, constant) in enumerate(zip(leaves, self.constant)):
            if constant is not None and (isinstance(value, (self.tensor, np.ndarray)) or value != constant[0]):
                raise ValueError(f"argument {k} is {value!r}; the network was compiled with {constant[0]!r}, which became part of it")
        return [v for v, constant in zip(leaves, self.constant) if constant is None]

    def _ordered(self, args, kwargs):
        """The arguments by place and by name as the example's were."""
        example_args, example_kwargs = self.tree.tree_unflatten([None] * self.into.num_leaves, self.into)
        named = dict(kwargs)
        if self.signature is not None:
            try:
                named = dict(self.signature.bind(*args, **kwargs).arguments)
            except TypeError as e:
                raise TypeError(f"the call does not fit the model's forward{self.signature}: {e}") from None
            places = list(self.signature.parameters)[: len(example_args)]
            if set(named) != {*places, *example_kwargs}:
                return args, kwargs
            return tuple(named[p] for p in places), {k: named[k] for k in example_kwargs}
        if set(named) != set(example_kwargs):
            return args, kwargs
        return args, {k: named[k] for k in example_kwargs}

    def keep(self, given, values):
        """Takes the new values of buffers and arguments out of the network's outputs: buffers become the state, arguments are written to."""
        own = len(values) - len(self.state) - len(self.written)
        rest = iter(values[own:])
        for name in self.state:
            self.state[name] = next(rest)
        for place in self.written:
            _write(given[place], next(rest))
        return values[:own]

    def outputs(self, values):
        """What the model returns, made of the network's outputs."""
        if self.single:
            return values[0]
        rest = iter(values)
        return self.tree.tree_unflatten([next(rest) if fixed is None else fixed[0] for fixed in self.results], self.out)


def _write(array, value):
    """Writes a value to an argument, where it is one that can be written to."""
    if is_tensor(array):
        array.detach().copy_(value)
    elif isinstance(array, np.ndarray):
        np.copyto(array, value)


def _brief(spec):
    text = str(spec)
    return text if len(text) < 200 else text[:200] + "..."


def _call_of(torch, example_inputs):
    """Example inputs as (positional arguments, keywords), with NumPy arrays as tensors."""

    def tensor(v):
        return torch.from_numpy(np.ascontiguousarray(v)) if isinstance(v, np.ndarray) else v

    if isinstance(example_inputs, dict):
        args, kwargs = (), example_inputs
    else:
        args, kwargs = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,), {}
    return torch.utils._pytree.tree_map(tensor, (args, kwargs))


class _Evaluating:
    """A module in evaluation mode for a while; every submodule gets its own mode back."""

    def __init__(self, model):
        self.before = [(m, m.training) for m in model.modules()]

    def __enter__(self):
        for m, _ in self.before:
            m.training = False

    def __exit__(self, *exc):
        for m, mode in self.before:
            m.training = mode


def exported(torch, model, example_inputs):
    """The exported program of a module, in evaluation mode."""
    if example_inputs is None:
        raise ValueError("a torch.nn.Module needs example_inputs: a tensor, a tuple of arguments or a dictionary of "
                         "keywords, with the shapes that the network shall have")
    torch_caches.register(torch)
    args, kwargs = _call_of(torch, example_inputs)
    if any(m.training for m in model.modules() if not any(m.children())):
        warnings.warn(f"{type(model).__name__} is in training mode; it is compiled in evaluation mode, as model.eval() "
                      "sets it: without dropout, and with the stored statistics of batch normalisation", stacklevel=6)
    with _Evaluating(model), torch.no_grad():
        try:
            return torch.export.export(model, args, kwargs, strict=False)
        except Exception as e:  # of many kinds
            raise pytorch.not_exported(model, e) from e


def _of_torch(torch, model, example_inputs, shape):
    if shape:
        raise ValueError("shape is for ONNX models; a PyTorch model takes its shapes from example_inputs")
    name = type(model).__name__
    if not isinstance(model, torch.export.ExportedProgram):
        program = exported(torch, model, example_inputs)
    elif example_inputs is not None and pytorch.open_sizes(torch, model):
        args, kwargs = _call_of(torch, example_inputs)
        names = [k for k in model.graph_signature.user_inputs if k in kwargs]  # in the program's order, not the caller's
        program = pytorch.bound(torch, model, args, {**{k: kwargs[k] for k in names}, **kwargs})
    else:
        program = model
    network = pytorch.read(torch, program)
    mod, params = network.network(None, [], freeze=False, writes=True)
    return Source(mod, params, name, TorchCalling(torch, program, _signature(torch, model), network))


def _of_script(model, example_inputs, shape):
    """TorchScript, whose results are one output as it is or a tuple."""
    if shape:
        raise ValueError("shape is for ONNX models; a PyTorch model takes its shapes from example_inputs")
    if example_inputs is None or isinstance(example_inputs, dict):
        raise ValueError("a torch.jit.ScriptModule needs example_inputs: a tensor or a tuple of them, in the order of forward")
    with _Evaluating(model):
        mod, params = frontend.from_pytorch(model, example_inputs=_call_of(sys.modules["torch"], example_inputs)[0])
    return Source(mod, params, getattr(model, "original_name", type(model).__name__))


def _signature(torch, model):
    """The signature of a module's forward, None if it takes any number of arguments. An exported program takes the names of its inputs,
    where each argument is one of them."""
    if isinstance(model, torch.export.ExportedProgram):
        names, leaf = list(model.graph_signature.user_inputs), torch.utils._pytree.tree_flatten(0)[1]
        (args, kwargs) = model.call_spec.in_spec.children() if names else (None, None)
        if not all(isinstance(n, str) and n.isidentifier() for n in names) or any(s != leaf for s in [*args.children(), *kwargs.children()]):
            return None
        return inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names])
    if not isinstance(model, torch.nn.Module):
        return None
    found = inspect.signature(model.forward)
    return None if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found.parameters.values()) else found
