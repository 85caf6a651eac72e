"""What may differ: the rows of the table "Edges" of docs/numerics.md, by the words that begin them. Each says which differences it covers."""

EXTREMES = ("max", "min", "amax", "amin", "clamp", "fmax", "fmin", "relu", "hardtanh", "aminmax", "Max", "Min", "Clip", "Relu", "Pool", "topk",
            "sort", "threshold", "nan_to_num", "hardshrink", "softshrink", "hardswish", "hardsigmoid", "hinge")  # fmt: skip
RESIZED = ("interpolate", "upsample", "Resize", "Upsample")
QUANTIZED = ("Quant", "QLinear", "Cast", "to", "int", "long", "byte", "short", "char")


def _of(*words):
    return lambda d: any(w in d.name for w in words)


def _odd(d):
    """There are infinities or NaN among the inputs."""
    return "NaN" in d.fill or "infinit" in d.fill or d.fill == "special"


def _far(d):
    return d.what.startswith(("error", "NaN"))


ROWS = {
    "Sign of zero": lambda d: d.what.startswith("sign of zero") and (d.together or _of(*EXTREMES)(d)),
    "Beyond the range": lambda d: d.fill in ("huge", "tiny") and d.together and _far(d),
    "Running sums and products": lambda d: _of("cumsum", "cumprod", "CumSum", "CumProd")(d) and _far(d),
    "Infinite weights": lambda d: _of("conv", "Conv")(d) and _odd(d) and d.what.startswith("NaN"),
    "Resizing": lambda d: _of(*RESIZED)(d) and _odd(d),
    "Attention": lambda d: _of("attention", "Attention")(d) and _odd(d),
    "Other definitions": lambda d: d.apart,
    "Extremes in ONNX": lambda d: d.name.startswith("onnx.") and _of(*EXTREMES, "Arg", "TopK", "Hardmax")(d) and _odd(d),
    "Casts to integers": lambda d: d.what.startswith("integers") and (_odd(d) or d.fill == "huge") and _of(*QUANTIZED)(d),
}


def row(d):
    """The row that covers a difference; None if none does."""
    return next((name for name, covers in ROWS.items() if covers(d)), None)
