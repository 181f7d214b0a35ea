"""The tags of a PDF without those that say nothing.

Chromium tags every `<span>`, each coloured word of code and each part of a formula: in a book 150,000 tags of the kind
that stands for nothing, two thirds of the file. What is below such a tag is put below the next one that has a meaning.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from pypdf import PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, NumberObject

MEANINGLESS = {"/NonStruct"}


def pruned(file: Path) -> io.BytesIO:
    """Return a PDF without the tags that have no meaning."""
    writer = PdfWriter(clone_from=file)
    _prune(writer)
    written = io.BytesIO()
    writer.write(written)
    return written


def _prune(writer: PdfWriter) -> None:
    """Remove the tags without meaning."""
    root: Any = writer.root_object["/StructTreeRoot"]
    successors: dict[int, Any] = {}  # of each removed tag, by its number
    stack: list[Any] = [root]
    while stack:
        tag = stack.pop()
        kids = _kids(tag, successors)
        tag[NameObject("/K")] = ArrayObject(kids)
        stack += [kid.get_object() for kid in kids if _is_tag(kid)]
    for entry in _leaves(root["/ParentTree"]):
        for place, reference in enumerate(entry):
            if (number := getattr(reference, "idnum", 0)) in successors:
                entry[place] = successors[number]
    for number in successors:
        writer._objects[number - 1] = None


def _kids(tag: Any, successors: dict[int, Any]) -> list[Any]:
    """Return what is below a tag, with what was below meaningless ones in their place."""
    kids: list[Any] = []
    waiting = _listed(tag)[::-1]
    pages = [tag.get("/Pg")] * len(waiting)
    while waiting:
        kid, page = waiting.pop(), pages.pop()
        if not _is_tag(kid):
            kids.append(_content(kid, page, tag))
        elif kid.get_object()["/S"] in MEANINGLESS:
            successors[kid.idnum] = tag.indirect_reference
            inside = _listed(kid.get_object())[::-1]
            waiting += inside
            pages += [kid.get_object().get("/Pg")] * len(inside)
        else:
            kid.get_object()[NameObject("/P")] = tag.indirect_reference
            kids.append(kid)
    return kids


def _listed(tag: Any) -> list[Any]:
    kids: Any = tag.raw_get("/K") if "/K" in tag else []
    kids = kids.get_object() if isinstance(kids, ArrayObject) or _refers_to_list(kids) else kids
    return list(kids) if isinstance(kids, list) else [kids]


def _refers_to_list(kids: Any) -> bool:
    return hasattr(kids, "idnum") and isinstance(kids.get_object(), ArrayObject)


def _is_tag(kid: Any) -> bool:
    """Return whether something below a tag is a tag, not a piece of a page."""
    return hasattr(kid, "idnum") and "/S" in kid.get_object()


def _content(kid: Any, page: Any, tag: Any) -> Any:
    """Return a piece of a page; a mere number counts on the page of its tag, and on another one has to name it."""
    if not isinstance(kid, NumberObject) or page == tag.get("/Pg"):
        return kid
    if "/Pg" not in tag:
        tag[NameObject("/Pg")] = page.indirect_reference
        return kid
    kind = {NameObject("/Type"): NameObject("/MCR"), NameObject("/Pg"): page.indirect_reference}
    return DictionaryObject({**kind, NameObject("/MCID"): kid})


def _leaves(tree: Any) -> list[Any]:
    """Return the lists in a number tree."""
    tree = tree.get_object()
    if "/Kids" in tree:
        return [leaf for kid in tree["/Kids"] for leaf in _leaves(kid)]
    return [value for value in (entry.get_object() for entry in tree["/Nums"][1::2]) if isinstance(value, ArrayObject)]
