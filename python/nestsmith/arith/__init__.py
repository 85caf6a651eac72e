"""What can be said of integer expressions: bounds, residues, simpler forms, proofs. The engine's index algebra answers."""

from .analyzer import Analyzer, ConstIntBound, IntervalSet, IntSet, ModularSet, ProofStrength
from .equations import (
    deduce_bound,
    detect_clip_bound,
    detect_common_subexpr,
    detect_linear_equation,
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
)
