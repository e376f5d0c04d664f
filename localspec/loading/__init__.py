"""From files to a decoder: the plan, weight formats, offload, the weight cache, the self-check."""
