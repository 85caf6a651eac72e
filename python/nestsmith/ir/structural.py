"""Structural equality and hashes: faces of :mod:`nestsmith.structure`, whose rules the modules below bring."""

from .. import structure
from ..relay import structure as _networks  # noqa: F401  brings its rules

__all__ = ["structural_equal", "assert_structural_equal", "structural_hash", "get_first_structural_mismatch"]


def structural_equal(lhs, rhs, map_free_vars=False):
    """Whether two objects (expressions, functions, modules, types, statements, lists and dictionaries of them) have the same structure.

    Bound variables are compared by where they are bound, free ones by identity; with `map_free_vars` by their types and where they are
    met. Element types and shapes of constants and all their bytes count; names of variables and types that were only inferred do not.
    """
    return structure.first_difference(lhs, rhs, map_free_vars) is None


def assert_structural_equal(lhs, rhs, map_free_vars=False):
    """Raises ValueError with the place of the first difference if :func:`structural_equal` is False."""
    found = structure.first_difference(lhs, rhs, map_free_vars)
    if found:
        path, a, b = found
        what = f"caused by lhs at {path}:\n{str(a)[:200]}\nand rhs at {path}:\n{str(b)[:200]}"
        raise ValueError(f"StructuralEqual check failed, {what}\nlhs is:\n{lhs}\nrhs is:\n{rhs}")


def get_first_structural_mismatch(lhs, rhs, map_free_vars=False):
    """None, or the paths (texts) in both objects at which :func:`structural_equal` finds the first difference."""
    found = structure.first_difference(lhs, rhs, map_free_vars)
    return found and (found[0], found[0])


def structural_hash(node, map_free_vars=False):
    """A number of 64 bits that equal structures have in common."""
    return structure.digest(node, map_free_vars)
