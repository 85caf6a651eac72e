"""What can be said of integer expressions: bounds, residues, simpler forms, proofs. The engine's index algebra answers."""

from .analyzer import Analyzer, ConstIntBound, IntervalSet, IntSet, ModularSet, ProofStrength
from .equations import *  # noqa: F403
