"""Every function of `topi`, for every element type and ``out_dtype``: compiled, and evaluated by the interpreter, against
PyTorch and NumPy."""

import inspect

import numpy as np
import pytest
from operator_values import ALL, decode, difference, encode, is_float, storage
from topi_cases import CASES
from topi_rows import ROWS

import nestsmith as ns
from nestsmith import _core, te, topi


class Case:
    """A row with element types: its tensors, its inputs and what it should give."""

    def __init__(self, row, dtype, out=None):
        rng = np.random.default_rng(0)
        self.row = row
        self.inputs = [te.placeholder(i.shape, i.dtype or dtype, name=f"i{k}") for k, i in enumerate(row.inputs)]
        made = row.call(*self.inputs, **({"out_dtype": out} if out else {}))
        self.outputs = list(made) if isinstance(made, list) else [made]
        values = [i.draw(rng, dtype) for i in row.inputs]
        self.arrays = [encode(v, t.dtype) for v, t in zip(values, self.inputs)]
        with np.errstate(all="ignore"):
            want = row.want(*values)
        self.want = [np.asarray(v) for v in (want if isinstance(want, list) else [want])]

    def compiled(self):
        args = [*self.inputs, *self.outputs]
        module = ns.build(te.create_schedule([t.op for t in self.outputs]), args, "llvm")
        arrays = [ns.nd.empty([int(s) for s in t.shape], t.dtype) for t in args]
        for a, v in zip(arrays, self.arrays):
            a.copyfrom(v)
        module(*arrays)
        return [a.numpy() for a in arrays[len(self.inputs) :]]

    def interpreted(self):
        arrays = [*self.arrays, *(np.empty([int(s) for s in t.shape], storage(t.dtype)) for t in self.outputs)]
        _core.interp_dag(_core.ComputeDAG([*self.inputs, *self.outputs]), arrays)
        return arrays[len(self.inputs) :]

    def check(self, how):
        """What is wrong with the outputs; None if nothing is."""
        for g, v, t in zip(getattr(self, how)(), self.want, (t.dtype for t in self.outputs), strict=True):
            wrong = difference(
                decode(g, t), v if is_float(t) else decode(encode(v, t), t), t, self.row.accuracy, self.row.loss
            )
            if wrong:
                return wrong
        return None


def report(row, dtype, out, ways=("compiled", "interpreted")):
    """What is wrong with a row, for the lines of a failure. A type that the row does not list may be refused."""
    listed, wrong = out or dtype in row.types, []
    for way in ways:
        if way == "interpreted" and "bfloat16" in (dtype, out):
            continue  # its arrays have no NumPy type, by which the interpreter knows them
        try:
            found = Case(row, dtype, out).check(way)
        except Exception as err:
            found = f"{type(err).__name__}: {str(err)[:300]}" if listed else None
        if found:
            wrong.append(f"{row}: {dtype}{' -> ' + out if out else ''}, {way}: {found}")
    return wrong


def pairs(row):
    return [*((t, None) for t in row.types), *row.outs]


def test_no_function_is_forgotten():
    helpers = {"get_const_int", "get_const_tuple", "naming", "placeholder_name", "pool_name", "nn.winograd_tile_size"}
    helpers |= {f"image.{n}" for n in "bilinear get_const_int get_pad_tuple in_layout is_float layout_axes pad placed tuple_of".split()}
    helpers |= {f"nn.get_{n}" for n in ("const_int", "const_tuple", "pad_tuple", "pad_tuple1d", "pad_tuple3d", "pad_tuple_generic")}
    helpers |= {"make_idx", "within_index", "decl_buffer", "div", "extern", "floordiv", "floormod"}
    helpers |= {f"nn.{n}" for n in ("concatenate", "equal_const_int", "layout_transform", "simplify", "strided_slice")}  # are elsewhere
    public = {
        prefix + name: f
        for prefix, module in (("", topi), ("nn.", topi.nn), ("image.", topi.image))
        for name, f in vars(module).items()
        if inspect.isfunction(f) and not name.startswith("_") and prefix + name not in helpers
    }
    missing = sorted(public.keys() - {r.name for r in ROWS} - {c[0] for c in CASES})
    assert not missing, f"functions without a row: {missing}"
    for r in ROWS:
        has = r.name in public and "out_dtype" in inspect.signature(public[r.name]).parameters
        assert not has or any(q.outs for q in ROWS if q.name == r.name), (
            f"{r.name} has out_dtype, its rows have no pairs"
        )


@pytest.mark.parametrize("part", range(3))
def test_of_one_type_in_one_program(part):
    """A third of `topi_cases`, with the default schedule of the whole."""
    args, outs, arrays, wanted = [], [], [], []
    for name, call, want, inputs in CASES[part::3]:
        tensors = [te.placeholder(x.shape, str(x.dtype), name=f"i{k}") for k, x in enumerate(inputs)]
        made = call(*tensors)
        made, values = ([*v] if isinstance(v, (list, tuple)) else [v] for v in (made, want(*inputs)))
        args += tensors
        arrays += inputs
        outs += made
        wanted += [(name, v) for v in values]
    results = [ns.nd.empty([int(s) for s in t.shape], t.dtype) for t in outs]
    ns.build(topi.generic.schedule_extern(outs), [*args, *outs], "llvm")(*map(ns.nd.array, arrays), *results)
    for (name, want), got in zip(wanted, results, strict=True):
        got = got.numpy()
        if name == "unique":  # the rest of it has no meaning
            got = got[: len(want)]
        else:
            assert got.shape == np.shape(want), name
        assert got.dtype == np.asarray(want).dtype, name
        np.testing.assert_allclose(got, want, 1e-4, 1e-4, err_msg=name)


@pytest.mark.some(55)
@pytest.mark.parametrize("k", range(len(ROWS)), ids=[str(r) for r in ROWS])
def test_sample(k):
    """One combination of every row, another one in every row; every third one is compiled."""
    p = pairs(ROWS[k])
    assert not report(ROWS[k], *p[5 * k % len(p)], ways=["compiled" if k % 3 == 0 else "interpreted"])


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_everything(row):
    wrong = []
    for dtype, out in [*pairs(row), *((t, None) for t in ALL if t not in row.types and not row.only)]:
        wrong += report(row, dtype, out)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("groups, stride, padding", [(1, 1, 1), (2, (2, 1), "SAME"), (4, 1, (1, 0, 2, 1)), (1, 2, "VALID")])
def test_what_scripts_compare_convolutions_with(groups, stride, padding):
    from nestsmith.topi.testing import conv2d_nchw_python

    rng = np.random.default_rng(0)
    a, w = (rng.integers(-4, 5, shape).astype("float32") for shape in ((2, 4, 6, 7), (8, 4 // groups, 3, 2)))
    data, kernel = te.placeholder(a.shape, name="data"), te.placeholder(w.shape, name="kernel")
    out = topi.nn.group_conv2d_nchw(data, kernel, stride, padding, 1, groups)
    c = ns.nd.empty([int(d) for d in out.shape])
    ns.build(te.create_schedule(out.op), [data, kernel, out], "llvm")(ns.nd.array(a), ns.nd.array(w), c)
    np.testing.assert_array_equal(c.numpy(), conv2d_nchw_python(a, w, stride, padding, groups))


@pytest.mark.parametrize("shape, text", [((1, 3, 4, 4), "not \\[N, C, H, W\\]"), ((1, 2, 2, 4), "larger than the padded image")])
def test_convolutions_that_make_no_sense_are_refused(shape, text):
    from nestsmith.topi.testing import conv2d_nchw_python

    with pytest.raises(ValueError, match=text):
        conv2d_nchw_python(np.zeros(shape), np.zeros((1, 2, 3, 3)), 1, 0)


def test_sequences_of_another_number_are_refused():
    a, n = te.placeholder((4, 5), name="a"), te.placeholder((3,), "int32", name="n")
    with pytest.raises(ns.TVMError, match="batch_axis = 4, and seq_length size = 3"):
        topi.reverse_sequence(a, n, 1, 0)
