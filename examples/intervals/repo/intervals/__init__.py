from intervals.calendar import busy, first_free
from intervals.merge import gaps, merge

__all__ = ["busy", "first_free", "gaps", "merge"]
