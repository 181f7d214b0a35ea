"""Trees of HTML elements, as lxml builds and writes them; its types are unknown to type checkers."""

from __future__ import annotations

import importlib
from typing import Any

from lxml import html
from lxml.html import builder

_etree = importlib.import_module("lxml.etree")
Element = Any  # an lxml.html.HtmlElement
E: Any = builder.E  # E.p("text", {"class": "note"}) makes an element


def parse(text: str) -> Element:
    """Return the tree of an HTML page."""
    return html.fromstring(text)


def as_html(element: Element) -> str:
    """Return an element as HTML."""
    return str(html.tostring(element, encoding="unicode"))


def as_xml(element: Element) -> str:
    """Return an element as XML."""
    return str(_etree.tostring(element, encoding="unicode"))


def xml_fault(text: bytes) -> tuple[int, str] | None:
    """Return line and reason when a text is not well-formed XML."""
    try:
        _etree.fromstring(text)
    except _etree.XMLSyntaxError as error:
        return error.lineno, error.msg
    return None
