"""``import nestsmith.dynamo`` makes ``torch.compile(model, backend="nestsmith")`` known where the package is not installed."""

from torch._dynamo import list_backends, register_backend

from nestsmith.compiled.torch_backend import backend

__all__ = ["backend"]

if "nestsmith" not in list_backends(exclude_tags=()):
    register_backend(backend, name="nestsmith")
