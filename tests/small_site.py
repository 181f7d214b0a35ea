"""A small book and the website that belongs to it, which passes every gate: where tests plant faults.

write_site(tmp_path) writes the book into tmp_path and the website into tmp_path / "website"; `edit` changes one place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from synthetic import code, md, write_book, write_chapter

SAVED = "#@save\ndef clamp(value, lower, upper):\n    return max(lower, min(value, upper))"
USE = "print(PRINTED)"
TWICE = "print(clamp(clamp(9, 0, 5), 0, 5))"
PRINTED = "print({1: `x`, 2: <b>})\n$5 | {a} < b\n\n"
FIGURE = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><title>A clamp.</title></svg>\n'
TITLES = {
    "en": {"index": "The Book", "chapters/01-clamp": "Chapter 1 · The Clamp", "reference/sources": "Sources"},
    "zh": {"index": "本书", "chapters/01-clamp": "第 1 章 · 截断", "reference/sources": "来源"},
}
OUTPUT = {"en": "Output", "zh": "输出"}
CHAPTER = """\
<Info>

**Question.** What does a clamp do to $x < 3$ and to the set $\\{{1, 2\\}}$?

</Info>

<div id="sec-1-1">

## 1.1 A first clamp

</div>

Equation [(1.1)](#eq-1-1) cuts off, as [[clip]](/{language}/reference/sources#src-clip) does. This is a \\{{ and a \\<.

<div id="eq-1-1">

$$
\\operatorname{{clamp}}(x) = \\min(\\max(x, a), b) \\tag{{1.1}}
$$

</div>

| value | becomes |
| --- | --- |
| $\\lvert x \\rvert$ | 3 |
| 4 | $5 \\mid 6$ |

<div id="cell-clamp">

```python agentrl.clamp
{saved}
```

</div>

<div id="cell-use">

```python
{use}
```

```text {output}
{printed}
```

</div>

<Frame>
  <img className="block dark:hidden" src="/images/figures/ch01-clamp-light.svg" alt="A clamp." />
  <img className="hidden dark:block" src="/images/figures/ch01-clamp-dark.svg" alt="A clamp." />
</Frame>

<div id="exercises">

## Exercises

</div>

<div id="ex-1-1">

**Exercise 1.1.** Clamp twice.

</div>

<Accordion title="Solution">

<div id="sol-twice">

```python
{twice}
```

```text {output}
5
```

</div>

</Accordion>
"""


def write_site(root: Path) -> Path:
    """Write a book of one chapter with its solutions and its website in both languages; return the website's folder."""
    write_book(root, {"01-clamp": [md("title", "# Chapter 1"), code("clamp", SAVED), code("use", USE, PRINTED)]})
    write_chapter(root, "01-clamp", [md("title", "# Solutions"), code("twice", TWICE, "5\n")], kind="solutions")
    website = root / "website"
    for language in TITLES:
        filled = {"language": language, "output": OUTPUT[language], "saved": SAVED, "use": USE, "twice": TWICE}
        write_page(website, f"{language}/index", f"[1](/{language}/chapters/01-clamp#sec-1-1)\n")
        write_page(website, f"{language}/chapters/01-clamp", CHAPTER.format(**filled, printed=PRINTED[:-1]))
        write_page(website, f"{language}/reference/sources", '<div id="src-clip">\n\n## clip\n\n</div>\n\nA paper.\n')
    for name in ("favicon", "figures/ch01-clamp-light", "figures/ch01-clamp-dark"):
        write(website, f"images/{name}.svg", FIGURE)
    write(website, "docs.json", json.dumps(docs(), indent=2, ensure_ascii=False))
    write(website, "llms.txt", "# The Book\n\n" + "".join(f"- [x](/{page})\n" for page in listed()))
    write(website, "llms-full.txt", "\n\n".join(["# The Book", SAVED, USE, PRINTED, TWICE, "5\n"]))
    return website


def listed() -> list[str]:
    """Return every page of the website, as docs.json names it."""
    return [f"{language}/{page}" for language, pages in TITLES.items() for page in pages]


def docs() -> dict[str, Any]:
    """Return the website's docs.json."""
    languages = []
    for language, pages in TITLES.items():
        groups = [{"group": title, "pages": [f"{language}/{page}"]} for page, title in pages.items()]
        languages.append({"language": language, "groups": groups})
    return {
        "$schema": "https://mintlify.com/docs.json",
        "theme": "mint",
        "name": "The Book",
        "colors": {"primary": "#0F766E"},
        "favicon": "/images/favicon.svg",
        "styling": {"latex": True},
        "navigation": {"languages": languages},
    }


def write_page(website: Path, name: str, body: str) -> None:
    """Write a page with its frontmatter."""
    write(website, f"{name}.mdx", front(name) + body)


def front(name: str) -> str:
    """Return the frontmatter of a page: with the book's own keys where it is a chapter's."""
    language, _, page = name.partition("/")
    title = TITLES[language].get(page, page)
    keys = {"title": title, "description": "A page.", "version": "0.0.1"}
    if page.startswith("chapters/"):
        keys |= {
            "sidebarTitle": title,
            "chapter": "01",
            "recorded": "2026-11-29",
            "torch": "2.13.0",
            "source": "chapters/01-clamp.ipynb",
        }
        keys |= {"translated": "true"} if language == "zh" else {}
    lines = (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items())
    return "\n".join(["---", *lines, "---", "", ""])


def write(website: Path, name: str, text: str) -> None:
    """Write one file of the website."""
    path = website / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def edit(website: Path, name: str, old: str, new: str) -> None:
    """Replace the one place in a file where `old` stands."""
    text = (website / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
    write(website, name, text.replace(old, new))
