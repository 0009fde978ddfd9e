"""What the faults of a run permit: judging.permissions, under the name by which the old judge knows it."""

from checkers.judging.permissions import Bounds, bounds_of, min_insync
from checkers.laws.permits import EVER, NEVER

__all__ = ["EVER", "NEVER", "Bounds", "bounds_of", "min_insync"]
