"""Caches of transformers as trees of tensors, for ``torch.export`` takes and returns nothing else.

A model of transformers returns its cache of keys and values unless ``use_cache=False`` says otherwise. transformers registers one class of
caches, if it is asked to, and only with some kinds of layers. Here all of them are: the leaves are the tensors that a cache and its layers
hold, the rest (classes, lengths, flags) is the structure, which a network is compiled for.
"""

import sys

__all__ = ["register"]

_LEAF = "a tensor"


def register(torch):
    """Makes the classes of caches known that transformers has, if it is loaded."""
    module = sys.modules.get("transformers.cache_utils")
    todo, known = [getattr(module, "Cache", None)], torch.utils._pytree.SUPPORTED_NODES
    while todo:
        cls = todo.pop()
        if cls is None:
            continue
        todo += cls.__subclasses__()
        if cls not in known:
            _register(torch, cls, _Theirs(torch) if cls.__name__ == "DynamicCache" else None)


def _register(torch, cls, theirs):
    def flatten(cache):
        if theirs is not None and theirs.fits(cache):
            return theirs.flatten(cache)
        leaves: list = []
        return leaves, _structure(torch, cache, leaves)

    def flatten_with_keys(cache):
        leaves, context = flatten(cache)
        return [(torch.utils._pytree.SequenceKey(k), v) for k, v in enumerate(leaves)], context

    def unflatten(leaves, context):
        return theirs.unflatten(leaves, context) if isinstance(context, list) else _made(context, iter(leaves))

    torch.utils._pytree.register_pytree_node(
        cls, flatten, unflatten, serialized_type_name=f"{cls.__module__}.{cls.__name__}", flatten_with_keys_fn=flatten_with_keys
    )


class _Theirs:
    """How transformers itself takes a DynamicCache apart, so that programs in files fit in both places. It does not keep how many tokens a
    sliding window has seen."""

    def __init__(self, torch):
        from transformers.integrations import executorch

        names = "_get_cache_dict", "_flatten_cache_dict", "_get_dynamic_cache_layout", "_unflatten_dynamic_cache"
        self.functions = [getattr(executorch, n, None) for n in names]

    def fits(self, cache):
        return all(self.functions) and cache.layers and all(type(x).__name__ == "DynamicLayer" and x.keys is not None for x in cache.layers)

    def flatten(self, cache):
        held, flat, layout, _ = self.functions
        return flat(held(cache), layout(cache))

    def unflatten(self, leaves, context):
        return self.functions[-1](leaves, context)


def _structure(torch, value, leaves):
    """What of a value is no tensor; the tensors go to `leaves`."""
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return _LEAF
    if type(value) in (list, tuple):
        return type(value), tuple(_structure(torch, v, leaves) for v in value)
    if type(value) is dict:
        return dict, tuple((k, _structure(torch, v, leaves)) for k, v in value.items())
    if type(value).__module__.startswith("transformers.") and hasattr(value, "__dict__"):
        return type(value), _structure(torch, vars(value), leaves)
    return None, value


def _made(structure, leaves):
    """A value made of its structure and its tensors."""
    if structure == _LEAF:
        return next(leaves)
    cls, inner = structure
    if cls is None:
        return inner
    if cls in (list, tuple):
        return cls(_made(v, leaves) for v in inner)
    if cls is dict:
        return {k: _made(v, leaves) for k, v in inner}
    made = cls.__new__(cls)
    vars(made).update(_made(inner, leaves))
    return made
