"""The types of an argument that names a model: it is taken for the name that localspec knows."""

from __future__ import annotations

import click


class ModelName(click.ParamType[str]):
    name = "text"

    def convert(self, value: str, *_: object) -> str:
        from localspec.models.catalog import Catalog

        return Catalog.load().plain_name(value)


class NameAnywhere(ModelName):
    """The name of a model here, or at a server, whose names keep their case."""

    def convert(self, value: str, *_: object) -> str:
        from localspec.models.addresses import without_address

        return without_address(value)


MODEL_NAME, NAME_ANYWHERE = ModelName(), NameAnywhere()
