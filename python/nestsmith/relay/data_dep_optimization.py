"""Sparse weights are not there. Scripts that offer them as an option can import this module; its parts are refused when they are used."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(f"{__name__}.{name} is not there: products of sparse weights are not compiled; keep the weights dense")
