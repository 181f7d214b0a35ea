"""A small made-up book as website/ and as the static edition have it: two pages a language, for test_books.py."""

from __future__ import annotations

import json
from pathlib import Path

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 60"><rect width="400" height="60" fill="#eef"/>'
    '<text x="20" y="35">a figure</text></svg>'
)
FORMULA = (
    '<span class="katex-display"><span class="katex"><span class="katex-mathml">'
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><semantics><mtable width="100%"><mtr>'
    '<mtd width="50%"></mtd><mtd><mrow><mi mathvariant="double-struck">E</mi><mo>=</mo><mn>1</mn></mrow></mtd>'
    '<mtd width="50%"></mtd><mtd><mtext>(1.1)</mtext></mtd></mtr></mtable>'
    r'<annotation encoding="application/x-tex">\mathbb E = 1 \tag{1.1}</annotation></semantics></math></span>'
    '<span class="katex-html" aria-hidden="true"><span class="base">E = 1</span><span class="tag">(1.1)</span></span>'
    "</span></span>"
)
LONG = "value = " + " + ".join(f"number_{i:02d}" for i in range(30))  # several times as wide as a line
CHAPTER = """
<p>See <a href="02-second.html#sec-2-1">§2.1</a>, <a href="#eq-1-1">Equation (1.1)</a> and
<a href="https://example.org/">elsewhere</a>.</p>
<h2 id="sec-1-1">1.1 {section}<a class="anchor" href="#sec-1-1"><span aria-hidden="true">#</span></a></h2>
<div id="eq-1-1">{formula}</div>
<div id="cell-long"><figure class="code"><figcaption>agentrl.made</figcaption>
<pre data-language="python"><code><span class="t-keyword">def</span> made():
    <span class="t-string">'''Return

    a text with an empty line.'''</span>
{long}</code></pre></figure></div>
<figure class="output"><figcaption>Output</figcaption><pre data-language="text"><code>a  b &lt; c
1  2</code></pre></figure>
<div id="fig-1-1"><div class="frame">
<img class="block dark:hidden" src="../../images/figures/made-light.svg" alt="A box." />
<img class="hidden dark:block" src="../../images/figures/made-dark.svg" alt="A box." /></div></div>
<p><strong>{figure} 1.1.</strong> A box and its text.</p>
<div class="table"><table><thead><tr><th>name</th><th>value</th></tr></thead>
<tbody><tr><td>one</td><td>{cell}</td></tr></tbody></table></div>
<aside class="callout note" aria-label="Note"><p class="kind"><span>Note</span></p><div><p>Remember.</p></div></aside>
<details class="accordion"><summary>{solution}</summary><div class="inside"><p id="sol-one">Because.</p></div></details>
{extra}
"""
SECOND = """<h2 id="sec-2-1">2.1 {section}</h2><p>Back to <a href="01-first.html">the first</a>. {extra}</p>"""
WORDS = {
    "en": {"figure": "Figure", "solution": "Solution", "section": "Where it begins", "part": "Foundations"},
    "zh": {"figure": "图", "solution": "解答", "section": "从哪里开始", "part": "基础"},
}
TITLES = {
    "en": ("Chapter 1 · The First", "Chapter 2 · The Second"),
    "zh": ("第 1 章 · 开端", "第 2 章 · 后续"),
}
NAMES = ("01-first", "02-second")


def write_site(root: Path, *, extra: str = "", cell: str = "1", image: bool = True) -> tuple[Path, Path]:
    """Write website/ and site/ in a folder and return both; `extra` ends the first pages, `cell` stands in a table."""
    website, site = root / "website", root / "site"
    navigation = []
    for language, words in WORDS.items():
        pages = [f"{language}/chapters/{name}" for name in NAMES]
        navigation.append({"language": language, "groups": [{"group": words["part"], "pages": pages}]})
        first = CHAPTER.format(formula=FORMULA, long=LONG, cell=cell, extra=extra, **words)
        for path, title, body in zip(pages, TITLES[language], (first, SECOND.format(extra="", **words)), strict=True):
            _write(website / f"{path}.mdx", f'---\ntitle: "{title}"\nversion: "0.1.0"\nrecorded: "2026-01-02"\n---\n')
            _write(site / f"{path}.html", f"<!doctype html><title>x</title><main><article>{body}</article></main>")
    _write(website / "docs.json", json.dumps({"navigation": {"languages": navigation}}))
    _write(site / "assets/katex/katex.css", ".katex-display { display: block; text-align: center }")
    for name in ("light", "dark") if image else ():
        _write(site / f"images/figures/made-{name}.svg", SVG)
    return website, site


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
