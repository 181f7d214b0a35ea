"""The few words that the books add to the text, in both languages."""

from __future__ import annotations

from dataclasses import dataclass

from bookkit.site.words import LANGUAGES as LANGUAGES
from bookkit.site.words import WORDS as SITE

AUTHORS = "The Agentic Reinforcement Learning book contributors"
LICENCE = "Prose and figures: CC BY 4.0. Code: MIT."
LICENCE_URL = "https://creativecommons.org/licenses/by/4.0/"


@dataclass(frozen=True)
class Words:
    """What a book says in one language; `tag` names the language as HTML and EPUB do."""

    tag: str
    title: str
    subtitle: str
    contents: str
    cover: str
    version: str
    recorded: str
    separator: str
    authors: str
    licence: str


WORDS = {
    "en": Words(
        tag="en",
        title=SITE["book"]["en"],
        subtitle=SITE["subtitle"]["en"],
        contents="Contents",
        cover="Cover",
        version="Version {}",
        recorded="Outputs recorded up to {}",
        separator=": ",
        authors=AUTHORS,
        licence=LICENCE,
    ),
    "zh": Words(
        tag="zh-Hans",
        title=SITE["book"]["zh"],
        subtitle=SITE["subtitle"]["zh"],
        contents="目录",
        cover="封面",
        version="版本 {}",
        recorded="输出记录截至 {}",
        separator="：",
        authors="《智能体强化学习》全体贡献者",
        licence="文字与插图：CC BY 4.0。代码：MIT。",
    ),
}
