"""Networks of torchvision, timm and transformers through ``torch.compile(model, backend="nestsmith")``, whose sizes vary from call to call."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("torchvision")

import tiny_models as tiny  # noqa: E402

import nestsmith  # noqa: E402
import nestsmith.dynamo  # noqa: E402, F401 - registers the backend
from nestsmith.relay.frontend import torch_caches  # noqa: E402

# batch, length: three of each
SIZES = ((2, 6), (3, 8), (4, 5))
NAMES = [
    *list(tiny.CAUSAL)[::2], *list(tiny.ENCODERS)[::2], *list(tiny.PAIRS)[::3], *list(tiny.IMAGES)[::2], "WhisperForConditionalGeneration",
    "SiglipModel", *tiny.VISION, *tiny.TIMM,
]  # fmt: skip


def tensors(tree):
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def described(values):
    """Shapes, types, strides, and which values share memory."""
    memory = {}
    return [(t.shape, t.dtype, t.stride(), memory.setdefault(t.untyped_storage().data_ptr(), len(memory))) for t in values]


def made(name):
    """(model, function of batch and length that makes keywords)"""
    if name in tiny.TIMM:
        pytest.importorskip("timm")
        model, side = tiny.of_timm(name)
        return model, lambda batch, _: images(batch, side)
    if name in tiny.VISION:
        return tiny.of_torchvision(name), lambda batch, _: images(batch, 64 if name == "squeezenet" else 32)
    return tiny.of_transformers(name), lambda batch, length: tiny.inputs_of(name, batch, length)


def images(batch, side=32):
    return {"x": torch.randn(batch, 3, side, side)}


def compare(model, call, sizes=SIZES, training=False):
    """Calls of both kinds: the same results, memory and buffers."""
    torch_caches.register(torch)
    torch._dynamo.reset()
    twin = copy.deepcopy(model)
    model.train(training), twin.train(training)
    fast = torch.compile(model, backend="nestsmith", options={"guess": False})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning) if training else None
        for size in sizes:
            given = call(*size)
            args = list(given.values())
            torch.manual_seed(1)
            got = tensors(fast(*args) if "x" in given else fast(**given))
            torch.manual_seed(1)
            want = tensors(twin(*args) if "x" in given else twin(**given))
            assert described([*args, *got]) == described([*args, *want])
            for g, w in zip([*got, *model.buffers()], [*want, *twin.buffers()]):
                assert torch.allclose(g.double(), w.double(), 1e-4, 1e-5 * max(float(w.double().abs().max()) if w.numel() else 0, 1))


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_vary(name):
    compare(*made(name))


def test_a_sample():
    """Two of them, small: a decoder with its cache, and convolutions in training mode that keep statistics."""
    import transformers

    llama = transformers.LlamaForCausalLM(tiny.config_of(transformers.LlamaForCausalLM, {"num_hidden_layers": 1})).eval()
    compare(llama, lambda *size: tiny.inputs_of("LlamaForCausalLM", *size), SIZES[:2])
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(), torch.nn.Flatten(), torch.nn.Linear(3600, 3))
    compare(layers, lambda batch, _: images(batch), SIZES[:1], training=True)


@pytest.mark.full
@torch.no_grad()
def test_generate_with_a_static_cache():
    model = tiny.of_transformers("LlamaForCausalLM")
    ids, more = torch.tensor([[5, 7, 9, 11]]), {"max_new_tokens": 4, "do_sample": False, "use_cache": True, "pad_token_id": 0, "eos_token_id": None}
    want = model.generate(ids, **more)
    torch._dynamo.reset()
    model.forward = torch.compile(model.forward, backend="nestsmith", options={"guess": False})
    assert torch.equal(model.generate(ids, cache_implementation="static", **more), want)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["MistralForCausalLM", "LlamaForCausalLM", "T5ForConditionalGeneration"])
@torch.no_grad()
def test_caches_of_transformers(name):
    """As called by default, and with a cache passed in."""
    import transformers

    more = {"sliding_window": 4} if name == "MistralForCausalLM" else {}
    cls = getattr(transformers, name)
    model = cls(tiny.config_of(cls, {"num_hidden_layers": 1, "num_layers": 1, "num_decoder_layers": 1} | more)).eval()
    given = tiny.inputs_of(name)
    got, want = nestsmith.compile(model, given, target="llvm", guess=False, verbose=0)(**given), model(**given)
    same(got, want)
    last = list(given)[-1]
    cache = next(got[k] for k in ("cache", "past_key_values") if k in got)
    step = {**given, last: given[last][:, :1], "past_key_values": copy.deepcopy(cache)}
    one = nestsmith.compile(model, step, target="llvm", guess=False, verbose=0)
    made = one(**step)
    same(made, model(**copy.deepcopy(step)))
    if name in tiny.CAUSAL and not more:
        with pytest.raises(ValueError, match="compile the model again with inputs of this shape.* a static cache of transformers"):
            one(**{**step, "past_key_values": next(made[k] for k in ("cache", "past_key_values") if k in made)})


def same(got, want):
    assert len(tensors(got)) == len(tensors(want)) > 1
    for g, w in zip(tensors(got), tensors(want)):
        assert torch.allclose(g, w, 1e-4, 1e-5)
