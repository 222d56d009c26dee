"""The exercises, one module each: its solution, how it is tried, and the mistakes that it knows."""
