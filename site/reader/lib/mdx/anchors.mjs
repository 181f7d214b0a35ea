// Ids are the emitter's: `<div id="sec-1-1">` around a heading. Here the heading takes the id over, gets a link to
// itself, and is noted for the list of contents.
import { SKIP, visit } from 'unist-util-visit';
import { languageOf } from './language.mjs';
import { textOf } from './text.mjs';

const HEADING = /^h[1-6]$/;
const LABEL = { en: 'Link to this section', zh: '本节的链接' };

/** The heading that a block with an id is there for: its first element, or undefined. */
function headingOf(node) {
  if (node.tagName !== 'div' || !node.properties.id) return undefined;
  const first = node.children.find((child) => child.type !== 'text' || child.value.trim());
  return HEADING.test(first?.tagName) ? first : undefined;
}

/** The link that stands behind a heading. */
function linkTo(id, language) {
  const sign = {
    type: 'element',
    tagName: 'span',
    properties: { ariaHidden: 'true' },
    children: [{ type: 'text', value: '#' }],
  };
  const properties = { className: ['anchor'], href: `#${id}`, ariaLabel: LABEL[language] };
  return { type: 'element', tagName: 'a', properties, children: [sign] };
}

/** Gives each heading the id of the block around it, and takes that block away. */
function moveIds(tree) {
  visit(tree, 'element', (node, index, parent) => {
    const heading = headingOf(node);
    if (!heading) return undefined;
    heading.properties.id = node.properties.id;
    parent.children.splice(index, 1, ...node.children);
    return index;
  });
}

/** Rehype plugin: ids and links for headings; the outline goes to the page's frontmatter. */
export function anchorHeadings() {
  return (tree, file) => {
    moveIds(tree);
    const outline = [];
    visit(tree, (node) => {
      if (node.name === 'Accordion') return SKIP;
      const { id } = node.properties ?? {};
      if (!HEADING.test(node.tagName) || !id) return undefined;
      outline.push({ depth: Number(node.tagName[1]), id, text: textOf(node) });
      node.children.push(linkTo(id, languageOf(file)));
      return SKIP;
    });
    file.data.astro.frontmatter.outline = outline;
  };
}
