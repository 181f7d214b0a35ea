"""The books: PDF and EPUB of the whole text in one language, from the pages of the static edition.

    reading    what the book holds: order and facts from website/, the text of each page from build/site
    cleaning   a page of the site becomes plain HTML: no buttons, solutions open, one figure, links as (page, id)
    tree       trees of HTML elements
    words      the few words that the books add, in both languages
    fonts      the fonts that travel with the books
    lacking    what is not installed here, and without which a book cannot be built
    browser    Chromium: where it is, what fits a page, printing

    paper      one document out of all pages: cover, contents, parts, chapters (paper.css)
    pdf        two printings: the first shows on which page everything is
    tags       the tags of a PDF, without the many that say nothing
    pdfcheck   what a finished PDF must be

    mathml     KaTeX's MathML, mended for reading systems
    package    the files of an EPUB: chapters, contents, cover, package document (epub.css)
    epub       writes them, the same bytes each time
    epubcheck  what a finished EPUB must be

    cli        the command line (build_books.py)

Why the site's pages and not the MDX: they are what readers of the site see, compiled once, with the formulas set and
the code coloured; a second reader of MDX could differ from the first. Order, titles and dates come from website/,
where they are data.
"""
