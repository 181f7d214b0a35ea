// MDX keeps HTML tags apart from Markdown's own elements. The plugins after this one need not know the difference.
import { visit } from 'unist-util-visit';

/** The properties of an element from its JSX attributes. */
function properties(attributes) {
  return Object.fromEntries(attributes.map(({ name, value }) => [name, value ?? '']));
}

/** Rehype plugin: turns the tags written in lower case into ordinary elements. */
export function plainElements() {
  return (tree) => {
    visit(tree, ['mdxJsxFlowElement', 'mdxJsxTextElement'], (node) => {
      if (!node.name || node.name !== node.name.toLowerCase()) return;
      Object.assign(node, { type: 'element', tagName: node.name, properties: properties(node.attributes) });
      delete node.attributes;
      delete node.name;
    });
  };
}
