"""What the scripts share. One module, one job:

The book
    notebook        the model of a chapter: read, normalise, write
    problems        a finding and its place, for people and for GitHub
    sources         the ledger sources.md
    plan, plan.toml the parts and chapters of the book, written or not
    scratch         folders for what is half done, removed even after a kill
    entry           how a script starts and ends: closed streams, a reader that goes, Ctrl-C

The library (build_library.py)
    saves           what each saved cell imports, defines and needs
    scopes          Python's scoping rules on `ast`
    importtime      what may not run when a module is imported
    rewrite         `arl.name` becomes `name`
    library         resolves every name across chapters
    render          the text of the modules
    package         the files on disk, and the formatter
    librarycli      the command line

The checker (check_chapters.py)
    checker         the plan, the verdicts
    runner          a job and its result, read from the events of an engine
    stage           the copy of chapters/ that a notebook runs in, and its digest
    looks           whether cells could look at other notebooks than their own
    needs           the real model and the layers that isolate a process: what some cells need, and whether it is here
    engines         the fork engine with its servers, and a fresh process per notebook
    forkserver      imports once, forks a supervisor and a worker per notebook
    supervisor      limits and cleaning up, from outside
    worker          runs the cells, from inside
    shell           IPython's shell without a kernel
    libguard        lets a process import one copy of the library and no other
    kernel          the same through a Jupyter kernel
    kernelguard     ends a kernel and all it started when the checker ends
    drain           lets a kernel's cell end after its output has arrived
    roles           stub, solution and test of an exercise
    compare         recorded text against captured text
    cache           results kept between runs
    update          recording outputs
    report          terminal, plain lines, annotations, JUnit
    check_cli       the command line

The rest
    lint/           hygiene, structure, references, citations, numbers, spelling (lint_book.py)
    translation/    the Chinese edition, written and checked against the English one (sync_translation.py)
    site/           the book as pages in both languages (build_tutorial_site.py), and their gates (check_site.py)
    books/          the site's pages as PDF and EPUB (build_books.py)
    figures         how figures look; what their scripts call
    figure_scripts  runs those scripts (make_figures.py)
    trainings       the longer trainings of chapters 6 to 10, which figures' scripts record in chapters/recorded/
    determinism     the book under other settings (determinism.py)
    settings        those settings, and what this machine has of them
    planted/        the small book beside it: cells that show a setting arrived, a training run and its controls
    bench           the checker against nbval and nbmake (bench.py)
    benchbook       the made-up books that it measures
    benchpolicy     TinyAgent against models of transformers (bench.py --policy)
    benchtrain      arl.train against TRL's GRPOTrainer (bench.py --train)
    trlgym          the gym and TinyAgent as that trainer takes them
"""
