"""Chaos: real processes under faults that a seed plans, and a checker that reads what every process wrote."""
