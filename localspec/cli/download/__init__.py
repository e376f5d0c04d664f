"""`localspec pull`: what was asked for, the plan as a screen, the questions, progress, and the record of each pull."""
