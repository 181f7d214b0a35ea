"""The model of a chapter: reading, refusing, normalising, writing."""

import json
import os
import stat

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from synthetic import code, md

from bookkit.notebook import (
    as_lines,
    as_text,
    dump,
    load_book,
    load_chapter,
    normalise,
    order,
    stdout_output,
    write_atomic,
)
from bookkit.problems import BookError, Problem


def notebook(cells, **book):
    book = {"chapter": "01", "module": "intro", "title": "Intro", "question": "Why?"} | book
    return synthetic.notebook(cells, **book)


def put(root, raw, name="01-intro.ipynb", folder="chapters"):
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(raw) if isinstance(raw, dict) else raw, encoding="utf-8")
    return path


def messages(error):
    return [problem.message for problem in error.value.problems]


def test_a_chapter_knows_its_cells(tmp_path):
    cells = [
        md("title", "# Intro"),
        code("imports", "#@save\nimport math"),
        code("show", "print(math.tau)", "6.28\n", output="lab", tags=["t"]),
    ]
    chapter = load_chapter(put(tmp_path, notebook(cells)), tmp_path)
    assert (chapter.key, chapter.slug, chapter.module, chapter.question) == ("01", "intro", "intro", "Why?")
    assert [c.number for c in chapter.cells] == [None, 1, 2]
    assert [c.id for c in chapter.saved_cells] == ["imports"]
    show = chapter.cell("show")
    assert (show.stdout, show.output_class, show.tags, show.execution_count) == ("6.28\n", "lab", ["t"], 2)
    with pytest.raises(KeyError, match=r"01-intro.ipynb has no cell 'nope'"):
        chapter.cell("nope")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("#@save\nx = 1", ""),
        ("# @save\nx = 1", ""),
        ("#@save replaces=old\nx = 1", "replaces=old"),
        ("x = '''\n#@save'''", None),
        ("#@saved\nx = 1", None),
        ("x = 1 #@save", None),
    ],
)
def test_the_save_mark_is_the_whole_first_line(tmp_path, source, options):
    chapter = load_chapter(put(tmp_path, notebook([code("a", source)])), tmp_path)
    assert chapter.cells[0].save_options == options


def test_file_lines_point_into_the_file(tmp_path):
    cells = [md("title", "# One\ntwo"), code("show", "x = 1\nprint(x)", "1\n")]
    path = put(tmp_path, notebook(cells))
    chapter = load_chapter(path, tmp_path)
    lines = path.read_text().split("\n")
    for cell in chapter.cells:
        first = cell.source.split("\n")[0]
        assert cell.file_line is not None
        assert json.dumps(first)[1:-1] in lines[cell.file_line - 1]
    problem = chapter.problem(chapter.cell("show"), 2, "wrong")
    assert problem.file_line is not None
    assert "print(x)" in lines[problem.file_line - 1]
    assert str(problem) == "chapters/01-intro.ipynb · cell show · line 2: error: wrong"


def test_annotations_are_escaped():
    problem = Problem("a,b:c.ipynb", "x", 1, "100 %\nsecond", file_line=7)
    assert problem.github() == "::error file=a%2Cb%3Ac.ipynb,line=7::cell x: 100 %25%0Asecond"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw.update(nbformat_minor=4), "nbformat is 4.4"),
        (lambda raw: raw["metadata"]["agentrl"].pop("question"), "agentrl.question is missing"),
        (lambda raw: raw["metadata"]["agentrl"].update(chapter="02"), "metadata says chapter '02'"),
        (lambda raw: raw["metadata"]["agentrl"].update(module="Intro-1"), "module 'Intro-1' is not"),
        (lambda raw: raw["cells"].append(dict(raw["cells"][0])), "cell id 'a' is used twice"),
        (lambda raw: raw["cells"][0].pop("id"), "cell 0 has no id"),
        (lambda raw: raw["cells"][0].update(source=3), "cell 'a' has no source text"),
        (lambda raw: raw["cells"][0].update(outputs=None), "code cell 'a' has no list of outputs"),
        (lambda raw: raw["cells"][0].update(metadata=None), "cell 'a' has no metadata"),
        (lambda raw: raw["cells"][0]["metadata"].update(tags="x"), "tags that are not a list of texts: 'x'"),
        (lambda raw: raw["cells"][0]["metadata"].update(agentrl=[1]), "metadata agentrl that is not an object"),
        (lambda raw: raw["cells"][0].update(execution_count="1"), "has execution count '1', not a whole number"),
        (lambda raw: raw["cells"][0].update(execution_count=True), "has execution count True, not a whole number"),
        (lambda raw: raw["cells"][0]["outputs"].append(7), "code cell 'a' has an output without a type: 7"),
        (
            lambda raw: raw["cells"][0]["outputs"].append({"output_type": "stream", "text": "x"}),
            "stream output without name",
        ),
        (lambda raw: raw["cells"][0].update(cell_type="sql"), "cell 0 is not a code, markdown or raw cell"),
        (lambda raw: raw.update(cells=None), "there is no list of cells"),
    ],
)
def test_what_is_wrong_with_a_notebook_is_said(tmp_path, change, message):
    raw = notebook([code("a", "x = 1")])
    change(raw)
    with pytest.raises(BookError) as error:
        load_chapter(put(tmp_path, raw), tmp_path)
    assert any(message in said for said in messages(error)), messages(error)
    assert all(problem.path == "chapters/01-intro.ipynb" for problem in error.value.problems)


def test_text_that_is_no_notebook_is_refused_with_its_line(tmp_path):
    path = put(tmp_path, '{"cells": [\n  oops')
    with pytest.raises(BookError, match=r"not JSON: Expecting value at line 2, column 3"):
        load_chapter(path, tmp_path)
    path.write_text("[" * 100_000)
    with pytest.raises(BookError, match="nested too deeply"):
        load_chapter(path, tmp_path)
    path.write_bytes(b'{"cells": "\xff"}')
    with pytest.raises(BookError, match="not UTF-8: byte 11"):
        load_chapter(path, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"execution_count": 1', f'"execution_count": {"1" * 5000}', "a number cannot be read: "),
        ('"agentrl": {', f'"agentrl": {{"z": {"[" * 900}{"]" * 900},', "nested too deeply, in metadata.agentrl.z[0]"),
        ('"x = 1"', '"x = 1 # \\ud800"', "cells[0].source[0] holds '\\ud800', half a character"),
        ('"id": "a"', '"id": "a\\udfff"', "cells[0].id holds '\\udfff', half a character"),
        ('"title": "Intro"', '"title": "\\ud83d!"', "metadata.agentrl.title holds '\\ud83d'"),
        ('"title": "Intro"', '"\\ud83d": 1', "the key metadata.agentrl.\\ud83d holds '\\ud83d'"),
        ('"name": "python"', '"name": "\\udc80"', "metadata.language_info.name holds"),
    ],
    ids=["number", "depth", "source", "id", "title", "key", "elsewhere"],
)
def test_what_can_be_read_and_not_written_again_is_refused_with_its_place(tmp_path, old, new, message):
    text = dump(notebook([code("a", "x = 1")]))
    assert text.count(old) == 1
    with pytest.raises(BookError) as error:
        load_chapter(put(tmp_path, text.replace(old, new)), tmp_path)
    assert [message in said for said in messages(error)] == [True], messages(error)


def test_a_character_written_as_two_escapes_is_a_character(tmp_path):
    text = dump(notebook([code("a", "print('X')")])).replace("X", "\\ud83d\\ude00")
    assert load_chapter(put(tmp_path, text), tmp_path).cell("a").source == "print('😀')"


def test_a_folder_in_the_place_of_a_notebook_is_named(tmp_path):
    (tmp_path / "chapters" / "01-intro.ipynb").mkdir(parents=True)
    with pytest.raises(BookError, match=r"chapters/01-intro\.ipynb: error: cannot be read: Is a directory"):
        load_book(tmp_path)


def test_a_file_name_without_a_chapter_number_is_refused(tmp_path):
    with pytest.raises(BookError, match=r"not NN-slug\.ipynb"):
        load_chapter(put(tmp_path, notebook([]), "intro.ipynb"), tmp_path)


def test_a_book_is_in_reading_order_with_solutions_beside(tmp_path):
    for key, slug in (("A", "maths"), ("10", "kl"), ("02", "basics")):
        put(tmp_path, notebook([], chapter=key, module=slug), f"{key}-{slug}.ipynb")
    put(tmp_path, notebook([], chapter="10"), "10-kl.ipynb", "chapters/solutions")
    book = load_book(tmp_path)
    assert [c.label for c in book.notebooks()] == ["02", "10", "10/solutions", "A"]
    assert [c.key for c in book.before("A")] == ["02", "10"]
    assert sorted(["B", "10", "A", "09"], key=order) == ["09", "10", "A", "B"]
    with pytest.raises(KeyError, match="no chapter '11'; there are 02, 10, A"):
        book.chapter("11")


def test_every_unplaceable_notebook_is_named_at_once(tmp_path):
    put(tmp_path, notebook([], module="one"), "01-one.ipynb")
    put(tmp_path, notebook([], module="one"), "01-two.ipynb")
    put(tmp_path, notebook([]), "01-three.ipynb", "chapters/solutions")
    with pytest.raises(BookError) as error:
        load_book(tmp_path)
    text = "\n".join(messages(error))
    assert "chapter 01 is already chapters/01-one.ipynb" in text
    assert "module 'one' is already that of chapters/01-one.ipynb" in text
    assert "no chapter file 01-three.ipynb in chapters/ for these solutions" in text


def test_solutions_of_a_chapter_that_cannot_be_read_are_not_called_misplaced(tmp_path):
    put(tmp_path, "{", "01-one.ipynb")
    put(tmp_path, notebook([]), "01-one.ipynb", "chapters/solutions")
    with pytest.raises(BookError) as error:
        load_book(tmp_path)
    assert len(messages(error)) == 1
    assert messages(error)[0].startswith("not JSON")


def test_a_folder_without_chapters_is_refused(tmp_path):
    with pytest.raises(BookError, match="no such folder"):
        load_book(tmp_path)


def test_normalise_drops_what_jupyter_adds_and_loses_nothing_else():
    streams = [{"output_type": "stream", "name": "stdout", "text": part} for part in ("one\n", "two\n")]
    picture = {"output_type": "display_data", "data": {"text/plain": "x"}, "metadata": {}}
    cell = code("a", "\r\nprint(1)\r\n", outputs=[streams[0], picture, streams[1]], count=4, trusted=True, tags=[])
    raw = {"cells": [cell], "metadata": {"kernelspec": {"name": "conda"}, "widgets": {}}, "nbformat": 4}
    clean = normalise(raw)
    assert clean["cells"][0]["metadata"] == {}
    assert clean["cells"][0]["source"] == ["print(1)"]
    assert clean["cells"][0]["outputs"] == [*stdout_output("one\ntwo\n"), picture]
    assert clean["metadata"]["kernelspec"]["name"] == "python3"
    assert normalise(clean) == clean
    assert raw["cells"][0] is cell
    assert cell["execution_count"] == 4


def test_trailing_blanks_go_from_prose_and_stay_in_code():
    raw = notebook([md("m", "a  \nb"), code("c", 's = """a  \n"""')])
    assert [as_text(cell["source"]) for cell in raw["cells"]] == ["a\nb", 's = """a  \n"""']


@given(st.text())
def test_lines_join_to_the_text_they_came_from(text):
    assert as_text(as_lines(text)) == text


def test_dump_is_what_nbformat_writes():
    import nbformat

    raw = notebook([md("m", "héllo · ★"), code("c", "print(1)", "1\n")])
    assert nbformat.writes(nbformat.from_dict(raw)) + "\n" == dump(raw)
    nbformat.validate(nbformat.from_dict(raw))


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_atomic(path, "old\n")
    os.chmod(path, 0o640)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        write_atomic(path, "new\n")
    monkeypatch.undo()
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]
    write_atomic(path, "new\r\n")
    assert path.read_bytes() == b"new\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
