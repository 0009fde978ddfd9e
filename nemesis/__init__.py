"""The nemeses: faults, grudges (network cuts), moments, budgets, and the schedules that random nemeses
draw."""
