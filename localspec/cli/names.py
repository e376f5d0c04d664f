"""The type of an argument that names a model: an address on the hub becomes the name that it holds."""

from __future__ import annotations

import click


class ModelName(click.ParamType[str]):
    name = "text"

    def convert(self, value: str, *_: object) -> str:
        from localspec.hub.addresses import without_address

        return without_address(value)


MODEL_NAME = ModelName()
