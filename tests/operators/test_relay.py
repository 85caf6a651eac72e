"""Every operator of `relay`, for every element type, ``out_dtype`` and optimization level, alone and followed by another
operator, against PyTorch and NumPy."""

import warnings

import numpy as np
import pytest
from operator_values import ALL, decode, difference, encode, is_float
from relay_nn_rows import ROWS

import nestsmith as ns
from nestsmith import IRModule, relay, transform
from nestsmith.contrib import graph_executor
from nestsmith.relay.expr import Call, post_order
from nestsmith.relay.op.registry import names

CPU = ns.cpu(0)
LEVELS = (0, 1, 2, 3)


def result_types(expr):
    t = expr.checked_type
    return [f.dtype for f in getattr(t, "fields", [t])]


def variables(row, dtype):
    return [relay.var(f"i{k}", shape=i.shape, dtype=i.dtype or dtype) for k, i in enumerate(row.inputs)]


def run(body, params, arrays, level):
    with transform.PassContext(opt_level=level), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lib = relay.build(IRModule.from_expr(relay.Function(params, body)), "llvm")
    m = graph_executor.GraphModule(lib["default"](CPU))
    m.run(**{p.name_hint: a for p, a in zip(params, arrays)})
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


class Case:
    """A row with element types: its expression, its inputs and what it should give."""

    def __init__(self, row, dtype, out=""):
        self.row, self.rng = row, np.random.default_rng(0)
        self.params = variables(row, dtype)
        self.body = row.call(*self.params, **({"out_dtype": out} if out else {}))
        self.types = result_types(self.body)
        values = [i.draw(self.rng, dtype) for i in row.inputs]
        self.arrays = [encode(v, p.type_annotation.dtype) for v, p in zip(values, self.params)]
        with np.errstate(all="ignore"):
            want = row.want(*values)
        self.want = [np.asarray(v) for v in (want if isinstance(want, list) else [want])]

    def check(self, level):
        """What is wrong with the operator alone; None if nothing is."""
        got = run(self.body, self.params, self.arrays, level)
        for g, v, t in zip(got, self.want, self.types, strict=True):
            wrong = difference(
                decode(g, t), v if is_float(t) else decode(encode(v, t), t), t, self.row.accuracy, self.row.loss
            )
            if wrong:
                return wrong
        return None

    def check_followed(self, level):
        """The same with an addition and a widening cast behind it: what is fused must round and wrap as what is not."""
        t, v = self.types[0], self.want[0]
        if len(self.types) > 1:
            return None
        wide = "float64" if is_float(t) else "int64"
        shape = self.body.checked_type.shape
        other = relay.var("other", shape=shape, dtype=t)
        more = (
            self.rng.integers(-20 if is_float(t) else 0, 100, shape) if t != "bool" else self.rng.integers(0, 2, shape)
        )
        y = relay.logical_xor(self.body, other) if t == "bool" else relay.add(self.body, other)
        got = run(relay.cast(y, wide), [*self.params, other], [*self.arrays, encode(more, t)], level)[0]
        if t == "bool":
            return difference(got, (v != 0) ^ (more != 0), t)
        if is_float(t):
            return difference(got, v + more, t, self.row.accuracy + 4, self.row.loss)
        return difference(got, decode(encode(decode(encode(v, t), t) + more, t), t), t)


# (level, followed by another operator): fusion begins at level 1
ALONE = [(level, False) for level in LEVELS]
EVERYTHING = [*ALONE, (1, True), (3, True)]


def report(row, dtype, out, ways):
    """What is wrong with a row, for the lines of a failure. A type that the row does not list may be refused."""
    listed = out or dtype in row.types
    try:
        case = Case(row, dtype, out)
    except Exception as err:
        return [f"{row} {dtype} {out}: {type(err).__name__}: {err}"] if listed else []
    wrong = []
    for level, followed in ways:
        try:
            found = case.check_followed(level) if followed else case.check(level)
        except Exception as err:
            found = f"{type(err).__name__}: {str(err)[:300]}" if listed else None
        if found:
            wrong.append(
                f"{row}: {dtype}{' -> ' + out if out else ''}, level {level}{', followed' if followed else ''}: {found}"
            )
    return wrong


def pairs(row):
    return [*((t, "") for t in row.types), *row.outs]


def test_no_operator_is_forgotten():
    """All operators, and all functions that users call, have rows; those that take ``out_dtype`` have pairs of types."""
    from nestsmith.relay import op

    covered, with_out = set(), set()
    for r in ROWS:
        body = r.call(*variables(r, r.types[0]))
        for e in post_order(body):
            if isinstance(e, Call):
                covered.add(e.op_name)
                if "out_dtype" in e.attrs and r.outs:
                    with_out.add(e.op_name)
                if "out_dtype" in e.attrs:
                    covered.add(f"{e.op_name} takes out_dtype")
    from relay import test_more_operators as more  # rows with results of their own

    covered |= {e.op_name for row in (*more.ELEMENTS, *more.MOVES, *more.MAPS) for e in post_order(row[0]) if isinstance(e, Call)}
    forgotten = sorted(n for n in set(names()) - covered - {"unique", "slice_like"} if not n.startswith("random."))  # tests/relay has them
    assert not forgotten, f"operators without a row: {forgotten}"
    missing = {n.removesuffix(" takes out_dtype") for n in covered if n.endswith("takes out_dtype")} - with_out
    assert not missing, f"operators with out_dtype, but without a row that has pairs of types: {sorted(missing)}"
    public = {n for m in (op.tensor, op.transform, op.reduce) for n in m.__all__}
    public |= {f"nn.{n}" for n in relay.nn.__all__} | {f"image.{n}" for n in relay.image.__all__}
    helpers = {"nn.conv_axes", "nn.is_depthwise", "nn.channel", "nn.pool_axes", "nn.winograd_matrices"}
    helpers |= {"nn.cross_entropy", "nn.cross_entropy_with_logits", "nn.dropout_raw", *(f"nn.get_pad_tuple{k}d" for k in (1, 2, 3))}
    forgotten = sorted(public - helpers - covered - {r.name for r in ROWS})
    assert not forgotten, f"functions without a row: {forgotten}"


def _sample():
    """One or two combinations of every row, another one in every row, such that all types and levels occur often."""
    for k, r in enumerate(ROWS):
        p = pairs(r)
        for j in {k % len(p), (5 * k + 3) % len(p) if r.outs else k % len(p)}:
            yield pytest.param(r, *p[j], (k + j) % 4, bool((k + j) // 4 % 2), id=f"{r}-{p[j][0]}-{p[j][1]}")


@pytest.mark.some(50)
@pytest.mark.parametrize("row, dtype, out, level, followed", list(_sample()))
def test_sample(row, dtype, out, level, followed):
    assert not report(row, dtype, out, [(level, followed)])


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_everything(row):
    wrong = [line for types in pairs(row) for line in report(row, *types, EVERYTHING)]
    others = [] if row.only else [t for t in ALL if t not in row.types]
    wrong += [line for t in others for line in report(row, t, "", [(3, False)])]
    assert not wrong, "\n".join(wrong)
