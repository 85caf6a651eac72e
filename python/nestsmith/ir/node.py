"""Nodes by the names of their kinds."""

from ..relay.expr import Attrs
from ..relay.serial import load_json, save_json

__all__ = ["load_json", "make_node", "save_json"]


def make_node(type_key, **kwargs):
    """A node of a kind: attributes (``"DictAttrs"``, ``"attrs.<name>"``). Raises ValueError for other kinds, which have classes."""
    if type_key != "DictAttrs" and not type_key.startswith(("attrs.", "relay.attrs.")):
        raise ValueError(f"there are no nodes of the kind {type_key!r} to be made by name; attributes are 'DictAttrs', others have classes")
    return Attrs(kwargs)
