"""Versions of the frameworks."""

import re


def first_two(version: str) -> tuple[int, int] | None:
    """Its first two numbers, to be compared; None where it does not begin with them."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None
