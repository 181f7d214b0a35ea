// Prints, as JSON, what a reader of MDX sees of each text in a JSON list: its words, and the kinds of nodes it parses to.
import { readFileSync } from 'node:fs';
import { createProcessor } from '@mdx-js/mdx';
import remarkGfm from 'remark-gfm';
import remarkMath from 'remark-math';

const processor = createProcessor({ remarkPlugins: [remarkGfm, remarkMath] });

function words(node) {
  if (node.type === 'break') return '\n';
  if (node.type === 'table' || node.type === 'tableRow') return node.children.map(words).join('\t');
  return node.children ? node.children.map(words).join('') : (node.value ?? '');
}

function kinds(node, found = []) {
  found.push(node.name ? `${node.type} ${node.name}` : node.type);
  for (const child of node.children ?? []) kinds(child, found);
  return found;
}

function read(text) {
  try {
    const tree = processor.parse(text);
    return { words: words(tree), kinds: kinds(tree) };
  } catch (error) {
    return { error: String(error.message ?? error) };
  }
}

console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[2], 'utf8')).map(read)));
