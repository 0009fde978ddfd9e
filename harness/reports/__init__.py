"""What people read of runs, beyond the lines of a terminal."""
