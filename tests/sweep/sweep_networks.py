"""Cases as networks, built in every way and compared with PyTorch."""

import collections
import functools

import numpy as np
import sweep_cases as cases
import sweep_onnx as onnx_cases
import torch
from sweep_exact import ZEROS
from sweep_rows import row
from sweep_values import difference

import nestsmith as ns
from nestsmith import IRModule, auto_scheduler, relay, transform
from nestsmith.contrib.graph_executor import GraphModule
from nestsmith.relay.expr import Call, Constant, Tuple, TupleGetItem, bind, post_order
from nestsmith.relay.transform.fold_constant import fold

WAYS = ("folded", "default", "first", "drawn0", "drawn1", "drawn2", "drawn3")
SMALL = {"evolutionary_search_population": 16, "sample_init_min_population": 6}


# ---- ways to a program ----


def _array(t):
    return t.contiguous().view(torch.int16).numpy().view("uint16") if t.dtype == torch.bfloat16 else t.contiguous().numpy()


def _tensor(a, like):
    a = torch.from_numpy(np.array(a))
    return a.view(torch.int16).view(torch.bfloat16) if like.dtype == torch.bfloat16 and a.dtype == torch.uint16 else a


def _constant(t):
    return Constant(_array(t), "bfloat16") if t.dtype == torch.bfloat16 else Constant(_array(t))


def _bound(case, inputs):
    """The outputs of a case as expressions of `inputs`."""
    f, rest = case.mod["main"], iter(inputs)
    table = {p: relay.const(case.params[p.name_hint]) if p.name_hint in case.params else next(rest) for p in f.params}
    body = bind(f.body, table)
    return list(body.fields) if isinstance(body, Tuple) else [body]


def folded(case, tensors):
    """The results of a case whose inputs are constants; None for those that are not folded."""
    outs = _bound(case, [_constant(t) for t in tensors])
    body = fold(relay.transform.InferType()(relay.Function([], Tuple(outs))).body)
    return [None if any(isinstance(e, (Call, TupleGetItem)) for e in post_order(e)) else e.data for e in body.fields]


class Network:
    """Cases as one network, built in one way."""

    def __init__(self, found, way, target="llvm"):
        self.cases, variables, outs = found, [], []
        for k, c in enumerate(found):
            own = [p for p in c.mod["main"].params if p.name_hint not in c.params]
            new = [relay.var(f"x{k}_{i}", shape=p.type_annotation.shape, dtype=p.type_annotation.dtype) for i, p in enumerate(own)]
            variables, outs = variables + new, outs + _bound(c, new)
            c.inputs = [v.name_hint for v in new]
        mod = IRModule.from_expr(relay.Function(variables, Tuple(outs)))
        with transform.PassContext(opt_level=3), auto_scheduler.FallbackContext(verbose=0), _schedules(way, mod, target):
            lib = relay.build(mod, target=target)
        self.module = GraphModule(lib["default"](ns.device(target.split()[0])))

    def run(self, fills):
        """The results of the cases for such inputs of each."""
        for c, tensors in zip(self.cases, fills):
            for name, t in zip(c.inputs, tensors):
                self.module.set_input(name, _array(t))
        self.module.run()
        got, k = [], 0
        for c in self.cases:
            got.append([self.module.get_output(k + i).numpy() for i in range(c.outputs)])
            k += c.outputs
        return got


def _schedules(way, mod, target):
    if way == "default":
        return auto_scheduler.FallbackContext(verbose=0)
    if way == "first":
        return auto_scheduler.ApplyHistoryBestOrSample(None)
    seed, history = int(way.removeprefix("drawn")), auto_scheduler.ApplyHistoryBest(None)
    target = ns.target.Target(target)
    for t in auto_scheduler.extract_tasks(mod, {}, target, include_simple_tasks=seed % 2 == 0)[0]:
        policy = auto_scheduler.SketchPolicy(t, auto_scheduler.RandomModel(), seed=seed, verbose=0, params=SMALL)
        states = policy.sample_initial_population()
        history.update(target, t.workload_key, states[seed % len(states)])
    return history


# ---- comparing ----


Found = collections.namedtuple("Found", "name way fill what together apart odd")  # what a row of the table is asked


def _moved(t, g):
    """Floats by half a unit in their last place, up or down; those of float64 by one, for it has no halves."""
    if not t.dtype.is_floating_point:
        return t
    side = (torch.rand(t.shape, generator=g, dtype=torch.float64) - 0.5).sign()
    return torch.nextafter(t, side * torch.inf) if t.dtype == torch.float64 else t.double() * (1 + torch.finfo(t.dtype).eps / 2 * side)


class Wanted:
    """PyTorch's results of a case by its fillings: a list of (in the type, in float64), or the error that it raises."""

    def __init__(self, case):
        self.rows = []
        with cases.silent():
            for _, tensors in case.fills:
                try:
                    own = case.run(tensors)
                except Exception as e:
                    self.rows.append(e)
                    continue
                wide = case.wide(tensors) or [None] * len(own)
                self.rows.append(list(zip(own, wide)))
                self.rows[-1] = [(o, w, n) for (o, w), n in zip(self.rows[-1], self._near(case, tensors, wide))]
        first = next((r for r in self.rows if isinstance(r, list)), [])
        case.outputs = len(first)

    def _near(self, case, tensors, wide):
        """How much each result changes where the inputs change by half a unit in the last place; None of those of one input each, but for
        functions that have zeros which are no floats."""
        if wide[0] is None or not case.together and not (case.kind == "float64" and any(word in case.name for word in ZEROS)):
            return [None] * len(wide)
        found = [torch.zeros(()).double()] * len(wide)
        g = torch.Generator().manual_seed(0)
        for _ in range(16 if case.together else 4):
            moved = [_moved(t, g) for t in tensors]
            for k, (w, a) in enumerate(zip((case.wide(moved) if case.together else case.run(moved)) or wide, wide)):
                if w.shape == a.shape and a.dtype.is_floating_point:
                    found[k] = torch.maximum(found[k], (w - a).abs().nan_to_num(0, 0, 0))
        return found


@functools.cache
def _onnx():
    return onnx_cases.operators()


class Chunk:
    """The cases of some operators and one type, made and compared way by way."""

    def __init__(self, names, kind, seed, most, target="llvm"):
        self.findings, self.covered, self.counts, self.left, self.apart = [], [], collections.Counter(), {}, {}
        self.found, self.wanted, self.target = [], [], target
        for name in names:
            new, refused = onnx_cases.made(name, _onnx()[name], seed, most) if kind == "onnx" else cases.made(name, kind, seed, most)
            self.findings += [(f"{name}[{kind}]", "import", "", r, "") for r in refused if r.startswith("WRONG")]
            for c in new:
                w = Wanted(c)
                if isinstance(w.rows[0], list) and c.outputs:
                    self.found.append(c)
                    self.wanted.append(w)

    def judge(self, way):
        """Builds the cases in one way and compares their results; adds to findings, covered and counts."""
        self.way = way
        if way == "folded":
            self.fold()
        elif self.found:
            self.compile(self.found, self.wanted)

    def fold(self):
        for c, w in zip(self.found, self.wanted):
            for (fill, tensors), want in zip(c.fills, w.rows):
                try:
                    with np.errstate(all="ignore"):
                        got = folded(c, tensors)
                except Exception as e:
                    if isinstance(want, list):
                        self.report(c, fill, tensors, f"{type(e).__name__}: {e}", "")
                    continue
                if isinstance(want, list) or any(g is not None for g in got):
                    self.compare(c, fill, tensors, got, want)

    def compile(self, found, wanted):
        """Builds cases as one network; where that fails, those of the halves."""
        try:
            net = Network(found, self.way, self.target)
        except Exception as e:
            if len(found) == 1:
                return self.report(found[0], "", found[0].fills[0][1], f"build: {type(e).__name__}: {' '.join(str(e).split())[:300]}", "")
            half = len(found) // 2
            self.compile(found[:half], wanted[:half])
            return self.compile(found[half:], wanted[half:])
        for k in range(max(len(c.fills) for c in found)):
            places = [min(k, len(c.fills) - 1) for c in found]
            new = [p == k for p in places]
            calm = [p if n and isinstance(w.rows[p], list) else 0 for p, n, w in zip(places, new, wanted)]
            self.round(net, found, wanted, calm, new)
            for i, p in enumerate(places):
                if new[i] and not isinstance(wanted[i].rows[p], list):
                    alone = [0] * len(found)
                    alone[i] = p
                    self.round(net, found, wanted, alone, [j == i for j in range(len(found))])

    def round(self, net, found, wanted, places, judged):
        try:
            results = net.run([c.fills[p][1] for c, p in zip(found, places)])
        except Exception as e:
            loud = [i for i, j in enumerate(judged) if j and places[i]] or [i for i, j in enumerate(judged) if j]
            if len(loud) > 1:
                for part in (loud[: len(loud) // 2], loud[len(loud) // 2 :]):
                    self.round(net, found, wanted, [p if i in part else 0 for i, p in enumerate(places)], [i in part for i in range(len(found))])
            elif loud:
                c, p = found[loud[0]], places[loud[0]]
                if isinstance(wanted[loud[0]].rows[p], list):
                    self.report(c, *c.fills[p], f"run: {type(e).__name__}: {' '.join(str(e).split())[:200]}", "")
                else:
                    self.counts[self.way] += 1
            return
        for c, p, w, got, j in zip(found, places, wanted, results, judged):
            if j:
                self.compare(c, *c.fills[p], got, w.rows[p])

    def compare(self, c, fill, tensors, got, want):
        if not isinstance(want, list):
            self.counts[self.way] += 1
            return self.report(c, fill, tensors, f"no error; PyTorch: {type(want).__name__}: {' '.join(str(want).split())[:120]}", "")
        for k, (g, (own, wide, near)) in enumerate(zip(got, want)):
            if g is None:
                self.left[str(c)] = 1
                continue
            if c.name.split(".")[0] in cases.UNORDERED and own.dtype == torch.int64 and k:
                continue
            self.counts[self.way] += 1
            g = _tensor(g, own)
            wrong = difference(g, own, wide, c.together, near)
            if wrong:
                apart = self._apart(c, fill, tensors)
                apart = bool(apart) and len(apart) > k and not difference(g, apart[k].to(own.dtype), wide, c.together, near)
                self.report(c, fill, tensors, *_shown(c, tensors, g, own, wide, *wrong), apart)
        return None

    def _apart(self, c, fill, tensors):
        if (id(c), fill) not in self.apart:
            self.apart[id(c), fill] = c.taken_apart(tensors)
        return self.apart[id(c), fill]

    def report(self, c, fill, tensors, what, detail, apart=False):
        odd = any(t.is_floating_point() and not bool(t.isfinite().all()) for t in tensors)
        found = Found(str(c), self.way, fill, what, c.together, apart, odd)
        covered = row(found)
        if covered:
            self.covered.append((covered, *found[:4]))
        else:
            self.findings.append((found.name, self.way, fill, what, detail or script(c, tensors)))


def _shown(c, tensors, got, own, wide, place, what):
    if place is None:
        return what, ""
    exact = wide[place].item() if wide is not None and wide.shape == own.shape else None
    ins = [t[tuple(0 if n == 1 else p for n, p in zip(t.shape, place))].item() for t in tensors] if not c.together else ""
    where = f"of {ins}" if ins else f"at {place}"
    return f"{what}: {got[place].item()!r}, PyTorch {own[place].item()!r}, float64 {exact!r} {where}", script(c, tensors)


def script(c, tensors):
    """A program that shows a case by itself."""
    if isinstance(c, onnx_cases.OnnxCase):
        return c.script(tensors)
    lines = ["import torch", "from torch import inf, nan", "from torch.testing._internal.common_methods_invocations import op_db",
             "import nestsmith",
             f"op = next(o for o in op_db if '.'.join(filter(None, (o.name, o.variant_test_name))) == {c.name!r}).op"]  # fmt: skip
    names = []
    for k, t in enumerate(tensors):
        names.append(f"x{k}")
        lines.append(f"x{k} = torch.tensor({t.flatten().tolist()!r}, dtype={t.dtype}).reshape({tuple(t.shape)})")
    rest = iter(names)

    class _Name:
        def __init__(self, text):
            self.text = text

        def __repr__(self):
            return self.text

    leaves = [_Name(next(rest)) if isinstance(v, torch.Tensor) else v for v in c.leaves]
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, c.spec)
    call = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])
    lines += ["class M(torch.nn.Module):", f"    def forward(self, {', '.join(names)}): return op({call})",
              f"print(M()({', '.join(names)}))",
              f"print(nestsmith.compile(M().eval(), ({', '.join(names)},), target='llvm', guess=False)({', '.join(names)}))"]  # fmt: skip
    return "\n".join(lines)


def every(kind, size=16, names=None):
    """The operators of a type (or "onnx"), by networks."""
    names = names or list(_onnx() if kind == "onnx" else cases.operators())
    n = -(-len(names) // size)
    return [names[i::n] for i in range(n)]
