// What stands on each page of a website folder, as an MDX parser sees it: elements, expressions, headings, code, tables,
// links, images and formulas in their order, each with its line and the elements it stands in.
// Report: {pages: {PAGE: {frontmatter, items: [{kind, line, within, …}]}}, problems}.
//   node outline.mjs WEBSITE
import { createProcessor } from '@mdx-js/mdx';
import remarkGfm from 'remark-gfm';
import remarkMath from 'remark-math';
import { pages, read, report, thrown } from './pages.mjs';

const processor = createProcessor({ remarkPlugins: [remarkGfm, remarkMath] });

const element = (node) => ({ kind: 'element', name: node.name ?? '', attributes: attributes(node) });
const expression = (node) => ({ kind: 'expression', text: node.value });
const math = (node) => ({ kind: 'math', text: node.value });
const TELL = {
  mdxJsxFlowElement: element,
  mdxJsxTextElement: element,
  mdxFlowExpression: expression,
  mdxTextExpression: expression,
  mdxjsEsm: expression,
  math,
  inlineMath: math,
  heading: (node) => ({ kind: 'heading', depth: node.depth, text: words(node) }),
  code: (node) => ({ kind: 'code', language: node.lang ?? '', title: node.meta ?? '', text: node.value }),
  table: (node) => ({ kind: 'table', rows: rows(node) }),
  link: (node) => ({ kind: 'link', url: node.url, text: words(node) }),
  image: (node) => ({ kind: 'image', url: node.url, text: node.alt ?? '' }),
};

/** The attributes of an element; one whose value is an expression has an object there. */
function attributes(node) {
  const pairs = node.attributes.map(({ name, value }) => [name ?? '{...}', value ?? true]);
  return Object.fromEntries(pairs.map(([name, value]) => [name, value.value === undefined ? value : { expression: value.value }]));
}

function rows(node) {
  return node.children.map((row) => ({ line: row.position.start.line, cells: row.children.length }));
}

/** The text below a node. */
function words(node) {
  return node.value ?? (node.children ?? []).map(words).join('');
}

/** Add what there is to tell of a node and of all below it. */
function tell(node, within, items) {
  const told = TELL[node.type]?.(node);
  if (told) items.push({ ...told, line: node.position?.start.line ?? null, within });
  const inside = told?.kind === 'element' ? [...within, { name: told.name, id: told.attributes.id ?? null }] : within;
  for (const child of node.children ?? []) tell(child, inside, items);
}

const found = { pages: {}, problems: [] };
for (const page of pages()) {
  const { frontmatter, body } = read(page);
  const items = [];
  try {
    tell(processor.parse(body), [], items);
  } catch (error) {
    found.problems.push(thrown(page, error));
  }
  found.pages[page] = { frontmatter, items };
}
report(found);
