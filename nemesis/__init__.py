"""What can go wrong: grudges, moments, budgets and the faults themselves."""
