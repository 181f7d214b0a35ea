"""Every word of the interface, in both languages: one table, so that a missing translation cannot hide."""

from __future__ import annotations

from typing import Literal

from ..plan import Part, Planned

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

WORDS: dict[str, dict[Language, str]] = {
    "book": {"en": "Agentic Reinforcement Learning", "zh": "智能体强化学习"},
    "subtitle": {"en": "From Policy Gradients to Coding Agents", "zh": "从策略梯度到编程智能体"},
    "start": {"en": "Start", "zh": "开始"},
    "reference": {"en": "Reference", "zh": "参考资料"},
    "output": {"en": "Output", "zh": "输出"},
    "solution": {"en": "Solution to Exercise {number}", "zh": "练习 {number} 的解答"},
    "setup": {"en": "Setup of the solutions", "zh": "解答的准备代码"},
    "planned": {"en": " (not yet written)", "zh": "（尚未撰写）"},
    "in-english": {"en": "", "zh": "正文暂为英文"},
    "listed-in-english": {"en": "", "zh": "（英文）"},
    "partly-in-english": {"en": "", "zh": "（部分正文暂为英文）"},
    "labs": {"en": "Labs", "zh": "实验"},
    "editorial-guide": {"en": "Editorial Guide", "zh": "编写指南"},
    "sources": {"en": "Sources", "zh": "来源"},
    "changelog": {"en": "Changelog", "zh": "更新日志"},
    "about-labs": {
        "en": "Experiments with a real language model, and how to get it.",
        "zh": "使用真实语言模型的实验，以及如何获取模型。",
    },
    "about-editorial-guide": {
        "en": "How a chapter is written, and what the tools hold it to.",
        "zh": "各章的写法，以及由工具检查的规则。",
    },
    "about-sources": {
        "en": "The ledger: what the book takes from each source, where it stands, and when it was checked.",
        "zh": "来源台账：本书从每个来源引用了什么，在原文何处，何时核对。",
    },
    "about-changelog": {
        "en": "What changed from edition to edition, recorded numbers above all.",
        "zh": "各版本改动了什么，尤其是记录的数值有何变化。",
    },
    "untranslated-page": {"en": "", "zh": "本页尚未翻译，以下为英文原文。"},
    "untranslated-chapter": {"en": "", "zh": "本章尚未翻译，以下为英文原文。"},
    "untranslated-cell": {"en": "", "zh": "以下内容尚未翻译，保留英文原文。"},
    "needs-lab": {
        "en": "This cell needs the real model ({labs}). Its output may differ a little from machine to machine.",
        "zh": "本单元格需要{labs}所用的真实模型，不同机器上的输出可能略有差异。",
    },
    "needs-sandbox": {
        "en": "This cell needs Linux with bubblewrap and the kernel's means to isolate a process.",
        "zh": "本单元格需要 Linux、bubblewrap 以及内核的进程隔离机制。",
    },
    "footer": {
        "en": "Version {version} · outputs recorded {recorded} with torch {torch} · notebook `{source}`{solved}",
        "zh": "版本 {version} · 输出记录：{recorded}，torch {torch} · notebook `{source}`{solved}",
    },
    "footer-solved": {"en": ", solutions `{source}`", "zh": "，解答 `{source}`"},
    "footer-index": {
        "en": "Version {version} · code under the MIT licence, text and figures under CC BY 4.0",
        "zh": "版本 {version} · 代码采用 MIT 许可证，正文与插图采用 CC BY 4.0 许可",
    },
    "cite": {
        "en": "To cite: The Agentic Reinforcement Learning book contributors. *{title}.* Version {version}, {year}.",
        "zh": "引用格式：The Agentic Reinforcement Learning book contributors. *{title}.* Version {version}, {year}.",
    },
    "whole-text": {
        "en": "The whole English text, with code, outputs and the ledger of sources, is one file: {file}",
        "zh": "英文全文（含代码、输出与来源台账）在一个文件中：{file}",
    },
    "footer-page": {"en": "Version {version} · source `{source}`", "zh": "版本 {version} · 源文件 `{source}`"},
    "cited": {"en": "Cited in {places}.", "zh": "引用处：{places}。"},
    "comma": {"en": ", ", "zh": "、"},
    "unrecorded": {"en": "on no known date", "zh": "日期不详"},
    "welcome": {
        "en": (
            "An executable textbook on training language-model agents: agents that call tools, read results, and "
            "improve from the verified outcome of a whole episode. Every chapter is a notebook that answers one "
            "question. Each output on these pages was printed by the code above it, and each derivation is checked "
            "by a cell."
        ),
        "zh": (
            "一本可执行的教科书，讲解怎样训练语言模型智能体。这样的智能体调用工具，读取结果，再根据整个回合经过验证的结果改进自己。"
            "每章是一个 notebook，回答一个问题。页面上的每段输出都由上方的代码打印，每个推导都有单元格检验。"
        ),
    },
    "how-to-read": {
        "en": (
            "Begin with {first}, or look up a symbol in {notation}. Exercises stand at the end of each chapter with "
            "their solutions folded below them."
        ),
        "zh": "可以从{first}开始；符号见{notation}。每章末尾有练习，解答折叠在题目下方。",
    },
}
LABELS: dict[Language, dict[str, str]] = {
    "en": {"recommendation": "Recommendation"},
    "zh": {"recommendation": "建议做法"},
}


def word(name: str, language: Language, **values: str) -> str:
    """Return an entry of the table with its places filled; KeyError names one that does not exist."""
    return WORDS[name][language].format(**values)


def chapter_label(key: str, language: Language) -> str:
    """Return `Chapter 6`, `Appendix A`, 第 6 章, 附录 A."""
    chapter, appendix = {"en": ("Chapter {}", "Appendix {}"), "zh": ("第 {} 章", "附录 {}")}[language]
    return chapter.format(int(key)) if key.isdigit() else appendix.format(key)


def planned_title(entry: Part | Planned, language: Language) -> str:
    """Return the title of a part or a chapter as the plan has it."""
    return entry.title if language == "en" else entry.zh


def short_number(key: str) -> str:
    """Return a chapter's number as references write it: `6`, `A`."""
    return key.lstrip("0") or "0"
