// What a reader would read aloud of a part of a page.

/** The text of a node without its code and its formulas. */
export function proseOf(node) {
  if (node.type === 'text') return node.value;
  if (node.tagName === 'code' || node.name === 'Fragment') return ' ';
  return (node.children ?? []).map(proseOf).join('');
}

/** The text of a node as a heading shows it, code included. */
export function textOf(node) {
  return node.type === 'text' ? node.value : (node.children ?? []).map(textOf).join('');
}
