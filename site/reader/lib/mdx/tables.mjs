import { SKIP, visit } from 'unist-util-visit';
import { textOf } from './text.mjs';

const LONG = 24;
const DATE = /^\d{4}-\d\d-\d\d$/;

/** Rehype plugin: a box around each table, so that a wide one scrolls by itself; dates and long cells are marked. */
export function scrollTables() {
  return (tree) => {
    visit(tree, { tagName: 'td' }, (cell) => {
      const text = textOf(cell).trim();
      if (DATE.test(text)) cell.properties.className = ['date'];
      else if (text.length > LONG) cell.properties.className = ['long'];
    });
    visit(tree, { tagName: 'table' }, (node, index, parent) => {
      parent.children[index] = {
        type: 'element',
        tagName: 'div',
        properties: { className: ['table'] },
        children: [node],
      };
      return SKIP;
    });
  };
}
