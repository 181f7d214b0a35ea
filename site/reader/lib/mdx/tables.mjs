import { SKIP, visit } from 'unist-util-visit';
import { textOf } from './text.mjs';

const DATE = /^\d{4}-\d\d-\d\d$/;

/** Rehype plugin: a box around each table, so that a wide one scrolls by itself; dates in it are not broken. */
export function scrollTables() {
  return (tree) => {
    visit(tree, { tagName: 'td' }, (cell) => {
      if (DATE.test(textOf(cell).trim())) cell.properties.className = ['date'];
    });
    visit(tree, { tagName: 'table' }, (node, index, parent) => {
      parent.children[index] = { type: 'element', tagName: 'div', properties: { className: ['table'] }, children: [node] };
      return SKIP;
    });
  };
}
