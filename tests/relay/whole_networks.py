"""Networks of PyTorch with weights like those of trained ones, and what each of the ways into nestsmith makes of them."""

import contextlib
import io
import warnings

import numpy as np
import onnxruntime
import torch
from torch import nn

import nestsmith
from nestsmith import IRModule, relay, transform
from nestsmith.contrib.graph_executor import GraphModule
from nestsmith.relay.expr import Call, Constant, Tuple, TupleGetItem, post_order, rewrite
from nestsmith.relay.transform.fold_constant import fold

WAYS = ("torch.export", "onnx dynamo", "onnx legacy")
SIXTEEN = ("float16", "bfloat16")  # through torch.export and ToMixedPrecision
LIMITS = {**dict.fromkeys(WAYS, 1e-5), **dict.fromkeys(SIXTEEN, 2e-2)}  # of the largest output


def trained_like(model, seed=0):
    """He-scaled weights and statistics of batches that are not 0 and 1, in evaluation mode."""
    torch.manual_seed(seed)
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)
    for m in model.modules():
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
            nn.init.kaiming_normal_(m.weight)
            if m.bias is not None:
                nn.init.normal_(m.bias, std=0.1)
        elif isinstance(m, norms):
            nn.init.uniform_(m.weight, 0.5, 1.0)
            nn.init.normal_(m.bias, std=0.1)
            if isinstance(m, norms[:2]):
                nn.init.normal_(m.running_mean, std=0.1)
                nn.init.uniform_(m.running_var, 0.5, 1.5)
    return model.eval()


class Block(nn.Sequential):
    def __init__(self, i, o, act=nn.ReLU):
        super().__init__(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), act())


class MobileNetV1(nn.Sequential):
    """Howard et al. 2017: torchvision has the later ones alone."""

    def __init__(self, classes=1000):
        def norm(o):
            return nn.BatchNorm2d(o), nn.ReLU()

        layers, i = [nn.Conv2d(3, 32, 3, 2, padding=1, bias=False), *norm(32)], 32
        strided = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
        for o, stride in strided:
            layers += [nn.Conv2d(i, i, 3, stride, padding=1, groups=i, bias=False), *norm(i), nn.Conv2d(i, o, 1, bias=False), *norm(o)]
            i = o
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, classes))


class UNet(nn.Module):
    """Two levels down, two up by transposed convolutions, with the maps of the way down put beside."""

    def __init__(self, c=8):
        super().__init__()
        self.a, self.b, self.c = Block(3, c), Block(c, 2 * c), Block(2 * c, 4 * c)
        self.up2, self.d2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), Block(4 * c, 2 * c)
        self.up1, self.d1 = nn.ConvTranspose2d(2 * c, c, 3, 2, padding=1, output_padding=1), Block(2 * c, c)
        self.out = nn.Conv2d(c, 4, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(nn.functional.max_pool2d(a, 2))
        y = self.up2(self.c(nn.functional.max_pool2d(b, 2)))
        y = self.up1(self.d2(torch.cat([y, b], 1)))
        return self.out(self.d1(torch.cat([y, a], 1)))


class Detector(nn.Module):
    """Two scales with pyramid, pooling at several sizes, and boxes decoded by a grid and a softmax over distances."""

    def __init__(self, c=8, classes=5, bins=4):
        super().__init__()
        self.bins = bins
        self.stem, self.down = Block(3, c, nn.SiLU), nn.Conv2d(c, 2 * c, 3, 2, 1)
        self.deep, self.mix = Block(2 * c, 2 * c, nn.SiLU), nn.Conv2d(8 * c, 2 * c, 1)
        self.low = Block(3 * c, c, nn.SiLU)
        self.heads = nn.ModuleList(nn.Conv2d(n, 4 * bins + classes, 1) for n in (c, 2 * c))

    def forward(self, x):
        a = self.stem(nn.functional.interpolate(x, scale_factor=0.5, mode="bilinear"))
        b = self.deep(self.down(a))
        p = [b]
        for _ in range(3):
            p.append(nn.functional.max_pool2d(p[-1], 5, 1, 2))
        b = self.mix(torch.cat(p, 1))
        a = self.low(torch.cat([a, nn.functional.interpolate(b, scale_factor=2.0, mode="nearest")], 1))
        found = []
        for y, head, stride in zip((a, b), self.heads, (2.0, 4.0)):
            y = head(y)
            h, w = y.shape[2:]
            box, score = y.flatten(2).split([4 * self.bins, y.shape[1] - 4 * self.bins], 1)
            far = box.view(box.shape[0], 4, self.bins, h * w).softmax(2)
            far = (far * torch.arange(self.bins, dtype=y.dtype).view(1, 1, -1, 1)).sum(2)
            gy, gx = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            centre = torch.stack([gx.flatten(), gy.flatten()])[None]
            low, high = far.chunk(2, 1)
            found.append(torch.cat([(centre - low) * stride, (centre + high) * stride, score.sigmoid()], 1))
        return torch.cat(found, 2).transpose(1, 2)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 12, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(24, 8, batch_first=True)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.gru(self.lstm(self.words(x))[0])[0]).log_softmax(-1)


class Only(nn.Module):
    """One of the results of a network."""

    def __init__(self, model, pick):
        super().__init__()
        self.model, self.pick = model, pick

    def forward(self, *x):
        if len(x) == 2:
            return self.pick(self.model(x[0], attention_mask=x[1]))
        return self.pick(self.model(*x))


def vision(name, size, **options):
    def make():
        import torchvision

        return getattr(torchvision.models, name)(weights=None, **options), (torch.randn(1, 3, size, size),)

    return make


def _deeplab(size):
    def make():
        from torchvision.models.segmentation import deeplabv3_resnet50

        return Only(deeplabv3_resnet50(weights=None, weights_backbone=None), lambda y: y["out"]), (torch.randn(1, 3, size, size),)

    return make


def _words(batch, length, vocabulary):
    return torch.randint(0, vocabulary, (batch, length))


def bert(layers, length, **sizes):
    def make():
        import transformers as t

        config = t.BertConfig(num_hidden_layers=layers, **sizes)
        mask = torch.ones(1, length, dtype=torch.int64)
        mask[:, -length // 4 :] = 0
        model = Only(t.BertModel(config, add_pooling_layer=True), lambda y: (y.last_hidden_state, y.pooler_output))
        return model, (_words(1, length, config.vocab_size), mask)

    return make


def _distilbert(layers, length, **sizes):
    def make():
        import transformers as t

        config = t.DistilBertConfig(n_layers=layers, **sizes)
        return Only(t.DistilBertModel(config), lambda y: y.last_hidden_state), (_words(1, length, config.vocab_size),)

    return make


def _gpt2(layers, length, **sizes):
    def make():
        import transformers as t

        config = t.GPT2Config(n_layer=layers, use_cache=False, **sizes)
        mask = torch.ones(1, length, dtype=torch.int64)  # without it the legacy exporter has no name for what is done
        model = t.GPT2LMHeadModel(config)
        return Only(model, lambda y: y.logits), (_words(1, length, config.vocab_size), mask)

    return make


_TINY = {"vocab_size": 100, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
SMALL = {
    "resnet18": vision("resnet18", 32, num_classes=10),
    "squeezenet1_1": vision("squeezenet1_1", 32, num_classes=10),
    "unet": lambda: (UNet(), (torch.randn(1, 3, 24, 24),)),
    "detector": lambda: (Detector(), (torch.randn(1, 3, 32, 32),)),
    "tagger": lambda: (Tagger(), (_words(2, 5, 50),)),
    "bert": bert(1, 8, **_TINY),
    "distilbert": _distilbert(1, 8, vocab_size=100, dim=32, n_heads=4, hidden_dim=64),
    "gpt2": _gpt2(1, 8, vocab_size=100, n_embd=32, n_head=4),
}
FULL = {
    **{n: vision(n, 64) for n in (
        "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "mobilenet_v2", "mobilenet_v3_small",
        "mobilenet_v3_large", "densenet121", "squeezenet1_0", "squeezenet1_1", "efficientnet_b0", "efficientnet_v2_s",
        "mnasnet1_0", "shufflenet_v2_x1_0", "regnet_y_400mf", "regnet_x_400mf", "convnext_tiny", "swin_t",
    )},
    **{n: vision(n, 224) for n in ("vgg16", "vgg16_bn", "alexnet", "vit_b_16")},  # 224: the legacy exporter pools whole windows only
    "mobilenet_v1": lambda: (MobileNetV1(), (torch.randn(1, 3, 64, 64),)),
    "googlenet": vision("googlenet", 64, init_weights=False, aux_logits=False),
    "inception_v3": vision("inception_v3", 96, init_weights=False, aux_logits=False),
    "deeplab": _deeplab(64),
    "bert-base": bert(12, 32),
    "distilbert-base": _distilbert(6, 32),
    "gpt2-base": _gpt2(12, 32),
    **{n: SMALL[n] for n in ("unet", "detector", "tagger")},
}  # fmt: skip

# Those that are judged in 16 bits, too.
FULL_16 = (
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "squeezenet1_1", "densenet121", "efficientnet_b0",
    "shufflenet_v2_x1_0", "vgg16_bn", "convnext_tiny", "vit_b_16", "distilbert-base", "gpt2-base",
    "unet", "detector", "tagger",
)  # fmt: skip


def network(make):
    """(model, inputs, outputs of PyTorch as arrays)."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, inputs = make()
        model = trained_like(model)
        with torch.no_grad():
            want = model(*inputs)
    return model, inputs, [w.numpy() for w in (want if isinstance(want, tuple) else (want,))]


def onnx_bytes(model, inputs, dynamo):
    file = io.BytesIO()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # the legacy exporter has no name for it
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            if dynamo:
                torch.onnx.export(model, inputs, dynamo=True).save(file)
            else:
                torch.onnx.export(model, inputs, file, dynamo=False)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return file.getvalue()


def runtime_outputs(text, inputs):
    session = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, (x.numpy() for x in inputs))))


def outputs(mod, params, inputs, target="llvm"):
    lib = relay.build(mod, target=target, params=params)
    g = GraphModule(lib["default"](nestsmith.cpu()))
    own = [p.name_hint for p in mod["main"].params if p.name_hint not in params]
    for name, x in zip(own, inputs):
        g.set_input(name, x.numpy())
    g.run()
    return [g.get_output(i).numpy() for i in range(g.get_num_outputs())]


def computed(mod, params, inputs):
    """The outputs of a network: by NumPy's definitions of the operators, compiled where one has none."""
    f = mod["main"]
    given = [p for p in f.params if p.name_hint not in params]
    values = {**params, **{p.name_hint: x for p, x in zip(given, inputs)}}
    known = {id(p): Constant(values[p.name_hint]) for p in f.params}
    body = fold(relay.transform.InferType()(relay.Function([], rewrite(f.body, lambda old, new: known.get(id(old), new)))).body)
    if any(isinstance(e, (Call, TupleGetItem)) for e in post_order(body)):
        return outputs(mod, params, [torch.from_numpy(x) for x in inputs])
    return [c.numbers for c in (body.fields if isinstance(body, Tuple) else [body])]


def error(got, want):
    """The largest error relative to the largest element, over all outputs."""
    assert len(got) >= len(want)
    assert all(g.shape == w.shape and np.isfinite(w).all() for g, w in zip(got, want))
    return max(float(np.abs(g - w).max() / np.abs(w).max()) for g, w in zip(got, want))


def mixed(mod, params, dtype):
    """The module in 16 bits, weights bound, with outputs of the types that it has in 32."""
    f = relay.build_module.bind_params_by_name(mod["main"], params)
    with transform.PassContext(opt_level=3, config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        return IRModule.from_expr(relay.transform.ToMixedPrecision(dtype)(f))


def errors(make, ways=WAYS):
    """{way: (our error, onnxruntime's or None)} against PyTorch."""
    model, inputs, want = network(make)
    found = {}
    for way in ways:
        beside = None
        if way.startswith("onnx"):
            text = onnx_bytes(model, inputs, way.endswith("dynamo"))
            mod, params = relay.frontend.from_onnx(text)
            beside = error(runtime_outputs(text, inputs), want)
        else:
            mod, params = relay.frontend.from_pytorch(model, example_inputs=inputs)
        if way in SIXTEEN:
            mod, params = mixed(mod, params, way), {}
        found[way] = error(outputs(mod, params, inputs), want), beside
    return found
