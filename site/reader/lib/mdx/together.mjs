// Browsers break lines before a comma when what stands in front of it is a formula. Formula and punctuation are put
// into one span that does not break at that place; inside the formula it still may.
import { visit } from 'unist-util-visit';

const CLOSING = /^(?:[\p{Pe}\p{Pf}.,;:!?%，。；：！？、…'’]|(?<=['’])s\b|-\p{L}+)+/u;
const OPENING = /[\p{Ps}\p{Pi}]+$/u;

const isFormula = (node) => node?.type === 'mdxJsxTextElement' && node.name === 'Fragment';

/** Takes what `pattern` finds out of a text node and returns it as a list of nodes, empty where there is nothing. */
function take(node, pattern) {
  const found = node?.type === 'text' ? (pattern.exec(node.value)?.[0] ?? '') : '';
  if (found) node.value = node.value.replace(pattern, '');
  return found ? [{ type: 'text', value: found }] : [];
}

/** Rehype plugin: keeps brackets and punctuation with the formula they belong to. */
export function keepTogether() {
  return (tree) => {
    visit(tree, 'mdxJsxTextElement', (node, index, parent) => {
      if (!isFormula(node) || parent.properties?.className?.includes('together')) return;
      const before = take(parent.children[index - 1], OPENING);
      const after = take(parent.children[index + 1], CLOSING);
      if (!before.length && !after.length) return;
      const children = [...before, node, ...after];
      parent.children[index] = { type: 'element', tagName: 'span', properties: { className: ['together'] }, children };
    });
  };
}
