"""Which licences forbid commercial use, by tags that say so, and that each is acknowledged once a repository."""

from __future__ import annotations

import pytest

from localspec.hub.licences import acknowledge, must_acknowledge, read_licence


@pytest.mark.parametrize(
    ("card", "tags", "words", "forbids"),
    [
        ({"license": "fair"}, (), "fair, non-commercial", True),
        ({"license": "cc-by-nc-4.0"}, (), "cc-by-nc-4.0, non-commercial", True),
        ({"license": "cc-by-nc-nd-4.0"}, (), "cc-by-nc-nd-4.0, non-commercial", True),
        ({"license": "other", "license_name": "fair-noncommercial-research-license"}, (), None, True),
        ({"license": "apache-2.0"}, (), "apache-2.0", False),
        ({"license": "other", "license_name": "llama3.2"}, (), "llama3.2", False),
        ({"license": ["mit", "apache-2.0"]}, (), "mit, apache-2.0", False),
        ({"license": 7}, ("x", "license:mit"), "mit", False),
        (None, ("license:cc-by-nc-sa-3.0",), "cc-by-nc-sa-3.0, non-commercial", True),
        ({}, (), "not named", False),
        ({"license": "ncsa"}, (), "ncsa", False),
        ({"license": "m\x1b[31mit\r\nx"}, (), "m␛[31mit x", False),
    ],
)
def test_a_licence_is_read_from_the_card_and_then_the_tags(
    card: dict[str, object] | None, tags: tuple[str, ...], words: str | None, forbids: bool
):
    found = read_licence(card, tags)
    assert found.non_commercial is forbids
    assert words is None or found.words == words


def test_a_non_commercial_licence_is_acknowledged_once_for_a_repository():
    """And again where it changes; others need not be."""
    fair, other = read_licence({"license": "fair"}, ()), read_licence({"license": "cc-by-nc-4.0"}, ())
    assert must_acknowledge("o/m", fair)
    acknowledge("o/m", fair)
    assert not must_acknowledge("o/m", fair)
    assert must_acknowledge("o/m", other)
    assert must_acknowledge("o/n", fair)
    assert not must_acknowledge("o/n", read_licence({"license": "mit"}, ()))
