"""Finds the fields of a configuration that can change what transformers computes: those its own source names.

Reads the text of a family's config class and modeling file, and of what all families share; imports none of it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

CLASSES = (  # here a field is declared, or self.field
    "configuration_utils.py",
    "modeling_rope_utils.py",
    "integrations/heterogeneity/configuration_utils.py",
    "models/{0}/configuration_{0}.py",
)
READERS = (  # here it is config.field
    "modeling_utils.py",
    "modeling_layers.py",
    "masking_utils.py",
    "cache_utils.py",
    "integrations/sdpa_attention.py",
    "models/{0}/modeling_{0}.py",
)
READ = re.compile(r"""config\.(\w+)|["']([\w.]+)["']""")
DECLARED = re.compile(READ.pattern + r"|\bself\.(\w+)|\bdef (\w+)|^\s+(\w+)\s*:", re.MULTILINE)


def is_named(family: str, field: str) -> bool:
    """True if transformers' source for this family names this field, or cannot be read."""
    names = named(family)
    return field in names or not names


@cache
def named(family: str) -> frozenset[str]:
    """All names in transformers' source for a family. An older version may lack a file."""
    found = find_spec("transformers")  # found, not imported
    if found is None or found.origin is None:
        return frozenset()
    top, patterns = Path(found.origin).parent, dict.fromkeys(READERS, READ) | dict.fromkeys(CLASSES, DECLARED)
    files = {top / name.format(family): pattern for name, pattern in patterns.items()}
    texts = ((file.read_text(encoding="utf-8"), pattern) for file, pattern in files.items() if file.is_file())
    return frozenset(name for text, pattern in texts for groups in pattern.findall(text) for name in groups if name)
