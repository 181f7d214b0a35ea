"""The Chinese edition beside the English one, `chapters/zh/` (sync_translation.py). One module, one job:

pair        a notebook and its translation, the state of each cell, where links lead
sync        writes the translation's notebooks: all from English but the Chinese of the markdown cells
accept      marks cells as translating the English as it is now; drops what English no longer has
check       every check, and how much is translated
form        whether a notebook is English's but for the Chinese of its markdown cells
compare     a cell and its translation: what has to be the same in both
numbers     numbers in digits and in words, in both languages
glossary    the terms, read from chapters/zh/glossary.toml
terms       whether a translation keeps to them
typography  Chinese punctuation, spaces and characters
length      whether a block says as much as its English
history     what an English cell said before, from git
findings    the rules by name, and the exceptions from them
"""
