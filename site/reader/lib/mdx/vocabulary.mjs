// Holds the pages to the components and the HTML that the book uses, so that a slip of the emitter fails the build
// with its place instead of showing up as a strange page.
import { visit } from 'unist-util-visit';

const COMPONENTS = new Set(['Note', 'Info', 'Tip', 'Warning', 'Check', 'Frame', 'Accordion', 'AccordionGroup']);
const ELEMENTS = new Set(['div', 'img', 'br', 'sup', 'sub', 'strong', 'em']);
const EXPRESSIONS = ['mdxFlowExpression', 'mdxTextExpression', 'mdxjsEsm'];

/** The first thing wrong with a component or an HTML element, or undefined. */
function faultOfElement({ name, attributes }) {
  if (!COMPONENTS.has(name) && !ELEMENTS.has(name)) return `<${name ?? ''}> is no component of the book`;
  const computed = attributes.find(({ type, value }) => type !== 'mdxJsxAttribute' || typeof value === 'object');
  if (computed && computed.value !== null)
    return `<${name}> has an attribute in braces; only text in quotes is allowed`;
  const alt = attributes.find((attribute) => attribute.name === 'alt')?.value;
  return name === 'img' && !alt ? '<img> has no alt text' : undefined;
}

/** Remark plugin: fails on a page without title, expressions, imports, unknown components, images without alt text. */
export function onlyBookVocabulary() {
  return (tree, file) => {
    if (!file.data.astro.frontmatter.title) file.fail('the frontmatter has no title');
    visit(tree, (node) => {
      if (EXPRESSIONS.includes(node.type)) file.fail(`unescaped braces or code in text: {${node.value}}`, node);
      const fault = node.type.startsWith('mdxJsx') ? faultOfElement(node) : undefined;
      if (fault) file.fail(fault, node);
      if (node.type === 'image' && !node.alt) file.fail('an image has no alt text', node);
    });
  };
}
