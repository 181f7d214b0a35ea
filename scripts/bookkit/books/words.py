"""The few words that the books add to the text, in both languages."""

from __future__ import annotations

from dataclasses import dataclass

LANGUAGES = ("en", "zh")
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
    solution: str
    separator: str
    authors: str
    licence: str
    page: str


WORDS = {
    "en": Words(
        tag="en",
        title="Agentic Reinforcement Learning",
        subtitle="From Policy Gradients to Coding Agents",
        contents="Contents",
        cover="Cover",
        version="Version {}",
        recorded="Outputs recorded up to {}",
        solution="Solution",
        separator=": ",
        authors=AUTHORS,
        licence=LICENCE,
        page="Page",
    ),
    "zh": Words(
        tag="zh-Hans",
        title="智能体强化学习",
        subtitle="从策略梯度到编程智能体",
        contents="目录",
        cover="封面",
        version="版本 {}",
        recorded="输出记录截至 {}",
        solution="解答",
        separator="：",
        authors="《智能体强化学习》全体贡献者",
        licence="文字与插图：CC BY 4.0。代码：MIT。",
        page="页",
    ),
}
