import { visit } from 'unist-util-visit';
import { textOf } from './text.mjs';

/** Rehype plugin: marks links whose text is their address, which paper need not show a second time. */
export function markBareLinks() {
  return (tree) => {
    visit(tree, { tagName: 'a' }, (node) => {
      if (textOf(node) === node.properties.href) node.properties.className = ['bare'];
    });
  };
}
