"""What clients ask, and what an answer proves."""
