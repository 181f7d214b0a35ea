// Pages that Mintlify's compiler cannot compile, and formulas that KaTeX cannot set: the compiler puts such a formula on
// the page in red and goes on.
//   node compile.mjs WEBSITE
import { serialize } from '@mintlify/mdx/server';
import { pages, read, report, thrown } from './pages.mjs';

const found = { pages: 0, formulas: 0, problems: [] };

/** A rehype plugin that comes after KaTeX's: counts formulas, and tells of those that KaTeX complained about. */
function formulas(page) {
  return () => (tree, file) => {
    for (const { source, cause, reason, line, ancestors } of file.messages) {
      const at = line ?? ancestors?.findLast((node) => node.position)?.position.start.line ?? null;
      if (source === 'rehype-katex') found.problems.push({ page, line: at, message: cause?.message ?? reason });
    }
    count(tree);
  };
}

/** A remark plugin that takes code blocks away: colouring them is most of the time, and says nothing of the page. */
function withoutCode() {
  return (tree) => prune(tree);
}

function prune(node) {
  if (node.children) node.children = node.children.filter((child) => child.type !== 'code');
  node.children?.forEach(prune);
}

function count(node) {
  if (node.properties?.className?.includes('katex')) found.formulas += 1;
  else for (const child of node.children ?? []) count(child);
}

for (const page of pages()) {
  const mdxOptions = { remarkPlugins: [withoutCode], rehypePlugins: [formulas(page)] };
  try {
    const { error } = await serialize({ source: read(page).body, mdxOptions, parseFrontmatter: false });
    if (error) found.problems.push(thrown(page, error));
  } catch (error) {
    found.problems.push(thrown(page, error));
  }
  found.pages += 1;
}
report(found);
