"""Programs of PyTorch become networks.

What is read is an exported program (``torch.export``) as PyTorch's own operators, not taken apart. A value is a tensor of PyTorch
as long as it depends on constants alone, and then PyTorch computes it; from where data of the model come in it is an expression.
"""

import collections
import io
import operator
import pathlib
import re
import time

import numpy as np

from ...error import OpNotImplemented
from .. import budget
from ..expr import Expr, Function, Tuple, TupleWrapper, Var, bind, const, free_vars, var
from ..infer import infer_type
from ..module import IRModule
from . import torch_caches
from .aten import ATEN, PAIRS, Pair
from .aten.decompositions import decompositions
from .common import cast
from .compare import Comparison
from .onnx import from_onnx
from .settled import settled
from .torch_state import held, with_one_name, without_prefix
from .values import Unsupported, array, dtype_of, named, shape_of

__all__ = ["from_pytorch"]

# They ask a tensor for its shape and type only.
_LIKE = {f"aten::{n}" for n in ("new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like")}
_NOTHING = {f"aten::{n}" for n in ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range",
                                   "sym_constrain_range_for_size", "_linalg_check_errors")}  # fmt: skip
OF_CONVERTERS = ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError  # what converters raise
_EMPTY = {f"aten::{n}" for n in ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")}
_INLINE = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}  # where in the arguments the wrapped part is
_WITHOUT_MEANING = {"layout", "device", "pin_memory", "memory_format", "generator", "non_blocking"}


def from_pytorch(script_module, input_infos=None, custom_convert_map=None, default_dtype="float32",
                 use_parser_friendly_name=False, *, export_renamed_c_graph_path=None, example_inputs=None,
                 freeze_params=False, check=False, limits=None):  # fmt: skip
    """A network from a model of PyTorch.

    Parameters
    ----------
    script_module : torch.export.ExportedProgram, torch.nn.Module or torch.jit.ScriptModule
        The model, in evaluation mode. Modules are exported with ``torch.export``, and scripts, which are run for that on symbols; where
        a script looks at values, through PyTorch's ONNX exporter. A traced script computes what was traced, whatever its mode. Sizes
        that a program leaves open (``dynamic_shapes``) become those of `input_infos` or `example_inputs`.
    input_infos : list of (str, tuple of int) or (str, (tuple of int, str)), optional
        Names, shapes and element types of the inputs, in the order of ``forward``. An exported program knows them; names that
        are given replace its own.
    custom_convert_map : dict of str to callable, optional
        Converters of operators by name (``"aten::relu"``, ``"mylib::twice"``), used before those that are there. They get the
        arguments of the operator's schema: tensors as expressions, everything else as Python values. One of two parameters whose
        first is called ``inputs`` gets the list of arguments and the list of their element types.
    default_dtype : str
        Element type of inputs for which `input_infos` gives none, and a traced script does not know it either.
    use_parser_friendly_name : bool
        Names of variables have underscores instead of points, colons and slashes, so that :func:`relay.parse` reads their text.
    export_renamed_c_graph_path : str, optional
        A folder for a file with the graph of a script, in which results have the names of their operators and numbers.
    example_inputs : tuple of torch.Tensor, optional
        Arguments for ``forward``, instead of ones made by `input_infos`. Needed by models whose control flow looks at values.
    freeze_params : bool
        Weights become constants of the network, and `params` is empty. Otherwise they are variables under the names of the
        model's state dict, with their values in `params`.
    check : bool or tuple of arrays
        Runs PyTorch and the imported network on the processor, compares all nodes with each other, and raises if one differs.
        The inputs are `example_inputs` or those of the exported program, or the given ones.
    limits : dict of str to float, optional
        What importing may take, as in :func:`from_onnx`; ``torch.export`` itself is not counted.

    Returns
    -------
    mod : IRModule
        A buffer that the model writes to is an input under its name, after the others, and its new value a result, after the others.
    params : dict of str to numpy.ndarray

    Raises
    ------
    OpNotImplemented
        For everything in the model that cannot be imported, with names and counts of nodes, before anything is done.
    ValueError
        If the model is in training mode, or inputs are missing or do not fit.
    ImportMismatch
        If `check` finds a node that differs.
    """
    torch = _torch()
    is_script = isinstance(script_module, (torch.jit.ScriptModule, torch.jit.ScriptFunction))
    infos = _infos(input_infos, _types_of_script(torch, script_module) if is_script else [], default_dtype)
    if is_script:
        if export_renamed_c_graph_path:
            _write_graph(script_module, pathlib.Path(export_renamed_c_graph_path))
        if _has_modes(torch, script_module):
            _evaluating(script_module)
        if not infos and input_infos is not None:
            example_inputs = ()  # it takes none
        examples = _examples(torch, infos, example_inputs, "a torch.jit.ScriptModule")
        program = _script_program(torch, script_module, examples)
        if program is None:
            return _from_script(torch, script_module, infos, example_inputs, freeze_params, check, limits)
        script_module = program
    elif isinstance(script_module, torch.nn.Module):
        script_module = _export(torch, script_module, infos, example_inputs)
    if not isinstance(script_module, torch.export.ExportedProgram):
        hint = " (a state dict has no forward: load it into its module)" if isinstance(script_module, dict) else ""
        raise TypeError(
            f"script_module is {type(script_module).__name__}; it must be a torch.export.ExportedProgram, a torch.nn.Module or a "
            f"torch.jit.ScriptModule{hint}"
        )
    if (infos or example_inputs is not None) and open_sizes(torch, script_module):
        script_module = bound(torch, script_module, _examples(torch, infos, example_inputs, "an exported program with open sizes"), {})
    names = [name for name, _, _ in infos] if infos else None
    program = read(torch, script_module, {**ATEN, **(custom_convert_map or {})})
    with budget.importing(limits):
        mod, params = program.network(names, infos, freeze_params)
    if check is not False:
        given = check if check is not True else example_inputs or None
        program.compare(mod, params, given)
    return _parser_friendly(mod, params) if use_parser_friendly_name else (mod, params)


def _parser_friendly(mod, params):
    """The network with names that its text may have."""
    main = mod["main"]
    plain = [re.sub(r"[.:/]+", "_", p.name_hint) for p in main.params]
    new = [name if plain.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(plain)]
    renamed = {p: Var(name, p.checked_type) for p, name in zip(main.params, new)}
    body = bind(main.body, renamed)
    names = {p.name_hint: v.name_hint for p, v in renamed.items()}
    return IRModule.from_expr(Function(list(renamed.values()), body)), {names[k]: v for k, v in params.items()}


def _torch():
    try:
        import torch
    except ImportError as e:
        raise ImportError("models of PyTorch are read by PyTorch: pip install torch") from e
    return torch


def read(torch, program, table=ATEN):
    """An exported program, made ready to become a network: see :meth:`Program.network`."""
    return Program(torch, _prepared(torch, program, table), table)


# ---- what the user gives ----


def _has_modes(torch, model):
    """Whether a script computes something else in training mode; a traced one does what was traced."""
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.TopLevelTracedModule):
        return False
    return any(word in str(model.inlined_graph) for word in ("dropout", "_norm", "rrelu"))


def _write_graph(model, folder):
    """The graph of a script as text, its results named by operator: ``%aten::relu_0``."""
    graph, counts = model.inlined_graph.copy(), collections.Counter()
    for node in graph.nodes():
        for result in node.outputs():
            result.setDebugName(f"{node.kind()}_{counts[node.kind()]}")
            counts[node.kind()] += 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"tvm_exported_c_graph_{time.strftime('%m_%d_%Y_%H_%M_%S')}.txt").write_text(str(graph))


def _types_of_script(torch, model):
    """Element types of the inputs of a script, as far as it knows them (one that was traced does)."""
    out = []
    for v in list(model.graph.inputs())[isinstance(model, torch.nn.Module) :]:
        dtype = v.type().dtype() if isinstance(v.type(), torch.TensorType) else None
        out.append(dtype and dtype_name(dtype))
    return out


def _infos(input_infos, known, default):
    """[(name, shape, dtype)]; `known`: element types that the model itself knows."""
    out = []
    for i, info in enumerate(input_infos or []):
        try:
            name, what = info
            own = (known[i] if i < len(known) else None) or default
            shape, dtype = what if len(what) == 2 and isinstance(what[1], str) else (what, own)
            if own.startswith(("int", "uint", "bool")) != dtype.startswith(("int", "uint", "bool")) and i < len(known) and known[i]:
                dtype = own  # of a traced script, which cannot have taken anything else
            out.append((name, tuple(int(d) for d in shape), dtype))
        except (TypeError, ValueError):
            raise ValueError(f"input_infos[{i}] is {info!r}; it must be (name, shape) or (name, (shape, dtype))") from None
    return out


def _examples(torch, infos, given, what):
    if given is not None:
        return tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not infos:
        raise ValueError(f"{what} needs example_inputs=(...), or input_infos=[(name, (shape, dtype)), ...]")
    for name, _, dtype in infos:
        if not isinstance(getattr(torch, dtype, None), torch.dtype):
            raise ValueError(f"input_infos says that {name!r} is of type {dtype!r}, which PyTorch does not have")
    return tuple(torch.zeros(shape, dtype=getattr(torch, dtype)) for _, shape, dtype in infos)


def _evaluating(model):
    for name, m in model.named_modules():
        if m.training:
            raise ValueError(f"the model is in training mode{f' (at {name})' if name else ''}; call model.eval() before it is imported")


def _export(torch, model, infos, given):
    _evaluating(model)
    examples = _examples(torch, infos, given, "a torch.nn.Module")
    torch_caches.register(torch)
    try:
        with torch.no_grad():
            return torch.export.export(model, examples)
    except Exception as e:  # of many kinds
        raise not_exported(model, e) from e


def not_exported(model, why):
    """The error of a model that torch.export fails on, whatever the model's own code or torch raises, with what else may work."""
    ways = []
    if "Cache" in str(why) and getattr(getattr(model, "config", None), "use_cache", None):
        ways.append("use_cache=False among the arguments leaves caches of keys and values out")
    ways.append('torch.compile(model, backend="nestsmith") leaves to PyTorch what cannot be exported')
    ways.append("an ONNX file of the model (torch.onnx.export) is taken, too")
    return ValueError(f"torch.export cannot take {type(model).__name__} apart: {type(why).__name__}: {why}\nOther ways in: {'; '.join(ways)}")


def open_sizes(torch, program):
    """The first node of a program whose shape has open sizes, and its shape; None if there is none."""
    for n in program.graph.nodes:
        value = n.meta.get("val")
        if isinstance(value, torch.Tensor) and not all(isinstance(d, int) for d in value.shape):
            return n.name, tuple(value.shape)
    return None


def bound(torch, program, args, kwargs):
    """A program with open sizes once more, with the sizes of these arguments' tensors, in its order; what is no tensor among them has
    become a part of the program."""
    tree = torch.utils._pytree
    leaves, spec = tree.tree_flatten(program.example_inputs or (tuple(args), kwargs))
    left = [x for x in tree.tree_leaves((tuple(args), kwargs)) if isinstance(x, torch.Tensor)]
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    if len(places) != len(left):
        raise ValueError(f"{len(left)} inputs are given for an exported program that takes {len(places)}")
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    taken = [k for k in program.graph_signature.user_inputs if isinstance(k, str) and isinstance(values.get(k), torch.Tensor)]
    for name, x in zip(taken, left):
        if x.dtype != values[name].dtype:
            raise ValueError(f"input {name!r} is given as {dtype_name(x.dtype)}; the exported program takes {dtype_name(values[name].dtype)}")
    for i, x in zip(places, left):
        leaves[i] = x
    args, kwargs = tree.tree_unflatten(leaves, spec)
    try:
        with torch.no_grad():
            return torch.export.export(program.module(), args, kwargs)
    except Exception as e:  # of many kinds
        given = ", ".join(str(tuple(x.shape)) for x in left)
        raise ValueError(f"the exported program cannot have inputs of the shapes {given}: {e}") from e


def _script_program(torch, model, examples):
    """An exported program of a script, which is run once on symbols; None where the script looks at values."""

    class Around(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.script = model

        def forward(self, *args):
            return self.script._c._get_method("forward")(*args)  # the script itself: hooks of modules know modules only

    around = Around().eval() if isinstance(model, torch.nn.Module) else None
    if around is None:  # a traced function

        class Function(torch.nn.Module):
            def forward(self, *args):
                return model(*args)

        around = Function().eval()
    program = None
    for optimised in (False, True):  # passes that fold constants compare values, which symbols do not have; sizes may need them
        try:
            with torch.no_grad(), torch.jit.optimized_execution(optimised):
                program = without_prefix(torch.export.export(around, examples, strict=False), "script.")
        except Exception:  # of many kinds; the ONNX exporter may know it
            continue
        if not open_sizes(torch, program):
            break
    return program


def _from_script(torch, model, infos, given, freeze, check, limits):
    """TorchScript that `_script_program` could not export, through the ONNX exporter that can read it."""
    examples = _examples(torch, infos, given, "a torch.jit.ScriptModule")
    file = io.BytesIO()
    try:
        torch.onnx.export(model, examples, file, dynamo=False, input_names=[n for n, _, _ in infos] or None)
    except Exception as e:
        raise ValueError(
            f"torch.onnx cannot export this script: {e}\nGive the torch.nn.Module that it was made from, or a torch.export.ExportedProgram"
        ) from e
    return from_onnx(file.getvalue(), freeze_params=freeze, check=check if isinstance(check, bool) else list(check), limits=limits)


# ---- the program ----


def _key(target):
    """Name of an operator in the table, without the underscore of those that write to their first argument."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return getattr(target, "__name__", str(target))
    name = schema.name
    writes = schema.arguments and schema.arguments[0].alias_info is not None and schema.arguments[0].alias_info.is_write
    return name[:-1] if writes and name.endswith("_") else name


def _converter(table, target):
    key, overload = _key(target), getattr(target, "_overloadname", "default")
    views = any(t.name == "view_copy" for t in getattr(target, "tags", ()))
    plain = key.removesuffix("_copy") if views else key  # the same values in memory of their own
    return table.get(f"{key}.{overload}") or table.get(key) or table.get(f"{plain}.{overload}") or table.get(plain)


def _label(node):
    """What messages call a node: its name and the module that it belongs to."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return f"{node.name} in {path}" if path else node.name


def written(node):
    """The nodes among a node's arguments that it writes to."""
    schema = getattr(node.target, "_schema", None)
    found = []
    for place, a in enumerate(schema.arguments if schema is not None else ()):
        if a.alias_info is not None and a.alias_info.is_write:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(a.name)
            found += given if isinstance(given, (list, tuple)) else [given]
    return [f for f in found if hasattr(f, "op")]


def owner(node):
    """The node whose data those of a node are: itself, or what it is a view of or writes to."""
    while node.op == "call_function" and (_writes(node) or is_view(node)) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _writes(node):
    return bool(written(node))


def is_view(node):
    """Whether the result may share its data with an argument."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not _writes(node) and any(r.alias_info is not None for r in schema.returns)


def known_nodes(program):
    """Nodes of a program or module that depend on no input and no weight."""
    known = set()
    for node in program.graph.nodes:
        if node.op == "call_function" and all(a in known for a in node.all_input_nodes):
            known.add(node)
        elif node.op == "call_function" and _key(node.target) in _LIKE:
            known.add(node)
    return known


def _entangled(program):
    """Whether a computed tensor is written to whose data are read later under another name (of a view of it, or of what it is a
    view of), or an input or weight is: then writing is more than a new value under the old name."""
    known, whole, family, writes = known_nodes(program), {}, {}, []
    place = {n: i for i, n in enumerate(program.graph.nodes)}
    for node in program.graph.nodes:
        if node.op != "call_function" or not (_writes(node) or is_view(node)) or not node.all_input_nodes:
            continue
        first = node.all_input_nodes[0]
        family.setdefault(owner(node), [owner(node)]).append(node)
        if _writes(node):
            whole[node] = whole.get(first, first)
            if node not in known:  # else PyTorch computes it
                writes.append(node)
    for node in writes:
        if owner(node).op == "placeholder":
            return True
        others = [m for m in family[owner(node)] if whole.get(m, m) is not whole[node]]
        if any(place[user] > place[node] for m in others for user in m.users):
            return True
    return False


def has_converter(operator, table=ATEN):
    return _converter(table, operator) is not None


def is_known_operator(node, table=ATEN):
    """Whether there is a converter for the operator of a node. That may still refuse what the node asks for."""
    if node.target is operator.getitem:
        return True
    if _is_complex(node) and not (is_only_check(node) or _key(node.target) in _INLINE):
        return has_converter(node.target, PAIRS)
    return is_only_check(node) or _key(node.target) in _INLINE or has_converter(node.target, table)


def _is_whole(value):
    """Whether the elements of a tensor are those of its memory, in order."""
    return value.is_contiguous() and value.storage_offset() == 0 and value.untyped_storage().nbytes() == value.nbytes


def _is_complex(node):
    """Whether a node reads or makes complex tensors."""
    found = []
    for n in (node, *node.all_input_nodes):
        value = n.meta.get("val")
        found += value if isinstance(value, (list, tuple)) else [value]
    return any(getattr(getattr(v, "dtype", None), "is_complex", False) for v in found)


def is_only_check(node):
    """Whether a node computes nothing."""
    key = _key(node.target)
    return key in _NOTHING or (key == "with_effects" and _key(node.args[1]) in _NOTHING)


def is_random(torch, operator):
    """Whether an operator may draw random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())


def _written_placeholders(program):
    """Names of inputs and of what a program holds that it writes to."""
    owners = {owner(w) for n in program.graph.nodes if n.op == "call_function" for w in written(n)}
    return {n.name for n in owners if n.op == "placeholder"}


def _unknown(program, table):
    """Nodes without a converter."""
    known = known_nodes(program)
    return [n for n in program.graph.nodes if n.op == "call_function" and n not in known and not is_known_operator(n, table)]


def _prepared(torch, program, table):
    """The program as operators that have converters: others are taken apart if PyTorch can."""
    program = settled(torch, program)
    found = open_sizes(torch, program)
    if found and any(str(d).startswith("u") for d in found[1]):
        raise OpNotImplemented(
            f"{found[0]!r} has the shape ({', '.join(map(str, found[1]))}), which depends on the data: networks have fixed shapes. Leave it out "
            "of the model, write it with torch.where, or use torch.compile, which leaves it to PyTorch"
        )
    if found:
        raise OpNotImplemented(
            f"{found[0]!r} has the shape ({', '.join(map(str, found[1]))}): networks have fixed shapes. Give example_inputs with the "
            "sizes that it shall have, or export the model without dynamic_shapes"
        )
    program = with_one_name(torch, program, _written_placeholders(program))
    if _entangled(program) or any(_key(n.target) == "wrap_with_autocast" for n in program.graph.nodes):
        program = program.run_decompositions({})  # which also writes the casts of autocast out
    missing = None
    while missing != (now := {n.target for n in _unknown(program, table)}) and now:
        missing = now
        for more in (True, False):  # with the operators that they are made of in turn, as each run takes a third of a second
            parts = {t: d for t, d in decompositions(torch, now).items() if t in now or (more and not has_converter(t, table))}
            try:
                program = program.run_decompositions(parts)
                break
            except Exception:  # of many kinds: PyTorch cannot take them apart without data, so that they are named as missing
                continue
    return program


def _takes_lists(convert):
    """Whether a converter of the user's is of the form ``convert(inputs, input_types)``."""
    code = getattr(convert, "__code__", None)
    return code is not None and code.co_argcount == 2 and code.co_varnames[0] == "inputs"


def _types_of(args):
    return [dtype_of(a) if isinstance(a, Expr) else type(a).__name__ for a in args]


class Program:
    """An exported program while it is read."""

    def __init__(self, torch, program, table):
        self.torch, self.program, self.table = torch, program, table
        self.env, self.whole, self.made = {}, {}, {}
        self.inputs, self.variables, self.values, self.constants = [], {}, {}, {}
        kinds = torch.export.graph_signature.OutputKind
        self.changes = [s for s in program.graph_signature.output_specs if s.kind == kinds.BUFFER_MUTATION]
        self.writes = [s for s in program.graph_signature.output_specs if s.kind == kinds.USER_INPUT_MUTATION]
        self.states: dict = {}  # name: (variable, first value) of buffers that the program changes
        self.refuse_what_is_missing()

    def refuse_what_is_missing(self):
        missing = Unsupported(
            "model of PyTorch",
            "give converters with custom_convert_map={name: function}, or use "
            'torch.compile(model, backend="nestsmith"), which leaves them to PyTorch',
        )
        for n in _unknown(self.program, self.table):
            control = " (control flow)" if isinstance(n.target, self.torch._ops.HigherOrderOperator) else ""
            missing.add(f"{n.target}{control}", _label(n))
        known = known_nodes(self.program)
        for n in known:
            if is_random(self.torch, n.target):
                missing.add(f"{n.target} (random)", _label(n))
        missing.check()

    # ---- inputs and weights ----

    def network(self, names, infos, freeze, writes=False):
        """(module, params). Buffers that the program changes are inputs after its own (`states`), and their new values results after its own
        (`changes`). With `writes` new values of inputs that it writes to follow (`writes`)."""
        self.freeze, changing = freeze, {s.target for s in self.changes}
        kinds = self.torch.export.graph_signature.InputKind
        specs = {s.arg.name: s for s in self.program.graph_signature.input_specs}
        users = [s for s in specs.values() if s.kind == kinds.USER_INPUT and s.arg.__class__.__name__ == "TensorArgument"]
        if names is not None and len(names) != len(users):
            raise ValueError(f"input_infos names {len(names)} inputs ({', '.join(names)}), but the model has {len(users)}")
        stored = [*self.program.state_dict.values(), *self.program.constants.values()]
        budget.own(sum(t.nbytes for t in stored if isinstance(t, self.torch.Tensor)))
        own = dict(zip((s.arg.name for s in users), names or [s.arg.name for s in users]))
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                spec = specs[node.name]
                if node.name in own:
                    self.env[node] = self._input(node, own[node.name], infos)
                elif spec.kind == kinds.USER_INPUT:
                    self.env[node] = getattr(spec.arg, "value", None)
                elif spec.target in changing:
                    self.env[node] = self._state(spec)
                elif spec.kind == kinds.TOKEN:
                    self.env[node] = self.torch.empty(0)
                else:
                    self.env[node] = self._weight(spec)
        self.env0 = dict(self.env)  # before nodes write to inputs
        outs = self.run(self.program.graph, self.env)
        kinds = self.torch.export.graph_signature.OutputKind
        if _has(Pair, list(outs)):
            raise OpNotImplemented("an output of the model is complex; networks have real inputs and outputs: return torch.view_as_real(y)")
        made = list(zip(outs, self.program.graph_signature.output_specs))
        chosen = [o for o, s in made if s.kind in (kinds.USER_OUTPUT, kinds.LOSS_OUTPUT)]
        chosen += [o for o, s in made if s in self.changes] + [o for o, s in made if writes and s in self.writes]
        self.outputs = [self.expression(o) for o in chosen if isinstance(o, (Expr, self.torch.Tensor))]
        self.outputs = self.outputs or [const(o) for o in chosen if isinstance(o, (bool, int, float))]
        if not self.outputs:
            raise ValueError("the model returns no tensors")
        return self._module(self.outputs)

    def _module(self, outputs):
        body = outputs[0] if len(outputs) == 1 else Tuple(outputs)
        given = [*self.inputs, *(v for v, _ in self.states.values())]
        order = [*given, *(v for v in free_vars(body) if v not in given)]
        params = {v.name_hint: self.values[v.name_hint] for v in order[len(given) :]}
        return IRModule.from_expr(Function(order, body)), params

    def _input(self, node, name, infos):
        value = node.meta["val"]
        dims, kind = list(value.shape), dtype_name(value.dtype)
        for n, shape, dtype in infos:
            if n == name and (shape, dtype) != (tuple(dims), kind):
                raise ValueError(f"input_infos says that {name!r} is {dtype}{list(shape)}; the model says {kind}{dims}")
        self.inputs.append(var(name, shape=tuple(dims), dtype=kind))
        nothing = self._nothing(value)
        return self.inputs[-1] if nothing is None else nothing

    def _nothing(self, value):
        """What a tensor, or several, of no elements is, which is known; None if there are elements."""
        if isinstance(value, self.torch.Tensor):
            return self.torch.empty(tuple(value.shape), dtype=value.dtype) if value.numel() == 0 else None
        if not isinstance(value, (list, tuple)) or not value:
            return None
        found = [self._nothing(v) for v in value]
        return None if any(f is None for f in found) else found

    def _stored(self, spec):
        return held(self.program, spec).detach()

    def _state(self, spec):
        """A buffer that the program changes, as an input of the network."""
        value = self._stored(spec)
        v = var(spec.target, shape=tuple(value.shape), dtype=dtype_name(value.dtype))
        self.states[spec.target] = v, value.clone()
        nothing = self._nothing(value)
        return v if nothing is None else nothing

    def _weight(self, spec):
        """A weight: PyTorch's tensor if weights are constants of the network, else a variable. One that has two names has one."""
        tensor = self._stored(spec)
        kinds = self.torch.export.graph_signature.InputKind
        if self.freeze or spec.kind == kinds.CONSTANT_TENSOR or tensor.dtype == self.torch.bfloat16 or tensor.is_complex():
            return tensor
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()) if tensor.numel() else id(tensor)
        if place not in self.variables:
            self.variables[place] = var(spec.target, shape=tuple(tensor.shape), dtype=dtype_name(tensor.dtype))
            self.values[spec.target] = tensor.cpu().numpy()
        return self.variables[place]

    # ---- nodes ----

    def expression(self, value):
        """A value as an expression. A tensor becomes one constant, wherever it is used."""
        if not isinstance(value, self.torch.Tensor):
            return value
        if value.is_complex():
            parts = self.torch.view_as_real(value.resolve_conj()).contiguous()
            return Pair(*(array(_numpy(parts[..., k]).copy()) for k in (0, 1)))
        key = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride(), value._version)
        if key not in self.constants:
            e = array(_numpy(value).copy(), dtype_name(value.dtype))  # a later node may write to it
            self.constants[key] = e, value  # kept, so that its address stays its own
        return self.constants[key][0]

    def run(self, graph, env):
        """The results of a graph whose placeholders are in `env`."""
        for node in graph.nodes:
            if node.op == "call_function":
                env[node] = self._node(node, env)
            elif node.op == "get_attr":
                env[node] = _attribute(graph.owning_module, node.target)
            elif node.op == "output":
                return self.torch.fx.map_arg(node.args[0], lambda n: env[n])
        return []

    def _node(self, node, env):
        args = self.torch.fx.map_arg(tuple(node.args), lambda n: env[n])
        kwargs = self.torch.fx.map_arg(dict(node.kwargs), lambda n: env[n])
        key = _key(node.target)
        if node.target is operator.getitem:
            return self._result(node, *args)
        if is_only_check(node):  # with a token, which orders checks, and the result
            return (self.torch.empty(0), None) if key == "with_effects" else None
        if key in _INLINE:
            at = _INLINE[key]
            inner = args[at].graph
            names = [n for n in inner.nodes if n.op == "placeholder"]
            return self.run(inner, dict(zip(names, args[at + 1 :])))
        if key in _LIKE:
            args = (self._like(args[0]), *args[1:])
        nothing = self._nothing(node.meta.get("val"))
        if nothing is not None and not _writes(node):
            return nothing
        budget.node()
        if not _has((Expr, Pair), [args, kwargs]):
            for made in self.torch.utils._pytree.tree_leaves(node.meta.get("val")):
                if isinstance(made, self.torch.Tensor):
                    budget.room((made.numel() * made.dtype.itemsize,), "uint8")
            with self.torch.no_grad():
                out = node.target(*args, **kwargs)
            return self.torch.zeros_like(out) if key in _EMPTY else out  # the same network whatever the memory held
        try:
            out = self._convert(node, args, kwargs)
        except OpNotImplemented as e:
            raise OpNotImplemented(f"{node.target} {_label(node)!r}: {e}") from None
        except OF_CONVERTERS as e:
            raise ValueError(f"{node.target} {_label(node)!r}: {e}") from e
        self.made[node] = out
        if _writes(node):
            base = self.whole.get(node.args[0], node.args[0])
            self.whole[node] = base
            for n in [base, *(n for n, b in self.whole.items() if b is base)]:
                env[n] = out
        return out

    def _result(self, node, results, place):
        """One of several results of a node. Converters leave out what networks hardly ever read."""
        made = node.args[0]
        if results[place] is None and node.users and isinstance(node.meta.get("val"), self.torch.Tensor):
            raise OpNotImplemented(f"{made.target} {_label(made)!r}: its result {place} is read, which is not supported")
        return results[place]

    def _like(self, e):
        if isinstance(e, Pair):
            return self.torch.complex(*(self._like(v) for v in (e.re, e.im)))
        if not isinstance(e, Expr):
            return e
        return self.torch.empty(shape_of(e), dtype=getattr(self.torch, dtype_of(e)))

    def _convert(self, node, args, kwargs):
        schema = getattr(node.target, "_schema", None)
        if schema is not None:
            names = [a.name for a in schema.arguments]
            positional = {a.name for a in schema.arguments if not a.kwarg_only}
            given = {**dict(zip(names, args)), **kwargs}
            args = []
            for a in schema.arguments:
                if a.name in positional and a.name in given:
                    args.append(given.pop(a.name))
                elif a.name in positional and given.keys() & positional:
                    args.append(a.default_value)
            kwargs = {k: v for k, v in given.items() if k not in _WITHOUT_MEANING}
        if _key(node.target).startswith("aten::as_strided") and not _is_whole(node.args[0].meta["val"]):
            raise OpNotImplemented("strides of a part of a tensor, or of one whose elements are not in order, are not supported; copy it first")
        args, kwargs = self._arguments(args), self._arguments(kwargs)
        convert = _converter(PAIRS if _is_complex(node) else self.table, node.target)
        out = convert(args, _types_of(args)) if _takes_lists(convert) else convert(*args, **kwargs)
        out = list(out) if isinstance(out, (TupleWrapper, list, tuple)) else out
        made = [x for o in (out if isinstance(out, list) else [out]) for x in ((o.re, o.im) if isinstance(o, Pair) else (o,))]
        named(made, _label(node))
        value = node.meta.get("val")
        if isinstance(out, list) and not isinstance(value, (list, tuple)):
            out = out[0]  # PyTorch's and ours differ in the results that nobody reads
        if _writes(node) and isinstance(out, Expr) and value is not None:
            out = cast(out, dtype_name(value.dtype))  # what is written to keeps its type
        for o, v in zip(out, value) if isinstance(out, list) else [(out, value)]:
            if isinstance(o, Pair):
                v = v.real
                self._fits(o.re, v)
                self._fits(o.im, v)
            if isinstance(o, Expr):
                self._fits(o, v)
        return out

    def _fits(self, e, value):
        infer_type(e)
        if value is not None and (shape_of(e), dtype_of(e)) != (tuple(value.shape), dtype_name(value.dtype)):
            raise ValueError(
                f"the converter makes {dtype_of(e)}{list(shape_of(e))}, PyTorch {dtype_name(value.dtype)}{list(value.shape)}"
            )

    def _arguments(self, v):
        if isinstance(v, dict):
            return {k: self._arguments(x) for k, x in v.items()}
        if isinstance(v, (list, tuple)):
            return [self._arguments(x) for x in v]
        if isinstance(v, self.torch.dtype):
            return str(v).removeprefix("torch.") if v.is_complex else dtype_name(v)
        return self.expression(v)

    # ---- comparing ----

    def compare(self, mod, params, given):
        """Runs every node in PyTorch and in the network."""
        torch, program = self.torch, self.program
        if given is None:
            if program.example_inputs is None:
                raise ValueError("check=True needs inputs, and the exported program has none; give check=(arrays, ...)")
            flat = torch.utils._pytree.tree_leaves(program.example_inputs)
        else:
            flat = torch.utils._pytree.tree_leaves(tuple(given))
        tensors = [t if isinstance(t, torch.Tensor) else torch.from_numpy(np.asarray(t)) for t in flat if hasattr(t, "shape")]
        if len(tensors) != len(self.inputs):
            raise ValueError(f"check gives {len(tensors)} inputs, the model has {len(self.inputs)}")
        rows, made = Comparison("PyTorch"), self.made

        class Run(torch.fx.Interpreter):
            def run_node(self, node):
                out = super().run_node(node)
                mine = made.get(node)
                for i, (e, v) in enumerate(zip(mine, out) if isinstance(mine, list) else [(mine, out)]):
                    if isinstance(e, Expr) and isinstance(v, torch.Tensor):
                        rows.add(f"{node.target} {_label(node)!r}{f', result {i},' if i else ''}", e, _numpy(v).copy())
                return out

        arguments = [self._argument(n, tensors) for n in program.graph.nodes if n.op == "placeholder"]
        with torch.no_grad():
            Run(program.graph_module).run(*arguments, enable_io_processing=False)
        given = [*zip(self.inputs, tensors), *self.states.values()]
        rows.run(mod, params, {v.name_hint: _numpy(t) for v, t in given})

    def _argument(self, node, tensors):
        """The value of a placeholder in PyTorch."""
        e = self.env0[node]
        for v, t in zip(self.inputs, tensors):
            if e is v:
                return t.clone()  # a node may write to it
        spec = next(s for s in self.program.graph_signature.input_specs if s.arg.name == node.name)
        return self._stored(spec).clone() if spec.target in self.states else self._stored(spec) if spec.target is not None else e


def _numpy(t):
    """The values of a tensor; of bfloat16, which NumPy lacks, as float32."""
    t = t.detach().cpu()
    return (t.float() if str(t.dtype) == "torch.bfloat16" else t).numpy()


def _attribute(module, target):
    for part in target.split("."):
        module = getattr(module, part)
    return module


def _has(kind, v):
    if isinstance(v, (list, tuple)):
        return any(_has(kind, x) for x in v)
    return any(_has(kind, x) for x in v.values()) if isinstance(v, dict) else isinstance(v, kind)


def dtype_name(kind):
    """Our name of an element type of PyTorch."""
    name = {"half": "float16"}.get(str(kind).removeprefix("torch."), str(kind).removeprefix("torch."))
    if name.startswith(("complex", "float8", "q", "bits")):
        parts = "; give torch.view_as_real(x), and call view_as_complex in the model" * name.startswith("complex")
        raise OpNotImplemented(f"element type {name} is not supported{parts}")
    return name
