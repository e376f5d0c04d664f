"""Everything that can be measured on one machine within a budget of time: what `make measure` runs."""
