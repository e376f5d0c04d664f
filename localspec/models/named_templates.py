"""Chat templates that a user may choose instead of the model's own: named ones, or a file.

Knows Jinja's text and no tokenizer. Imports jinja late: only a file's template is compiled here.
"""

from __future__ import annotations

import difflib
import os

from localspec.core import paths, strict_json
from localspec.core.errors import CheckpointError, UsageError
from localspec.core.events import Notice
from localspec.core.requests import Template

MAX_BYTES = 1 << 16
OWN = "auto"  # the model's
NO_TEMPLATE = Notice("info", "no_template", "This is a base model without a chat template: it completes the text.")
EACH = "{{ bos_token }}{% for message in messages %}"
OPEN = "{% if add_generation_prompt %}"

COMPLETION = Template(
    "none",
    EACH
    + "{% if not loop.first and message.role != 'assistant' %}{{ '\n\n' }}{% endif %}{{ message.content }}{% endfor %}",
)
NAMED = {
    template.name: template
    for template in (
        COMPLETION,
        Template(
            "chatml",
            EACH + "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            f"{OPEN}<|im_start|>assistant\n{{% endif %}}",
            ("<|im_end|>", "<|im_start|>"),
        ),
        Template(
            "llama-3",
            EACH
            + "<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n{{ message.content }}<|eot_id|>{% endfor %}"
            f"{OPEN}<|start_header_id|>assistant<|end_header_id|>\n\n{{% endif %}}",
            ("<|eot_id|>",),
        ),
        Template(
            "words",  # plain words, for a model without tokens for turns
            EACH
            + "{{ message.role | capitalize }}: {{ message.content }}\n\n{% endfor %}"
            + OPEN
            + "Assistant:{% endif %}",
            ("\nUser:", "\nSystem:"),
        ),
    )
}
CHOICES = (OWN, *NAMED)


def find(typed: str) -> Template | None:
    """The template of this name or file; None for the model's own. Reads the disk."""
    if typed == OWN:
        return None
    return NAMED.get(typed) or from_file(typed)


def from_file(typed: str) -> Template:
    """The template in a file; UsageError if it cannot be read or compiled."""
    from localspec.models.sandbox import check_template

    file = paths.expanded(typed)
    if not os.path.isfile(file):  # False, too, for what cannot be a path
        near = difflib.get_close_matches(typed, CHOICES, n=1)
        raise UsageError(
            f"There is no template '{typed[:200]}'" + (f"; did you mean '{near[0]}'?" if near else "."),
            hint=f"Use one of {', '.join(CHOICES)}, or a Jinja file.",
        )
    try:
        source = strict_json.read_text(file, MAX_BYTES)
        check_template(source, file.name)
    except CheckpointError as fault:
        raise UsageError(fault.message, hint="Edit the file, or choose another.") from fault
    return Template(file.name, source)
