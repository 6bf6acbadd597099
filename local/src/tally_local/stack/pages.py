"""Asking a server of this stack for a page."""

from typing import Any

import httpx


def page_of(url: str) -> Any:
    """What a page says as JSON; None while its server does not answer, or answers with an error."""
    try:
        # This machine's own address: a proxy would not find it.
        return httpx.get(url, timeout=5, trust_env=False).raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return None
