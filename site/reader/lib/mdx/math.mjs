// Sets math while building. Formulas return often, and in both languages, so each is set once per build.
import katex from 'katex';
import { visit } from 'unist-util-visit';
import { fragment } from './fragment.mjs';

const set = new Map();
const NEXT_BOX = '</span><span class="base">';

/** KaTeX's HTML of one formula, with MathML for screen readers; throws on LaTeX that it does not know. */
function render(tex, displayMode) {
  const html = katex.renderToString(tex, { displayMode, throwOnError: true, strict: 'ignore' });
  // In a line a formula may break between KaTeX's boxes, also where together.mjs has forbidden other breaks.
  return displayMode ? html : html.replaceAll(NEXT_BOX, NEXT_BOX.replace('><', '><wbr><'));
}

/** The same, from memory when the formula was there before. */
function setFormula(tex, displayMode) {
  const key = `${displayMode ? 'd' : 'i'}${tex}`;
  if (!set.has(key)) set.set(key, render(tex, displayMode));
  return set.get(key);
}

/** Remark plugin: replaces `$…$` and `$$…$$` by what KaTeX makes of them; fails with the place of a bad one. */
export function setMath() {
  return (tree, file) => {
    visit(tree, ['math', 'inlineMath'], (node, index, parent) => {
      const display = node.type === 'math';
      let value;
      try {
        value = setFormula(node.value, display);
      } catch (error) {
        file.fail(`bad LaTeX: ${error.message}`, node);
      }
      parent.children[index] = fragment(display ? 'mdxJsxFlowElement' : 'mdxJsxTextElement', value);
    });
  };
}
