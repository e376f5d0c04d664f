"""Policies: what is drafted in the next round, and how much of it. They see offers and rounds, and have no clock."""
