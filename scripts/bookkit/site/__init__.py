"""The book as a site: `website/` in Mintlify MDX, both languages, from which the static edition and the books are made.

words        every word of the interface, in both languages
edition      what a reader of one language sees of a notebook
items        a notebook as a row of blocks and code cells
escape       text as MDX
trees        markdown's tokens as trees
mdx          those trees written as MDX
crossrefs    references in prose: §4.5, Equation (1.2), 式 (1.2), `[@key]`
targets      where everything stands that they mean, and the ids of headings
links        where each link leads
blocks       headings, prose and figures with their anchors, code cells with their outputs
solutions    solutions as folded parts of the page
chapter      a chapter's page
reference    labs, editorial guide, sources, changelog
front        the first page
navigation   docs.json
llms         llms.txt, llms-full.txt
build        all files together
output       the folder, replaced as a whole
cli          the command line

node         Node, and its projects in site/
gates/       what a website and the static edition must pass (check_site.py)
"""
