"""PyTorch models through ``nestsmith.compile``, and ``torch.compile(model, backend="nestsmith")``."""

import copy
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import nestsmith  # noqa: E402
import nestsmith.dynamo  # noqa: E402, F401 - registers the backend
from nestsmith import relay  # noqa: E402
from nestsmith.compiled import torch_backend, torch_parts  # noqa: E402

QUICK = {"guess": False, "verbose": 0, "target": "llvm"}


class Branches(torch.nn.Module):
    """Keywords, a constant among the arguments, and a dictionary of results."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.Linear(8, 5)
        with torch.no_grad():
            self.norm.running_mean.normal_(), self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x, scale=None, *, power=1):
        y = torch.relu(self.norm(self.conv(x)))
        z = self.last(y.mean((2, 3))) ** power
        return {"out": z if scale is None else z * scale, "maps": (y, x), "none": None}


def small(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True)).eval()


def close(got, want):
    return (got - want).abs().max() <= 1e-5 * want.abs().max()


def compiled(model, **more):
    torch._dynamo.reset()
    return torch.compile(model, backend="nestsmith", options={"guess": False}, **more)


@torch.no_grad()
def test_module_with_trees_of_arguments_and_results():
    torch.manual_seed(0)
    model, x, scale = Branches(), torch.randn(2, 3, 16, 16), torch.tensor([2.0])
    net = nestsmith.compile(model, {"x": x, "scale": scale}, **QUICK)
    assert model.training and model.norm.training and "conv.weight" in net.params
    assert any(r.layer.endswith("in conv") for r in net.report(1).rows)
    model.eval()
    other = torch.tensor([3.0])
    want = model(x, other)
    for got in (net(x=x, scale=other), net(scale=other, x=x), net(x, scale=other), net(x, other)):
        assert list(got) == list(want) and got["none"] is None
        assert close(got["out"], want["out"]) and close(got["maps"][0], want["maps"][0]) and torch.equal(got["maps"][1], x)
    assert net(x, other)["maps"][1].data_ptr() != x.data_ptr()
    with pytest.raises(TypeError, match="does not fit the model's forward"):
        net(x, scales=other)
    with pytest.raises(TypeError, match="does not look like the example inputs"):
        net(x)
    with pytest.raises(ValueError, match="input 'x' has shape"):
        net(x[:1], other)
    fixed = nestsmith.compile(model, {"x": x, "scale": None, "power": 2}, **QUICK)
    assert close(fixed(x=x, scale=None, power=2)["out"], model(x, power=2)["out"])
    with pytest.raises(ValueError, match="is 3; the network was compiled with 2"):
        fixed(x=x, scale=None, power=3)
    with pytest.raises(ValueError, match="argument 2 is tensor.*; the network was compiled with 2"):
        fixed(x=x, scale=None, power=torch.tensor([2, 2]))


@torch.no_grad()
def test_exported_program_and_arrays():
    model, x = small(), torch.randn(1, 3, 8, 8)
    program = torch.export.export(model, (x,))
    bare = torch.export.export(model, (x,))
    bare.example_inputs = None
    for given, examples in ((program, None), (bare, None), (model, x.numpy()), (model, (x,))):
        net = nestsmith.compile(given, examples, **QUICK)
        out = net(x.numpy())
        assert isinstance(out, np.ndarray) and close(torch.from_numpy(out), model(x)) and close(net(x), model(x))
    several = torch.cat([x, x + 1])
    for keep in (True, False):
        opened = torch.export.export(model, (several,), dynamic_shapes=({0: torch.export.Dim("batch", max=8)},))
        opened.example_inputs = opened.example_inputs if keep else None
        net = nestsmith.compile(opened, torch.cat([several, x]).numpy(), **QUICK)
        assert close(net(torch.cat([several, x])), model(torch.cat([several, x])))


def test_models_without_inputs():
    class Table(torch.nn.Module):
        def forward(self):
            return torch.arange(5.0).exp()

    made = nestsmith.compile(Table(), (), **QUICK)()
    assert isinstance(made, torch.Tensor) and close(made, Table()())


def test_programs_with_open_sizes_take_keywords_and_numbers():
    """In any order; a number has become a part of the program."""

    class Scaled(torch.nn.Module):
        def forward(self, x, scale, *, k):
            return torch.relu(x) * scale @ k

    x, k, rows = torch.randn(7, 4), torch.randn(4, 5), {0: torch.export.Dim("rows", max=9)}
    opened = torch.export.export(Scaled(), (x[:3], 3), {"k": k}, dynamic_shapes={"x": rows, "scale": None, "k": None})
    for examples in ({"k": k, "x": x, "scale": 3}, (x, 3, k)):
        assert close(nestsmith.compile(opened, examples, **QUICK)(x, 3, k=k), Scaled()(x, 3, k=k))


def test_what_cannot_be_taken():
    with pytest.raises(ValueError, match="needs example_inputs"):
        nestsmith.compile(small(), **QUICK)
    with pytest.raises(ValueError, match="torch.export cannot take Sequential apart"):
        nestsmith.compile(small(), torch.zeros(1, 5, 8, 8), **QUICK)
    with pytest.raises(ValueError, match="shape is for ONNX models"):
        nestsmith.compile(small(), torch.zeros(1, 3, 8, 8), shape={"x": (1,)}, **QUICK)


def test_tensors_that_do_not_lie_in_memory():
    x = relay.var("x", shape=(2, 2))
    net = nestsmith.compile(relay.Function([x], relay.nn.relu(x)), **QUICK)
    dense = torch.eye(2)
    assert torch.equal(net(dense), dense)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls some of them experimental
        others = {
            "sparse": dense.to_sparse(), "sparse tensor": dense.to_sparse_csr(), "meta": dense.to("meta"),
            "nested": torch.nested.nested_tensor([dense[0], dense[1]]), "quantized": torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8),
        }  # fmt: skip
    for kind, value in others.items():
        with pytest.raises(TypeError, match=f"input 'x' is a.* {kind}"):
            net(value)
    assert torch.equal(net(dense), dense)


def after_a_write():
    """A model, its input and its compiled form, which has seen that a weight was written to."""
    model, x = small(), torch.randn(1, 3, 8, 8)
    fast = compiled(model)
    assert close(fast(x), model(x))
    model[0].weight.mul_(2)
    assert close(fast(x), model(x))
    return model, x, fast


@torch.no_grad()
def test_backend_sees_weights_that_change():
    model, x, fast = after_a_write()
    model[1].running_mean.add_(0.5)
    assert close(fast(x), model(x))
    model[0].weight = torch.nn.Parameter(torch.randn_like(model[0].weight))
    assert close(fast(x), model(x))
    with torch.inference_mode():
        assert close(fast(x), model(x))
    for _ in range(2):  # other memory, which no write is counted for
        model[0].weight.data = torch.randn_like(model[0].weight)
        assert close(fast(x), model(x))


@torch.inference_mode()
def test_backend_sees_writes_to_weights_of_inference_mode():
    after_a_write()


def parts(monkeypatch):
    """Numbers of operators of the networks that the backend makes from now on."""
    made, take = [], torch_parts.of_graph

    def counted(torch, graph, *more):
        out = take(torch, graph, *more)
        if not out[2]:
            made.append(sum(n.op == "call_function" for n in graph.nodes))
        return out

    monkeypatch.setattr(torch_parts, "of_graph", counted)
    return made


@torch.no_grad()
def test_backend_takes_sizes_that_vary(monkeypatch):
    """A network per size and one for all weights of it; PyTorch's default makes sizes variable at the second one."""
    made, model = parts(monkeypatch), small()
    fast = compiled(model)
    for n in (2, 3, 2, 4, 3):
        x = torch.randn(n, 3, 8, 8)
        agrees_with(fast(x), model(x))
    assert len(made) == 4  # PyTorch made one graph for 2 alone, and one for any size, which is tried first
    torch._dynamo.reset()
    few = torch.compile(lambda x, k: (x.view(k, -1).relu() + k).sum(1), backend="nestsmith", dynamic=True, options={"guess": False, "sizes": 2})
    with pytest.warns(UserWarning, match="compiled a graph for 2 sets of sizes"):
        for k in (2, 3, 4, 6, 2):
            x = torch.randn(12)
            agrees_with(few(x, k), (x.view(k, -1).relu() + k).sum(1))
    assert len(made) == 6


def agrees_with(got, want):
    assert geometry(tensors(got)) == geometry(tensors(want))
    for g, w in zip(tensors(got), tensors(want)):
        assert torch.allclose(g.float(), w.float(), 1e-5, 1e-5, equal_nan=True)


LIBRARY = torch.library.Library("nestsmith_tests", "DEF")  # an operator that nobody else has
LIBRARY.define("odd(Tensor x) -> Tensor")
LIBRARY.impl("odd", torch.special.i1, "CPU")
LIBRARY.impl("odd", torch.empty_like, "Meta")


@torch.no_grad()
def test_backend_leaves_to_pytorch_what_it_cannot_do(monkeypatch, caplog):
    made = parts(monkeypatch)

    def broken(x):
        y = x.relu()
        torch._dynamo.graph_break()
        return y.view(-1) + 1

    def unknown(x):
        y = torch.ops.nestsmith_tests.odd(x.t() * 2 + x.t().exp())
        return torch.relu(y * 3 - 1) * y, y.t()

    def chosen(x):
        return x[x > 0].sum() * 2

    def constants(x):  # a part without inputs
        return torch.ops.nestsmith_tests.odd(x), (torch.arange(5) * 2 + 1).exp2() - 3

    for f, sizes in ((broken, (3,)), (chosen, (3, 4)), (unknown, (3,)), (constants, (3,))):  # two parts for each
        made.clear()
        with caplog.at_level("INFO", "nestsmith"):
            fast = compiled(f)
            for n in sizes:
                x = torch.randn(n, 5)
                agrees_with(fast(x), f(x))
        assert len(made) == (1 if f is constants else 2) * len(sizes)
    assert "left to PyTorch: nestsmith_tests.odd.default (1)" in caplog.text


@pytest.mark.full
@torch.no_grad()
def test_backend_leaves_operators_of_functions_to_pytorch():
    from torch.nn.attention.flex_attention import flex_attention

    def chosen(x):
        return torch.cond(x.sum() > 0, lambda a: a.exp() * 2 + 1, lambda a: a - 1, (x,)) * 3

    def attention(q):
        return flex_attention(q * 2, q, q, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)

    for f, x in ((chosen, torch.ones(3, 4)), (chosen, -torch.ones(3, 4)), (attention, torch.randn(1, 2, 16, 16))):
        agrees_with(compiled(f)(x), f(x))


def test_backend_draws_what_eager_mode_draws(monkeypatch):
    """In training mode, too; random operators keep their order."""
    made = parts(monkeypatch)

    def drawn(x):
        a = torch.nn.functional.dropout(x.exp() * 2 + x, 0.5) - 1
        b = torch.rand_like(x).log() * 3 + x
        return a.sin() + b.cos() * torch.randn(x.shape[0], 1), torch.bernoulli(b.sigmoid())

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Dropout(), torch.nn.BatchNorm1d(6), torch.nn.RReLU())
    twin = copy.deepcopy(model)
    x = torch.randn(4, 5)
    with torch.no_grad():
        for fast, f in ((compiled(drawn), drawn), (compiled(model), twin)):
            for _ in range(2):
                torch.manual_seed(7)
                got = fast(x)
                torch.manual_seed(7)
                agrees_with(got, f(x))
    agrees_with(list(model.buffers()), list(twin.buffers()))
    assert made


def test_backend_leaves_gradients_to_pytorch():
    model, x = small(), torch.randn(1, 3, 8, 8)
    with pytest.warns(UserWarning, match="this call records gradients"):
        compiled(model)(x).sum().backward()
    assert model[0].weight.grad is not None
    with torch.no_grad():
        torch._dynamo.reset()
        wrong = torch.compile(small(), backend="nestsmith", options={"trails": 3})
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no 'trails'; did you mean 'trials'"):
            wrong(x)
        whole = torch.randn(3, 4)
        same = whole.clone()
        f = lambda a, b: a.add_(1) + b.sum()  # noqa: E731 - of arguments that overlap in part
        agrees_with(compiled(f)(whole, whole[1]), f(same, same[1]))
        assert torch.allclose(whole, same)


def tensors(tree):
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def geometry(values):
    """Shapes, strides, types, places in memory, and which values share memory."""
    memory = {}
    return [
        (tuple(t.shape), t.stride(), t.dtype, t.storage_offset(), memory.setdefault(t.untyped_storage().data_ptr(), len(memory)))
        for t in values
    ]


def like(args):
    """Copies of arguments: equal ones stay equal, and strides are kept."""
    made = {}
    for a in args:
        if id(a) not in made:
            memory = a.untyped_storage().clone()
            made[id(a)] = torch.empty(0, dtype=a.dtype).set_(memory, a.storage_offset(), a.shape, a.stride())
    return [made[id(a)] for a in args]


CONV = torch.nn.Conv2d(3, 8, 3).eval()
GRID, SAME = torch.arange(12.0).reshape(3, 4), torch.arange(3.0)
IMAGE = torch.linspace(-1, 1, 2 * 3 * 81).reshape(2, 3, 9, 9).to(memory_format=torch.channels_last)
# By kind of argument: functions of one argument, all in one graph.
RESULTS = {
    "matrix": (GRID, [
        lambda t: t[0], lambda t: t * 2, lambda t: t, lambda t: t.t(), lambda t: t.t() + 1, lambda t: t.t()[1:][0], lambda t: (t + 1).t()[1:],
        lambda t: (lambda y: (y, y, y[0], y.view(-1)))(t * 2), lambda t: (t * 3)[1], lambda t: t.sum(0, keepdim=True).expand(3, 4),
        lambda t: (t > 0).t(),
        lambda t: (t * 2).split(2, 1), lambda t: t.chunk(3), lambda t: torch.stack([t, t]).unbind(1), lambda t: (t * 4).as_strided((2, 2), (1, 2)),
        lambda t: (None, {"a": t, "b": 3}), lambda t: torch.ones(3), lambda t: (lambda y: (y, y.view(-1).add_(1), y[0]))(t * 2),
        lambda t: torch.nn.functional.linear(t, torch.ones(5, 4)).transpose(0, 1),
    ]),
    "with gaps": (torch.arange(24.0).reshape(4, 6)[::2, 1:].t(), [lambda t: t * 2, lambda t: t.t(), lambda t: t[1], lambda t: t[:1] + 1]),
    "one": (torch.tensor(3.0), [lambda t: t * 2, lambda t: t, lambda t: t.view(1)]),
    "cube": (torch.arange(12.0).reshape(3, 1, 4), [
        lambda t: t.permute(2, 0, 1) * 2, lambda t: t.transpose(0, 2) + 1, lambda t: torch.exp(t).permute(2, 0, 1),
    ]),
    "pooled": (torch.arange(32.0).reshape(2, 16, 1, 1), [lambda t: t * 2, lambda t: t.mean((2, 3), keepdim=True)]),
    "image": (IMAGE, [CONV, lambda t: torch.relu(CONV(t)), lambda t: CONV(t).permute(0, 2, 3, 1).reshape(-1, 8), lambda t: t + 1]),
}  # fmt: skip
# Functions that write to arguments.
WRITES = (
    (lambda t: (t.add_(1), t * 2)[1], (GRID,)), (lambda t: t.add_(1), (GRID,)), (lambda t: (t[0].mul_(3), t.view(-1))[1], (GRID,)),
    (lambda v, to: torch.add(v, 1, out=to) * 2, (GRID, GRID + 5)), (lambda a, b: (a.copy_(b * 2), b), (GRID, GRID + 5)),
    (lambda a, b: (a.add_(1), b * 2)[1], (SAME, SAME)),
)  # fmt: skip


def agrees(f, args):
    """Two calls as in eager mode: values, memory and strides of arguments and results."""
    fast, mine, theirs = compiled(f), like(args), like(args)
    for _ in range(2):
        got, want = fast(*mine), f(*theirs)
        assert geometry([*mine, *tensors(got)]) == geometry([*theirs, *tensors(want)])
        for g, w in zip([*mine, *tensors(got)], [*theirs, *tensors(want)]):
            assert torch.allclose(g.float(), w.float(), 1e-5, 1e-5)
    return got, mine


@pytest.mark.parametrize("kind", RESULTS)
@torch.no_grad()
def test_results_lie_in_memory_as_those_of_eager_mode(kind):
    x, functions = RESULTS[kind]
    got, (argument,) = agrees(lambda t: [f(t) for f in functions], (x,))
    if kind == "matrix":
        got[0].fill_(9)
        assert (argument[0] == 9).all()


@torch.no_grad()
def test_writes_to_arguments():
    for f, args in WRITES:
        agrees(f, args)


@torch.no_grad()
def test_writes_to_buffers_compile_once(monkeypatch):
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))
            self.scale = torch.nn.Parameter(torch.full((4,), 3.0))

        def forward(self, x):
            self.seen += 1
            return x * self.scale + self.seen

    made, compile_it = [], torch_parts.Part._compile
    monkeypatch.setattr(torch_parts.Part, "_compile", lambda self, args: (made.append(args), compile_it(self, args))[1])
    model, x = Counter(), torch.ones(4)
    fast = compiled(model)
    for k in range(1, 4):
        assert torch.equal(fast(x), x * 3 + k) and torch.equal(model.seen, torch.full((4,), float(k)))
    assert len(made) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not nestsmith.cuda(0).exist, reason="no CUDA device")
@torch.no_grad()
def test_tensors_on_the_gpu():
    """What PyTorch's stream has not finished yet is waited for; results lie on the GPU and stay what they are."""
    model = small().cuda()
    net = nestsmith.compile(model, torch.zeros(1, 3, 256, 256).cuda(), guess=False, target="cuda")
    busy = torch.randn(2048, 2048, device="cuda")
    outs, wants = [], []
    for k in range(4):
        x = torch.randn(1, 3, 256, 256, device="cuda") + (busy @ busy).sum() * 0 + k
        outs.append(net(x))
        wants.append(model(x))
    assert all(o.is_cuda and close(o, w) for o, w in zip(outs, wants))
    a, b = relay.var("a", shape=(256, 256)), relay.var("b", shape=(256, 256))
    both = nestsmith.compile(relay.Function([a, b], relay.add(a, b)), guess=False, target="cuda")
    for k in range(4):  # the first one is not on the GPU, the second one is not there yet
        y = torch.zeros(256, 256, device="cuda") + (busy @ busy).sum() * 0 + k
        assert torch.equal(both(torch.ones(256, 256), y), torch.full((256, 256), k + 1.0))
    x = torch.randn(1, 3, 256, 256)
    assert not net(x).is_cuda and close(net(x), model(x.cuda()).cpu()) and isinstance(net(x.numpy()), np.ndarray)
    torch._dynamo.reset()
    fast = torch.compile(model, backend="nestsmith", options={"guess": False})
    assert fast(x.cuda()).is_cuda and close(fast(x.cuda()), model(x.cuda()))


@torch.no_grad()
def test_scripts():
    model, x = small(), torch.randn(1, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch would rather see programs
        script = torch.jit.trace(model, (x,))
        net = nestsmith.compile(script, (x,), **QUICK)
    assert close(net(x), model(x)) and net.name == "Sequential"
    with pytest.raises(ValueError, match="example_inputs"):
        nestsmith.compile(script, **QUICK)


@torch.no_grad()
def test_threads_with_new_weights_compile_once(monkeypatch):
    graph = torch.fx.Graph()
    w, x = graph.placeholder("w"), graph.placeholder("x")
    graph.output((graph.call_function(torch.mul, (w, x)),))
    weights, data = [torch.nn.Parameter(torch.full((8,), float(k))) for k in range(torch_parts.KEPT + 2)], torch.randn(8)
    made, together = [], threading.Barrier(4)
    compile_it = torch_parts.Part._compile
    monkeypatch.setattr(torch_parts.Part, "_compile", lambda self, args: (made.append(self), compile_it(self, args))[1])
    net = torch_backend.backend(torch.fx.GraphModule({}, graph), [weights[0], data], options={"guess": False})

    def call(w):
        together.wait()
        return net(w, data)[0]

    with ThreadPoolExecutor(4) as pool:
        for k, w in enumerate(weights[1:], 1):
            for got in pool.map(call, [w] * 4):
                assert torch.equal(got, data * w)
            assert len(made) == k + 1 and len(made[0].networks) <= torch_parts.KEPT


class Remembers(torch.nn.Module):
    """Writes to a buffer, to one that no state dict has, to a tensor that no one has registered, and to its argument."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("calls", torch.tensor(0), persistent=False)
        self.rows, self.twice = [torch.ones(2, 3)], [self.total]

    def forward(self, x):
        self.total.add_(x.sum(0))
        self.calls += 1
        self.rows[0][0] = x[0]
        x.mul_(2)
        return self.twice[0] * 2 + self.calls, self.rows[0], x


@torch.no_grad()
def test_what_a_model_writes_to():
    """nestsmith.compile: buffers become the state of the network, arguments are written to; the model stays as it is."""
    model = Remembers().eval()
    twin = copy.deepcopy(model)
    twin.twice = [twin.total]
    net = nestsmith.compile(model, torch.zeros(2, 3), **QUICK)
    assert list(net.state)[:2] == ["total", "calls"] and len(net.state) == 3
    for _ in range(2):
        x = torch.randn(2, 3)
        y = x.clone()
        agrees_with(net(x), twin(y))
        assert torch.equal(x, y)
    assert torch.allclose(net.state["total"], twin.total) and net.state["calls"] == 2 and model.calls == 0
    array = np.ones((2, 3), np.float32)
    net.state["total"] = torch.zeros(3)
    assert (net(array)[0] == 2 * 2 + 3).all() and (array == 2).all()
    mod, _ = relay.frontend.from_pytorch(torch.export.export(model, (torch.zeros(2, 3),)))
    assert [p.name_hint for p in mod["main"].params][:3] == ["x", "total", "calls"] and len(mod["main"].body.fields) == 6


def test_modes_and_refusals_name_the_way_out():
    with pytest.warns(UserWarning, match="Sequential is in training mode; it is compiled in evaluation mode, as model.eval"):
        nestsmith.compile(torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.zeros(1, 2), **QUICK)

    class Looks(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(ValueError, match=r'(?s)cannot take Looks apart.*torch.compile\(model, backend="nestsmith"\)'):
        nestsmith.compile(Looks().eval(), torch.zeros(1, 2), **QUICK)


@torch.no_grad()
def test_layers_of_encoders_in_one_operator(monkeypatch):
    """The fast path of PyTorch's transformers is taken apart."""
    made = parts(monkeypatch)
    torch.manual_seed(0)
    layer = lambda first: torch.nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=True, norm_first=first)  # noqa: E731
    model = torch.nn.ModuleList([layer(False), layer(True), torch.nn.MultiheadAttention(8, 2, batch_first=True)]).eval()
    for p in model.parameters():
        p.add_(torch.randn_like(p) * 0.1)
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])

    def f(x):
        for k in (0, 1):
            x = model[k](x, src_key_padding_mask=hidden)
        return x, model[2](x, x, x, key_padding_mask=hidden)

    x = torch.randn(2, 5, 8)
    got, want = compiled(f)(x), f(x)
    for g, w in zip(tensors(got), tensors(want)):
        assert torch.allclose(g, w, 1e-5, 1e-5)
    assert len(made) == 1


def test_an_exported_program_takes_arguments_by_name():
    class Apart(torch.nn.Module):
        def forward(self, x, y, *, z):
            return x - 2 * y + 3 * z

    x, y, z = torch.arange(12.0).view(3, 4), torch.ones(3, 4), torch.full((3, 4), 5.0)
    net = nestsmith.compile(torch.export.export(Apart(), (x, y), {"z": z}), target="llvm", verbose=0)
    want = Apart()(x, y, z=z)
    for args, kwargs in (((x, y), {"z": z}), ((x,), {"z": z, "y": y}), ((), {"z": z, "y": y, "x": x})):
        assert torch.equal(net(*args, **kwargs), want)
    for args, kwargs in (((), {}), ((x,), {"y": y, "z": z, "w": z}), ((x, y, z, z), {})):
        with pytest.raises(TypeError, match=r"does not fit the model's forward\(x, y, z\)"):
            net(*args, **kwargs)
